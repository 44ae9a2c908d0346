"""Numbers as people type and read them: decimal commas, thousands, units, and nothing guessed."""

import math
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

MAX_TYPED = 80  # characters


class NumberProblem(ValueError):
    """Text that is not one clear number; the message asks the learner for what is missing."""


@dataclass(frozen=True, kw_only=True)
class Unit:
    """A unit as it is written, what it measures, and its size in that measure's base unit."""

    symbol: str
    measure: str
    size: float


def parse_number(text: str, *, unit: str = "", accepted: Sequence[str] = ()) -> float:
    """The number in `text`, converted to `unit`; a bare number is taken to be in `unit` already.

    `accepted` limits the units that may be typed; empty means every unit of the same measure. GB is 10⁹
    and GiB is 2³⁰ bytes: they are converted, never equated. Raises NumberProblem with a sentence.

    >>> parse_number("1.234,5"), parse_number("35,0 GB", unit="GB"), parse_number("2 GiB", unit="GB")
    (1234.5, 35.0, 2.147483648)
    """
    typed = unicodedata.normalize("NFKC", text).replace("−", "-").strip()
    if not typed:
        raise NumberProblem("Nothing was typed. Type a number.")
    if len(typed) > MAX_TYPED:
        raise NumberProblem(f"That is {len(typed)} characters long. Type one number.")
    match = _TYPED.fullmatch(typed)
    if match is None:
        raise NumberProblem(f"“{typed}” is not a number. Type digits, for example 1.5 or 1,048,576.")
    number = float(f"{_digits(match['number'], typed)}e{_exponent(match, typed)}")
    if match["sign"] == "-":
        number = -number
    if not math.isfinite(number):
        raise NumberProblem(f"“{typed}” is too large to be a number here.")
    return number * _factor((match["unit"] or "").strip(), unit, accepted)


def display(value: float, unit: str = "") -> str:
    """`value` as a reader sees it: whole numbers in full, others to four significant digits.

    >>> display(1048576, "B"), display(6.25), display(0.000123456, "s"), display(2e16)
    ('1,048,576 B', '6.25', '0.0001235 s', '2e+16')
    """
    if value == round(value) and abs(value) < 1e15:
        shown = f"{int(value):,}"
    else:
        rounded = float(f"{value:.4g}")
        shown = f"{rounded:,.10f}".rstrip("0").rstrip(".") if 1e-6 <= abs(rounded) < 1e15 else f"{rounded:g}"
    return f"{shown} {unit}".rstrip()


# --- reading the digits --------------------------------------------------------------------------------

_SUPERSCRIPT = r"\^?\{?(?P<power>[+-]?\d{1,4})\}?"  # NFKC has turned ⁶ into 6
_TYPED = re.compile(
    r"(?P<sign>[+-]?)\s*"
    r"(?P<number>[\d.,' _’]*\d[.,]?)"
    r"(?:\s*(?:[eE](?P<exponent>[+-]?\d{1,6})|[x×*·]\s*10" + _SUPERSCRIPT + r"))?"
    r"\s*(?P<unit>[A-Za-zµμ%×:][A-Za-z0-9µμ/ :]*)?"
)
_GROUPED = re.compile(r"\d{1,3}(?:([,.' _’])\d{3})(?:\1\d{3})*")


def _digits(number: str, typed: str) -> str:
    """Plain decimal digits. A lone comma before three digits is asked back, never guessed."""
    number = number.strip()
    commas, dots = number.count(","), number.count(".")
    blanks = bool(re.search(r"[' _’]", number))
    if commas and dots:
        decimal = max(",.", key=number.rfind)
    elif commas + dots == 1:
        decimal = "," if commas else "."
        before, _, after = number.partition(decimal)
        if decimal == "," and not blanks and len(after) == 3 and 1 <= len(before) <= 3 and before[0] != "0":
            raise NumberProblem(
                f"“{typed}” can be read two ways. "
                f"Type {before}.{after} for the decimal number, or {before}{after} for the whole one."
            )
    else:
        decimal = ""
    whole, _, part = number.rpartition(decimal) if decimal else (number, "", "")
    if not re.fullmatch(r"\d*", part) or not (_GROUPED.fullmatch(whole) or re.fullmatch(r"\d*", whole)):
        raise NumberProblem(
            f"“{typed}” is not written as one number: the separators do not fall into groups of three."
        )
    return f"{re.sub(r'[^0-9]', '', _ascii(whole)) or '0'}.{_ascii(part) or '0'}"


