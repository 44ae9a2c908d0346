"""The truth guard: sentences about this subject that are false unless they say a little more.

Each rule is a fact that texts get wrong again and again; questions and lessons are held against the same rules.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Guard:
    """A sentence that has `found` in it is doubtful, unless it, or where `anywhere` the text, has `saved` too."""

    name: str
    found: re.Pattern[str]
    saved: re.Pattern[str] | None
    message: str
    anywhere: bool = False


def _words(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE | re.DOTALL)


GUARDS = (
    Guard(
        name="plain-dp",
        found=_words(
            r"\bdata[ -]parallel(ism)?\b.{0,120}\b(whole|full|complete|entire)\s+(copy|model|replica)\b"
            r"|\bdata[ -]parallel(ism)?\b.{0,120}\b(never|not|no)\b.{0,40}\b(memory|shrinks?|smaller|capacity|fits?)\b"
            r"|\bdata[ -]parallel(ism)?\b.{0,60}\bon every (gpu|device|card)\b"
        ),
        saved=_words(r"\b(plain|replicated|sharded|zero(-[123])?|fsdp)\b"),
        message="holds of plain (replicated) data parallelism alone: ZeRO and FSDP are sharded. Say “plain”",
    ),
    Guard(
        name="sp-name",
        found=_words(
            r"\bsequence parallelism\b.{0,200}\b(ulysses|ring attention)\b"
            r"|\b(ulysses|ring attention)\b.{0,200}\bsequence parallelism\b"
        ),
        saved=_words(r"\bmegatron"),
        message="“sequence parallelism” has several meanings beside Ulysses or ring attention. Say which",
        anywhere=True,
    ),
    Guard(
        name="direction",
        found=_words(r"\bnvlink\b[^.]{0,60}\d[\d,.]*\s*[GT]B/s"),
        saved=_words(
            r"\b(one|each|per|either) (direction|way)\b|\bone-way\b"
            r"|\bboth (directions|ways)\b|\bduplex\b|\bbidirectional\b"
        ),
        message="a speed of NVLink is quoted in one direction or in both. Say which",
        anywhere=True,
    ),
    Guard(
        name="units",
        found=re.compile(r"(?<![A-Za-z/])(?:\d[\d,.]*|\}\})\s?(KB|Kb|Gb|Mb|Tb|Kib|gb|mb)\b(?!/)"),
        saved=None,
        message="is a unit with two meanings. Write GB (10⁹ bytes), GiB (2³⁰ bytes), KiB, or Gbit",
    ),
    Guard(
        name="exam-price",
        found=_words(
            r"\b(pass(ing)? (mark|score|rate)|exam (fee|price|costs?))\b|\$\s?\d{2,}\s*(usd|dollars)?\b.{0,40}\bexam\b"
        ),
        saved=_words(r"\b(not|no|neither|unknown|conflict)\b"),
        message="no pass mark and no price of an exam is established. Leave it out",
    ),
)


def problems(text: str) -> Iterator[tuple[int, str, str]]:
    """Line from 1, rule and sentence of everything doubtful in a text of Markdown; code fences are not read."""
    prose = re.sub(r"```.*?```", lambda fence: re.sub(r"[^\n]", " ", fence[0]), text, flags=re.DOTALL)
    for start, sentence in _sentences(prose):
        for guard in GUARDS:
            found = guard.found.search(sentence)
            if found is None:
                continue
            saving = prose if guard.anywhere else sentence
            if guard.saved is None or not guard.saved.search(saving):
                line = prose.count("\n", 0, start + found.start()) + 1
                words = " ".join(found[0].split())
                shown = words if len(words) <= 80 else f"{words[:77]}…"
                yield line, guard.name, f"“{shown}” {guard.message}."


_END = re.compile(r"(?<=[.?!])\s+|\n\s*\n")


def _sentences(text: str) -> Iterator[tuple[int, str]]:
    """Each sentence and where it starts."""
    start = 0
    for end in _END.finditer(text):
        yield start, text[start : end.start()]
        start = end.end()
    yield start, text[start:]
