"""Which layers, and how many micro-batches of them, each stage of a pipeline holds.

The earlier stages take one layer more where the layers do not divide. The first has the embedding besides, the last one
the output matrix. With vpp chunks a stage, chunk c of stage i is run c·pp + i of the layers in order (Megatron-LM,
interleaved schedule).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from calculators.predict.arrays import Floats, amounts, anywhere, check_broadcast, counts, floats
from calculators.predict.schedules import Schedule
from calculators.predict.schedules import in_flight as in_flight_of_schedule
from calculators.predict.shapes import ModelShape


def layers_of_stage(
    shape: ModelShape, stage: ArrayLike, *, pp: ArrayLike, vpp: ArrayLike = 1
) -> tuple[Floats, Floats]:
    """Layers of `stage` (from 0): those with an ordinary feed-forward block, and those with experts.

    >>> from calculators.predict.models.catalogue import MODELS
    >>> dense, sparse = layers_of_stage(MODELS["llama-3.1-70b"].shape, [0, 1, 2], pp=3)
    >>> dense.tolist(), sparse.tolist()
    ([27.0, 27.0, 26.0], [0.0, 0.0, 0.0])
    """
    given = {**amounts(stage=stage), **counts(pp=pp, vpp=vpp)}
    check_broadcast(given)
    i, p, v = given.values()
    check_stage(i, p)
    return layers_at(shape, i, pp=p, vpp=v)


def layers_at(shape: ModelShape, stage: Floats, *, pp: Floats, vpp: Floats) -> tuple[Floats, Floats]:
    """`layers_of_stage` of arguments that were checked."""
    i, p, v = stage, pp, vpp
    least = np.floor(shape.layers / (p * v))  # layers of a chunk; the first `longer` chunks have one more
    longer = shape.layers - least * p * v
    layers = v * least + _chunks_among(longer, i, p, v)
    if shape.experts is None:
        return layers, np.zeros_like(layers)
    if shape.experts.dense_layers == 0:
        return np.zeros_like(layers), layers
    full, rest = _chunks_filled(shape.experts.dense_layers, least, longer)
    dense = least * _chunks_among(full, i, p, v) + _chunks_among(np.minimum(full, longer), i, p, v)
    dense = dense + rest * (full % p == i)
    return dense, layers - dense


def depth_of_stage(shape: ModelShape, stage: Floats, *, pp: Floats) -> Floats:
    """Layers of `stage`, of either kind, in a pipeline without chunks; arguments that were checked."""
    least = np.floor(shape.layers / pp)
    return least + (stage < shape.layers - least * pp)


def fullest_stages(shape: ModelShape, *, pp: ArrayLike, vpp: ArrayLike = 1) -> Sequence[Floats]:
    """The stages among which the fullest one always is, whatever a layer of either kind weighs.

    The first has the embedding, the most layers and the most micro-batches in flight; the last has the output matrix.
    Where dense layers come before sparse ones, also the stage where they change and the one after it.
    """
    given = counts(pp=pp, vpp=vpp)
    p, v = given["pp"], given["vpp"]
    first, last = floats(0), p - 1
    if not anywhere(p > 1):
        return (first,)
    if shape.experts is None or shape.experts.dense_layers == 0:
        return first, last
    least = np.floor(shape.layers / (p * v))
    full, _ = _chunks_filled(shape.experts.dense_layers, least, shape.layers - least * p * v)
    change = full % p
    return first, change, np.minimum(change + 1, last), last


def in_flight(
    stage: ArrayLike,
    *,
    pp: ArrayLike,
    micro_batches: ArrayLike,
    vpp: ArrayLike = 1,
    schedule: Schedule | str | None = None,
) -> Floats:
    """Micro-batches whose activations `stage` keeps at once, each for all its layers.

    Without a `schedule` what vpp says, element by element: 1F1B, which keeps min(m, p−i) on stage i, where it is 1, and
    interleaved where it is more. Then stage i has at most (v−1)·p + 2·(p−i) − 1 forward passes of a chunk ahead of
    their backward pass, each a v-th of its layers: on the first stage p·(1 + (p−1)/(p·v)) (Korthikanti 2022, arXiv
    2205.05198 §4.2.3). With one, what `schedules.in_flight` says of it.

    >>> in_flight([0, 1, 2, 3], pp=4, micro_batches=8).tolist()
    [4.0, 3.0, 2.0, 1.0]
    >>> in_flight(0, pp=4, micro_batches=8, vpp=2).item()
    5.5
    """
    given = {**amounts(stage=stage), **counts(pp=pp, micro_batches=micro_batches, vpp=vpp)}
    check_broadcast(given)
    i, p, m, v = given.values()
    check_stage(i, p)
    if schedule is not None:
        chunks = v if schedule == Schedule.INTERLEAVED else None
        return in_flight_of_schedule(schedule, stages=p, micro_batches=m, stage=i, chunks=chunks)
    chunks_ahead = np.where(v > 1, (v - 1) * p + 2 * (p - i) - 1, p - i)
    return floats(np.minimum(m, chunks_ahead / v))


def check_stage(stage: Floats, pp: Floats) -> None:
    """Raises ValueError where there are not as many stages."""
    outside = stage > pp - 1
    if anywhere(outside):
        which, of = (np.broadcast_to(values, outside.shape)[outside].flat[0] for values in (stage, pp))
        raise ValueError(
            f"stage is {which:g}, but the last of {of:g} stages is number {of - 1:g}, counted from 0."
        )


def _chunks_among(first: Floats, stage: Floats, p: Floats, v: Floats) -> Floats:
    """How many of the first so many chunks are on `stage`."""
    return np.minimum(np.maximum(np.ceil((first - stage) / p), 0.0), v)


def _chunks_filled(layers: int, least: Floats, longer: Floats) -> tuple[Floats, Floats]:
    """Chunks that the first `layers` fill, and how many of these begin the next chunk."""
    in_longer = np.minimum(np.floor(layers / (least + 1)), longer)
    left = layers - in_longer * (least + 1)
    in_least = np.where(in_longer == longer, np.floor(left / np.maximum(least, 1)), 0)
    return in_longer + in_least, left - in_least * least
