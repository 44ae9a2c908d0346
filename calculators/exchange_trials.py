"""From calls that somebody calculated to an exchange that makes them: data, context and expert parallelism.

A page gives its `Traffic` to `calculated_calls` (or its own numbers to `CalculatedCalls`), that to `exchange_trial`,
and the trial to `workbench.run_it`, which spells the spec out in the address of the page that starts it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from calculators.lab.spec import Dtype, Job, Pattern, Spec
from calculators.lab.splits.exchange import EXCHANGED_COPIES
from calculators.predict.collectives import Kind
from calculators.predict.traffic import Traffic
from calculators.trials import MOST_RANKS, Trial
from calculators.units import both_bytes, counted, exact_bytes, iec_bytes, plain

MOST_REPEATS = 32

CALLS: dict[Pattern, dict[Kind, int]] = {
    Pattern.GRADIENTS: {Kind.ALL_REDUCE: 1},
    Pattern.ZERO_1: {Kind.REDUCE_SCATTER: 1, Kind.ALL_GATHER: 1},
    Pattern.ZERO_2: {Kind.REDUCE_SCATTER: 1, Kind.ALL_GATHER: 1},
    Pattern.ZERO_3: {Kind.REDUCE_SCATTER: 1, Kind.ALL_GATHER: 2},
    Pattern.RING: {Kind.SEND: 1},
    Pattern.KEY_VALUE_GATHER: {Kind.ALL_GATHER: 1},
    Pattern.ULYSSES: {Kind.ALL_TO_ALL: 4},
    Pattern.EXPERTS: {Kind.ALL_TO_ALL: 2},
}
"""What one repeat of a pattern calls; of a ring, to each other rank."""

_ELEMENT = Dtype.FLOAT32.bytes_per_element
_LEAST_ROW, _MOST_ROW = 8 * _ELEMENT, 16_384 * _ELEMENT  # what the lab takes as a width
_MOST_SKEW = 8.0
# As in `trials`: what a run may cost, and rough speeds of one small CPU machine, only to choose sizes by.
_MOST_SECONDS = 20.0
_MOST_HELD_BYTES = 1 << 30
_BYTES_PER_SECOND = 2.5e8
_SECONDS_PER_CALL_AND_RANK = 1.5e-3


@dataclass(frozen=True, kw_only=True)
class CalculatedCalls:
    """What a family's calls were calculated to be, for one token, prompt or step.

    pattern     whose calls: gradients (1 all-reduce), zero-1 and zero-2 (1 reduce-scatter, 1 all-gather), zero-3 (2
                all-gathers, 1 reduce-scatter), ring (ranks − 1 sends), key-value-gather (1 all-gather), ulysses (4
                all-to-alls), experts (2 uneven all-to-alls)
    call_bytes  full size of one call [bytes]: the whole gradient or weights, the output of an all-gather, one block
                of keys and values on the ring, one rank's send buffer in an all-to-all
    repeats     how often the pattern's calls are made: once a layer, twice that with a backward pass that repeats
                them, once a bucket of a gradient
    ranks       in the group
    skew        of experts: the r-th is wanted as r^−skew
    row_bytes   of experts: the hidden state of one token [bytes]
    is_mean     whether calls of several sizes were calculated, whose mean `call_bytes` is
    left_out    calculated calls that the pattern has none of, in words
    """

    pattern: Pattern
    call_bytes: float
    repeats: float
    ranks: int
    skew: float = 0.0
    row_bytes: int = 1_024
    is_mean: bool = False
    left_out: tuple[str, ...] = ()


def calculated_calls(
    traffic: Traffic, pattern: Pattern, *, skew: float = 0.0, row_bytes: int = 1_024
) -> CalculatedCalls | None:
    """The calls of `traffic`, a case of single numbers, that an exchange of `pattern` makes; None if they are others.

    >>> from calculators.predict.traffic import data_parallel
    >>> step = data_parallel(parameters=1_000_000, ranks=4, stage="zero-3", units=2)
    >>> found = calculated_calls(step, Pattern.ZERO_3)
    >>> found.call_bytes, found.repeats, found.ranks
    (1000000.0, 2.0, 4)
    """
    made = [part for part in traffic.parts if part.kind in CALLS[pattern] and part.calls.item()]
    if not made:
        return None
    ranks = round(made[0].ranks.item())
    per_repeat = {
        kind: times * (ranks - 1 if kind is Kind.SEND else 1) for kind, times in CALLS[pattern].items()
    }
    calls = {kind: sum(part.calls.item() for part in made if part.kind is kind) for kind in per_repeat}
    repeats = {calls[kind] / times for kind, times in per_repeat.items()}
    if len(repeats) != 1:
        return None
    others = (part for part in traffic.parts if part not in made and part.calls.item())
    return CalculatedCalls(
        pattern=pattern,
        call_bytes=sum(part.full_bytes.item() for part in made) / sum(calls.values()),
        repeats=repeats.pop(),
        ranks=ranks,
        skew=skew,
        row_bytes=row_bytes,
        is_mean=len({part.bytes_per_call.item() for part in made}) > 1,
        left_out=tuple(f"{counted(part.calls.item(), str(part.kind))} ({part.what})" for part in others),
    )


def exchange_trial(wanted: CalculatedCalls | None) -> Trial | None:
    """The exchange that makes these calls on this machine, with what had to differ; None where nothing travels.

    >>> found = exchange_trial(CalculatedCalls(pattern=Pattern.RING, call_bytes=524_288, repeats=8, ranks=4))
    >>> found.spec.call_bytes, found.spec.repeats, found.spec.ranks
    (524288, 8, 4)
    """
    if wanted is None or wanted.ranks < 2 or wanted.call_bytes <= 0 or wanted.repeats < 1:
        return None
    ranks, repeats = min(wanted.ranks, MOST_RANKS), min(round(wanted.repeats), MOST_REPEATS)
    part, routing = _part(wanted, ranks)
    size = wanted.call_bytes
    while (steps := _steps(wanted.pattern, size, ranks, repeats)) is None:
        size = 2.0 ** (round(size).bit_length() - 2)  # the powers of two below it: sizes that read well
    spec = Spec(
        job=Job.EXCHANGE,
        pattern=wanted.pattern,
        ranks=ranks,
        call_bytes=max(1, round(size / part)) * part,
        repeats=repeats,
        steps=steps,
        **routing,
    )
    return Trial(spec=spec, kept=_kept(wanted, spec), differences=tuple(_differences(wanted, spec)))


def _part(wanted: CalculatedCalls, ranks: int) -> tuple[int, dict[str, Any]]:
    """What a call's bytes must be a multiple of, and the fields that only experts have."""
    if wanted.pattern is Pattern.EXPERTS:
        row = min(max(_LEAST_ROW, round(wanted.row_bytes / _ELEMENT) * _ELEMENT), _MOST_ROW)
        return row, {"hidden_size": row // _ELEMENT, "skew": min(max(0.0, wanted.skew), _MOST_SKEW)}
    is_whole = wanted.pattern in (Pattern.GRADIENTS, Pattern.RING)
    return _ELEMENT * (1 if is_whole else ranks), {}


def _steps(pattern: Pattern, call_bytes: float, ranks: int, repeats: int) -> int | None:
    """As many measured steps as time and memory allow, 32 down to the lab's least of 10, or None.

    A smaller call saves none of the time that every call takes, so the least number of steps bears any.
    """
    if ranks * EXCHANGED_COPIES * call_bytes > _MOST_HELD_BYTES:
        return None
    calls = repeats * sum(CALLS[pattern].values()) * (ranks - 1 if pattern is Pattern.RING else 1)
    moving = 2 * ranks * calls * call_bytes / _BYTES_PER_SECOND
    waiting = calls * ranks * _SECONDS_PER_CALL_AND_RANK
    for steps in (32, 16, 10):
        if (moving + (waiting if steps > 10 else 0.0)) * steps <= _MOST_SECONDS:
            return steps
    return None


def _kept(wanted: CalculatedCalls, spec: Spec) -> str:
    shared = []
    if spec.ranks == wanted.ranks:
        shared.append(f"the same {counted(spec.ranks, 'rank')}")
    if spec.repeats == wanted.repeats:
        shared.append(f"the same {counted(spec.repeats, 'repeat')} of the calls")
    if spec.call_bytes == wanted.call_bytes:
        which = "a call on average" if wanted.is_mean else "in each call"
        shared.append(f"the same bytes {which}, {both_bytes(spec.call_bytes)}")
    if not shared:
        return "The run makes the same kind of calls, at a size that this lab can hold."
    listed = shared[0] if len(shared) == 1 else f"{', '.join(shared[:-1])} and {shared[-1]}"
    return f"The run has {listed}."


def _differences(wanted: CalculatedCalls, spec: Spec) -> Iterator[str]:
    yield spec.caveat
    if spec.call_bytes != wanted.call_bytes:
        shrunk = spec.call_bytes < wanted.call_bytes / 1.5
        shares = "rows" if spec.pattern is Pattern.EXPERTS else "elements, the same number on each rank"
        why = "so that the run ends within seconds" if shrunk else f"the nearest size of whole {shares}"
        given = iec_bytes(wanted.call_bytes) if shrunk else exact_bytes(wanted.call_bytes)
        yield (
            f"Each call moves {both_bytes(spec.call_bytes)} instead of {given}, {why}. "
            "Bytes follow in proportion."
        )
    if spec.ranks != wanted.ranks:
        yield (
            f"It has {counted(spec.ranks, 'rank')} instead of {plain(wanted.ranks)}; the lab starts no more "
            "unasked, as ranks share this machine's cores. Change the number below if the machine is larger."
        )
    if spec.repeats != wanted.repeats:
        yield (
            f"A step makes the calls {plain(spec.repeats)} times instead of {plain(wanted.repeats)}; each time is "
            "the same again."
        )
    if wanted.is_mean:
        yield "Its calls are all of one size, the mean of those that were calculated."
    if wanted.left_out:
        yield f"It leaves out {' and '.join(wanted.left_out)}."
    if spec.pattern is Pattern.EXPERTS:
        yield (
            "Each rank stands for one expert, and every call uses the same routing, drawn from the spec's seed. "
            "Rank 0 holds the expert that is wanted most."
            if spec.skew
            else "Each rank stands for one expert, and every call uses the same routing, drawn from the spec's seed."
        )
        if spec.row_bytes != wanted.row_bytes:
            yield f"A row has {plain(spec.row_bytes)} B instead of {plain(wanted.row_bytes)} B, the nearest width."
