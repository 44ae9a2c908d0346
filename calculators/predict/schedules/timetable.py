"""A schedule played through: when every operation of every stage starts and ends.

Each stage does its operations in the order that its schedule gives, each as soon as the stage is free and
what it needs has arrived. Nothing is assumed about steady states, so stages may take unequal times and
messages may take some.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property, lru_cache
from itertools import pairwise
from operator import attrgetter, itemgetter
from typing import NamedTuple

import numpy as np

from calculators.predict.arrays import MOST, Floats, said
from calculators.predict.schedules import orders
from calculators.predict.schedules.kinds import Schedule, check, chunks_of, kind_of


class Work(StrEnum):
    """What one operation computes; `BACKWARD` is both gradients in one."""

    FORWARD = "forward"
    BACKWARD = "backward"
    BACKWARD_INPUT = "input gradient"
    BACKWARD_WEIGHT = "weight gradient"


MOST_PLAYED = 1_000_000
"""Passes forward, chunk by chunk, in one timetable: so many take seconds and about a gigabyte."""

_WORKS = (
    Work.FORWARD,
    Work.BACKWARD,
    Work.BACKWARD_INPUT,
    Work.BACKWARD_WEIGHT,
)  # by the numbers of `orders`


class Operation(NamedTuple):
    """One operation: where, what, on which of the stage's chunks and which micro-batch, and from when to when [s]."""

    stage: int
    work: Work
    chunk: int
    micro_batch: int
    start: float
    end: float


@dataclass(frozen=True, kw_only=True)
class Timetable:
    """Every operation of one training step, stage by stage, in the order in which it is done.

    rows   for each stage its operations; two with the same times run side by side (DualPipe)
    send   how long one message takes [s]
    chunks on each stage
    """

    schedule: Schedule
    stages: int
    micro_batches: int
    chunks: int
    send: float
    rows: tuple[tuple[Operation, ...], ...]

    @cached_property
    def makespan(self) -> float:
        """From the first operation of any stage to the last of any [s]."""
        return max(row[-1].end for row in self.rows)

    @cached_property
    def busy(self) -> Floats:
        """How long each stage works [s]."""
        if self.schedule in (Schedule.DUALPIPE, Schedule.DUALPIPE_V):  # two at once count once
            return np.array([sum(slot[0].end - slot[0].start for slot in _slots(row)) for row in self.rows])
        return np.array([sum([end - start for *_, start, end in row]) for row in self.rows])

    @cached_property
    def spans(self) -> Floats:
        """From each stage's own first operation to its own last [s]."""
        return np.array([row[-1].end - row[0].start for row in self.rows])

    @property
    def period(self) -> float:
        """The longest of the spans [s]: the time of a step where each stage may start the next one when it is done.

        This is what the papers on zero bubbles count. It is the makespan in GPipe and 1F1B, whose first stage
        is also the last to end.
        """
        return float(self.spans.max())

    @cached_property
    def idle(self) -> Floats:
        """How long each stage waits in one period [s]."""
        return self.period - self.busy

    @property
    def bubble_seconds(self) -> float:
        """How long a stage waits in one period, on average over the stages [s]."""
        return float(self.idle.mean())

    @property
    def bubble_over_ideal(self) -> float:
        """Time waited ÷ time worked, all stages together."""
        return float(self.idle.sum() / self.busy.sum())

    @property
    def idle_share(self) -> float:
        """Time waited ÷ whole time, all stages together."""
        return self.bubble_seconds / self.period

    @cached_property
    def peak_in_flight(self) -> Floats:
        """The most micro-batches whose activations each stage holds at once; one of its v chunks counts 1/v.

        Activations are held from the start of the forward to the end of the whole backward: the weight
        gradient needs them too.
        """
        share = 1.0 if self.schedule == Schedule.DUALPIPE else 1.0 / self.chunks
        return np.array([_most_held(row) * share for row in self.rows])

    @cached_property
    def longest_chain(self) -> tuple[Operation, ...]:
        """Operations each of which could not start before the one ahead of it was done: why the step takes this long.

        Starts with the first operation and ends with the last. Between two on different stages a message
        travels.
        """
        return _longest_chain(self)


