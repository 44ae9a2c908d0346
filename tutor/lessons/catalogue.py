"""The site's own lessons and glossary, read once and again when a file changes."""

import logging
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from django.conf import settings
from django.urls import Resolver404, resolve

from calculators.forms import SplitMapForm
from calculators.lab.guided import GUIDED
from calculators.lab.spec import experiment_names
from calculators.pages.traffic import TrafficForm
from quizzes.packs.reading import read_yaml
from tutor.lessons.defects import Defect
from tutor.lessons.glossary import Glossary, read_glossary
from tutor.lessons.loader import Known, Lesson, sound_lessons
from tutor.lessons.markup import Piece
from tutor.lessons.pieces import schedule_of

log = logging.getLogger(__name__)
CONTENT = Path(__file__).parent / "content"
GLOSSARY = Path(settings.BASE_DIR) / "docs" / "glossary.md"
PACKS = Path(settings.BASE_DIR) / "quizzes" / "packs"
CALCULATORS = ("traffic",)
FORMS = {"calculator": TrafficForm, "split-map": SplitMapForm}


def lessons() -> dict[str, Lesson]:
    """Every lesson that can be taught from, by slug, in reading order; `defects` says why others cannot."""
    return _read()[0]


def defects() -> list[Defect]:
    """Everything that is wrong with lessons."""
    return _read()[1]


def _read() -> tuple[dict[str, Lesson], list[Defect]]:
    return _lessons(_state([*CONTENT.glob("*.md"), GLOSSARY]))


def glossary() -> Glossary:
    """The glossary. Raises LessonError when an entry cannot be shown."""
    return _glossary(_state([GLOSSARY]))


def known() -> Known:
    """What the site's lessons may refer to."""
    questions = frozenset(_question_references())
    return Known(
        terms=glossary().terms,
        lessons=frozenset(path.stem for path in CONTENT.glob("*.md")),
        packs=frozenset(reference.partition("/")[0] for reference in questions),
        questions=questions,
        experiments=frozenset([*experiment_names(), *GUIDED]),
        calculators=frozenset(CALCULATORS),
        is_address=_is_address,
        problem_of=problem_of,
    )


def problem_of(piece: Piece) -> str | None:
    """What is wrong with the sizes a piece asks for, as a sentence, or None."""
    if piece.kind == "schedule":
        try:
            schedule_of(piece)
        except ValueError as error:
            return str(error)
    if piece.kind in FORMS:
        form = FORMS[piece.kind](piece.params)
        if form.unknown:
            return f"{form.unknown[0]} is not a size here. Use {', '.join(form.fields)}."
        if not form.is_valid():
            return str(next(iter(form.errors.values()))[0])
    return None


State = tuple[tuple[Path, int], ...]


def _state(paths: Iterable[Path]) -> State:
    return tuple((path, path.stat().st_mtime_ns) for path in sorted(paths))


@lru_cache(maxsize=1)
def _lessons(state: State) -> tuple[dict[str, Lesson], list[Defect]]:
    lessons, defects = sound_lessons(CONTENT, known())
    for defect in defects:
        log.error("%s", defect)
    return lessons, defects


@lru_cache(maxsize=1)
def _glossary(state: State) -> Glossary:
    return read_glossary(GLOSSARY)


def _question_references() -> Iterable[str]:
    for path in PACKS.glob("*/questions/*.yaml"):
        questions = read_yaml(path.read_bytes(), file=path.name).value
        for question in questions if isinstance(questions, list) else []:
            if isinstance(question, dict):
                yield f"{path.parts[-3]}/{question.get('id')}"


def _is_address(path: str) -> bool:
    try:
        resolve(path)
    except Resolver404:
        return False
    return True
