"""What a bank holds, in numbers: what `manage.py packs check --json` prints."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from quizzes.packs.checking import CheckedPack
from quizzes.packs.findings import Finding
from quizzes.packs.rules.pairs import minimal_pairs
from quizzes.packs.rules.scenarios import is_scenario, settings_of


def census(packs: Sequence[CheckedPack], findings: Sequence[tuple[str, Finding]]) -> dict[str, Any]:
    """Counts of `packs` as plain data; `findings` come with the folder that each file is named from.

    templates      questions whose numbers are drawn
    verified       questions bound to an experiment that measures their answer
    by_tag         questions of every tag: symptoms, distractors, self-checks, settings
    """
    questions = [question for pack in packs for question in pack.questions]
    singles = [question for question in questions if question.content.type == "single"]
    return {
        "questions": len(questions),
        "by_pack": {pack.header.id: len(pack.questions) for pack in packs},
        "by_type": _counted(question.content.type for question in questions),
        "by_level": _counted(question.content.level or "not said" for question in questions),
        "templates": sum(bool(question.content.params) for question in questions),
        "numeric_templates": sum(
            question.content.type == "numeric" and bool(question.content.params) for question in questions
        ),
        "verified": sum(
            question.content.verify is not None and bool(question.content.verify.lab)
            for question in questions
        ),
        "misconceptions": len({belief.id for pack in packs for belief in pack.header.misconceptions}),
        "minimal_pairs": len(minimal_pairs(packs)),
        "single_choice": len(singles),
        "scenario_shaped": sum(map(is_scenario, singles)),
        "judged_by_advisor": sum(bool(q.content.facts and q.content.techniques) for q in singles),
        "symptoms": {name: sorted(settings) for name, settings in settings_of(packs).items()},
        "by_tag": _counted(tag for question in questions for tag in question.content.tags),
        "findings": [
            {
                "file": f"{folder}/{finding.file}",
                "line": finding.line,
                "rule": finding.rule,
                "severity": finding.severity,
                "message": finding.message,
            }
            for folder, finding in findings
        ],
    }


def _counted(names: Any) -> dict[str, int]:
    return dict(sorted(Counter(names).items()))
