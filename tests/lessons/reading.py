"""A lesson as its reader meets it: text and table rows without markup."""

import re
from html import unescape

from tutor.lessons.catalogue import lessons

_HIDDEN = re.compile(r'<annotation.*?</annotation>|<span class="meaning".*?</span>', re.DOTALL)


def text_of(html: str) -> str:
    """The visible words of `html`, with single spaces."""
    spaced = re.sub(r"</(p|li|td|th|h\d|mtd)>", " ", _HIDDEN.sub("", html))
    return " ".join(unescape(re.sub(r"<[^>]+>", "", spaced)).replace("\u2060", "").split())


def prose(slug: str) -> str:
    """The visible words of a lesson of the site."""
    return text_of(lessons()[slug].body.html)


def rows(slug: str) -> list[list[str]]:
    """Every table row of a lesson of the site, as the text of its cells."""
    found = re.findall(r"<tr>(.*?)</tr>", lessons()[slug].body.html, re.DOTALL)
    return [
        [text_of(cell) for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL)] for row in found
    ]


def number(pattern: str, slug: str) -> float:
    """The one number that `pattern` catches in a lesson's words."""
    found = re.findall(pattern, prose(slug))
    assert len(found) == 1, f"{pattern} matches {len(found)} times in {slug}"
    return float(found[0].replace(",", "").replace("−", "-"))
