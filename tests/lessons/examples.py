"""A small lesson that has nothing wrong with it, and a site that knows what it refers to."""

from dataclasses import replace
from pathlib import Path

from django.utils.safestring import SafeString

from tutor.lessons.glossary import Term
from tutor.lessons.loader import Known

FRONT = """\
title: Counting bytes
slug: counting
minutes: 5
family: tp
summary: What a token costs.
purpose: Read this first.
given:
  layers: 64
  activation: activation_bytes(1, 1, 4096, 2)
sources:
  - title: A paper
    url: https://example.org/paper
    supports: the formula
"""
BODY = """\
A token costs {{ 2 * layers * activation in MiB }} in [all-reduces](/glossary/#all-reduce).

## Why

Because $2 \\cdot {{ layers }} \\cdot {{ activation }}$ bytes are sent.
"""


def lesson_file(folder: Path, *, front: str = FRONT, body: str = BODY, name: str = "counting.md") -> Path:
    """A lesson on disk; its text starts on the line after the front matter's second ---."""
    path = folder / name
    path.write_text(f"---\n{front}---\n{body}", encoding="utf-8")
    return path


def known(**changes: object) -> Known:
    """A site with one term, two lessons, one question, one experiment and one calculator."""
    term = Term(
        slug="all-reduce",
        name="all-reduce",
        meaning="Everybody gets the sum.",
        definition=SafeString("<p>Everybody gets the sum.</p>"),
        more=SafeString(""),
    )
    site = Known(
        terms={"all-reduce": term},
        lessons={"counting", "waiting"},
        packs={"tp-or-pp"},
        questions={"tp-or-pp/bytes-ratio"},
        experiments={"tensor-decode"},
        calculators={"traffic"},
        is_address=lambda path: path == "/practice/",
        problem_of=lambda piece: None,
    )
    return replace(site, **changes)
