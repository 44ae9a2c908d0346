"""Lessons read from Markdown with front matter; every defect is a sentence with its file and line."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml
from django.utils.safestring import SafeString

from quizzes import truth
from quizzes.expressions import ExpressionError, evaluate, names_in
from tutor.lessons import markup
from tutor.lessons.defects import Defect, LessonError
from tutor.lessons.glossary import Term
from tutor.lessons.markup import Body, Heading, Piece
from tutor.lessons.numbers import numbers_in

FAMILIES = {
    "dp": "data",
    "tp": "tensor",
    "pp": "pipeline",
    "sp": "sequence",
    "cp": "context",
    "ep": "expert",
}
_REQUIRED = ("title", "slug", "minutes", "family", "summary", "purpose", "sources")
_OPTIONAL = ("prerequisites", "next", "practice", "given")
_SOURCE_KEYS = ("title", "url", "supports")


@dataclass(frozen=True, kw_only=True)
class Known:
    """What lessons may refer to. `problem_of` says what is wrong with a piece's own sizes, or None."""

    terms: Mapping[str, Term]
    lessons: Collection[str]
    packs: Collection[str]
    questions: Collection[str]
    experiments: Collection[str]
    calculators: Collection[str]
    is_address: Callable[[str], bool]
    problem_of: Callable[[Piece], str | None]


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where a lesson's facts come from, and which of them."""

    title: str
    url: str
    supports: str


@dataclass(frozen=True, kw_only=True)
class Lesson:
    """One lesson, ready to show. `given` are the named numbers of its worked examples."""

    title: str
    slug: str
    minutes: int
    families: tuple[str, ...]
    summary: str
    purpose: str
    prerequisites: tuple[str, ...]
    next: str | None
    practice: str | None
    given: Mapping[str, float]
    sources: tuple[Source, ...]
    body: Body

    @property
    def contents(self) -> list[Heading]:
        return [heading for heading in self.body.headings if heading.level == 2]

    @property
    def parts(self) -> list[SafeString | Piece]:
        return list(markup.parts(self.body))

    @property
    def questions(self) -> list[str]:
        return [piece.name for piece in self.body.pieces if piece.kind == "check"]

    @property
    def experiments(self) -> list[str]:
        return [piece.name for piece in self.body.pieces if piece.kind == "experiment"]


def load_lessons(folder: Path, known: Known) -> dict[str, Lesson]:
    """Every lesson of `folder` by slug, in reading order. Raises LessonError with the defects of all files together."""
    lessons, defects = sound_lessons(folder, known)
    if defects:
        raise LessonError(defects)
    return lessons


def sound_lessons(folder: Path, known: Known) -> tuple[dict[str, Lesson], list[Defect]]:
    """The lessons that can be taught from, by slug in reading order, and what is wrong with the others."""
    defects: list[Defect] = []
    lessons: dict[str, Lesson] = {}
    for path in sorted(folder.glob("*.md")):
        try:
            lessons[path.stem] = load_lesson(path, known)
        except LessonError as error:
            defects.extend(error.defects)
    for lesson in lessons.values():
        defects.extend(_dead_anchors(lesson, lessons))
    return _in_reading_order(lessons), defects


def load_lesson(path: Path, known: Known) -> Lesson:
    """The lesson in `path`. Raises LessonError with everything that is wrong with it, not only the first."""
    file = path.name
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = path.read_bytes()[: error.start].count(b"\n") + 1
        raise LessonError([Defect(file, line, "This line is not UTF-8. Save the file as UTF-8.")]) from None
    defects: list[Defect] = []

    def complain(line: int, message: str) -> None:
        defects.append(Defect(file, line, message))

    front, body_text = _split(text, complain)
    given = _given(front, complain)
    body = markup.read(body_text, names=given, terms=known.terms)
    for line, message in body.problems:
        complain(line, message)
    for line, _, message in truth.problems(body_text):
        complain(line, message)
    _check_front(front, path.stem, known, complain)
    _check_given_is_used(front, body_text, complain)
    _check_headings(body, complain)
    _check_links(body, known, complain)
    _check_pieces(body, known, complain)
    if defects:
        raise LessonError(defects)

    values = {key: entry.value for key, entry in front.items()}
    return Lesson(
        title=values["title"],
        slug=values["slug"],
        minutes=int(values["minutes"]),
        families=tuple(values["family"].split()),
        summary=values["summary"],
        purpose=values["purpose"],
        prerequisites=tuple(item.value for item in values.get("prerequisites", [])),
        next=values.get("next"),
        practice=values.get("practice"),
        given=given,
        sources=tuple(
            Source(**{key: entry.value for key, entry in item.value.items()}) for item in values["sources"]
        ),
        body=replace(body, problems=()),
    )


# --- front matter -------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A value of the front matter with its line: text, a list of entries, or entries by key."""

    value: Any
    line: int


Complain = Callable[[int, str], None]


