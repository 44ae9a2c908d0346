"""The glossary: docs/glossary.md read into terms that lessons link to and /glossary/ shows."""

import re
from dataclasses import dataclass
from pathlib import Path

from django.utils.safestring import SafeString

from quizzes import markdown
from tutor.lessons.defects import Defect, LessonError



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
    """The glossary in `path`: `## section`, `### term`, then what it means, shortest first.

    Raises LessonError naming every term without a meaning, outside a section, or given twice.
    """
    defects: list[Defect] = []
    introduction: list[str] = []
    sections: list[tuple[str, list[tuple[int, str, list[str]]]]] = []
    body = introduction
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if line.startswith("### "):
            if not sections:
                defects.append(
                    Defect(
                        path.name, number, f"The term {line[4:]} stands before any section. Add a ## heading."
                    )
                )
                sections.append(("Terms", []))
            body = []
            sections[-1][1].append((number, line[4:].strip(), body))
        elif line.startswith("## "):
            sections.append((line[3:].strip(), []))
            body = introduction if len(sections) == 1 and not introduction else []
        elif not line.startswith("# "):
            body.append(line)

    seen: dict[str, int] = {}
    built = []
    for name, entries in sections:
        terms = []
        for number, term, lines in entries:
            slug = slug_of(term)
            if slug in seen:
                defects.append(
                    Defect(
                        path.name, number, f"The term {term} is already explained on line {seen[slug]}. Keep one."
                    )
                )
            seen.setdefault(slug, number)
            first, _, rest = "\n".join(lines).strip().partition("\n\n")
            if not first:
                defects.append(
                    Defect(path.name, number, f"The term {term} has no meaning. Write one sentence below it.")
                )
            terms.append(
                Term(
                    slug=slug,
                    name=term,
                    meaning=markdown.plain(first),
                    definition=markdown.render(first),
                    more=markdown.render(rest),
                )
            )
        built.append(Section(slug=slug_of(name), name=name, terms=tuple(terms)))
    if defects:
        raise LessonError(defects)
    return Glossary(introduction=markdown.render("\n".join(introduction)), sections=tuple(built))


def slug_of(text: str) -> str:
    """The anchor of a heading or term: lower case, hyphens, as hosting sites make them.

    >>> slug_of("Why it belongs on the fastest link")
    'why-it-belongs-on-the-fastest-link'
    """
    return "-".join(re.findall(r"[a-z0-9]+", text.lower()))
