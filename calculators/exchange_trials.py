"""From calls that somebody calculated to an exchange that makes them: data, context and expert parallelism.

A page gives what it calculated to `exchange_trial`, and the trial to `workbench.run_it`, which spells the spec out in
the address of the page that starts it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from calculators.lab.limits import EXCHANGED_COPIES
from calculators.lab.spec import Dtype, Job, Pattern, Spec
from calculators.trials import MOST_RANKS, Trial
from calculators.units import both_bytes, counted, exact_bytes, iec_bytes, plain

MOST_REPEATS = 32

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
                of keys and values on the ring, one rank's send buffer in an all-to-all (the mean of Ulysses' four)
    repeats     how often the pattern's calls are made: once a layer, twice that with a backward pass that repeats
                them, once a bucket of a gradient
    ranks       in the group
    skew        of experts: the r-th is wanted as r^−skew
    row_bytes   of experts: the hidden state of one token [bytes]
    """

    pattern: Pattern
    call_bytes: float
    repeats: float
    ranks: int
    skew: float = 0.0
    row_bytes: int = 1_024


def exchange_trial(wanted: CalculatedCalls) -> Trial | None:
    """The exchange that makes these calls on this machine, with what had to differ; None where nothing travels.

    >>> found = exchange_trial(CalculatedCalls(pattern=Pattern.RING, call_bytes=524_288, repeats=8, ranks=4))
    >>> found.spec.call_bytes, found.spec.repeats, found.spec.ranks
    (524288, 8, 4)
    """
    if wanted.ranks < 2 or wanted.call_bytes <= 0 or wanted.repeats < 1:
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
    counts = {Pattern.ZERO_1: 2, Pattern.ZERO_2: 2, Pattern.ZERO_3: 3, Pattern.ULYSSES: 4, Pattern.EXPERTS: 2}
    calls = repeats * (ranks - 1 if pattern is Pattern.RING else counts.get(pattern, 1))
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
        shared.append(f"the same bytes in each call, {both_bytes(spec.call_bytes)}")
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
    if spec.pattern is Pattern.ULYSSES:
        yield (
            "Its four all-to-alls are of one size. Where keys and values have fewer heads than queries, theirs are "
            "smaller and the other two larger by as much."
        )
    if spec.pattern is Pattern.EXPERTS:
        yield (
            "Each rank stands for one expert, and every call uses the same routing, drawn from the spec's seed. "
            "Rank 0 holds the expert that is wanted most."
            if spec.skew
            else "Each rank stands for one expert, and every call uses the same routing, drawn from the spec's seed."
        )
        if spec.row_bytes != wanted.row_bytes:
            yield f"A row has {plain(spec.row_bytes)} B instead of {plain(wanted.row_bytes)} B, the nearest width."
