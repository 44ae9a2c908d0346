"""A count of parameters as people say it, and beside the one that was published."""

from dataclasses import dataclass

from calculators.units import plain

AGREES = 0.01
"""A count within this share of the published one was made of the right sizes; biases and the like are less."""
UNITS = ((10**12, "trillion"), (10**9, "billion"), (10**6, "million"))


@dataclass(frozen=True, kw_only=True)
class Recount:
    """A published count beside the one that the sizes make [parameters]."""

    published: float
    counted: int

    @property
    def off_by(self) -> float:
        """The difference as a share of the published count."""
        return self.counted / self.published - 1

    @property
    def agrees(self) -> bool:
        return abs(self.off_by) <= AGREES

    @property
    def says(self) -> str:
        """Both counts and how far they are apart."""
        gap = f"{abs(self.off_by):.2%}".replace("%", " %")
        apart = (
            "less than 0.01 % apart" if gap == "0.00 %" else f"{gap} {'more' if self.off_by > 0 else 'less'}"
        )
        return f"Published: {people(self.published)}. These sizes make {people(self.counted, digits=5)}, {apart}."


def people(parameters: float, *, digits: int = 3) -> str:
    """A count of parameters as people say it.

    >>> people(46_702_792_704), people(46_702_792_704, digits=5), people(124_337_664), people(1.026e12)
    ('46.7 billion', '46.703 billion', '124 million', '1.03 trillion')
    """
    for unit, name in UNITS:
        if parameters >= unit:
            whole = len(f"{parameters / unit:.0f}")
            text = f"{parameters / unit:,.{max(0, digits - whole)}f}"
            return f"{text.rstrip('0').rstrip('.') if '.' in text else text} {name}"
    return plain(parameters)
