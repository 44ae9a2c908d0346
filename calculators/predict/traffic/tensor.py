"""What tensor parallelism moves, with and without sequence parallelism on the same group."""

from __future__ import annotations

from numpy.typing import ArrayLike

from calculators.predict.arrays import Floats, counts, floats
from calculators.predict.collectives import TEXTBOOK, Backend, Kind
from calculators.predict.shapes import Phase
from calculators.predict.traffic.figures import (
    Factors,
    Row,
    Traffic,
    in_flight,
    number,
    summed,
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
    phase = Phase(phase)
    b, s, m = in_flight(given, phase)
    length: Factors = {} if phase == Phase.DECODE else {"s": s}
    activations: Factors = {"b": b, **length, "h": given["hidden_size"], "e": given["bytes_per_element"]}
    micro: Factors = {"m": m} if training else {}

    def row(
        kind: Kind, what: str, times: Floats, *, each: Factors = micro, tensor: Factors = activations
    ) -> Row:
        return Row(
            kind=kind,
            what=what,
            times={**number(times), **each},
            tensor=tensor,
            letter="t",
            ranks=given["ranks"],
            algorithm=algorithm if kind == Kind.ALL_REDUCE else None,
        )

    blocks, per_layer = given["blocks_per_layer"], {"L": given["layers"], **micro}
    outputs = blocks * (passes + training)
    gathers = blocks * (training and sequence_parallel == "regather") + outputs
    if sequence_parallel == "off":
        unfused = 2 if training and not fused_qkv else 0
        rows = [row(Kind.ALL_REDUCE, "outputs of the blocks", outputs + unfused, each=per_layer)]
    else:
        rows = [
            row(Kind.ALL_GATHER, "inputs of the blocks", gathers, each=per_layer),
            row(Kind.REDUCE_SCATTER, "outputs of the blocks", outputs, each=per_layer),
        ]
    if vocab_size is not None:
        ends, both = "embedding, and the gradient of the output's input", floats(1 + training)
        if sequence_parallel == "off":
            rows += [row(Kind.ALL_REDUCE, ends, both)]
        else:
            again = floats(training and sequence_parallel == "regather")
            rows += [row(Kind.REDUCE_SCATTER, ends, both), row(Kind.ALL_GATHER, ends, both + again)]
        if training:
            losses: Factors = {"b": b, **length, **number(CROSS_ENTROPY_BYTES)}
            rows += [row(Kind.ALL_REDUCE, "cross-entropy", floats(CROSS_ENTROPY_ALL_REDUCES), tensor=losses)]
        else:
            logits: Factors = {"b": b, "V": given["vocab_size"], "e": given["bytes_per_element"]}
            rows += [row(Kind.ALL_GATHER, "logits of the next token", floats(1), tensor=logits)]
    return summed("tensor", phase, rows, given=given, backend=backend)


def check_sequence_parallel(name: str) -> None:
    """Raises ValueError for a way of sequence parallelism that is not known."""
    if name not in SEQUENCE_PARALLEL:
        raise ValueError(
            f"sequence_parallel is {name!r}, which is not known here. Use one of: {', '.join(SEQUENCE_PARALLEL)}."
        )