def _split(text: str, complain: Complain) -> tuple[dict[str, Entry], str]:
    """The front matter by key, and the text below as many blank lines, so that line numbers hold."""
    lines = text.splitlines()
    if not lines or lines[0].strip() != "---" or "---" not in (line.strip() for line in lines[1:]):
        complain(1, "A lesson starts with front matter between two lines of ---. Add it.")
        return {}, text
    end = next(number for number, line in enumerate(lines[1:], start=1) if line.strip() == "---")
    body = "\n" * (end + 1) + "\n".join(lines[end + 1 :]) + "\n"
    try:
        root = yaml.compose("\n" + "\n".join(lines[1:end]), Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or "it is not YAML"
        complain(mark.line + 1 if mark else 1, f"The front matter cannot be read: {problem}.")
        return {}, body
    if not isinstance(root, yaml.MappingNode):
        complain(1, "The front matter is not a list of keys. Write one `key: value` a line.")
        return {}, body
    entries: dict[str, Entry] = _entry(root, complain).value
    return entries, body


def _entry(node: yaml.Node, complain: Complain) -> Entry:
    line = node.start_mark.line + 1
    if isinstance(node, yaml.MappingNode):
        entries: dict[str, Entry] = {}
        for key, value in node.value:
            if key.value in entries:
                complain(key.start_mark.line + 1, f"{key.value} is given twice. Keep one.")
            entries[str(key.value)] = replace(_entry(value, complain), line=key.start_mark.line + 1)
        return Entry(value=entries, line=line)
    if isinstance(node, yaml.SequenceNode):
        return Entry(value=[_entry(item, complain) for item in node.value], line=line)
    return Entry(value=str(node.value).strip(), line=line)


def _given(front: Mapping[str, Entry], complain: Complain) -> dict[str, float]:
    entry = front.get("given")
    if entry is None:
        return {}
    if not isinstance(entry.value, dict):
        complain(entry.line, "given is not a list of names. Write one `name: expression` a line.")
        return {}
    names: dict[str, float] = {}
    for name, item in entry.value.items():
        try:
            names[name] = evaluate(str(item.value), names)
        except ExpressionError as error:
            complain(item.line, f"given.{name}: {error}")
    return names


def _check_front(front: Mapping[str, Entry], stem: str, known: Known, complain: Complain) -> None:
    for key, entry in front.items():
        if key not in _REQUIRED + _OPTIONAL:
            complain(
                entry.line,
                f"{key} is not a key of a lesson. Use one of {', '.join(_REQUIRED + _OPTIONAL)}.",
            )
    missing = [key for key in _REQUIRED if key not in front]
    if missing and front:
        complain(
            1, f"The front matter lacks {', '.join(missing)}. Add {'it' if len(missing) == 1 else 'them'}."
        )
    for key in ("title", "slug", "minutes", "family", "summary", "purpose", "next", "practice"):
        if key in front and (not isinstance(front[key].value, str) or not front[key].value):
            complain(front[key].line, f"{key} has no text. Write it on the same line.")
            return
    if (slug := front.get("slug")) and slug.value != stem:
        complain(slug.line, f"slug is {slug.value}, but the file is {stem}.md. Make them the same.")
    if (minutes := front.get("minutes")) and not (
        minutes.value.isdecimal() and 1 <= int(minutes.value) <= 120
    ):
        complain(
            minutes.line, f"minutes is {minutes.value}, but a lesson takes 1 to 120. Write a whole number."
        )
    if family := front.get("family"):
        for word in family.value.split():
            if word not in FAMILIES:
                complain(family.line, f"family has {word}, which is none of {', '.join(FAMILIES)}.")
    if (following := front.get("next")) and following.value not in known.lessons:
        complain(following.line, f"next is {following.value}, but no lesson has this slug.")
    if (pack := front.get("practice")) and pack.value not in known.packs:
        complain(pack.line, f"practice is {pack.value}, but no pack has this id.")
    _check_lists(front, known, complain)


def _check_lists(front: Mapping[str, Entry], known: Known, complain: Complain) -> None:
    if prerequisites := front.get("prerequisites"):
        if not isinstance(prerequisites.value, list):
            complain(prerequisites.line, "prerequisites is not a list. Write [slug, slug].")
        else:
            for item in prerequisites.value:
                if item.value not in known.lessons:
                    complain(item.line, f"prerequisites names {item.value}, but no lesson has this slug.")
    if sources := front.get("sources"):
        if not isinstance(sources.value, list) or not sources.value:
            complain(sources.line, "sources is not a list of title, url and supports. Write at least one.")
            return
        for item in sources.value:
            keys = item.value.keys() if isinstance(item.value, dict) else set()
            if set(keys) != set(_SOURCE_KEYS):
                complain(
                    item.line,
                    f"A source has exactly {', '.join(_SOURCE_KEYS)}. "
                    f"This one has {', '.join(keys) or 'none of them'}.",
                )
            elif not item.value["url"].value.startswith("https://"):
                complain(
                    item.value["url"].line, f"The url {item.value['url'].value} does not start with https://."
                )


def _check_given_is_used(front: Mapping[str, Entry], text: str, complain: Complain) -> None:
    entry = front.get("given")
    if entry is None or not isinstance(entry.value, dict):
        return
    used: set[str] = set()
    for expression in (
        *(number.body.rpartition(" in ")[0] or number.body for number in numbers_in(text)),
        *(str(item.value) for item in entry.value.values()),
    ):
        try:
            used |= names_in(expression)
        except ExpressionError:
            continue  # reported where it stands
    for name, item in entry.value.items():
        if name not in used:
            complain(item.line, f"given.{name} is used nowhere. Use it or remove it.")


# --- the text -----------------------------------------------------------------------------------------


def _check_headings(body: Body, complain: Complain) -> None:
    level, seen = 1, set()
    for heading in body.headings:
        if heading.level == 1:
            complain(heading.line, f"“{heading.name}” is a second title. Start headings of the text with ##.")
        elif heading.level > level + 1:
            complain(heading.line, f"“{heading.name}” skips a level of headings. Use {'#' * (level + 1)}.")
        if heading.slug in seen:
            complain(heading.line, f"“{heading.name}” gives the anchor {heading.slug} again. Reword it.")
        seen.add(heading.slug)
        level = heading.level


def _check_links(body: Body, known: Known, complain: Complain) -> None:
    own = {heading.slug for heading in body.headings}
    for link in body.links:
        address, _, anchor = link.href.partition("#")
        if link.href.startswith("https://"):
            continue
        if address == "":
            if anchor not in own:
                complain(link.line, f"The link #{anchor} goes to no heading of this lesson.")
        elif address == "/glossary/":
            if anchor not in known.terms:
                complain(
                    link.line,
                    f"{anchor or 'The link'} is not a term of the glossary. "
                    "Add it to docs/glossary.md or mend the link.",
                )
        elif address.startswith("/lessons/"):
            slug = address.removeprefix("/lessons/").rstrip("/")
            if slug and slug not in known.lessons:
                complain(
                    link.line,
                    f"The link {link.href} goes to no lesson. "
                    f"Lessons are: {', '.join(sorted(known.lessons))}.",
                )
        elif not address.startswith("/") or not known.is_address(address):
            complain(link.line, f"The link {link.href} goes nowhere. Use /… of this site, or https://….")


def _dead_anchors(lesson: Lesson, lessons: Mapping[str, Lesson]) -> list[Defect]:
    defects = []
    for link in lesson.body.links:
        address, _, anchor = link.href.partition("#")
        target = lessons.get(address.removeprefix("/lessons/").rstrip("/"))
        if target and anchor and anchor not in {heading.slug for heading in target.body.headings}:
            defects.append(
                Defect(f"{lesson.slug}.md", link.line, f"The lesson {target.slug} has no heading #{anchor}.")
            )
    return defects


def _check_pieces(body: Body, known: Known, complain: Complain) -> None:
    needs_name = {
        "check": (known.questions, "question", "Write it as pack/question"),
        "calculator": (known.calculators, "calculator", f"Use one of {', '.join(sorted(known.calculators))}"),
        "experiment": (known.experiments, "experiment", f"Use one of {', '.join(sorted(known.experiments))}"),
    }
    for piece in body.pieces:
        if piece.kind in needs_name:
            names, word, advice = needs_name[piece.kind]
            if piece.name not in names:
                complain(piece.line, f"There is no {word} {piece.name or 'without a name'}. {advice}.")
                continue
        elif piece.name:
            complain(piece.line, f"::: {piece.kind} takes only key=value, not {piece.name}.")
            continue
        if problem := known.problem_of(piece):
            complain(piece.line, f"::: {piece.kind}: {problem}")


def _in_reading_order(lessons: Mapping[str, Lesson]) -> dict[str, Lesson]:
    """Along `next` from the lesson that follows no other; then those off the path, after what they ask for."""
    ordered: dict[str, Lesson] = {}
    follow = {lesson.next for lesson in lessons.values()}
    for first in sorted(lessons.values(), key=lambda lesson: (len(lesson.prerequisites), lesson.slug)):
        at: Lesson | None = first if first.slug not in follow and first.next else None
        while at is not None and at.slug not in ordered:
            ordered[at.slug] = at
            at = lessons.get(at.next or "")
    waiting = sorted(
        (lesson for slug, lesson in lessons.items() if slug not in ordered),
        key=lambda lesson: (len(lesson.prerequisites), lesson.slug),
    )
    while waiting:
        ready = next((one for one in waiting if set(one.prerequisites) <= ordered.keys()), waiting[0])
        ordered[ready.slug] = ready
        waiting.remove(ready)
    return ordered
