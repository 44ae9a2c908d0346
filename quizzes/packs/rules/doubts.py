"""How a rule says what it doubts: a warning at a question, or at a pack's header."""

from quizzes.packs.checking import CheckedPack, CheckedQuestion
from quizzes.packs.findings import Finding

Doubt = tuple[CheckedPack, Finding]
"""A finding and the pack that it stands in; its file is named from that pack's folder."""


def at_question(pack: CheckedPack, question: CheckedQuestion, rule: str, message: str) -> Doubt:
    """A doubt about one question."""
    return pack, Finding(
        file=question.file,
        line=question.line,
        rule=rule,
        message=f"{question.content.id}: {message}",
        severity="warning",
    )


def at_pack(pack: CheckedPack, rule: str, message: str) -> Doubt:
    """A doubt about all of a pack."""
    return pack, Finding(file="pack.yaml", line=1, rule=rule, message=message, severity="warning")


def at_belief(pack: CheckedPack, belief: str, rule: str, message: str) -> Doubt:
    """A doubt about one misconception."""
    return pack, Finding(
        file="pack.yaml",
        line=pack.belief_lines.get(belief, 1),
        rule=rule,
        message=message,
        severity="warning",
    )
