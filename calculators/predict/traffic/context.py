"""What context parallelism moves: keys and values to where the queries are, or queries to where whole heads are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from calculators.predict.arrays import Floats, check_broadcast, counts, positive
from calculators.predict.collectives import TEXTBOOK, Backend, Kind
from calculators.predict.shapes import Phase
from calculators.predict.traffic.figures import Factors, Row, Traffic, in_flight, number, summed

KINDS = ("ring", "all-gather", "ulysses")
BACKWARDS = ("megatron", "torch")
TORCH_GRADIENT_BYTES = 4  # dK and dV travel in fp32 (torch/distributed/tensor/experimental/_attention.py)
LOG_SUM_BYTES = 4  # a decoded token's normaliser of each head, in fp32


def context_parallel(
    *,
    attention_heads: ArrayLike,
    kv_heads: ArrayLike,
    head_dim: ArrayLike,
    layers: ArrayLike,
    ranks: ArrayLike,
    phase: Phase,
    kind: str = "ring",
    backward: str = "megatron",
    value_dim: ArrayLike | None = None,
    batch: ArrayLike = 1,
    tokens: ArrayLike = 1,
    micro_batches: ArrayLike = 1,
    bytes_per_element: ArrayLike = 2,
    full_recompute: bool = False,
    backend: Backend = TEXTBOOK,
) -> Traffic:
    """Traffic of attention whose sequence of `tokens` is shared by `ranks` devices, in all layers.

    kind  "ring"        keys and values of each rank visit all others in c−1 sends. Backward they go round again, and
                        beside them their gradients: `backward` "megatron" in c−1 sends of the same width (as
                        TransformerEngine's context_parallel.py), "torch" in c sends of 4-byte elements. `rounds` counts
                        both, though they travel side by side
          "all-gather"  keys and values of all tokens to all ranks; backward again, and a reduce-scatter of their
                        gradients (Llama 3)
          "ulysses"     tokens for heads: all-to-alls of queries, keys, values and, after attention, outputs; backward
                        the same of their gradients. Fewer key-value heads than ranks are repeated
    A causal mask saves no bytes: every block of keys is needed by some later query, and travels whole. A sliding window
    would; it is not counted. Ulysses moves less than the ring forward where c ≥ 1 + h/h_kv.

    In decode there is one query and nothing to rotate. The ranks keep slices of the cache, each attends to its own, and
    they sum their outputs, weighted by the log of their softmax sums, which they gather first (decode context parallel
    in vLLM does so), whatever `kind` says.

    attention_heads, kv_heads   of one rank: already divided by tensor parallelism where there is some
    head_dim, value_dim         elements of a head's key and query, and of its value if different (latent attention)
    batch, tokens, micro_batches, full_recompute  as in `tensor_parallel`

    Raises ValueError where a size is below 1 or a name is not known.

    >>> example = dict(attention_heads=64, kv_heads=8, head_dim=128, layers=1, ranks=4, tokens=8192)
    >>> context_parallel(**example, phase=Phase.PREFILL).wire_bytes.item()
    25165824.0
    >>> [context_parallel(**example, phase=Phase.TRAINING, backward=way).wire_bytes.item() for way in BACKWARDS]
    [75497472.0, 117440512.0]
    """
    check_context(kind, backward)
    given = {
        **counts(
            attention_heads=attention_heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            value_dim=head_dim if value_dim is None else value_dim,
            layers=layers,
            ranks=ranks,
            batch=batch,
            tokens=tokens,
            micro_batches=micro_batches,
        ),
        **positive(bytes_per_element=bytes_per_element),
    }
    check_broadcast(given)
    phase = Phase(phase)
    b, s, m = in_flight(given, phase)
    c, e = given["ranks"], given["bytes_per_element"]
    training = phase == Phase.TRAINING
    kept_kv = np.maximum(given["kv_heads"], c) if kind == "ulysses" else given["kv_heads"]
    heads, widths = given["attention_heads"], given["head_dim"] + given["value_dim"]
    queries, keys_values, outputs = heads * given["head_dim"], kept_kv * widths, heads * given["value_dim"]
    repeats: Factors = {"L": given["layers"], **({"m": m} if training else {})}
    whole: Factors = {"b": b, "s": s}
    mine: Factors = {"b": b, r"\frac{s}{c}": (s, c)}

    def row(kind: Kind, what: str, times: float, tensor: Factors) -> Row:
        return Row(
            kind=kind, what=what, times={**number(times), **repeats}, tensor=tensor, letter="c", ranks=c
        )

    if phase == Phase.DECODE:
        sums = {"b": b, "c": c, "a": heads, **number(LOG_SUM_BYTES)}
        rows = [
            row(Kind.ALL_GATHER, "logs of the softmax sums", 1, sums),
            row(Kind.ALL_REDUCE, "attention outputs", 1, {"b": b, "o": outputs, "e": e}),
        ]
        return summed("context", phase, rows, given=given, backend=backend)
    passes = 2 if training and full_recompute else 1
    if kind == "ring":
        block: Factors = {**mine, "y": keys_values}
        rows = [
            _around(row(Kind.SEND, "keys and values", passes + training, {**block, "e": e}), c - 1, "(c-1)")
        ]
        if training and backward == "megatron":
            gradients = row(Kind.SEND, "gradients of keys and values", 1, {**block, "e": e})
            rows.append(_around(gradients, c - 1, "(c-1)"))
        elif training:
            wide = {**block, **number(TORCH_GRADIENT_BYTES)}
            rows.append(_around(row(Kind.SEND, "gradients of keys and values", 1, wide), c, "c"))
    elif kind == "all-gather":
        all_keys: Factors = {**whole, "y": keys_values, "e": e}
        rows = [row(Kind.ALL_GATHER, "keys and values", passes + training, all_keys)]
        if training:
            rows.append(row(Kind.REDUCE_SCATTER, "gradients of keys and values", 1, all_keys))
    else:
        both = passes + training
        rows = [
            row(Kind.ALL_TO_ALL, "queries", both, {**mine, "q": queries, "e": e}),
            # Keys and values are two calls of half the size.
            replace(
                row(Kind.ALL_TO_ALL, "keys and values", both, {**mine, "y": keys_values, "e": e}),
                pieces=number(2),
            ),
            row(Kind.ALL_TO_ALL, "outputs", both, {**mine, "o": outputs, "e": e}),
        ]
    return summed("context", phase, rows, given=given, backend=backend)


def check_context(kind: str, backward: str) -> None:
    """Raises ValueError for a kind of context parallelism, or a backward pass, that is not known."""
    for name, value, known in (("kind", kind, KINDS), ("backward", backward, BACKWARDS)):
        if value not in known:
            raise ValueError(f"{name} is {value!r}, which is not known here. Use one of: {', '.join(known)}.")


def ulysses_crossover(*, attention_heads: ArrayLike, kv_heads: ArrayLike) -> Floats:
    """Ranks from which Ulysses moves no more than a ring, forward: c ≥ 1 + h/h_kv.

    It follows from (2h + 2h_kv)/c ≤ 2h_kv. Ulysses repeats key-value heads when there are fewer than ranks, and then
    moves more again.

    >>> ulysses_crossover(attention_heads=[32, 64], kv_heads=[32, 8]).tolist()
    [2.0, 9.0]
    """
    given = counts(attention_heads=attention_heads, kv_heads=kv_heads)
    return 1 + given["attention_heads"] / given["kv_heads"]


def hiding_block_tokens(
    *,
    flop_per_second: ArrayLike,
    bytes_per_second: ArrayLike,
    attention_heads: ArrayLike = 1,
    kv_heads: ArrayLike = 1,
) -> Floats:
    """Tokens that a rank needs for its computing to hide the ring: FLOP/s ÷ link bytes/s, times h_kv/h.

    A block of x tokens takes 4·h·x² operations and moves 4·h_kv·x bytes in 16 bits (Liu 2023, arXiv 2310.01889 §3).

    >>> hiding_block_tokens(flop_per_second=312e12, bytes_per_second=[300e9, 12.5e9]).tolist()
    [1040.0, 24960.0]
    """
    given = positive(flop_per_second=flop_per_second, bytes_per_second=bytes_per_second)
    heads = counts(attention_heads=attention_heads, kv_heads=kv_heads)
    check_broadcast({**given, **heads})
    return given["flop_per_second"] / given["bytes_per_second"] * heads["kv_heads"] / heads["attention_heads"]


def _around(row: Row, sends: Floats, symbol: str) -> Row:
    """The sends of one lap, from every rank to the next."""
    return replace(row, times={**row.times, symbol: sends}, algorithm="ring")
