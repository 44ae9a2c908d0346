"""The pack compiler: a folder in, a checked pack out, or every defect of it with file and line.

Errors refuse the pack; warnings are doubts that its author should look at (cues, guessable options,
thin misconceptions). The rules are listed in docs/packs.md.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from quizzes import markdown
from quizzes.expressions import ExpressionError, evaluate, holds, names_in
from quizzes.packs.findings import Finding, PackError
from quizzes.packs.format import PackHeader
from quizzes.packs.reading import Document, Place, read_yaml
from quizzes.questions import (
    KINDS,
    MAX_COMBINATIONS,
    PLACEHOLDER,
    AnyQuestion,
    all_draws,
    digest,
    failed_tests,
    rejection,
)

MAX_FILES = 500
MAX_PACK_BYTES = 64 * 2**20


@dataclass(frozen=True, kw_only=True)
class CheckedQuestion:
    """A question that passed, and where it stands."""

    content: AnyQuestion
    meaning: dict[str, Any]
    digest: str
    file: str
    line: int


@dataclass(frozen=True, kw_only=True)
class CheckedPack:
    """A pack without errors, ready for the bank; `warnings` are what its author should still look at."""

    header: PackHeader
    questions: list[CheckedQuestion]
    belief_lines: dict[str, int] = field(default_factory=dict)  # of pack.yaml, by misconception
    warnings: list[Finding] = field(default_factory=list)


def check_pack(folder: Path) -> CheckedPack:
    """The pack in `folder`. Raises PackError with all its defects together."""
    documents, findings = _read(folder)
    header = _header(documents.get("pack.yaml"), findings)
    questions: list[CheckedQuestion] = []
    for name, document in documents.items():
        if name != "pack.yaml":
            questions.extend(_questions(document, header, findings))
    if header is not None:
        findings.extend(_across(header, documents, questions))
    findings = list(dict.fromkeys(findings))
    if any(finding.severity == "error" for finding in findings) or header is None:
        raise PackError(findings)
    lines = {
        belief.id: documents["pack.yaml"].line(("misconceptions", index))
        for index, belief in enumerate(header.misconceptions)
    }
    return CheckedPack(header=header, questions=questions, belief_lines=lines, warnings=sorted(findings))


# --- files --------------------------------------------------------------------------------------------


def _read(folder: Path) -> tuple[dict[str, Document], list[Finding]]:
    if not folder.is_dir():
        raise PackError([_error(str(folder), 1, "folder", "There is no such folder. Give a pack’s folder.")])
    findings: list[Finding] = []
    names = [Path("pack.yaml")]
    names += sorted(path.relative_to(folder) for path in (folder / "questions").glob("**/*.yaml"))
    stray = sorted(path.relative_to(folder) for path in (folder / "questions").glob("**/*.yml"))
    findings += [_error(str(name), 1, "name", "The file is called .yml; call it .yaml.") for name in stray]
    if len(names) > MAX_FILES:
        raise PackError(
            [_error("questions", 1, "count", f"{len(names)} files are too many; the limit is {MAX_FILES}.")]
        )
    documents: dict[str, Document] = {}
    total = 0
    for name in names:
        path = folder / name
        if path.is_symlink() or folder.resolve() not in path.resolve().parents:
            findings.append(_error(str(name), 1, "link", "This is a link. A pack holds its files itself."))
            continue
        if not path.is_file():
            findings.append(_error(str(name), 1, "missing", "The pack has no pack.yaml."))
            continue
        total += path.stat().st_size
        if total > MAX_PACK_BYTES:
            limit = f"{MAX_PACK_BYTES // 2**20} MiB"
            raise PackError([*findings, _error(str(name), 1, "size", f"The pack is larger than {limit}.")])
        document = read_yaml(path.read_bytes(), file=str(name))
        documents[str(name)] = document
        findings.extend(document.findings)
    if len(names) == 1:
        findings.append(_error("questions", 1, "missing", "The pack has no questions/*.yaml."))
    return documents, findings


def _header(document: Document | None, findings: list[Finding]) -> PackHeader | None:
    if document is None or document.value is None:
        return None
    if not isinstance(document.value, dict):
        findings.append(_error(document.file, 1, "schema", "pack.yaml must be a mapping of fields."))
        return None
    try:
        header = PackHeader.model_validate(document.value)
    except ValidationError as error:
        findings.extend(_schema_findings(document, (), error))
        return None
    for kind, ids in (
        ("misconception", [m.id for m in header.misconceptions]),
        ("objective", [o.id for o in header.objectives]),
    ):
        for index, name in enumerate(ids):
            if name in ids[:index]:
                line = document.line((f"{kind}s", index, "id"))
                findings.append(
                    _error(document.file, line, "id", f"The {kind} {name} is declared twice. Ids are unique.")
                )
    for index, belief in enumerate(header.misconceptions):
        place = ("misconceptions", index)
        findings.extend(_markdown_findings(document, (*place, "refutation"), belief.refutation))
        findings.extend(_markdown_findings(document, (*place, "name"), belief.name))
    return header


# --- one question -------------------------------------------------------------------------------------


def _questions(
    document: Document, header: PackHeader | None, findings: list[Finding]
) -> Iterator[CheckedQuestion]:
    if document.value is None:
        return
    if not isinstance(document.value, list):
        findings.append(
            _error(document.file, 1, "schema", "A question file is a list: begin each question with “- id:”.")
        )
        return
    for index, item in enumerate(document.value):
        place: Place = (index,)
        content = _validated(document, place, item, findings)
        if content is None:
            continue
        own = list(_question_findings(document, place, content, header))
        findings.extend(own)
        if not any(finding.severity == "error" for finding in own):
            meaning = content.meaning()
            yield CheckedQuestion(
                content=content,
                meaning=meaning,
                digest=digest(meaning),
                file=document.file,
                line=document.line(place),
            )


def _validated(document: Document, place: Place, item: object, findings: list[Finding]) -> AnyQuestion | None:
    line = document.line(place)
    if not isinstance(item, dict):
        findings.append(_error(document.file, line, "schema", "A question is a mapping of fields."))
        return None
    kind = item.get("type")
    if not isinstance(kind, str) or kind not in KINDS:
        *others, last = KINDS
        given = f"The type is {kind!r}" if kind is not None else "The question has no type"
        findings.append(
            _error(
                document.file,
                document.line((*place, "type")) if kind is not None else line,
                "type",
                f"{given}. Write type: {', '.join(others)} or {last}.",
            )
        )
        return None
    try:
        return KINDS[kind].model_validate(item)
    except ValidationError as error:
        findings.extend(_schema_findings(document, place, error))
        return None


def _question_findings(
    document: Document, place: Place, content: AnyQuestion, header: PackHeader | None
) -> Iterator[Finding]:
    """Everything about one question that its field types alone cannot say."""

    def error(where: Place, rule: str, message: str) -> Finding:
        line = document.line((*place, *where))
        return Finding(file=document.file, line=line, rule=rule, message=f"{content.id}: {message}")

    def warning(where: Place, rule: str, message: str) -> Finding:
        line = document.line((*place, *where))
        return Finding(
            file=document.file,
            line=line,
            rule=rule,
            message=f"{content.id}: {message}",
            severity="warning",
        )

    for passage in content.texts():
        yield from _markdown_findings(document, (*place, *passage.place), passage.text)
    yield from _placeholder_findings(content, error)
    broken = list(_expression_findings(content, error))
    for defect in content.defects():
        tell = error if defect.severity == "error" else warning
        broken.append(tell(defect.place, defect.rule, defect.message))
    yield from broken

    declared = {belief.id for belief in header.misconceptions} | set(header.borrows) if header else None
    for where, belief in content.bindings():
        if declared is not None and belief not in declared:
            yield error(
                where,
                "misconception",
                f"the misconception {belief} is not declared in pack.yaml. Declare it or correct the id.",
            )
    if header:
        objectives = {objective.id for objective in header.objectives}
        for index, objective in enumerate(content.objectives):
            if objective not in objectives:
                yield error(
                    ("objectives", index),
                    "objective",
                    f"the objective {objective} is not declared in pack.yaml.",
                )
    if content.calculator and not content.calculator.startswith("/calculate/"):
        yield error(("calculator",), "link", "calculator: must be an address that begins with /calculate/.")

    if not any(f.severity == "error" for f in broken):
        unfair = list(_draw_findings(content, error, warning))
        yield from unfair
        if not any(f.severity == "error" for f in unfair):
            for index, problem in failed_tests(content):
                yield error(("tests", index), "test", f"test {index + 1} fails: {problem}.")
    if not content.tests:
        yield warning((), "test", "the question has no tests: of its own.")
    yield from _cue_findings(document, place, content, header, warning)


def _draw_findings(content: AnyQuestion, error: Any, warning: Any) -> Iterator[Finding]:
    total = rejected = 0
    reasons: Counter[str] = Counter()
    for drawn in all_draws(content):
        total += 1
        try:
            reason = rejection(content, drawn)
        except ExpressionError as problem:
            yield error(("params",) if content.params else (), "draw", str(problem))
            return
        if reason:
            rejected += 1
            reasons[reason] += 1
    if rejected == total:
        first = next(iter(reasons))
        many = f"none of the {total} draws of its parameters is fair; the first: " if content.params else ""
        yield error(("params",) if content.params else (), "draw", f"{many}{first}.")
    elif content.params and rejected > total * 0.9:
        yield warning(("params",), "draw", f"{rejected} of {total} draws are rejected.")
    if total == MAX_COMBINATIONS:
        yield warning(("params",), "draw", f"only the first {MAX_COMBINATIONS:,} draws were checked.")


def _expression_findings(content: AnyQuestion, error: Any) -> Iterator[Finding]:
    for where, expression, is_condition in content.expressions():
        try:
            if unknown := sorted(names_in(expression) - content.params.keys()):
                yield error(where, "calc", f"the expression uses {unknown[0]}, which is not a parameter.")
            elif not content.params:
                (holds if is_condition else evaluate)(expression, {})
        except ExpressionError as problem:
            yield error(where, "calc", str(problem))


def _placeholder_findings(content: AnyQuestion, error: Any) -> Iterator[Finding]:
    stem = {*content.params, *content.computed}
    if shared := sorted(content.params.keys() & content.computed.keys()):
        yield error(("computed", shared[0]), "name", f"{shared[0]} is both a parameter and computed.")
    for where, text, before, value in content.texts():
        known = (stem if before else stem | content.names_after) | ({"value"} if value else set())
        for name in dict.fromkeys(PLACEHOLDER.findall(text)):
            if name not in known:
                place = "before the answer" if name == "answer" else "here"
                yield error(where, "placeholder", f"{{{{ {name} }}}} is not known {place}.")
        if re.search(r"\{%|\{\{(?!\s*[A-Za-z_][A-Za-z0-9_]*\s*\}\})(?=[^{}$\\]*\}\})", text):
            yield error(where, "placeholder", "only {{ name }} is replaced; logic in braces is not allowed.")


def _cue_findings(
    document: Document, place: Place, content: AnyQuestion, header: PackHeader | None, warning: Any
) -> Iterator[Finding]:
    stem = f"{content.symptom}\n\n{content.prompt}"
    cues = markdown.cues_of(stem)
    if not cues and content.wants_cue:
        yield warning(
            ("prompt",), "cue", "no words of the scenario are marked as the cue: [[words]]{cue=reason}."
        )
    if stem.count("[[") > len(cues) and "[[" in re.sub(r"`[^`]*`|```.*?```", "", markdown.plain(stem)):
        yield warning(("prompt",), "cue", "a [[ is shown as typed: a cue is written [[words]]{cue=reason}.")
    for passage in content.texts():
        if passage.place[0] not in ("symptom", "prompt") and markdown.cues_of(passage.text):
            yield warning(passage.place, "cue", "cues are lit in symptom and prompt only.")


# --- the pack as a whole ------------------------------------------------------------------------------


def _across(
    header: PackHeader, documents: dict[str, Document], questions: Sequence[CheckedQuestion]
) -> Iterator[Finding]:
    seen: dict[str, str] = {}
    for name, document in documents.items():
        if name == "pack.yaml" or not isinstance(document.value, list):
            continue
        for index, item in enumerate(document.value):
            slug = item.get("id") if isinstance(item, dict) else None
            if not isinstance(slug, str):
                continue
            line = document.line((index, "id"))
            if slug in seen:
                yield _error(
                    name,
                    line,
                    "id",
                    f"The question id {slug} is already used in {seen[slug]}. Ids are unique.",
                )
            else:
                seen[slug] = f"{name}, line {line}"


# --- where things stand -------------------------------------------------------------------------------


def _markdown_findings(document: Document, place: Place, text: str) -> Iterator[Finding]:
    for problem in markdown.problems(text):
        line = document.text_line(place, problem.line)
        yield _error(document.file, line, "math", f"{problem}.".replace("..", "."))
    if re.search(r"!\[[^\]]*\]\(", text):
        line = document.text_line(place)
        yield _error(
            document.file, line, "image", "Pictures come with a later version; describe it in words."
        )


_SENTENCES = {
    "missing": "The field {field} is missing.",
    "extra_forbidden": "The field {field} is not known here. Correct its spelling or leave it out.",
    "string_type": "{field} must be text.",
    "list_type": "{field} must be a list.",
    "dict_type": "{field} must be a mapping of fields.",
    "model_type": "{field} must be a mapping of fields.",
    "float_parsing": "{field} is {input!r}, which is not a number.",
    "finite_number": "{field} is {input!r}, which is not a finite number.",
    "int_parsing": "{field} is {input!r}, which is not a whole number.",
    "bool_parsing": "{field} is {input!r}; write true or false.",
    "string_too_short": "{field} is empty.",
    "too_short": "{field} needs {min_length} entries at least and has {actual_length}.",
    "too_long": "{field} has {actual_length} entries; the limit is {max_length}.",
    "string_pattern_mismatch": "{field} is {input!r}; write lower-case letters, digits and hyphens.",
}


def _schema_findings(document: Document, place: Place, error: ValidationError) -> Iterator[Finding]:
    for problem in error.errors(include_url=False):
        where = (*place, *(part for part in problem["loc"] if part != "[key]"))
        names = [str(part) for part in problem["loc"] if isinstance(part, str) and part != "[key]"]
        name = ".".join(names) if names else "The question" if place else "pack.yaml"
        sentence = _SENTENCES.get(problem["type"])
        shown = problem["input"] if isinstance(problem["input"], str) else type(problem["input"]).__name__
        if sentence:
            message = sentence.format(field=name, input=shown[:60], **problem.get("ctx", {}))
        elif problem["type"] == "value_error":
            reason = str(problem["ctx"]["error"])
            message = f"{reason[0].upper()}{reason[1:]}."
        else:
            message = f"{name}: {problem['msg']}."
        yield _error(document.file, document.line(where), "schema", message)


def _error(file: str, line: int, rule: str, message: str) -> Finding:
    return Finding(file=file, line=line, rule=rule, message=message[0].upper() + message[1:])


def _warning(file: str, line: int, rule: str, message: str) -> Finding:
    return Finding(file=file, line=line, rule=rule, message=message, severity="warning")
