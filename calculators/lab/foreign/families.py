"""Guesses from the calls of one group which way of splitting it serves, and says why; it may decline.

What tells families apart is which calls are made, in whose sizes, and whether in autograd's backward pass: every
call was noted with that.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd

from calculators.lab.foreign.expected import GroupCalls
from calculators.lab.foreign.records import BARRIER, RECEIVE, SCATTER, Called
from calculators.predict.collectives import Kind

CANNOT_TELL = "I cannot tell"
SMALL_CHANGE = 0.05
"""What has less than this share of a group's handed bytes (a loss, a clipped norm, a router's counts) is left aside."""

MAINLY = 0.8
"""A size is the main one when this share of a group's calls has it."""


@dataclass(frozen=True, kw_only=True)
class Guess:
    """A family, or that it cannot be told; and the reason, a sentence."""

    family: str
    reason: str


def guess(one: GroupCalls) -> Guess:
    """The family of one group."""
    if one.size == 1:
        return Guess(family="none", reason="the group has one rank, which has nobody to speak to.")
    # Broadcasts, scatters and barriers set things up, whatever the split.
    calls = [call for call in one.of_all() if call.kind not in (Kind.BROADCAST, SCATTER, BARRIER, RECEIVE)]
    handed: Counter[str] = Counter()
    for call in calls:
        handed[call.kind] += call.handed_bytes
    total = sum(handed.values())
    if total == 0:
        said = "nothing but what any program may do at its start" if one.of_all() else "nothing"
        return Guess(family=CANNOT_TELL, reason=f"{said} was called on it.")
    kinds = {kind for kind, size in handed.items() if size >= SMALL_CHANGE * total}
    calls = [call for call in calls if call.kind in kinds]
    # All ranks make the same collectives, so the first one's are counted.
    mine = [call for call in one.calls[0] if call.kind in kinds]
    if kinds != {Kind.SEND} and _count(mine) < 2:
        return Guess(family=CANNOT_TELL, reason="one call is no pattern.")
    if kinds == {Kind.SEND}:
        return _sending(one)
    if kinds == {Kind.ALL_TO_ALL}:
        return _swapping(mine, is_uneven=any(call.parts is not None for call in calls))
    if kinds == {Kind.ALL_REDUCE}:
        return _summing(mine)
    if kinds == {Kind.ALL_GATHER, Kind.REDUCE_SCATTER}:
        return _scattering(mine)
    if kinds == {Kind.ALL_GATHER}:
        return _gathering(mine)
    return Guess(
        family=CANNOT_TELL, reason=f"it carries {_and(sorted(kinds))} calls, which no one family makes."
    )


def _summing(calls: Sequence[Called]) -> Guess:
    forward, backward = map(_count, _split(calls))
    sizes: Counter[int] = Counter()
    for call in calls:
        sizes[sum(call.sizes)] += call.times
    size, times = sizes.most_common(1)[0]
    every = sum(sizes.values())
    if backward and not forward:
        return Guess(
            family="data parallelism",
            reason=f"{_times(calls, 'all-reduce')} of {_together(calls)} a rank, all in the backward pass and none in "
            "the forward one: sums of gradients.",
        )
    if forward and backward and times >= MAINLY * every:
        which = "all-reduces of one size" if times == every else f"of {every} all-reduces have one size"
        pairs = ", a multiple of 2, as two halves of every layer make" if forward % 2 == 0 else ""
        return Guess(
            family="tensor parallelism",
            reason=f"{times} {which} ({_bytes(size)}), forward ({forward} in all) and backward ({backward}){pairs}: "
            "activations, since gradients are summed in backward alone.",
        )
    if not backward and times == every and every >= 4 and every % 2 == 0:
        return Guess(
            family="tensor parallelism",
            reason=f"{every} all-reduces of one size ({_bytes(size)}), a multiple of 2, and none within a backward "
            "pass: activations of a model that only runs forward.",
        )
    if not backward and len(sizes) > 1:
        return Guess(
            family="data parallelism",
            reason=f"{every} all-reduces of {len(sizes)} sizes, none within a backward pass: tensors as different as "
            "weights are, summed after it.",
        )
    return Guess(
        family=CANNOT_TELL,
        reason=f"{every} all-reduces of {len(sizes)} sizes, {forward} outside and {backward} within a backward pass, "
        "fit neither gradients (in backward alone) nor activations (many, of one size).",
    )


def _scattering(calls: Sequence[Called]) -> Guess:
    gathers, scatters = (
        [call for call in calls if call.kind == kind] for kind in (Kind.ALL_GATHER, Kind.REDUCE_SCATTER)
    )
    forward, _ = _split(scatters)
    gathered_forward, gathered_backward = _split(gathers)
    if forward and _split(scatters)[1]:
        return Guess(
            family="tensor parallelism with sequence",
            reason="reduce-scatters and all-gathers in the forward pass as well as in the backward one: a block's "
            "sum is scattered over the tokens and gathered before the next block.",
        )
    if forward and not gathered_backward:
        return Guess(
            family=CANNOT_TELL,
            reason="all-gathers and reduce-scatters, none within a backward pass: sequence-parallel blocks running "
            "forward, or gradients sharded after it, make the same.",
        )
    if gathered_forward and gathered_backward:
        return Guess(
            family="fully sharded data parallelism",
            reason=f"{_times(gathers, 'all-gather')}, forward and again backward, and "
            f"{_times(scatters, 'reduce-scatter')} in backward, in pairs: weights fetched, gradients handed back.",
        )
    return Guess(
        family="sharded data parallelism, or context parallelism by all-gather",
        reason="all-gathers outside the backward pass and reduce-scatters within it; weights kept as shards make "
        "these, and gathered keys and values do too. I cannot tell which.",
    )


