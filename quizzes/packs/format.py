"""pack.yaml: who a pack is by, what it is called, and the misconceptions its wrong answers reveal."""

import operator
import re
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated

from pydantic import Field, field_validator

from quizzes.questions import Optional, Part, Slug, Text

FORMAT = 1


class Misconception(Part):
    """A wrong belief: its name, how it shows, why it is wrong, and where to read and measure that."""

    id: Slug
    name: Text
    tell: Optional = ""
    refutation: Text
    lessons: tuple[Text, ...] = ()
    labs: tuple[Slug, ...] = ()


class Author(Part):
    name: Text
    email: Optional = ""


class Objective(Part):
    id: Slug
    title: Text


class PackHeader(Part):
    """The fields of pack.yaml."""

    format: int
    id: Slug
    publisher: Slug
    title: Text
    summary: Optional = ""
    version: Text
    language: Text = "en"
    license: Text
    authors: Annotated[list[Author], Field(min_length=1)]
    calculator: Optional = ""
    objectives: tuple[Objective, ...] = ()
    cues: dict[Text, Text] = Field(default_factory=dict)
    misconceptions: tuple[Misconception, ...] = ()
    borrows: tuple[Slug, ...] = ()  # misconceptions that another pack of the publisher declares

    @field_validator("format")
    @classmethod
    def _known_format(cls, value: int) -> int:
        if value != FORMAT:
            raise ValueError(f"format is {value}, but this version reads format {FORMAT}")
        return value

    @field_validator("calculator")
    @classmethod
    def _calculator_in_range(cls, value: str) -> str:
        installed = installed_calculator()
        if value and not within(installed, value):
            raise ValueError(f"the pack asks for calculator {value}, but {installed} is installed")
        return value


def installed_calculator() -> str:
    """The version of the calculator that makes the keys."""
    try:
        return version("sixfold")
    except PackageNotFoundError:
        return "0.1.0"


def within(installed: str, bounds: str) -> bool:
    """Whether a version keeps every bound. Raises ValueError for a bound that cannot be read.

    >>> within("1.3.0", ">=1.2,<2"), within("2.0", ">=1.2,<2")
    (True, False)
    """
    return all(_keeps(_parts(installed), bound.strip()) for bound in bounds.split(","))


def _keeps(installed: tuple[int, ...], bound: str) -> bool:
    match = re.fullmatch(r"(>=|<=|==|>|<)\s*(\d+(?:\.\d+)*)", bound)
    if match is None:
        raise ValueError(f"the version bound {bound!r} cannot be read; write for example >=1.2,<2")
    wanted = _parts(match[2])
    width = max(len(installed), len(wanted))
    left, right = (numbers + (0,) * (width - len(numbers)) for numbers in (installed, wanted))
    compare = {">=": operator.ge, "<=": operator.le, "==": operator.eq, ">": operator.gt, "<": operator.lt}
    return bool(compare[match[1]](left, right))


def _parts(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", text)[:4])