def timetable(
    schedule: Schedule | str,
    *,
    stages: int,
    micro_batches: int,
    chunks: int | None = None,
    group: int | None = None,
    forward: float | Sequence[float] = 1.0,
    backward_input: float | Sequence[float] = 1.0,
    backward_weight: float | Sequence[float] = 1.0,
    send: float = 0.0,
    overlapped: float | None = None,
) -> Timetable:
    """Plays one training step of `micro_batches` through `stages`.

    chunks           on each stage, by default what the schedule takes
    group            of micro-batches in interleaved 1F1B, by default the stages
    forward          time of one micro-batch in one stage, all its chunks together [s]: one number, or one
                     for each stage
    backward_input   time of the gradient of the stage's input [s]
    backward_weight  time of the gradient of its weights [s]
    send             time of one message between two stages [s]; it delays the receiver and keeps nobody busy
    overlapped       DualPipe only: time of a forward and a backward side by side, by default their sum [s]

    In DualPipe each of the two stages that a device holds takes these times. V-Half and V-Min are ordered
    here for equal times, by doing weight gradients wherever a stage would wait; the papers' own orders may
    differ by a unit or two.

    Raises ValueError, in a sentence, for sizes that have no order of work and times that are no times.

    >>> played = timetable("1f1b", stages=4, micro_batches=8)
    >>> played.makespan, played.bubble_over_ideal, played.peak_in_flight.tolist()
    (33.0, 0.375, [4.0, 3.0, 2.0, 1.0])
    """
    check(schedule, stages=stages, micro_batches=micro_batches, chunks=chunks, group=group)
    kind = kind_of(schedule)
    v = chunks_of(schedule, chunks)
    if overlapped is not None and kind.schedule not in (Schedule.DUALPIPE, Schedule.DUALPIPE_V):
        raise ValueError(
            f"overlapped is {overlapped}, but only DualPipe runs two operations side by side. Leave it out."
        )
    if stages * micro_batches * v > MOST_PLAYED:
        raise ValueError(
            f"stages is {stages:,} and micro_batches {micro_batches:,}, {stages * micro_batches * v:,} passes forward "
            f"in all, but at most {MOST_PLAYED:,} are played one by one. Use fewer, or the formulas."
        )
    times = tuple(
        _per_stage(name, values, stages)
        for name, values in (
            ("forward", forward),
            ("backward_input", backward_input),
            ("backward_weight", backward_weight),
        )
    )
    if not any(map(any, times)):
        raise ValueError(
            "forward, backward_input and backward_weight are all 0, so there is no work to play. "
            "Give one of them a time."
        )
    _check_time("send", send)
    longest = max(map(max, times))
    if longest < max(1e-200, 1e-12 * send):  # in the sum of both it would be lost
        raise ValueError(
            f"send is {send:g}, but no work takes more than {longest:g} s, too short to tell from nothing beside it. "
            "Give work or messages another time."
        )
    if overlapped is not None:
        _check_time("overlapped", overlapped)
    return _play(
        kind.schedule, stages, micro_batches, v, stages if group is None else group, times, send, overlapped
    )


@lru_cache(maxsize=8)  # a slider comes back to the same few
def _play(
    schedule: Schedule,
    stages: int,
    micro_batches: int,
    chunks: int,
    group: int,
    times: tuple[tuple[float, ...], ...],
    send: float,
    overlapped: float | None,
) -> Timetable:
    plan = orders.plan(schedule, stages, micro_batches, chunks, group)
    share = 1.0 if schedule == Schedule.DUALPIPE else float(chunks)
    durations = [(f / share, (b + w) / share, b / share, w / share) for f, b, w in zip(*times, strict=True)]
    pair = None if overlapped is None else overlapped / share
    rows = _run(plan, durations, micro_batches, send, pair)
    return Timetable(
        schedule=schedule, stages=stages, micro_batches=micro_batches, chunks=chunks, send=send, rows=rows
    )


