"""How the page says the time of a step, and the part of it that stages wait."""

from calculators.units import percent, seconds


def spread(worked: float, waited: float) -> tuple[str, str, str, str]:
    """A step's length, its bubble, and the bubble by both conventions."""
    waited = clean(waited)
    return (
        seconds(worked + waited),
        seconds(waited),
        share(waited / worked),
        share(waited / (worked + waited)),
    )


def share(value: float) -> str:
    """A share of a hundred that never breaks before its sign."""
    return percent(round(value, 4)).replace(" %", "\N{NO-BREAK SPACE}%")


def clean(value: float) -> float:
    """Zero where sums of floats leave a trace of it."""
    return 0.0 if abs(value) < 1e-12 else value
