"""The space cut into blocks of layouts that are nearly all legal, each block as arrays along six dimensions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from calculators.predict.arrays import Floats, floats
from calculators.predict.planner.task import Space, Task
from calculators.predict.rules import Case, legal
from calculators.predict.shapes import Layouts, Phase

_WORTH_A_BLOCK = 6_000
"""What surrounds the arithmetic of a block takes as long as this many layouts."""


def blocks(task: Task, space: Space, *, chunk: int) -> Iterator[Layouts]:
    """The space in blocks of about `chunk` layouts, legal or not, as arrays that vary along six dimensions.

    Sizes of tp, cp, pp, ep, etp and dp, which must use all devices, vary along the last, so that NumPy's inner loops
    are long; zero, recompute, sp, vpp and micro_batch along one each before it. A block has one pp, similar dp, and the
    same choice of sp for each of its sizes unless too few would be spared by that: so nearly all of it is legal.
    """
    sizes, choices = _sizes(task, space)
    chunks = _chunks(task, space)
    sequences = _sequences(task, space, np.unique(sizes["dp"]))
    for stages in np.unique(sizes["pp"]).tolist():
        vpp = chunks[stages]
        details = len(vpp) * len(space.micro_batch) * len(space.zero) * len(space.recompute)
        at = np.flatnonzero(sizes["pp"] == stages)
        for rows, sp_is_legal in _alike(at, choices[at], worth=_WORTH_A_BLOCK / max(1, details)):
            sp = floats(space.sp)[sp_is_legal]
            step = max(1, chunk // max(1, len(sp) * details))
            for start in range(0, len(rows), step):
                chosen = {axis: values[rows[start : start + step]] for axis, values in sizes.items()}
                micro_batch = sorted(set().union(*(sequences[dp] for dp in set(chosen["dp"].tolist()))))
                if vpp and micro_batch:
                    yield Layouts(
                        zero=_along(0, space.zero),
                        recompute=_along(1, space.recompute),
                        sp=_along(2, sp),
                        vpp=_along(3, vpp),
                        micro_batch=_along(4, micro_batch),
                        **{axis: _along(5, values) for axis, values in chosen.items() if axis != "pp"},
                        pp=stages,
                    )


def asked(
    task: Task, layouts: Layouts, *, devices: int | None = None, batch: bool = False
) -> NDArray[np.bool_]:
    """What the rules say of layouts of which only some axes are known; on one replica unless told the devices."""
    training = task.phase == Phase.TRAINING
    return legal(
        Case(
            shape=task.shape,
            layouts=layouts,
            phase=task.phase,
            tokens=task.tokens,
            batch=task.batch if batch and training else None,
            devices=devices,
            uneven_stages=task.uneven_stages,
        )
    )


def _sizes(task: Task, space: Space) -> tuple[Mapping[str, Floats], NDArray[np.bool_]]:
    """Every combination of tp, cp, pp, ep and etp that is legal, ascending in dp, and with which values of sp it is."""
    axes = ("tp", "cp", "pp", "ep", "etp")
    grid = np.meshgrid(*(np.asarray(getattr(space, axis), dtype=np.float64) for axis in axes), indexing="ij")
    sizes = {axis: values.ravel() for axis, values in zip(axes, grid, strict=True)}
    sizes["dp"] = task.cluster.devices / (sizes["tp"] * sizes["cp"] * sizes["pp"])
    shared = np.flatnonzero((sizes["dp"] == np.floor(sizes["dp"])) & (sizes["dp"] >= 1))
    sizes = {axis: values[shared] for axis, values in sizes.items()}
    layouts = Layouts(**{axis: values[:, None] for axis, values in sizes.items()}, sp=space.sp)
    choices = asked(task, layouts, devices=task.cluster.devices)
    order = np.lexsort((sizes["tp"], sizes["dp"]))
    kept = order[choices[order].any(axis=1)]
    return {axis: values[kept] for axis, values in sizes.items()}, choices[kept]


def _chunks(task: Task, space: Space) -> Mapping[float, list[int]]:
    """For each number of stages the numbers of chunks that the rules allow."""
    legal_ones = asked(task, Layouts(pp=np.reshape(space.pp, (-1, 1)), vpp=space.vpp))
    return {
        stages: [n for n, is_legal in zip(space.vpp, row, strict=True) if is_legal]
        for stages, row in zip(space.pp, legal_ones.tolist(), strict=True)
    }


def _sequences(task: Task, space: Space, dp: Floats) -> Mapping[float, list[int]]:
    """For each number of replicas the sizes of micro-batches that the rules allow."""
    legal_ones = asked(task, Layouts(dp=dp[:, None], micro_batch=space.micro_batch), batch=True)
    return {
        replicas: [n for n, is_legal in zip(space.micro_batch, row, strict=True) if is_legal]
        for replicas, row in zip(dp.tolist(), legal_ones.tolist(), strict=True)
    }


def _alike(
    rows: NDArray[np.intp], choices: NDArray[np.bool_], *, worth: float
) -> Iterator[tuple[NDArray[np.intp], NDArray[np.bool_]]]:
    """Rows that have the same choices, with those; all with all of them where that adds less than it is `worth`."""
    kinds, which = np.unique(choices, axis=0, return_inverse=True)
    together = np.asarray(choices.any(axis=0))
    added = together.sum() * len(rows) - choices.sum()
    if added <= worth * (len(kinds) - 1):
        yield rows, together
        return
    for number, kind in enumerate(kinds):
        yield rows[which.ravel() == number], kind


def _along(dimension: int, values: Sequence[float] | Floats) -> Floats:
    """The values as an array that varies along one of the six dimensions."""
    shape = [1] * 6
    shape[dimension] = len(values)
    return floats(values).reshape(shape)