def _run(
    plan: orders.Plan,
    durations: Sequence[tuple[float, ...]],
    micro_batches: int,
    send: float,
    pair: float | None,
) -> tuple[tuple[Operation, ...], ...]:
    """Lets each stage go on as far as it can, and then those beside it, until nobody can."""
    routes, all_orders = plan
    # When a pass is done at a position: [route][position][micro-batch], None before it is.
    forwards: list[list[list[float | None]]] = [[[None] * micro_batches for _ in route] for route in routes]
    backwards: list[list[list[float | None]]] = [[[None] * micro_batches for _ in route] for route in routes]
    chunk_of = [_chunks(routes, route) for route in range(len(routes))]
    rows: list[list[Operation]] = [[] for _ in all_orders]
    next_slot, free = [0] * len(all_orders), [0.0] * len(all_orders)
    make, works, forward, weight = Operation._make, _WORKS, orders.FORWARD, orders.BACKWARD_WEIGHT
    beside = _beside(routes, len(all_orders))
    todo, is_due = deque(range(len(all_orders))), [True] * len(all_orders)
    while todo:
        stage = todo.popleft()
        is_due[stage] = False
        order = all_orders[stage]
        at, now, lasts, row = next_slot[stage], free[stage], durations[stage], rows[stage]
        first, end = at, len(order)
        while at < end:
            slot = order[at]
            start: float = now
            lasting = 0.0
            for work, r, position, k in slot:
                route = routes[r]
                lasting += lasts[work]
                if work == forward:
                    if position == 0:
                        continue
                    needs = forwards[r][position - 1][k]
                    away = route[position - 1] != stage
                elif work != weight and position + 1 < len(route):
                    needs = backwards[r][position + 1][k]
                    away = route[position + 1] != stage
                else:
                    continue  # its own forward or input gradient, which comes earlier in its stage's order
                if needs is None:
                    break
                if away:
                    needs += send
                if needs > start:
                    start = needs
            else:
                now = start + (pair if pair is not None and len(slot) == 2 else lasting)
                for work, r, position, k in slot:
                    if work == forward:
                        forwards[r][position][k] = now
                    elif work != weight:
                        backwards[r][position][k] = now
                    row.append(make((stage, works[work], chunk_of[r][position], k, start, now)))
                at += 1
                continue
            break
        if at > first:
            next_slot[stage], free[stage] = at, now
            for other in beside[stage]:
                if not is_due[other]:
                    is_due[other] = True
                    todo.append(other)
    if any(at < len(order) for at, order in zip(next_slot, all_orders, strict=True)):
        raise AssertionError("the orders wait for each other")  # ours, never a reader's
    if len(routes) == 2:  # those of the second route are the second half of the batch
        rows = [[_renumbered(operation, micro_batches // 2) for operation in row] for row in rows]
    return tuple(tuple(row) for row in rows)


def _beside(routes: Sequence[Sequence[int]], stages: int) -> list[list[int]]:
    """The stages that wait for what each stage sends."""
    found: list[set[int]] = [set() for _ in range(stages)]
    for route in routes:
        for here, there in pairwise(route):
            found[here].add(there)
            found[there].add(here)
    return [sorted(others) for others in found]


def _renumbered(operation: Operation, half: int) -> Operation:
    """Chunk 1 of a device in DualPipe is the other direction's stage, whose micro-batches count on from the half."""
    return operation._replace(micro_batch=operation.micro_batch + half * operation.chunk)


def _chunks(routes: Sequence[Sequence[int]], route: int) -> list[int]:
    """Which of its stage's chunks, counted from 0, each position of the route is."""
    if len(routes) == 2:
        return [route] * len(routes[route])
    seen: dict[int, int] = {}
    numbers = []
    for stage in routes[route]:
        numbers.append(seen.get(stage, 0))
        seen[stage] = numbers[-1] + 1
    return numbers


def _most_held(row: Sequence[Operation]) -> int:
    held = most = 0
    for operation in row:  # of two side by side the forward comes first here: both activations are held
        work = operation.work
        if work is Work.FORWARD:
            held += 1
            if held > most:
                most = held
        elif work is not Work.BACKWARD_INPUT:
            held -= 1
    return most


def _longest_chain(played: Timetable) -> tuple[Operation, ...]:
    routes = orders.routes(played.schedule, played.stages, played.chunks)
    following: dict[tuple[int, int], tuple[int, int]] = {}
    for number, route in enumerate(routes):
        places = list(zip(route, _chunks(routes, number), strict=True))
        following.update(pairwise(places))
    preceding = {there: here for here, there in following.items()}
    passes = {
        (operation.work == Work.FORWARD, operation.stage, operation.chunk, operation.micro_batch): operation
        for row in played.rows
        for operation in row
        if operation.work != Work.BACKWARD_WEIGHT
    }
    waited_for: dict[Operation, Operation] = {}
    for row in played.rows:
        earlier: Operation | None = None
        for slot in _slots(row):
            causes = [] if earlier is None else [(earlier.end, earlier)]
            for operation in slot:
                place, forward = (operation.stage, operation.chunk), operation.work == Work.FORWARD
                source = (preceding if forward else following).get(place)
                if source is not None and operation.work != Work.BACKWARD_WEIGHT:
                    cause = passes[(forward, *source, operation.micro_batch)]
                    causes.append((cause.end + played.send * (cause.stage != operation.stage), cause))
            if causes:
                latest = max(causes, key=itemgetter(0))[1]
                waited_for.update(dict.fromkeys(slot, latest))
            earlier = slot[0]
    here = max((row[-1] for row in played.rows), key=attrgetter("end"))
    chain = [here]
    while here in waited_for:
        here = waited_for[here]
        chain.append(here)
    return tuple(reversed(chain))


def _slots(row: Sequence[Operation]) -> list[tuple[Operation, ...]]:
    """The operations one after another, a forward and a backward side by side in one slot."""
    slots: list[tuple[Operation, ...]] = []
    for operation in row:
        if slots and _side_by_side(slots[-1][-1], operation):
            slots[-1] = (*slots[-1], operation)
        else:
            slots.append((operation,))
    return slots


def _side_by_side(first: Operation, second: Operation) -> bool:
    """A pair is a forward and a whole backward with the same times; one after another they could not have them."""
    return (
        (first.work, second.work) == (Work.FORWARD, Work.BACKWARD)
        and first.start == second.start
        and first.end == second.end
        and first.end > first.start
    )


def _per_stage(name: str, values: float | Sequence[float], stages: int) -> tuple[float, ...]:
    given = tuple(values) if isinstance(values, Sequence | np.ndarray) else (values,) * stages
    if len(given) != stages:
        raise ValueError(
            f"{name} has {len(given)} times for {stages} stages. Give one number for all of them, or one for each."
        )
    for value in given:
        _check_time(name, value)
    return tuple(float(value) for value in given)


def _check_time(name: str, value: float) -> None:
    if not isinstance(value, int | float | np.number) or not 0 <= value <= MOST:
        raise ValueError(
            f"{name} is {said(value)}, but it must be a time [s], 0 or more and at most {MOST:g}."
        )
