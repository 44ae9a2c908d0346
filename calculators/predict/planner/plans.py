"""A plan: the best of all legal layouts, found in one pass over the space."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from calculators.predict.arrays import MOST, said
from calculators.predict.planner.columns import COLUMNS, Evaluated, joined
from calculators.predict.planner.evaluation import evaluate
from calculators.predict.planner.kinds import Kind, OfAKind, checked
from calculators.predict.planner.ranking import frontier, order, worth_keeping
from calculators.predict.planner.reasons import why
from calculators.predict.planner.task import Space, Task


def plan(
    task: Task, space: Space | None = None, *, count: int = 10, kinds: Mapping[str, Kind] | None = None
) -> Plan:
    """The `count` quickest layouts that fit, and the frontier between memory and time.

    kinds   of layouts about which the same is asked in the same pass, by names that are the caller's

    Where two take the same time (to ten digits) the one with less memory is first, then the one with fewer
    model-parallel parts, tp·cp·pp·ep·etp·vpp, then the one that recomputes less, the lower ZeRO stage, and so on.
    """
    if not isinstance(count, int) or not 1 <= count <= MOST:
        raise ValueError(
            f"count is {said(count)}, but a plan names at least the quickest layout. Use 1 or more."
        )
    kept: Evaluated | None = None
    seen = fitting = 0
    asked = {name: checked(kind) for name, kind in (kinds or {}).items()}
    alike = dict.fromkeys(asked, OfAKind())
    for found in evaluate(task, space):
        seen += len(found)
        alike = {name: of.also(found, asked[name], task.limit_bytes) for name, of in alike.items()}
        fitting += int(np.count_nonzero(found["memory_bytes"] <= task.limit_bytes))
        kept = joined(kept, found.rows(worth_keeping(found, task.limit_bytes, count)))
        kept = kept.rows(worth_keeping(kept, task.limit_bytes, count))
    if kept is None:
        nothing = Evaluated(columns={name: np.empty(0) for name in COLUMNS})
        return Plan(task=task, best=nothing, frontier=nothing, legal=0, fitting=0, smallest=None, kinds=alike)
    fits = kept.rows(np.flatnonzero(kept["memory_bytes"] <= task.limit_bytes))
    return Plan(
        task=task,
        best=fits.rows(order(fits)[:count]),
        frontier=kept.rows(frontier(kept["memory_bytes"], kept["step_seconds"])),
        legal=seen,
        fitting=fitting,
        smallest=kept.rows(np.argmin(kept["memory_bytes"], keepdims=True)),
        kinds=alike,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Plan:
    """What came of a search.

    best      the best layouts that fit, the quickest first
    frontier  those that no other beats in both memory and time, by memory
    legal, fitting   how many there were
    smallest  the one that needs least memory, whether it fits or not; None where nothing is legal
    kinds     the same of each kind that was asked about, by its name
    """

    task: Task
    best: Evaluated
    frontier: Evaluated
    legal: int
    fitting: int
    smallest: Evaluated | None
    kinds: Mapping[str, OfAKind] = field(default_factory=dict)

    @cached_property
    def reasons(self) -> tuple[str, ...]:
        """Why each of the best beats the next one, a sentence each."""
        return tuple(why(self.best, row, row + 1) for row in range(len(self.best) - 1))
