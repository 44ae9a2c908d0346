"""The glossary: docs/glossary.md read into terms that lessons link to and /glossary/ shows."""

import re
from dataclasses import dataclass
from pathlib import Path

from django.utils.safestring import SafeString

from quizzes import markdown
from tutor.lessons.defects import Defect, LessonError

_HEADING = re.compile(r"(?P<marks>###?) +(?P<name>.*\S)\s*")


@dataclass(frozen=True, kw_only=True)
class Term:
    """One entry. `meaning` is its first paragraph as plain text, `more` the rest as HTML."""

    slug: str
    name: str
    meaning: str
    definition: SafeString
    more: SafeString


@dataclass(frozen=True, kw_only=True)
class Section:
    """Terms that belong together, under one heading."""

    slug: str
    name: str
    terms: tuple[Term, ...]


@dataclass(frozen=True, kw_only=True)
class Glossary:
    """The whole page: its introduction and its sections in the order of the file."""

    introduction: SafeString
    sections: tuple[Section, ...]

    @property
    def terms(self) -> dict[str, Term]:
        return {term.slug: term for section in self.sections for term in section.terms}


def read_glossary(path: Path) -> Glossary:
    """The glossary in `path`: `## section`, `### term`, then what it means, the short meaning first.

    Raises LessonError naming every term without a meaning, outside a section, or given twice.
    """
    defects: list[Defect] = []
    introduction, blocks = _blocks(path.read_text(encoding="utf-8"))
    sections: list[tuple[str, list[Term]]] = []
    seen: dict[str, int] = {}
    for line, level, name, text in blocks:
        slug = slug_of(name)
        if level == 2:
            sections.append((name, []))
            if text:
                defects.append(
                    Defect(path.name, line, f"The section {name} has text before its first term. Move it.")
                )
            continue
        if not sections:
            defects.append(
                Defect(path.name, line, f"The term {name} stands before any section. Add a ## heading.")
            )
            sections.append(("", []))
        if slug in seen:
            defects.append(
                Defect(
                    path.name, line, f"The term {name} is already explained on line {seen[slug]}. Keep one."
                )
            )
        seen.setdefault(slug, line)
        meaning, _, more = text.partition("\n\n")
        if not meaning:
            defects.append(
                Defect(path.name, line, f"The term {name} has no meaning. Write one sentence below it.")
            )
        sections[-1][1].append(
            Term(
                slug=slug,
                name=name,
                meaning=markdown.plain(meaning),
                definition=markdown.render(meaning),
                more=markdown.render(more),
            )
        )
    if defects:
        raise LessonError(defects)
    return Glossary(
        introduction=markdown.render(introduction),
        sections=tuple(
            Section(slug=slug_of(name), name=name, terms=tuple(terms)) for name, terms in sections
        ),
    )


def _blocks(text: str) -> tuple[str, list[tuple[int, int, str, str]]]:
    """What stands before the first section, and each heading with its line, level, name and text."""
    introduction: list[str] = []
    found: list[tuple[int, int, str, list[str]]] = []
    for line, content in enumerate(text.splitlines(), start=1):
        heading = _HEADING.fullmatch(content)
        if heading:
            found.append((line, len(heading["marks"]), heading["name"], []))
        elif not content.startswith("# "):
            (found[-1][3] if found else introduction).append(content)
    return "\n".join(introduction), [(*block[:3], "\n".join(block[3]).strip()) for block in found]


def slug_of(text: str) -> str:
    """The anchor of a heading or term: lower case, hyphens, as hosting sites make them.

    >>> slug_of("Why it belongs on the fastest link")
    'why-it-belongs-on-the-fastest-link'
    """
    return "-".join(re.findall(r"[a-z0-9]+", text.lower().replace("’", "")))
