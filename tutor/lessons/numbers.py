"""Worked numbers of lessons: `{{ expression in unit }}`, calculated and written for a reader.

    {{ layers }}                  64            a whole number, or three significant digits
    {{ sent in MiB }}             1 MiB         divided by the unit, and named
    {{ 3 / 11 in .1 % }}          27.3 %        one decimal
    {{ waiting in .0 ms }}        38 ms         the expression is in seconds

An expression gives bytes, seconds, bytes per second, or a bare number; the unit says how to print it.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from quizzes.expressions import ExpressionError, evaluate

NUMBER = re.compile(r"\{\{\s(?P<body>(?:(?!\}\}).)*?)\s\}\}", re.DOTALL)
_FORMAT = re.compile(r"(?:\.(?P<decimals>\d))?\s*(?P<unit>\S+)?")

# Unit → what one of it is, in bytes, seconds, bytes per second or nothing.
UNITS: dict[str, float] = {
    "bytes": 1,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "kB": 1e3,
    "MB": 1e6,
    "GB": 1e9,
    "s": 1,
    "ms": 1e-3,
    "µs": 1e-6,
    "Mbit/s": 1e6 / 8,
    "Gbit/s": 1e9 / 8,
    "%": 0.01,
    "times": 1,
}
_NO_BREAK = "\u00a0"


class NumberError(ValueError):
    """A worked number that cannot be printed; the message is a sentence for the lesson's author."""


@dataclass(frozen=True, kw_only=True)
class Number:
    """One worked number as it stands in the text; `line` counts from 1."""

    body: str
    line: int


def numbers_in(text: str) -> Iterator[Number]:
    """Every worked number of `text`, in order."""
    for found in NUMBER.finditer(text):
        yield Number(body=found["body"], line=text.count("\n", 0, found.start()) + 1)


def written(body: str, names: Mapping[str, float]) -> str:
    """What stands between the braces, calculated and written: digits, thousands, a unit that stays attached.

    >>> written("2 * layers * 8192 in MiB", {"layers": 64})
    '1\\xa0MiB'
    >>> written("3 / 11 in .1 %", {})
    '27.3\\xa0%'
    """
    expression, decimals, unit = _split(body)
    value = _value(expression, names) / UNITS.get(unit, 1)
    return digits(value, decimals) + (f"{_NO_BREAK}{unit}" if unit else "")


def written_as_tex(body: str, names: Mapping[str, float]) -> str:
    """The same for a formula: digits only, with TeX's spacing around the thousands separator.

    >>> written_as_tex("2**20", {})
    '1{,}048{,}576'
    """
    expression, decimals, unit = _split(body)
    if unit:
        raise NumberError(
            f"{{{{ {body} }}}} names a unit inside a formula. Leave “in {unit}” out and write the unit "
            "as \\text{…}."
        )
    return digits(_value(expression, names), decimals).replace(",", "{,}").replace("−", "-")


def digits(value: float, decimals: int | None = None) -> str:
    """A number as readers write it: 1,048,576; 0.366; 27.3 when one decimal is asked for.

    >>> digits(1048576.0), digits(0.3664), digits(-7, 0)
    ('1,048,576', '0.366', '−7')
    """
    if decimals is not None:
        text = f"{value:,.{decimals}f}"
    elif abs(value - round(value)) < 1e-9 * max(1, abs(value)):
        text = f"{round(value):,}"
    else:
        text = f"{value:,.{max(0, 2 - _magnitude(value))}f}"
        text = text.rstrip("0").rstrip(".") if "." in text else text
    return text.replace("-", "−")


def _split(body: str) -> tuple[str, int | None, str]:
    expression, separator, wanted = body.rpartition(" in ")
    if not separator:
        return body, None, ""
    found = _FORMAT.fullmatch(wanted.strip())
    unit = (found and found["unit"]) or ""
    if found is None or (unit and unit not in UNITS):
        raise NumberError(
            f"{{{{ {body} }}}} asks for “{wanted.strip()}”, which is not a unit known here. "
            f"Use one of {', '.join(UNITS)}, with .1 before it for one decimal."
        )
    return expression, int(found["decimals"]) if found["decimals"] else None, unit


def _value(expression: str, names: Mapping[str, float]) -> float:
    try:
        return evaluate(expression, names)
    except ExpressionError as error:
        raise NumberError(str(error)) from None


def _magnitude(value: float) -> int:
    return int(f"{abs(value):e}".partition("e")[2])
