"""What tensor parallelism moves, with and without sequence parallelism on the same group."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from calculators.predict.arrays import Floats, counts, floats
from calculators.predict.collectives import TEXTBOOK, Backend, Kind
from calculators.predict.shapes import Phase, activation_bytes
from calculators.predict.traffic.figures import (
    Calls,
    Factors,
    Term,
    Traffic,
    added_up,
    calls_of_one_kind,
    explained,
    in_flight,
)

SEQUENCE_PARALLEL = ("off", "regather", "kept")
CROSS_ENTROPY_ALL_REDUCES = (
    3  # maximum, the target's logit, sum of exponentials (Megatron-LM cross_entropy.py)
)
CROSS_ENTROPY_BYTES = 4  # and all of them in fp32


def tensor_parallel(
    *,
    hidden_size: ArrayLike,
    layers: ArrayLike,
    ranks: ArrayLike,
    phase: Phase,
    batch: ArrayLike = 1,
    tokens: ArrayLike = 1,
    micro_batches: ArrayLike = 1,
    bytes_per_element: ArrayLike = 2,
    algorithm: str | None = None,
    fused_qkv: bool = True,
    sequence_parallel: str = "off",
    blocks_per_layer: ArrayLike = 2,
    full_recompute: bool = False,
    vocab_size: ArrayLike | None = None,
    backend: Backend = TEXTBOOK,
) -> Traffic:
    """Traffic of a stack of serial attention and feed-forward blocks whose weights `ranks` devices share.

    Each block ends in one all-reduce of batch·tokens·hidden elements: two a layer. Training runs them again
    backward, on the gradients of the blocks' inputs: four a layer (Narayanan 2021 §3.2: 8·b·s·h·(t−1)/t
    elements a layer). Query, key and value as three separate column-parallel linears each all-reduce that
    gradient: six a layer, `fused_qkv=False` (without sequence parallelism only).

    sequence_parallel  "off"; or each all-reduce becomes an all-gather before the block and a reduce-scatter after it:
                       as many bytes forward. In training, "kept" keeps what was gathered (8·b·s·h·(t−1)/t again), and
                       "regather" keeps slices and gathers them again, as Megatron-LM does (10·b·s·h·(t−1)/t)
    blocks_per_layer   1 where attention and feed-forward run side by side on one input (GPT-J)
    full_recompute     in training, one more forward pass
    vocab_size         given, the embedding, the output matrix and the loss are split over the vocabulary, and their
                       calls count too: Megatron-LM's cross-entropy in training, the gathered logits in serving
    batch              sequences (of one micro-batch in training)
    tokens             length of each [tokens]; decode has one in flight whatever is given
    micro_batches      per step; read in training only
    algorithm          of the all-reduce, one of collectives.ALL_REDUCE_ALGORITHMS, instead of the backend's

    Raises ValueError where a size is below 1, or a name is not known.

    >>> lesson = tensor_parallel(hidden_size=4096, layers=64, ranks=[1, 2, 4, 8], phase=Phase.DECODE)
    >>> lesson.calls.tolist(), lesson.wire_bytes.tolist()
    ([0.0, 128.0, 128.0, 128.0], [0.0, 1048576.0, 1572864.0, 1835008.0])
    """
    given = counts(
        hidden_size=hidden_size,
        layers=layers,
        ranks=ranks,
        batch=batch,
        tokens=tokens,
        micro_batches=micro_batches,
        bytes_per_element=bytes_per_element,
        blocks_per_layer=blocks_per_layer,
        vocab_size=1 if vocab_size is None else vocab_size,
    )
    check_sequence_parallel(sequence_parallel)
    training = phase == Phase.TRAINING
    passes = 2 if training and full_recompute else 1
    blocks = given["blocks_per_layer"]
    if sequence_parallel == "off":
        extra_reductions = 2 if training and not fused_qkv else 0
        per_layer = [
            _Row(Kind.ALL_REDUCE, "outputs of the blocks", blocks * (passes + training) + extra_reductions)
        ]
    else:
        regathers = training and sequence_parallel == "regather"
        per_layer = [
            _Row(Kind.ALL_GATHER, "inputs of the blocks", blocks * (passes + training + regathers)),
            _Row(Kind.REDUCE_SCATTER, "outputs of the blocks", blocks * (passes + training)),
        ]
    once = [] if vocab_size is None else _vocabulary_rows(sequence_parallel, phase)
    return _traffic(given, phase, per_layer, once, algorithm=algorithm, backend=backend)


class _Row(NamedTuple):
    kind: Kind
    what: str
    times: ArrayLike
    tensor: str = "activations"


def check_sequence_parallel(name: str) -> None:
    """Raises ValueError for a way of sequence parallelism that is not known."""
    if name not in SEQUENCE_PARALLEL:
        raise ValueError(
            f"sequence_parallel is {name!r}, which is not known here. Use one of: {', '.join(SEQUENCE_PARALLEL)}."
        )


def _vocabulary_rows(sequence_parallel: str, phase: Phase) -> list[_Row]:
    """Calls of the embedding, the output matrix and the loss, for each micro-batch."""
    training, whole = phase == Phase.TRAINING, sequence_parallel == "off"
    if whole:
        rows = [_Row(Kind.ALL_REDUCE, "embedding, and gradient of the output's input", 1 + training)]
    else:
        gathers = 1 + training + (training and sequence_parallel == "regather")
        rows = [
            _Row(Kind.REDUCE_SCATTER, "embedding, and gradient of the output's input", 1 + training),
            _Row(Kind.ALL_GATHER, "output's input, and gradient of the embedding", gathers),
        ]
    if training:
        return [*rows, _Row(Kind.ALL_REDUCE, "cross-entropy", CROSS_ENTROPY_ALL_REDUCES, "losses")]
    return [*rows, _Row(Kind.ALL_GATHER, "logits of the next token", 1, "logits")]


def _traffic(
    given: dict[str, Floats],
    phase: Phase,
    per_layer: list[_Row],
    once: list[_Row],
    *,
    algorithm: str | None,
    backend: Backend,
) -> Traffic:
    b, s, m = in_flight(given, phase)
    n, e = given["ranks"], given["bytes_per_element"]
    sizes = {
        "activations": activation_bytes(b, s, given["hidden_size"], e),
        "losses": b * s * CROSS_ENTROPY_BYTES,
        "logits": b * given["vocab_size"] * e,
    }
    parts: list[Calls] = []
    for row, depth in [(row, given["layers"]) for row in per_layer] + [(row, floats(1)) for row in once]:
        calls = floats(row.times) * depth * m
        parts.append(
            calls_of_one_kind(
                row.kind,
                row.what,
                calls=calls,
                full_bytes=calls * sizes[row.tensor],
                ranks=n,
                backend=backend,
                algorithm=algorithm if row.kind == Kind.ALL_REDUCE else None,
            )
        )
    shape = np.broadcast_shapes(*(values.shape for values in given.values()))
    traffic = added_up("tensor", phase, parts, shape=shape)
    if shape or n == 1:
        return traffic
    counted: Factors = {"m": given["micro_batches"]} if phase == Phase.TRAINING else {}
    tensors: dict[str, Factors] = {
        "activations": {"b": b, **_length(s, phase), "h": given["hidden_size"], "e": e},
        "losses": {"b": b, **_length(s, phase), str(CROSS_ENTROPY_BYTES): floats(CROSS_ENTROPY_BYTES)},
        "logits": {"b": b, "V": given["vocab_size"], "e": e},
    }
    terms = [
        Term(
            kind=row.kind,
            algorithm=part.algorithm,
            times={f"{floats(row.times).item():g}": floats(row.times), **depth, **counted},
            tensor=tensors[row.tensor],
            letter="t",
            ranks=n,
        )
        for (row, depth), part in zip(
            [(row, {"L": given["layers"]}) for row in per_layer] + [(row, {}) for row in once],
            parts,
            strict=True,
        )
    ]
    counts_what = "All-reduces" if {part.kind for part in parts} == {Kind.ALL_REDUCE} else "Collectives"
    formulas = explained(
        phase, terms, counts=counts_what, calls=traffic.calls.item(), wire_bytes=traffic.wire_bytes.item()
    )
    return added_up("tensor", phase, parts, shape=shape, formulas=formulas)


def _length(tokens: Floats, phase: Phase) -> Factors:
    return {} if phase == Phase.DECODE else {"s": tokens}
