"""Context parallelism: every rank holds a share of each sequence; queries meet all keys."""

from collections.abc import Iterable, Iterator

from calculators.lab.calls import Call
from calculators.lab.limits import MAX_BYTES
from calculators.lab.measurements import Prediction
from calculators.lab.problems import Problem, must_divide
from calculators.lab.spec import Attention, Spec
from calculators.lab.splits import memory as held
from calculators.predict.collectives import Kind

SCORE_BYTES = 4
"""Attention's scores are float32 in every element type."""


def contradictions(spec: Spec) -> Iterator[Problem]:
    """Sequences that can be cut: several tokens of each in flight, equal shares, whole heads to swap them for."""
    if spec.is_decode:
        yield Problem(
            "phase",
            "phase is “decode”, but a decode step has one new token of each sequence, and context parallelism cuts "
            "sequences: there is nothing to cut but the cache of keys and values, which this job does not do. "
            "Take “prefill” or “training”.",
        )
        return
    yield from _equal_shares(spec)
    if spec.attention is Attention.ULYSSES:
        yield from must_divide(
            "attention_heads",
            spec.attention_heads,
            spec.ranks,
            f"{spec.attention_heads} attention heads cannot be dealt to {spec.ranks} ranks evenly. "
            "Ulysses swaps each rank's tokens for whole heads (rule R10).",
            "ranks",
        )
    else:
        yield from _scores(spec)


def _scores(spec: Spec) -> Iterator[Problem]:
    """Blocks whose scores would not fit: each rank works on one, and for a moment holds its scores twice."""
    block = spec.batch * spec.attention_heads * (spec.tokens // spec.ranks) ** 2 * SCORE_BYTES
    needed = 2 * spec.ranks * block
    if needed > MAX_BYTES:
        yield Problem(
            "tokens",
            f"The scores of a block, {spec.tokens // spec.ranks:,} queries with as many keys, would need about "
            f"{needed / 2**30:,.1f} GiB on all ranks together, and the lab stops at {MAX_BYTES // 2**30} GiB. "
            "Take fewer tokens, sequences or heads, or more ranks.",
        )


def _equal_shares(spec: Spec) -> Iterator[Problem]:
    pieces = 2 * spec.ranks if spec.zigzag else spec.ranks
    why = (
        "In a zigzag each rank has an early and a late piece of every sequence (rule R9)."
        if spec.zigzag
        else "Context parallelism gives every rank as many."
    )
    yield from must_divide(
        "tokens",
        spec.tokens,
        pieces,
        f"{spec.tokens} tokens cannot be cut into {pieces} equal pieces. {why}",
        "ranks",
    )


def calls(spec: Spec) -> Iterator[Call]:
    """Keys and values to the queries, or whole heads to each rank; in training the gradients, and the weights'."""
    if spec.ranks == 1:
        return
    match spec.attention:
        case Attention.RING:
            yield from _around_the_ring(spec)
        case Attention.KEY_VALUE_GATHER:
            yield from _gathered(spec)
        case Attention.ULYSSES:
            yield from _swapped(spec)
    if spec.is_training:
        yield Call(
            op=Kind.ALL_REDUCE,
            payload_bytes=spec.parameters * spec.dtype.bytes_per_element,
            times=1,
            what="weight gradients, summed over the ranks of the sequence",
            axis="dp",
        )


def _around_the_ring(spec: Spec) -> Iterator[Call]:
    """Each block makes ranks − 1 hops forward; backward it makes them again, and its gradient as many."""
    laps = {"keys and values of a block": 2 if spec.is_training else 1}
    if spec.is_training:
        laps["gradients of a block's keys and values"] = 1
    for what, times in laps.items():
        for rank in range(spec.ranks):
            following = (rank + 1) % spec.ranks
            yield Call(
                op=Kind.SEND,
                payload_bytes=2 * hidden_share_bytes(spec),
                times=spec.layers * (spec.ranks - 1) * times,
                what=f"{what}, rank {rank} to {following}",
                axis="cp",
                source=rank,
                destination=following,
            )


def _gathered(spec: Spec) -> Iterator[Call]:
    """All blocks to all ranks, backward again, since none but a rank's own are kept."""
    whole = spec.ranks * 2 * hidden_share_bytes(spec)
    yield Call(
        op=Kind.ALL_GATHER,
        payload_bytes=whole,
        times=spec.layers * (2 if spec.is_training else 1),
        what="keys and values of all ranks' tokens" + (", forward and again backward" * spec.is_training),
        axis="cp",
    )
    if spec.is_training:
        yield Call(
            op=Kind.REDUCE_SCATTER,
            payload_bytes=whole,
            times=spec.layers,
            what="gradients of keys and values, summed for the rank of their tokens",
            axis="cp",
        )


def _swapped(spec: Spec) -> Iterator[Call]:
    """Queries, keys and values to whole heads, outputs back; backward the same of their gradients."""
    both_ways = 2 if spec.is_training else 1
    for times, what in (
        (3, "queries, keys and values, tokens for heads"),
        (1, "attention's output, heads for tokens"),
    ):
        yield Call(
            op=Kind.ALL_TO_ALL,
            payload_bytes=hidden_share_bytes(spec),
            times=spec.layers * times * both_ways,
            what=what + (", and backward their gradients" * spec.is_training),
            axis="cp",
        )


def hidden_share_bytes(spec: Spec) -> int:
    """Bytes of a rank's tokens' hidden states; keys, and values, are as many."""
    return spec.batch * (spec.tokens // spec.ranks) * spec.row_bytes


def layers_by_rank(spec: Spec) -> tuple[range, ...]:
    """All of them."""
    return (range(spec.layers),) * spec.ranks


def memory(spec: Spec) -> Iterable[Prediction]:
    """All weights on every rank; for the backward pass, what one device would save of this rank's tokens."""
    if not spec.is_training:
        return
    tokens = spec.batch * spec.tokens // spec.ranks
    kept = held.stack(spec, layers=spec.layers, tokens=tokens)
    if spec.attention is Attention.ULYSSES:
        # The output twice: head by head where attention made it, token by token for the matrix after it.
        kept += held.Kept(excess=float(spec.layers * hidden_share_bytes(spec)))
    parameters = held.parameters(spec, layers=spec.layers)
    for rank in range(spec.ranks):
        yield from held.predictions(spec, rank, parameters=parameters, kept=kept)
