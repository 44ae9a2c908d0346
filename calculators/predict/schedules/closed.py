"""The published formulas: what a schedule waits, holds and sends, for many sizes at once.

Sizes broadcast and keep their shapes. A formula holds where `kinds.problems` finds nothing wrong with the
sizes and where all stages take equal times; `Kind.exact_when` adds what else it asks for. For anything else
play the `timetable`.

Both ways to say how bad a bubble is are here: over the ideal time (Narayanan 2021, the Ultra-Scale Playbook)
and as a share of the whole time (Qi 2023). They are as 1 to 3 and 1 to 4 about the same quarter: say which.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from calculators.predict.arrays import (
    Floats,
    amounts,
    anywhere,
    check_broadcast,
    counts,
    everywhere,
    floats,
)
from calculators.predict.schedules.kinds import Schedule, kind_of

_WITH_SENDS = (Schedule.NAIVE, Schedule.GPIPE, Schedule.ONE_F_ONE_B)
_V_SHAPED = (Schedule.ZBV, Schedule.V_HALF, Schedule.V_MIN, Schedule.DUALPIPE_V)


def bubble_seconds(
    schedule: Schedule | str,
    *,
    stages: ArrayLike,
    micro_batches: ArrayLike = 1,
    chunks: ArrayLike | None = None,
    forward: ArrayLike = 1.0,
    backward_input: ArrayLike = 1.0,
    backward_weight: ArrayLike = 1.0,
    send: ArrayLike = 0.0,
    overlapped: ArrayLike | None = None,
) -> Floats:
    """How long a stage waits in one training step [s].

    With F, B, W for the time of one micro-batch in one stage, forward, input gradient and weight gradient
    [s], and s for that of a message:

    naive        m·(p−1)·(F+B+W+2s)         one micro-batch at a time
    gpipe        (p−1)·(F+B+W+2s)           Huang 2019
    1f1b         (p−1)·(F+B+W) + 2s·(p−1 + m−1−⌈(m−1)/p⌉)   Narayanan 2021; the messages derived here
    interleaved  (p−1)·(F+B+W)/v            Narayanan 2021 §2.2
    zb-h1        (p−1)·(F+B−W)              Qi 2023 table 2
    zb-h2        (p−1)·(F+B−2W)             Qi 2023 table 2
    zbv          (p−1)·(B−W)                derived here; 0 for equal times is published
    v-half       (p−1)·(F+B+W)/2            Qi 2024, half of 1F1B, to within a unit
    v-min        (p−1)·(F+B+W)·2/3          Qi 2024, two thirds of 1F1B, to within a unit
    dualpipe     (p/2−1)·(F&B+B+W−3W)       deepseek-ai/DualPipe, whose B is both gradients
    dualpipe-v   (p−1)·(F&B+B+W−3W)/2       the same with p for devices, half as many as stages

    A zero-bubble schedule never waits less than nothing: below 0 the formulas stop at 0. `overlapped` is F&B,
    the time of a forward and a backward side by side, by default their sum.

    The messages of 1F1B hurt more than those of GPipe, because few micro-batches are in flight: a stage that
    waits for an answer has nothing else to do. Raises ValueError for a `send` with the schedules that have no
    formula for it.

    >>> bubble_seconds("1f1b", stages=4, micro_batches=8, forward=1, backward_input=1, backward_weight=1).item()
    9.0
    >>> bubble_seconds("zb-h1", stages=[2, 4, 8]).tolist()
    [1.0, 3.0, 7.0]
    """
    kind = kind_of(schedule)
    sizes = _sizes(kind.schedule, stages=stages, micro_batches=micro_batches, chunks=chunks)
    times = _times(forward, backward_input, backward_weight, send, overlapped)
    check_broadcast({**sizes, **times})
    p, m, v = sizes["stages"], sizes["micro_batches"], sizes["chunks"]
    f, b, w, s = (times[name] for name in ("forward", "backward_input", "backward_weight", "send"))
    if kind.schedule not in _WITH_SENDS and anywhere(s > 0):
        raise ValueError(
            f"send is {s[s > 0].flat[0]:g}, but no formula is known for {kind.name} with messages that take time. "
            "Play it with timetable(…, send=…)."
        )
    work = f + b + w
    pair = times.get("overlapped", work)
    match kind.schedule:
        case Schedule.NAIVE:
            waited = m * (p - 1) * (work + 2 * s)
        case Schedule.GPIPE:
            waited = (p - 1) * (work + 2 * s)
        case Schedule.ONE_F_ONE_B:
            waited = (p - 1) * work + 2 * s * (p - 1 + m - 1 - np.ceil((m - 1) / p))
        case Schedule.INTERLEAVED:
            waited = (p - 1) * work / v
        case Schedule.ZB_H1:
            waited = (p - 1) * np.maximum(f + b - w, 0)
        case Schedule.ZB_H2:
            waited = (p - 1) * np.maximum(f + b - 2 * w, 0)
        case Schedule.ZBV:
            waited = (p - 1) * np.maximum(b - w, 0)
        case Schedule.V_HALF:
            waited = (p - 1) * work / 2
        case Schedule.V_MIN:
            waited = (p - 1) * work * 2 / 3
        case Schedule.DUALPIPE:
            waited = np.maximum(p / 2 - 1, 0) * np.maximum(pair + b - 2 * w, 0)
        case Schedule.DUALPIPE_V:
            waited = (p - 1) / 2 * np.maximum(pair + b - 2 * w, 0)
    return floats(waited)


def ideal_seconds(
    *,
    micro_batches: ArrayLike,
    forward: ArrayLike = 1.0,
    backward_input: ArrayLike = 1.0,
    backward_weight: ArrayLike = 1.0,
) -> Floats:
    """How long a stage works in one training step, whatever the schedule [s]: m·(F+B+W).

    >>> ideal_seconds(micro_batches=8).item()
    24.0
    """
    sizes = counts(micro_batches=micro_batches)
    times = amounts(forward=forward, backward_input=backward_input, backward_weight=backward_weight)
    check_broadcast({**sizes, **times})
    return floats(
        sizes["micro_batches"] * (times["forward"] + times["backward_input"] + times["backward_weight"])
    )


def bubble_over_ideal(
    schedule: Schedule | str,
    *,
    stages: ArrayLike,
    micro_batches: ArrayLike,
    chunks: ArrayLike | None = None,
    forward: ArrayLike = 1.0,
    backward_input: ArrayLike = 1.0,
    backward_weight: ArrayLike = 1.0,
    send: ArrayLike = 0.0,
) -> Floats:
    """Time waited ÷ time worked: (p−1)/m for GPipe and 1F1B, (p−1)/(v·m) interleaved, p−1 naive.

    Arguments and errors as in `bubble_seconds`; the times of F, B and W must not all be zero.

    >>> bubble_over_ideal("1f1b", stages=4, micro_batches=8).item()
    0.375
    >>> bubble_over_ideal("interleaved", stages=4, micro_batches=8, chunks=2).item()
    0.1875
    """
    waited = bubble_seconds(
        schedule,
        stages=stages,
        micro_batches=micro_batches,
        chunks=chunks,
        forward=forward,
        backward_input=backward_input,
        backward_weight=backward_weight,
        send=send,
    )
    worked = ideal_seconds(
        micro_batches=micro_batches,
        forward=forward,
        backward_input=backward_input,
        backward_weight=backward_weight,
    )
    if not everywhere(worked > 0):
        raise ValueError(
            "forward, backward_input and backward_weight are all 0, so there is no work to compare with. "
            "Give one of them a time."
        )
    return waited / worked


def idle_share(
    schedule: Schedule | str,
    *,
    stages: ArrayLike,
    micro_batches: ArrayLike,
    chunks: ArrayLike | None = None,
    forward: ArrayLike = 1.0,
    backward_input: ArrayLike = 1.0,
    backward_weight: ArrayLike = 1.0,
    send: ArrayLike = 0.0,
) -> Floats:
    """Time waited ÷ whole time: (p−1)/(m+p−1) for GPipe and 1F1B, (p−1)/(v·m+p−1) interleaved, (p−1)/p naive.

    Arguments and errors as in `bubble_over_ideal`.

    >>> idle_share("1f1b", stages=4, micro_batches=8).item() == 3 / 11
    True
    """
    waited = bubble_over_ideal(
        schedule,
        stages=stages,
        micro_batches=micro_batches,
        chunks=chunks,
        forward=forward,
        backward_input=backward_input,
        backward_weight=backward_weight,
        send=send,
    )
    return waited / (1 + waited)


def in_flight(
    schedule: Schedule | str,
    *,
    stages: ArrayLike,
    micro_batches: ArrayLike,
    stage: ArrayLike = 0,
    chunks: ArrayLike | None = None,
) -> Floats:
    """Micro-batches whose activations stage `stage` (from 0) holds at most; one of its v chunks counts 1/v.

    naive        1
    gpipe        m
    1f1b         min(m, p−i)
    interleaved  min(m, (2(p−i−1) + (v−1)·p + 1)/v), on stage 0 p·(1+(p−1)/(p·v))   Korthikanti 2022
    zb-h1        min(m, p), all stages alike; held until the weight gradient is done
    zb-h2        min(m, 2p−1)
    zbv          min(m, p)
    v-half       p/2 + 1, the fullest stage whatever `stage`      as played here; ½ of 1F1B is published
    v-min        ⌊(p+4)/3⌋, the fullest stage whatever `stage`    as played here; ⅓ of 1F1B is published
    dualpipe     p + 1
    dualpipe-v   p + ½

    Raises ValueError for sizes below 1 and a stage outside the pipeline.

    >>> in_flight("1f1b", stages=4, micro_batches=8, stage=[0, 1, 2, 3]).tolist()
    [4.0, 3.0, 2.0, 1.0]
    """
    kind = kind_of(schedule)
    sizes = _sizes(kind.schedule, stages=stages, micro_batches=micro_batches, chunks=chunks)
    i = amounts(stage=stage)["stage"]
    check_broadcast({**sizes, "stage": i})
    p, m, v = sizes["stages"], sizes["micro_batches"], sizes["chunks"]
    outside = i > p - 1
    if anywhere(outside):
        which, of = (np.broadcast_to(values, outside.shape)[outside].flat[0] for values in (i, p))
        raise ValueError(
            f"stage is {which:g}, but the last of {of:g} stages is number {of - 1:g}, counted from 0."
        )
    match kind.schedule:
        case Schedule.NAIVE:
            held = np.ones_like(p)
        case Schedule.GPIPE:
            held = m
        case Schedule.ONE_F_ONE_B:
            held = np.minimum(m, p - i)
        case Schedule.INTERLEAVED:
            held = np.minimum(m, (2 * (p - i - 1) + (v - 1) * p + 1) / v)
        case Schedule.ZB_H1 | Schedule.ZBV:
            held = np.minimum(m, p)
        case Schedule.ZB_H2:
            held = np.minimum(m, 2 * p - 1)
        case Schedule.V_HALF:
            held = np.minimum(m, p / 2 + 1)
        case Schedule.V_MIN:
            held = np.minimum(m, np.floor((p + 4) / 3))
        case Schedule.DUALPIPE:
            held = np.minimum(m, p + 1)
        case Schedule.DUALPIPE_V:
            held = np.minimum(m, p + 0.5)
    return floats(held)


def peak_in_flight(
    schedule: Schedule | str, *, stages: ArrayLike, micro_batches: ArrayLike, chunks: ArrayLike | None = None
) -> Floats:
    """Micro-batches whose activations the fullest stage holds: `in_flight` of stage 0.

    Times the activations of one stage and one micro-batch this is its memory: L/p layers' worth each.

    >>> peak_in_flight("gpipe", stages=4, micro_batches=[8, 64]).tolist()
    [8.0, 64.0]
    """
    return in_flight(schedule, stages=stages, micro_batches=micro_batches, chunks=chunks)


def sends_per_micro_batch(
    schedule: Schedule | str, *, stages: ArrayLike, chunks: ArrayLike | None = None
) -> Floats:
    """Messages that one micro-batch causes in training, all boundaries together: activations, then gradients.

    2·(p−1); interleaved 2·(p·v−1), the way back to the first stage included; schedules in the shape of a V
    2·(2p−2), for their turn at the last stage stays on the device. DualPipe sends as 1F1B does, half of it
    the other way.

    >>> sends_per_micro_batch("interleaved", stages=4, chunks=[2, 4]).tolist()
    [14.0, 30.0]
    """
    kind = kind_of(schedule)
    sizes = _sizes(kind.schedule, stages=stages, micro_batches=1, chunks=chunks)
    p, v = sizes["stages"], sizes["chunks"]
    if kind.schedule == Schedule.INTERLEAVED:
        return floats(2 * sends_per_pass(p, v))
    return floats(2 * sends_per_pass(p, floats(1), folded=kind.schedule in _V_SHAPED))


def sends_per_pass(stages: Floats, chunks: Floats, *, folded: bool = False) -> Floats:
    """Sends of one micro-batch in one direction: p·v−1, or 2·(p−1) where the pipeline folds; none in one stage.

    >>> sends_per_pass(floats([1, 4, 4]), floats([2, 1, 2])).tolist()
    [0.0, 3.0, 7.0]
    """
    return 2 * (stages - 1) if folded else (stages * chunks - 1) * (stages > 1)


def parameter_copies(schedule: Schedule | str) -> int:
    """How often each layer's weights are held in one pipeline: 2 in DualPipe, else 1.

    >>> parameter_copies("dualpipe"), parameter_copies("dualpipe-v")
    (2, 1)
    """
    return 2 if kind_of(schedule).schedule == Schedule.DUALPIPE else 1


def _sizes(
    schedule: Schedule, *, stages: ArrayLike, micro_batches: ArrayLike, chunks: ArrayLike | None
) -> dict[str, Floats]:
    own = kind_of(schedule).chunks
    v = counts(chunks=(2 if own is None else own) if chunks is None else chunks)["chunks"]
    if own is not None and anywhere(v != own):
        raise ValueError(
            f"chunks is {v[v != own].flat[0]:g}, but {kind_of(schedule).name} has "
            f"{'one chunk' if own == 1 else 'two chunks'} on each stage. Give {own}, or take interleaved 1F1B."
        )
    return counts(stages=stages, micro_batches=micro_batches, chunks=v)


def _times(
    forward: ArrayLike,
    backward_input: ArrayLike,
    backward_weight: ArrayLike,
    send: ArrayLike,
    overlapped: ArrayLike | None,
) -> dict[str, Floats]:
    together = {} if overlapped is None else {"overlapped": overlapped}
    return amounts(
        forward=forward, backward_input=backward_input, backward_weight=backward_weight, send=send, **together
    )
