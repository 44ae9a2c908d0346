"""The calls that one step of a job makes: what goes to whom, how often, and how many bytes."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from calculators.lab.spec import Job, Pattern, Qkv, Spec
from calculators.predict.collectives import Kind
from calculators.predict.traffic import TOKEN_ID_BYTES

Counts = tuple[tuple[int, ...], ...]
"""A whole number for each sender (row) and receiver (column)."""


@dataclass(frozen=True, kw_only=True)
class Call:
    """One kind of call, made `times` times a step; its full size is `payload_bytes` each time.

    Every rank enters a collective; a send goes from `source` to `destination`. An uneven all-to-all says in
    `parts` how many bytes go from whom to whom, and its full size is the largest send buffer. `is_control`
    marks what the job needs besides its formula.
    """

    op: Kind
    payload_bytes: int
    times: int
    what: str
    source: int = 0
    destination: int = 0
    parts: Counts = ()
    is_control: bool = False

    @property
    def is_collective(self) -> bool:
        return self.op is not Kind.SEND

    def is_made_by(self, rank: int) -> bool:
        """Whether `rank` hands this call a tensor: all do in a collective, the sender alone in a send."""
        return self.is_collective or rank == self.source

    def step_bytes(self, rank: int, ranks: int) -> int:
        """Bytes that `rank`, which makes this call among `ranks`, hands over in one step: what it puts in."""
        if self.parts:
            return self.times * sum(self.parts[rank])
        return self.times * (
            self.payload_bytes // ranks if self.op is Kind.ALL_GATHER else self.payload_bytes
        )


def calls_of(spec: Spec) -> tuple[Call, ...]:
    """The calls of one step, textbook ones first (`docs/lab.md` derives each)."""
    kinds = {Job.TENSOR: _tensor, Job.PIPELINE: _pipeline, Job.EXCHANGE: _exchange}
    return tuple(kinds[spec.job](spec))


def routed_rows(spec: Spec) -> Counts:
    """How many of each rank's rows (row) go to each rank's expert (column).

    Every rank draws an expert for each of its rows; the r-th expert is wanted as r^−skew (Zipf). The draws follow
    from the seed, so every rank and the plan have the same.
    """
    wanted = np.arange(1, spec.ranks + 1, dtype=float) ** -spec.skew
    rows = spec.call_bytes // spec.row_bytes
    drawn = np.random.default_rng(spec.seed).multinomial(rows, wanted / wanted.sum(), size=spec.ranks)
    return tuple(tuple(int(count) for count in row) for row in drawn)


def _tensor(spec: Spec) -> Iterator[Call]:
    yield Call(
        op=Kind.ALL_REDUCE,
        payload_bytes=spec.activation_bytes,
        times=spec.layers * _all_reduces_per_layer(spec),
        what="hidden state, summed over all ranks after attention and after feed-forward",
    )


def _all_reduces_per_layer(spec: Spec) -> int:
    """2 forward; training adds 2 backward, or 4 when q, k and v each reduce the gradient of their input."""
    if not spec.is_training:
        return 2
    return 4 if spec.qkv is Qkv.FUSED else 6


def _pipeline(spec: Spec) -> Iterator[Call]:
    for stage in range(spec.ranks - 1):
        yield _crossing(spec, "hidden state", stage, stage + 1)
        if spec.is_training:
            yield _crossing(spec, "gradient of the hidden state", stage + 1, stage)
    if not spec.is_training:
        yield Call(
            op=Kind.SEND,
            payload_bytes=TOKEN_ID_BYTES * spec.batch,
            times=1,
            what=f"sampled token ids, stage {spec.ranks - 1} to 0",
            source=spec.ranks - 1,
            destination=0,
            is_control=True,
        )


def _crossing(spec: Spec, what: str, source: int, destination: int) -> Call:
    """What crosses one boundary in one direction, once a micro-batch."""
    return Call(
        op=Kind.SEND,
        payload_bytes=spec.activation_bytes,
        times=spec.microbatches,
        what=f"{what}, stage {source} to {destination}",
        source=source,
        destination=destination,
    )


def _exchange(spec: Spec) -> Iterator[Call]:
    """One repeat of a pattern is what its family does once a layer and direction, or once a step (docs/lab.md)."""
    if spec.pattern is Pattern.EXPERTS:
        yield from _routing(spec)
        return
    if spec.pattern is Pattern.RING:
        for rank in range(spec.ranks):
            yield Call(
                op=Kind.SEND,
                payload_bytes=spec.call_bytes,
                times=spec.repeats * (spec.ranks - 1),
                what=f"keys and values of one block, rank {rank} to {(rank + 1) % spec.ranks}",
                source=rank,
                destination=(rank + 1) % spec.ranks,
            )
        return
    for op, calls, what in _COLLECTIVES[spec.pattern]:
        yield Call(op=op, payload_bytes=spec.call_bytes, times=spec.repeats * calls, what=what)


def _routing(spec: Spec) -> Iterator[Call]:
    """Rows to their experts and back; what comes back is the transpose of what went."""
    there = tuple(tuple(count * spec.row_bytes for count in row) for row in routed_rows(spec))
    back = tuple(zip(*there, strict=True))
    for parts, what in (
        (there, "dispatch: rows to their experts"),
        (back, "combine: rows back to their ranks"),
    ):
        yield Call(
            op=Kind.ALL_TO_ALL,
            payload_bytes=max(map(sum, parts)),
            times=spec.repeats,
            what=what,
            parts=parts,
        )


_SHARDED = (
    (Kind.REDUCE_SCATTER, 1, "gradients, a summed slice to each rank"),
    (Kind.ALL_GATHER, 1, "updated weights, from their slices"),
)
# ZeRO paper (Rajbhandari 2020) §7: stages 1 and 2 move what plain data parallelism does, stage 3 half as much again.
_COLLECTIVES: dict[Pattern, tuple[tuple[Kind, int, str], ...]] = {
    Pattern.GRADIENTS: ((Kind.ALL_REDUCE, 1, "gradients, summed over all replicas"),),
    Pattern.ZERO_1: _SHARDED,
    Pattern.ZERO_2: _SHARDED,
    Pattern.ZERO_3: (
        (Kind.ALL_GATHER, 2, "weights from their slices, forward and again backward"),
        (Kind.REDUCE_SCATTER, 1, "gradients, a summed slice to each rank"),
    ),
    Pattern.KEY_VALUE_GATHER: ((Kind.ALL_GATHER, 1, "keys and values of all ranks' tokens"),),
    Pattern.ULYSSES: ((Kind.ALL_TO_ALL, 4, "queries, keys, values and output, tokens for heads and back"),),
}
