"""How the page says a number of tokens/s, a factor, a link's speed and a part of all links."""

import math

from calculators.units import plain


def three_digits(value: float) -> str:
    """Three digits, as many as a prediction is worth."""
    return plain(float(f"{value:.3g}"))


def times(value: float) -> str:
    """A factor."""
    return f"{plain(float(f'{value:.3g}'))}×"


def gbit(value: float) -> str:
    """A link's speed as networks are sold; ∞ where none is fast enough."""
    if math.isinf(value):
        return "∞"
    return f"{value * 1e3:.2g} Mbit/s" if 0 < value < 0.1 else f"{three_digits(value)} Gbit/s"


def so_many_of(count: int, all_of_them: int) -> str:
    """The start of a sentence: 3 of 26, None of 26, All 26."""
    return f"All {all_of_them}" if count == all_of_them else f"{count or 'None'} of {all_of_them}"
