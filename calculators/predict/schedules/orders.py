"""The order of work of every stage, schedule by schedule: what a stage does first, second and so on, without times.

An order is a tuple of slots. A slot is one operation, or two that run side by side (DualPipe). A pass through
the model visits *positions* 0, 1, … along a *route*; a route says which stage holds which position. Only
DualPipe has two routes.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from calculators.predict.schedules.kinds import Schedule

FORWARD, BACKWARD, BACKWARD_INPUT, BACKWARD_WEIGHT = range(4)


class Step(NamedTuple):
    """One operation of one stage: which kind of work, on which position of which route, for which micro-batch."""

    work: int
    route: int
    position: int
    micro_batch: int


Slot = tuple[Step, ...]
Order = tuple[Slot, ...]


class Plan(NamedTuple):
    """The routes (stage at each position) and the order of every stage."""

    routes: tuple[tuple[int, ...], ...]
    orders: tuple[Order, ...]


def routes(schedule: Schedule, stages: int, chunks: int) -> tuple[tuple[int, ...], ...]:
    """The stage at each position: along a line, round and round it, down and up a V, or along it and against it."""
    line = tuple(range(stages))
    match schedule:
        case Schedule.INTERLEAVED:
            return (line * chunks,)
        case Schedule.ZBV | Schedule.V_HALF | Schedule.V_MIN | Schedule.DUALPIPE_V:
            return ((*line, *reversed(line)),)
        case Schedule.DUALPIPE:
            return (line, tuple(reversed(line)))
    return (line,)


@lru_cache(maxsize=64)
def plan(schedule: Schedule, stages: int, micro_batches: int, chunks: int, group: int) -> Plan:
    """Who does what in which order. The sizes have been checked."""
    p, m = stages, micro_batches
    if schedule in (Schedule.V_HALF, Schedule.V_MIN):
        orders = _controlled(schedule, p, m)
    else:
        orders = tuple(_order(schedule, stage, p, m, chunks, group) for stage in range(p))
    return Plan(routes(schedule, p, chunks), orders)


def _order(schedule: Schedule, stage: int, p: int, m: int, v: int, group: int) -> Order:
    match schedule:
        case Schedule.NAIVE:
            return _naive(stage, m)
        case Schedule.GPIPE:
            return _gpipe(stage, m)
        case Schedule.ONE_F_ONE_B:
            return _one_f_one_b(stage, p, m)
        case Schedule.INTERLEAVED:
            return _interleaved(stage, p, m, v, group)
        case Schedule.ZB_H1:
            return _zero_bubble(stage, m, ahead=p - stage, late=stage)
        case Schedule.ZB_H2:
            return _zero_bubble(stage, m, ahead=2 * (p - stage) - 1, late=2 * stage)
        case Schedule.ZBV:
            return _zbv(stage, p, m)
        case Schedule.DUALPIPE:
            return _both_ways(stage, p, m)
        case Schedule.DUALPIPE_V:
            return _dualpipe(stage, p, m, own=(0, stage), other=(0, 2 * p - 1 - stage))
    raise AssertionError(schedule)


def _naive(stage: int, m: int) -> Order:
    return tuple((Step(work, 0, stage, k),) for k in range(m) for work in (FORWARD, BACKWARD))


def _gpipe(stage: int, m: int) -> Order:
    return tuple((Step(work, 0, stage, k),) for work in (FORWARD, BACKWARD) for k in range(m))


def _one_f_one_b(stage: int, p: int, m: int) -> Order:
    forward = [(Step(FORWARD, 0, stage, k),) for k in range(m)]
    backward = [(Step(BACKWARD, 0, stage, k),) for k in range(m)]
    return _alternate(forward, backward, ahead=p - stage - 1)


def _interleaved(stage: int, p: int, m: int, v: int, group: int) -> Order:
    """Groups of micro-batches through one chunk after another; backward the chunks the other way round."""
    passes = [
        (chunk, k)
        for first in range(0, m, group)
        for chunk in range(v)
        for k in range(first, min(first + group, m))
    ]
    forward = [(Step(FORWARD, 0, chunk * p + stage, k),) for chunk, k in passes]
    backward = [(Step(BACKWARD, 0, (v - 1 - chunk) * p + stage, k),) for chunk, k in passes]
    return _alternate(forward, backward, ahead=2 * (p - stage - 1) + (v - 1) * group)


def _alternate(forward: Sequence[Slot], backward: Sequence[Slot], *, ahead: int) -> Order:
    """`ahead` forwards, then a forward and a backward in turn, then the backwards that are left."""
    ahead = min(ahead, len(forward))
    order = list(forward[:ahead])
    for turn, back in enumerate(backward):
        order += [*forward[ahead + turn : ahead + turn + 1], back]
    return tuple(order)


def _zero_bubble(stage: int, m: int, *, ahead: int, late: int) -> Order:
    """`ahead` forwards; then input gradients, each with the weight gradient `late` turns behind, and a forward."""
    forwards = min(ahead, m)
    order = [(Step(FORWARD, 0, stage, k),) for k in range(forwards)]
    for k in range(m):
        order.append((Step(BACKWARD_INPUT, 0, stage, k),))
        if k >= late:
            order.append((Step(BACKWARD_WEIGHT, 0, stage, k - late),))
        if forwards < m:
            order.append((Step(FORWARD, 0, stage, forwards),))
            forwards += 1
    order += [(Step(BACKWARD_WEIGHT, 0, stage, k),) for k in range(max(m - late, 0), m)]
    return tuple(order)


def _zbv(stage: int, p: int, m: int) -> Order:
    """Written for at least 2p − 1 micro-batches; of fewer the surplus is left out."""
    planned = max(m, 2 * p - 1)
    down, up = stage, 2 * p - 1 - stage
    done: Counter[tuple[int, int]] = Counter()
    order: list[Slot] = []

    def do(*works: int, at: int) -> None:
        for work in works:
            micro_batch = done[work, at]
            done[work, at] += 1
            if micro_batch < m:
                order.append((Step(work, 0, at, micro_batch),))

    for _ in range(2 * (p - stage) - 1):
        do(FORWARD, at=down)
    for _ in range(stage):
        do(FORWARD, at=up)
        do(FORWARD, at=down)
    for _ in range(p - stage):
        do(FORWARD, BACKWARD_INPUT, BACKWARD_WEIGHT, at=up)
    while done[FORWARD, up] < planned:
        if done[FORWARD, down] < planned:
            do(FORWARD, at=down)
        do(BACKWARD_INPUT, BACKWARD_WEIGHT, at=down)
        do(FORWARD, BACKWARD_INPUT, BACKWARD_WEIGHT, at=up)
    for _ in range(stage):
        do(BACKWARD_INPUT, at=down)
        do(BACKWARD_INPUT, at=up)
    for _ in range(p - stage):
        do(BACKWARD_INPUT, BACKWARD_WEIGHT, at=down)
    for at in (up, down):
        while done[BACKWARD_WEIGHT, at] < planned:
            do(BACKWARD_WEIGHT, at=at)
    return tuple(order)


def _both_ways(stage: int, p: int, m: int) -> Order:
    """DualPipe: half of the micro-batches along the stages (route 0), the other half against them (route 1)."""
    position = (stage, p - 1 - stage)
    near = int(stage >= p // 2)  # the route in whose first half this stage is
    far = 1 - near
    return _dualpipe(min(position), p // 2, m // 2, own=(near, position[near]), other=(far, position[far]))


def _dualpipe(stage: int, p: int, m: int, *, own: tuple[int, int], other: tuple[int, int]) -> Order:
    """The eight phases of DualPipe on one stage: `own` is its (route, position) on the way in, `other` out."""
    done: Counter[tuple[bool, tuple[int, int]]] = Counter()
    late: deque[Step] = deque()
    order: list[Slot] = []

    def step(work: int, at: tuple[int, int]) -> Step:
        counted = (work == FORWARD, at)
        done[counted] += 1
        return Step(work, *at, done[counted] - 1)

    def do(work: int, at: tuple[int, int]) -> None:
        order.append((step(work, at),))
        if work == BACKWARD_INPUT:
            late.append(order[-1][0]._replace(work=BACKWARD_WEIGHT))

    def weight() -> None:
        if late:
            order.append((late.popleft(),))

    for _ in range(2 * (p - stage - 1)):
        do(FORWARD, own)
    for _ in range(stage + 1):
        do(FORWARD, own)
        do(FORWARD, other)
    for _ in range(p - stage - 1):
        do(BACKWARD_INPUT, other)
        weight()
        do(FORWARD, other)
    for turn in range(m - 2 * p + stage + 1):
        if (
            turn == 0 and stage == p - 1
        ):  # the middle stages do not pair their first two: it would lengthen the start
            do(FORWARD, own)
            do(BACKWARD, other)
        else:
            order.append((step(FORWARD, own), step(BACKWARD, other)))
        order.append((step(FORWARD, other), step(BACKWARD, own)))
    for _ in range(p - stage - 1):
        do(BACKWARD, other)
        order.append((step(FORWARD, other), step(BACKWARD, own)))
    split_from = (
        stage + 1
    )  # of the 2·(stage + 1) backwards that follow, the second half leaves its weights for later
    for turn in range(2 * (stage + 1)):
        do(BACKWARD_INPUT if turn >= split_from else BACKWARD, own if turn % 2 else other)
    for _ in range(p - stage - 1):
        weight()
        do(BACKWARD_INPUT, own)
    while late:
        weight()
    return tuple(order)


# V-Half and V-Min repeat one micro-batch's pattern every six units, where a forward, an input gradient and a weight
# gradient of one of the two chunks takes one unit each. The numbers are how many units one stage starts after its
# neighbour: forward down the V and up it, backward down and up. Slower steps hold activations for longer.
_PACE = {Schedule.V_HALF: (2, 1, 2, 1), Schedule.V_MIN: (1, 1, 1, 1)}
_PERIOD = 6


def _controlled(schedule: Schedule, p: int, m: int) -> tuple[Order, ...]:
    """Forwards and input gradients in the order of the pattern; weight gradients wherever a stage would wait."""
    starts = _pattern(schedule, p)
    queues: list[deque[Step]] = []
    for stage in range(p):
        timed = [
            (starts[part][stage] + _PERIOD * k, Step(work, 0, position, k))
            for part, (work, position) in enumerate(_parts(stage, p))
            for k in range(m)
        ]
        queues.append(deque(step for _, step in sorted(timed)))
    limit = p + 2 if schedule == Schedule.V_HALF else 2 * ((p + 4) // 3)
    return _fill_with_weights(queues, p, limit)


def _parts(stage: int, p: int) -> tuple[tuple[int, int], ...]:
    down, up = stage, 2 * p - 1 - stage
    return ((FORWARD, down), (FORWARD, up), (BACKWARD_INPUT, up), (BACKWARD_INPUT, down))


def _pattern(schedule: Schedule, p: int) -> tuple[list[int], ...]:
    """When each stage starts the four parts of its first micro-batch, with no two at once as the pattern repeats."""
    turns = _turns(schedule, p)
    down, up, back_down, back_up = _PACE[schedule]
    forward = [down * stage for stage in range(p)]
    begin = forward[-1] + turns[0]
    forward_up = [begin + up * (p - 1 - stage) for stage in range(p)]
    begin = forward_up[0] + turns[1]
    backward = [begin + back_down * stage for stage in range(p)]
    begin = backward[-1] + turns[2]
    backward_up = [begin + back_up * (p - 1 - stage) for stage in range(p)]
    return forward, forward_up, backward, backward_up


def _turns(schedule: Schedule, p: int) -> tuple[int, int, int]:
    """Units between the parts where the way turns round: the least that keeps the repeating parts apart."""
    if schedule == Schedule.V_MIN:
        return (3, 1, 3) if p % 3 == 0 else (1, 1, 1)
    return (1, 1, 2) if p % 2 else (4, 2, 4)


def _fill_with_weights(queues: list[deque[Step]], p: int, limit: int) -> tuple[Order, ...]:
    """Plays the queues in equal units of time; a stage that would wait, or holds `limit`, does a weight gradient."""
    orders: list[list[Slot]] = [[] for _ in range(p)]
    waiting: list[deque[Step]] = [deque() for _ in range(p)]
    held = [0] * p
    finished: dict[tuple[bool, int, int], int] = {}
    now, last = 0, 2 * p - 1
    while any(queues) or any(waiting):
        for stage in range(p):
            queue = queues[stage]
            if queue:
                work, _, position, k = step = queue[0]
                if work == FORWARD:
                    ready = held[stage] < limit and (
                        position == 0 or finished.get((True, position - 1, k), now + 1) <= now
                    )
                else:
                    ready = finished.get((True, position, k), now + 1) <= now and (
                        position == last or finished.get((False, position + 1, k), now + 1) <= now
                    )
                if ready:
                    queue.popleft()
                    orders[stage].append((step,))
                    finished[work == FORWARD, position, k] = now + 1
                    if work == FORWARD:
                        held[stage] += 1
                    else:
                        waiting[stage].append(step._replace(work=BACKWARD_WEIGHT))
                    continue
            if waiting[stage]:
                orders[stage].append((waiting[stage].popleft(),))
                held[stage] -= 1
        now += 1
    return tuple(tuple(order) for order in orders)
