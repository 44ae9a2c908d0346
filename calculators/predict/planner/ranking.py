"""Which layouts are better: their order, the frontier between memory and time, and what a plan may name."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from calculators.predict.arrays import Floats
from calculators.predict.planner.columns import AXES, Evaluated

NEAR = 1e-8  # no two that are further apart than this are equal to ten digits
_FEW = 2_000
_SAMPLED = 16


def order(found: Evaluated) -> NDArray[np.intp]:
    """Rows by time, then by memory, then by how little is split, then by the axes, the last one first."""
    split = found["tp"] * found["cp"] * found["pp"] * found["ep"] * found["etp"] * found["vpp"]
    memory, seconds = _to_ten_digits(found["memory_bytes"]), _to_ten_digits(found["step_seconds"])
    return np.lexsort((*(found[axis] for axis in AXES), split, memory, seconds))


def frontier(memory: Floats, seconds: Floats) -> NDArray[np.intp]:
    """Rows that no other beats in both, by memory: each needs more memory than the one before and is quicker."""
    rows = np.arange(len(memory))
    if len(rows) > _FEW:
        # Most are beaten by the best of a sample, which takes less than to sort them all.
        few = frontier(memory[::_SAMPLED], seconds[::_SAMPLED]) * _SAMPLED
        at = np.searchsorted(memory[few], memory, side="right") - 1
        rows = np.flatnonzero((at < 0) | (seconds <= seconds[few][at] * (1 + NEAR)))
    needed, takes = _to_ten_digits(memory[rows]), _to_ten_digits(seconds[rows])
    by_memory = np.lexsort((takes, needed))
    quickest_so_far = np.minimum.accumulate(takes[by_memory])
    improves = np.ones(len(by_memory), dtype=bool)
    improves[1:] = takes[by_memory][1:] < quickest_so_far[:-1]
    return np.asarray(rows[by_memory[improves]])


def worth_keeping(found: Evaluated, limit_bytes: float, count: int) -> NDArray[np.intp]:
    """Rows that a plan may name, in their order: the quickest that fit, the frontier, and the smallest."""
    memory, seconds = found["memory_bytes"], found["step_seconds"]
    fits = np.flatnonzero(memory <= limit_bytes)
    if len(fits) > count:
        times = seconds[fits]
        fits = fits[times <= np.partition(times, count - 1)[count - 1] * (1 + NEAR)]
        fits = fits[order(found.rows(fits))[:count]]
    return np.unique(np.concatenate((fits, frontier(memory, seconds), [np.argmin(memory)])))


def _to_ten_digits(values: Floats) -> Floats:
    """The values, all above 0, as far as they are compared: sums of the same parts round differently behind that."""
    scale = 10.0 ** (9 - np.floor(np.log10(values)))
    return np.asarray(np.round(values * scale) / scale)
