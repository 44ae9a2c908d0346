"""What every piece of a question is made of: its text, its names, and the numbers drawn for it."""

import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints


class AnswerProblem(ValueError):
    """An answer that cannot be marked yet; the message asks the learner for what is missing.

    `at` names the items or steps that the message is about.
    """

    def __init__(self, message: str, *, at: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.at = tuple(at)


class DrawError(ValueError):
    """No draw of the parameters gives a fair question; the message is for its author."""


def _tidy(value: object) -> object:
    """One spelling of the same text: line ends, outer blank lines and composition carry no meaning."""
    if not isinstance(value, str):
        return value
    return unicodedata.normalize("NFC", value).replace("\r\n", "\n").replace("\r", "\n").strip("\n")


Text = Annotated[str, BeforeValidator(_tidy), StringConstraints(min_length=1, max_length=20_000)]
Optional = Annotated[str, BeforeValidator(_tidy), StringConstraints(max_length=20_000)]
Slug = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+(?:[._-][a-z0-9]+)*$", max_length=80)]
Name = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*$", max_length=40)]
Credit = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Tolerance = Annotated[float, Field(ge=0, allow_inf_nan=False)]

Place = tuple[str | int, ...]
"""Where a field stands inside its question: ("choices", 0, "text")."""

Draw = Mapping[str, str]
"""The parameters drawn for one learner, as written."""


class Part(BaseModel):
    """The habits of every piece of a question: unknown keys are errors, and nothing changes afterwards."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def numbers(drawn: Draw) -> dict[str, float]:
    """The drawn parameters that are numbers, for calculating."""
    found = {}
    for name, value in drawn.items():
        try:
            number = float(value)
        except ValueError:
            continue
        if math.isfinite(number):
            found[name] = number
    return found


PLACEHOLDER = re.compile(r"\{\{\s*([A-Za-z_][A-Za-z0-9_]*)\s*\}\}")


def fill(text: str, values: Mapping[str, str]) -> str:
    """`text` with {{ name }} replaced; nothing else is understood, and unknown names stay.

    >>> fill("{{ p }}B parameters on {{q}}", {"p": "70"})
    '70B parameters on {{q}}'
    """
    return PLACEHOLDER.sub(lambda found: values.get(found[1], found[0]), text)


def normalised(text: str) -> str:
    """`text` for comparing: case, punctuation at the ends, emphasis and runs of blanks do not count.

    >>> normalised("  *Tensor*  parallelism. ") == normalised("tensor parallelism")
    True
    """
    return " ".join(re.sub(r"[*_`]", "", unicodedata.normalize("NFKC", text)).casefold().split()).strip(
        ".!;: "
    )


def same_text(texts: Mapping[str, str]) -> tuple[str, str] | None:
    """The ids of the first two texts that read the same.

    >>> same_text({"a": "*One*", "b": "Two", "c": "one."})
    ('a', 'c')
    """
    seen: dict[str, str] = {}
    for name, text in texts.items():
        if (first := seen.setdefault(normalised(text), name)) != name:
            return first, name
    return None


def quoted(texts: Sequence[str], *, most: int = 3) -> str:
    """Texts named in a sentence, each cut where it is long.

    >>> quoted(["A *wide* layer.", "A deep stack"])
    '“A wide layer” and “A deep stack”'
    """
    names = [f"“{_short(text)}”" for text in texts[:most]]
    if len(texts) > most:
        names.append(f"{len(texts) - most} more")
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _short(text: str, width: int = 60) -> str:
    words = " ".join(re.sub(r"[*_`]", "", text).split()).rstrip(".:;")
    return words if len(words) <= width else f"{words[: width - 1].rstrip()}…"


def listed(drawn: Draw) -> str:
    """The drawn parameters as part of a sentence."""
    return ", ".join(f"{name} = {value}" for name, value in drawn.items()) or "no parameters"