def _gathering(calls: Sequence[Called]) -> Guess:
    total = sum(call.handed_bytes for call in calls)
    sizes = {call.sizes for call in calls if call.handed_bytes >= SMALL_CHANGE * total}
    if len(sizes) == 1:
        return Guess(
            family="context parallelism",
            reason=f"all-gathers of one size ({_bytes(sum(next(iter(sizes))))} a rank) with no reduce-scatter: keys "
            "and values of all ranks' tokens.",
        )
    return Guess(
        family=CANNOT_TELL,
        reason=f"all-gathers of {len(sizes)} sizes and no reduce-scatter: weights of a sharded model that only runs "
        "forward would look so, and so would results that are collected.",
    )


def _swapping(calls: Sequence[Called], *, is_uneven: bool) -> Guess:
    count = _count(calls)
    pairs = f"{count} a rank, an even number (there and back)" if count % 2 == 0 else f"{count} a rank"
    if is_uneven:
        return Guess(
            family="expert parallelism",
            reason=f"all-to-alls with uneven parts, {pairs}: rows go to the experts that a router chose, and back.",
        )
    return Guess(
        family="Ulysses context parallelism, or experts of fixed capacity",
        reason=f"all-to-alls with equal parts, {pairs}; heads swapped for tokens make these, and so do experts that "
        "each take the same number of rows. I cannot tell which.",
    )


def _sending(one: GroupCalls) -> Guess:
    n = one.size
    edges: Counter[tuple[int, int]] = Counter()
    in_backward = False
    first = [next((c.kind for c in calls if c.kind in (Kind.SEND, RECEIVE)), "") for calls in one.calls]
    for sender, calls in enumerate(one.calls):
        for call in calls:
            if call.kind == Kind.SEND and call.peer is not None:
                edges[sender, call.peer] += call.times
                in_backward = in_backward or call.in_backward
    steps = {(receiver - sender) % n for sender, receiver in edges}
    goes_around = (
        len(edges) == n and len(steps) == 1 and gcd(*steps, n) == 1 and len(set(edges.values())) == 1
    )
    if n > 2 and goes_around:
        whom = {1: "the next", n - 1: "the one before"}.get(next(iter(steps)), "the same one further on")
        return Guess(
            family="context parallelism by ring",
            reason=f"every rank sends to {whom}, and the last to the first, all equally often: "
            "blocks of keys and values going around.",
        )
    strides = {abs(receiver - sender) for sender, receiver in edges}
    there, back = ({edge for edge in edges if (edge[0] < edge[1]) is up} for up in (True, False))
    if n == 2 and there and back:
        if in_backward:
            return Guess(
                family="context parallelism by ring",
                reason="both ranks send to each other, in the backward pass too: blocks going around a ring of two.",
            )
        if first == [Kind.SEND, RECEIVE]:
            return Guess(
                family="pipeline parallelism",
                reason="both ranks send to each other, but the second begins by waiting for the first: two stages, "
                "results one way and gradients the other.",
            )
        if first == [Kind.SEND, Kind.SEND] and edges[0, 1] == edges[1, 0]:
            return Guess(
                family="context parallelism by ring",
                reason="both ranks send to each other equally often, and neither begins by waiting for the other: "
                "blocks of keys and values going around a ring of two.",
            )
        return Guess(
            family=CANNOT_TELL,
            reason="two ranks send to each other; two stages of a pipeline do, and a ring of two as well.",
        )
    if len(strides) == 1:
        stride = next(iter(strides))
        way = "forward and back" if there and back else "one way only"
        return Guess(
            family="pipeline parallelism",
            reason=f"sends between {'neighbours' if stride == 1 else f'ranks {stride} apart'} only, {way}, and "
            "none from the last stage to the first.",
        )
    if n > 2 and steps <= {1, n - 1}:
        return Guess(
            family="pipeline parallelism with interleaved stages",
            reason="sends between neighbours in both directions, and between the last rank and the first: each rank "
            "has more than one stage.",
        )
    pairs = ", ".join(f"{sender} → {receiver}" for sender, receiver in sorted(edges)[:6])
    return Guess(
        family=CANNOT_TELL,
        reason=f"sends between ranks that are neither a chain nor a ring: {pairs}{' …' if len(edges) > 6 else ''}.",
    )


def _split(calls: Sequence[Called]) -> tuple[list[Called], list[Called]]:
    """Those outside a backward pass, and those within one."""
    return [c for c in calls if not c.in_backward], [c for c in calls if c.in_backward]


def _count(calls: Sequence[Called]) -> int:
    return sum(call.times for call in calls)


def _times(calls: Sequence[Called], what: str) -> str:
    count = _count(calls)
    return f"{count} {what}{'' if count == 1 else 's'}"


def _together(calls: Sequence[Called]) -> str:
    return _bytes(sum(call.handed_bytes for call in calls))


def _bytes(size: int) -> str:
    return f"{size:,} B"


def _and(words: Sequence[str]) -> str:
    return ", ".join(words[:-1]) + f" and {words[-1]}" if len(words) > 1 else words[0]
