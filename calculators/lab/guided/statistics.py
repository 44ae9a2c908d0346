"""How sure a ratio of times is: an interval from the steps of two runs."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

_DRAWS = 4_000


class Ratio(NamedTuple):
    """A ratio of two medians with its 95 % interval."""

    value: float
    low: float
    high: float


def ratio_of_medians(numerator: Sequence[float], denominator: Sequence[float]) -> Ratio:
    """Median of `numerator` ÷ median of `denominator`, with a percentile bootstrap over the steps of each.

    Steps of one run follow each other in time, so this interval tells nothing of what changed between two runs.
    Source: Efron & Tibshirani, An Introduction to the Bootstrap, chapter 13.
    """
    generator = np.random.default_rng(0)
    medians = [
        np.median(generator.choice(np.asarray(times), size=(_DRAWS, len(times))), axis=1)
        for times in (numerator, denominator)
    ]
    low, high = np.percentile(medians[0] / medians[1], [2.5, 97.5])
    return Ratio(float(np.median(numerator) / np.median(denominator)), float(low), float(high))