def _exponent(match: re.Match[str], typed: str) -> int:
    exponent = int(match["exponent"] or match["power"] or 0)
    if abs(exponent) > 300:
        raise NumberProblem(f"“{typed}” is too large or too small to be a number here.")
    return exponent


def _ascii(digits: str) -> str:
    return "".join(str(unicodedata.decimal(d)) if d.isdecimal() else d for d in digits)


# --- units ----------------------------------------------------------------------------------------------


def _units() -> dict[str, Unit]:
    units = [Unit(symbol="s", measure="time", size=1.0)]
    units += [
        Unit(symbol=symbol, measure="time", size=size)
        for symbol, size in {"ms": 1e-3, "µs": 1e-6, "us": 1e-6, "ns": 1e-9, "min": 60.0, "h": 3600.0}.items()
    ]
    decimal = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
    binary = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50}
    for prefix, size in (decimal | binary).items():
        units.append(Unit(symbol=f"{prefix}B", measure="data", size=size))
        units.append(Unit(symbol=f"{prefix}B/s", measure="data rate", size=size))
        units.append(Unit(symbol=f"{prefix}bit", measure="data", size=size / 8))
        units.append(Unit(symbol=f"{prefix}bit/s", measure="data rate", size=size / 8))
    units += [Unit(symbol=word, measure="data", size=1.0) for word in ("byte", "bytes")]
    units += [Unit(symbol=word, measure="time", size=1.0) for word in ("second", "seconds")]
    units += [Unit(symbol="%", measure="share", size=0.01)]
    return {unit.symbol: unit for unit in units}


UNITS = _units()
_TIMES = {"x", "×", "times", ":1", ": 1", "to 1", "fold"}
_TWO_MEANINGS = {
    "KB": "1,000 bytes (kB) or 1,024 bytes (KiB)",
    "Kb": "kilobits (kbit) or kilobytes (kB)",
    "kb": "kilobits (kbit) or kilobytes (kB)",
    "mb": "megabits (Mbit) or megabytes (MB)",
    "Mb": "megabits (Mbit) or megabytes (MB)",
    "gb": "gigabits (Gbit) or gigabytes (GB)",
    "Gb": "gigabits (Gbit) or gigabytes (GB)",
    "tb": "terabits (Tbit) or terabytes (TB)",
    "Tb": "terabits (Tbit) or terabytes (TB)",
    "b": "bits (bit) or bytes (B)",
}


def _factor(typed: str, wanted: str, accepted: Sequence[str]) -> float:
    typed, wanted = typed.replace("μ", "µ"), wanted.replace("μ", "µ")
    if not typed or typed == wanted:
        return 1.0
    target = UNITS.get(wanted)
    if target is None:  # the question counts something: transfers, layers, or a plain ratio
        words = {wanted, wanted.removesuffix("s"), f"{wanted}s"} if wanted else _TIMES
        if typed.lower() in {word.lower() for word in words}:
            return 1.0
        asked = f"in {wanted}" if wanted else "without a unit"
        raise NumberProblem(f"The answer is asked {asked}; you wrote {typed}.")
    if typed in _TWO_MEANINGS and typed not in UNITS:
        raise NumberProblem(f"{typed} can mean {_TWO_MEANINGS[typed]}. Write the one you mean.")
    unit = UNITS.get(typed) or UNITS.get(_CASELESS.get(typed.lower(), ""))
    if unit is None:
        raise NumberProblem(f"The unit {typed} is not known here. Type the number in {wanted}.")
    if unit.measure != target.measure:
        raise NumberProblem(f"The answer is asked in {wanted}; {typed} measures {unit.measure} instead.")
    allowed = {*accepted, wanted}
    if accepted and unit.symbol not in allowed:
        raise NumberProblem(f"Type the number in {_listed([wanted, *accepted])}; you wrote {typed}.")
    return unit.size / target.size


# Spellings without a second meaning, such as gib or MS, are read whatever their case.
_CASELESS = {
    symbol.lower(): symbol
    for symbol in UNITS
    if [other.lower() for other in UNITS].count(symbol.lower()) == 1 and not symbol.endswith(("bit", "bit/s"))
}


def _listed(symbols: Sequence[str]) -> str:
    unique = list(dict.fromkeys(symbols))
    return unique[0] if len(unique) == 1 else f"{', '.join(unique[:-1])} or {unique[-1]}"
