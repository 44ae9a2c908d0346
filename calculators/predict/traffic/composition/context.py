"""What context-parallel groups move: keys and values in a ring, gathered, or swapped for heads."""

from __future__ import annotations

import numpy as np

from calculators.predict.arrays import Floats, anywhere, floats
from calculators.predict.collectives import Kind
from calculators.predict.shapes import Phase
from calculators.predict.traffic.composition.case import Case
from calculators.predict.traffic.composition.shares import Share
from calculators.predict.traffic.context import LOG_SUM_BYTES, TORCH_GRADIENT_BYTES


def context_shares(case: Case, kind: str, backward: str) -> list[Share]:
    """Calls of attention in each layer; in decode, those that put together what slices of the cache give."""
    c, t, m, e = case.axes["cp"], case.axes["tp"], case.m, case.shape.bytes_per_element
    if not anywhere(c > 1):
        return []
    latent = case.shape.latent
    heads = case.shape.attention_heads / t
    kv_heads = heads if latent else np.maximum(case.shape.kv_heads / t, 1)
    key = case.shape.head_dim + (latent.rope_dim if latent else 0)
    value = latent.value_dim if latent else case.shape.head_dim
    tokens, both, back = case.b * case.s, case.forward + case.training, floats(case.training)
    outputs = tokens * heads * value * e

    def share(kind: Kind, what: str, times: Floats, size: Floats, algorithm: str | None = None) -> Share:
        calls = {"layer": times}
        return case.share("cp", kind, what, ranks=c, calls=calls, size=size, algorithm=algorithm)

    if case.phase == Phase.DECODE:
        shares = [
            share(Kind.ALL_GATHER, "logs of the softmax sums", floats(1), case.b * c * heads * LOG_SUM_BYTES),
            share(Kind.ALL_REDUCE, "attention outputs", floats(1), outputs),
        ]
        if case.shape.is_sparse and anywhere(case.experts_are_blocks < 1):
            results = {"sparse": 1 - case.experts_are_blocks}
            what, size = "results of the experts", case.hidden_bytes
            shares.append(case.share("cp", Kind.ALL_GATHER, what, ranks=c, calls=results, size=size))
        return shares
    block = tokens * kv_heads * (key + value) * e
    if kind == "ring":
        hops = m * (c - 1)
        shares = [share(Kind.SEND, "keys and values", both * hops, block, "ring")]
        if case.training and backward == "megatron":
            shares.append(share(Kind.SEND, "gradients of keys and values", hops, block, "ring"))
        elif case.training:
            wide = block / e * TORCH_GRADIENT_BYTES
            shares.append(share(Kind.SEND, "gradients of keys and values", m * c, wide, "ring"))
        return shares
    if kind == "all-gather":
        shares = [share(Kind.ALL_GATHER, "keys and values", m * both, block * c)]
        if case.training:
            shares.append(share(Kind.REDUCE_SCATTER, "gradients of keys and values", m * back, block * c))
        return shares
    repeated = tokens * np.maximum(kv_heads, c) * (key + value) * e
    return [
        share(Kind.ALL_TO_ALL, "queries", m * both, tokens * heads * key * e),
        share(Kind.ALL_TO_ALL, "keys and values", 2 * m * both, repeated / 2),
        share(Kind.ALL_TO_ALL, "outputs", m * both, outputs),
    ]
