"""What a formula on a page is, and how its numbers are set: TeX plain enough for MathML."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Formula:
    """One formula as TeX: what it gives, in symbols, and with a case's numbers in their places.

    legend  what each letter of it stands for
    """

    gives: str
    symbols: str
    numbers: str
    legend: tuple[tuple[str, str], ...]


def tex(value: float) -> str:
    """A number with commas between thousands, which {,} keeps TeX from setting as the punctuation of a list.

    Whole numbers as they are, others with six digits, or two decimals from a thousand.

    >>> tex(1048576), tex(1.5), tex(2 / 3), tex(1234.5)
    ('1{,}048{,}576', '1.5', '0.666667', '1{,}234.50')
    """
    if value == int(value):
        return _commas(f"{value:,.0f}")
    return _commas(f"{value:,.2f}" if value >= 1000 else f"{value:.6g}")


def tex_short(value: float) -> str:
    """The same with two decimals at most, for numbers that one reads and does not calculate with.

    >>> tex_short(2 / 3), tex_short(1.5), tex_short(2.0000000001), tex_short(1234)
    ('0.67', '1.5', '2', '1{,}234')
    """
    if abs(value - round(value)) < 1e-9:
        return _commas(f"{value:,.0f}")
    return _commas(f"{value:,.2f}".rstrip("0").rstrip("."))


def tex_scaled(value: float) -> str:
    r"""Numbers of any size: whole ones to ten millions as they are, else four digits and a power of a thousand.

    >>> tex_scaled(128), tex_scaled(0.00012), tex_scaled(1.25e9)
    ('128', '0.00012', '1.25 \\cdot 10^{9}')
    """
    if value == int(value) and abs(value) < 1e7:
        return _commas(f"{value:,.0f}")
    if 1e-4 <= abs(value) < 1e3:
        return f"{value:.4g}"
    power = math.floor(math.log10(abs(value)) / 3) * 3
    return rf"{value / 10.0**power:.4g} \cdot 10^{{{power}}}"


def tex_bytes(value: float) -> str:
    """A number of bytes with its unit."""
    return rf"{tex(value)}\,\text{{B}}"


def tex_product(*numbers: float) -> str:
    r"""Numbers with dots between.

    >>> tex_product(2, 4096)
    '2 \\cdot 4{,}096'
    """
    return r" \cdot ".join(tex(number) for number in numbers)


def legend_of(letters: Iterable[str], meanings: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Each letter once, with its meaning."""
    return tuple((letter, meanings[letter]) for letter in dict.fromkeys(letters))


def _commas(number: str) -> str:
    return number.replace(",", "{,}")
