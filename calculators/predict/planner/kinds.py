"""The best layout of each kind that somebody asks about: without a pipeline, with eight ways of tp, and so on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calculators.predict.planner.columns import AXES, Evaluated, joined
from calculators.predict.planner.ranking import NEAR, order

Kind = Mapping[str, tuple[int, int]]
"""What makes a layout one of a kind: for some axes the least and the most that they may be. No pipeline: pp (1, 1)."""


@dataclass(frozen=True, kw_only=True, eq=False)
class OfAKind:
    """What came of the layouts of one kind.

    best      the quickest that fits; None where none does
    smallest  the one that needs least memory, whether it fits or not; None where none is legal
    legal     how many there were
    """

    best: Evaluated | None = None
    smallest: Evaluated | None = None
    legal: int = 0

    def also(self, found: Evaluated, kind: Kind, limit_bytes: float) -> OfAKind:
        """The same after more layouts were seen."""
        rows = _of_a_kind(found, kind)
        if not len(rows):
            return self
        memory, seconds = found["memory_bytes"][rows], found["step_seconds"][rows]
        best, smallest = self.best, self.smallest
        if smallest is None or memory.min() < smallest["memory_bytes"][0]:
            smallest = found.rows(rows[memory == memory.min()])
            smallest = smallest.rows(order(smallest)[:1])
        fits = np.flatnonzero(memory <= limit_bytes)
        if len(fits):
            near = seconds[fits].min() * (1 + NEAR)
            if best is None or seconds[fits].min() <= best["step_seconds"][0] * (1 + NEAR):
                best = joined(best, found.rows(rows[fits[seconds[fits] <= near]]))
                best = best.rows(order(best)[:1])
        return OfAKind(best=best, smallest=smallest, legal=self.legal + len(rows))


def checked(kind: Kind) -> Kind:
    """The kind, if what it speaks of are axes; else ValueError."""
    for axis in kind:
        if axis not in AXES:
            raise ValueError(
                f"A kind of layouts is about {axis!r}, but the axes are {', '.join(AXES)}. Use those."
            )
    return kind


def _of_a_kind(found: Evaluated, kind: Kind) -> NDArray[np.intp]:
    mask = np.ones(len(found), dtype=bool)
    for axis, (least, most) in kind.items():
        mask &= (found[axis] >= least) & (found[axis] <= most)
    return np.flatnonzero(mask)
