"""How the page says numbers of tokens a second, and seconds inside a formula."""

from calculators.units import plain


def rate(tokens_per_second: float) -> str:
    """Tokens a second, with a digit behind the point where there are few."""
    return plain(rounded_rate(tokens_per_second))


def rounded_rate(tokens_per_second: float) -> float:
    """The same, still a number."""
    return round(tokens_per_second, 1) if tokens_per_second < 100 else round(tokens_per_second)


def plain_seconds(value: float) -> str:
    """A number of seconds to six digits, never in powers of ten."""
    return f"{float(f'{value:.6g}'):f}".rstrip("0").rstrip(".")
