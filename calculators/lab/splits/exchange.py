"""Calls of one family alone, on random numbers: no model computes."""

from collections.abc import Iterable, Iterator

import numpy as np

from calculators.lab.calls import Call, Counts
from calculators.lab.limits import MAX_BYTES
from calculators.lab.measurements import Prediction
from calculators.lab.problems import Problem
from calculators.lab.spec import Pattern, Spec
from calculators.predict.collectives import Kind

EXCHANGED_COPIES = 8
"""Tensors of a call's full size that a rank of an exchange holds at most: four to exchange, four to check them."""


def contradictions(spec: Spec) -> Iterator[Problem]:
    """Whole elements, slices or rows in a call, and not more of them than fit."""
    yield from _shares(spec)
    yield from _exchanged(spec)


def _shares(spec: Spec) -> Iterator[Problem]:
    """A call's tensor holds whole elements, a slice for every rank, or whole rows."""
    element = spec.dtype.bytes_per_element
    given = f"call_bytes is {spec.call_bytes}, but"
    if spec.pattern == "experts":
        step = spec.row_bytes
        sentence = (
            f"{given} experts get whole rows of {spec.hidden_size} {spec.dtype} elements, {step} bytes each."
        )
        instead = "hidden_size"
    elif spec.pattern in ("gradients", "ring"):
        step, instead = element, "dtype"
        sentence = f"{given} a tensor of {spec.dtype} holds whole elements of {element} bytes."
    else:
        step, instead = element * spec.ranks, "number of ranks"
        sentence = f"{given} each of {spec.ranks} ranks takes an equal slice of whole {spec.dtype} elements."
    if spec.call_bytes % step:
        below, above = spec.call_bytes // step * step, (spec.call_bytes // step + 1) * step
        values = f"{below} or {above}" if below else f"{above}"
        yield Problem("call_bytes", f"{sentence} Take {values}, or another {instead}.")


def _exchanged(spec: Spec) -> Iterator[Problem]:
    held = spec.ranks * EXCHANGED_COPIES * spec.call_bytes
    if held > MAX_BYTES:
        yield Problem(
            "call_bytes",
            f"The tensors of one call would need about {held / 2**30:,.1f} GiB on all ranks together, and the lab "
            f"stops at {MAX_BYTES // 2**30} GiB. Take smaller calls and more repeats: bytes follow their product.",
        )


def calls(spec: Spec) -> Iterator[Call]:
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
                axis=spec.family,
                source=rank,
                destination=(rank + 1) % spec.ranks,
            )
        return
    for op, times, what in _COLLECTIVES[spec.pattern]:
        yield Call(
            op=op, payload_bytes=spec.call_bytes, times=spec.repeats * times, what=what, axis=spec.family
        )


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
            axis="ep",
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


def routed_rows(spec: Spec) -> Counts:
    """How many of each rank's rows (row) go to each rank's expert (column).

    Every rank draws an expert for each of its rows; the r-th expert is wanted as r^−skew (Zipf). The draws follow
    from the seed, so every rank and the plan have the same.
    """
    wanted = np.arange(1, spec.ranks + 1, dtype=float) ** -spec.skew
    rows = spec.call_bytes // spec.row_bytes
    drawn = np.random.default_rng(spec.seed).multinomial(rows, wanted / wanted.sum(), size=spec.ranks)
    return tuple(tuple(int(count) for count in row) for row in drawn)


def layers_by_rank(spec: Spec) -> tuple[range, ...]:
    """No model computes."""
    return ()


def memory(spec: Spec) -> Iterable[Prediction]:
    """Nothing is held but the tensors of the calls."""
    return ()
