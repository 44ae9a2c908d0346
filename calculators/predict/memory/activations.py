"""What the forward pass keeps for the backward pass: tensor by tensor, for one layer, and for the ends of the model.

Kept by a layer with two-matrix feed-forward (Korthikanti 2022, arXiv 2205.05198 §4.1, table 2), bytes at 16 bits, s·b·h
elements being one hidden state:

    tensor                                  s·b·h × bytes   shared by
    input of each norm (two)                2 + 2           nobody; SP cuts it along the tokens
    input of attention, of feed-forward     2 + 2           nobody; SP
    dropout masks behind them               1 + 1           nobody; SP
    queries, keys, values                   2 + 2 + 2       TP, by heads
    output of the heads                     2               TP
    inputs of activation, second matrix     8 + 8           TP
    softmax output, its mask, its dropout   5·a·s/h         TP; not kept with selective recomputation

The same list for other models: keys and values of kv_heads only, repeated where TP has more ranks than there are; a
gated feed-forward keeps both halves and their product (3 × its width, activation and product fused into one kernel);
latent attention keeps its compressed vectors before and after their norms, and heads with a rotary part; a mixture of
experts keeps the router's probabilities in fp32, the copies of tokens that its ranks received (per_token of each,
balanced), and the inside of the experts that they visited (the router's weight is applied there, so what experts give
is not kept). Dropout masks are kept by two-matrix models, the GPT family; gated ones train without. Context
parallelism divides all by cp. A window does not shrink the scores that a kernel writes out.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

from calculators.predict.arrays import Floats, check_broadcast, counts, floats
from calculators.predict.shapes import ModelShape, Recompute, check_recompute

MASK_BYTES = 1  # a dropout mask, one byte an element (Korthikanti 2022 §4)
FP32_BYTES = 4  # router probabilities and logits, whatever the model's own type


class Cut(StrEnum):
    """How a kept tensor is shared out among the ranks of a stage."""

    TOKENS = "whole on each tensor rank; sequence parallelism cuts it by tokens"
    TENSOR = "cut by tensor parallelism"
    KV_HEADS = "cut by tensor parallelism down to one key-value head, then repeated"
    ROUTED = "copies of tokens at the experts: as many as tensor parallelism divided by etp leaves"
    SCORES = (
        "one row for each token and key: cut by tensor parallelism, not kept with selective recomputation"
    )


@dataclass(frozen=True, kw_only=True)
class KeptTensor:
    """One tensor that a layer keeps: bytes for each token on one rank with nothing split (for SCORES: and each key)."""

    name: str
    bytes_per_token: float
    cut: Cut


def kept_tensors(
    shape: ModelShape, *, sparse: bool = False, dropout: bool | None = None
) -> tuple[KeptTensor, ...]:
    """Every tensor that one layer keeps for its backward pass; with experts if `sparse`.

    dropout  whether dropout masks are kept; None for what the family does, see above

    >>> from calculators.predict.models.catalogue import MODELS
    >>> shape = MODELS["gpt-3-175b"].shape
    >>> kept = kept_tensors(shape)
    >>> sum(tensor.bytes_per_token for tensor in kept if tensor.cut != Cut.SCORES) / shape.hidden_size
    34.0
    """
    masks = not shape.gated if dropout is None else dropout
    return (*_attention(shape, masks), *_feed_forward(shape, masks, sparse))


def layer_activations(
    shape: ModelShape,
    *,
    tokens: ArrayLike,
    batch: ArrayLike = 1,
    tp: ArrayLike = 1,
    sp: ArrayLike = False,
    cp: ArrayLike = 1,
    etp: ArrayLike = 1,
    recompute: ArrayLike = int(Recompute.NONE),
    sparse: bool = False,
    dropout: bool | None = None,
) -> Floats:
    """Bytes that one layer keeps on one rank for `batch` sequences of `tokens` tokens.

    For GPT blocks of 16 bits: s·b·h·(10 + 24/t + 5·a·s/(h·t)); with sequence parallelism (s·b·h/t)·(34 + 5·a·s/h);
    selective recomputation drops the last term; full keeps 2·s·b·h, with sequence parallelism a t-th of it.

    Raises ValueError where a size is below 1, or recompute is no value of Recompute.

    >>> from calculators.predict.models.catalogue import MODELS
    >>> shape = MODELS["gpt-3-175b"].shape
    >>> kept = layer_activations(shape, tokens=2048, tp=8, sp=[False, True])
    >>> (kept / (2048 * shape.hidden_size)).tolist()
    [23.0, 14.25]
    """
    given = counts(tokens=tokens, batch=batch, tp=tp, cp=cp, etp=etp)
    splits = {"sp": floats(sp), "recompute": check_recompute(recompute)}
    check_broadcast({**given, **splits})
    per_token = bytes_per_token(
        shape,
        keys=given["tokens"],
        tp=given["tp"],
        sp=splits["sp"],
        etp=given["etp"],
        recompute=splits["recompute"],
        sparse=sparse,
        dropout=dropout,
    )
    return per_token * (given["batch"] * given["tokens"] / given["cp"])


def bytes_per_token(
    shape: ModelShape,
    *,
    keys: Floats,
    tp: Floats,
    sp: Floats,
    etp: Floats,
    recompute: Floats,
    sparse: bool,
    dropout: bool | None = None,
    also_kept: tuple[KeptTensor, ...] = (),
) -> Floats:
    """What one layer keeps on one rank for each token of its part of the sequence, which attends to `keys`."""
    sums = _sums(shape, sparse, dropout, also_kept)
    beside = beside_the_matrices(tp, sp)
    kept = sums[Cut.TOKENS] * beside + sums[Cut.TENSOR] / tp
    if sums[Cut.KV_HEADS]:
        kept = kept + sums[Cut.KV_HEADS] / np.minimum(tp, shape.kv_heads)
    if sums[Cut.ROUTED]:
        kept = kept + sums[Cut.ROUTED] * (etp / tp)
    scores = sums[Cut.SCORES] * (keys / tp)
    whole_input = shape.hidden_size * shape.bytes_per_element * beside
    return np.where(recompute == Recompute.FULL, whole_input, kept + (recompute == Recompute.NONE) * scores)


def beside_the_matrices(tp: Floats, sp: Floats) -> Floats:
    """Share of the tokens that a tensor rank keeps of what is not cut by heads or widths: all, or with SP a tp-th."""
    return np.where(sp > 0, 1 / tp, 1.0)


def first_stage_bytes_per_token(shape: ModelShape, *, beside: Floats, dropout: bool | None = None) -> Floats:
    """The mask of the dropout behind the embedding, for each token in flight: s·b·h·p/t with sequence parallelism."""
    masks = not shape.gated if dropout is None else dropout
    return MASK_BYTES * masks * shape.hidden_size * beside


def last_stage_bytes_per_token(shape: ModelShape, *, tp: Floats, beside: Floats) -> Floats:
    """Inputs of the last norm and of the output matrix, and the logits in fp32: (4·s·b·h/t)·(1 + V/h) with SP.

    Source: Korthikanti 2022 §4.3. Kept of one micro-batch: the last stage goes backward at once.
    """
    hidden = 2 * shape.bytes_per_element * shape.hidden_size * beside
    return hidden + FP32_BYTES * shape.vocab_size / tp


@lru_cache(maxsize=256)
def _sums(
    shape: ModelShape, sparse: bool, dropout: bool | None, also_kept: tuple[KeptTensor, ...]
) -> dict[Cut, float]:
    """Bytes for each token of all kept tensors that are cut alike."""
    sums = dict.fromkeys(Cut, 0.0)
    for tensor in (*kept_tensors(shape, sparse=sparse, dropout=dropout), *also_kept):
        sums[tensor.cut] += tensor.bytes_per_token
    return sums


def _attention(shape: ModelShape, masks: bool) -> tuple[KeptTensor, ...]:
    e, hidden = shape.bytes_per_element, shape.bytes_per_element * shape.hidden_size
    heads = shape.attention_heads
    inside: tuple[KeptTensor, ...]
    if shape.latent is None:
        keys_and_values = e * shape.kv_heads * shape.head_dim
        inside = (
            KeptTensor(name="queries", bytes_per_token=e * heads * shape.head_dim, cut=Cut.TENSOR),
            KeptTensor(name="keys", bytes_per_token=keys_and_values, cut=Cut.KV_HEADS),
            KeptTensor(name="values", bytes_per_token=keys_and_values, cut=Cut.KV_HEADS),
            KeptTensor(
                name="output of the heads", bytes_per_token=e * heads * shape.head_dim, cut=Cut.TENSOR
            ),
        )
    else:
        latent = shape.latent
        # before and after its norm; the rotary part beside the cached vector has none
        compressed = e * (2 * latent.query_rank + 2 * latent.kv_rank + latent.rope_dim)
        key_width, value_width = shape.head_dim + latent.rope_dim, latent.value_dim
        inside = (
            KeptTensor(name="compressed vectors", bytes_per_token=compressed, cut=Cut.TOKENS),
            KeptTensor(name="queries", bytes_per_token=e * heads * key_width, cut=Cut.TENSOR),
            KeptTensor(name="keys", bytes_per_token=e * heads * key_width, cut=Cut.TENSOR),
            KeptTensor(name="values", bytes_per_token=e * heads * value_width, cut=Cut.TENSOR),
            KeptTensor(name="output of the heads", bytes_per_token=e * heads * value_width, cut=Cut.TENSOR),
        )
    scores = [KeptTensor(name="output of the softmax", bytes_per_token=e * heads, cut=Cut.SCORES)]
    if masks:
        scores += [
            KeptTensor(name="mask of the scores", bytes_per_token=MASK_BYTES * heads, cut=Cut.SCORES),
            KeptTensor(name="scores after dropout", bytes_per_token=e * heads, cut=Cut.SCORES),
        ]
    return (
        KeptTensor(name="input of the first norm", bytes_per_token=hidden, cut=Cut.TOKENS),
        KeptTensor(name="input of attention", bytes_per_token=hidden, cut=Cut.TOKENS),
        *inside,
        *scores,
        *_mask(shape, masks, "mask behind attention"),
    )


def _feed_forward(shape: ModelShape, masks: bool, sparse: bool) -> tuple[KeptTensor, ...]:
    e, hidden = shape.bytes_per_element, shape.bytes_per_element * shape.hidden_size
    matrices = 3 if shape.gated else 2
    inside: tuple[KeptTensor, ...]
    if sparse and shape.experts:
        experts = shape.experts
        inside = (
            KeptTensor(
                name="probabilities of the router",
                bytes_per_token=FP32_BYTES * experts.routed,
                cut=Cut.TOKENS,
            ),
            KeptTensor(
                name="tokens at their experts", bytes_per_token=experts.per_token * hidden, cut=Cut.ROUTED
            ),
            KeptTensor(
                name="inside of the experts",
                bytes_per_token=experts.per_token * matrices * e * experts.width,
                cut=Cut.TENSOR,  # etp/tp of the copies, an etp-th of the width: a tp-th of all
            ),
            KeptTensor(
                name="inside of the shared expert",
                bytes_per_token=matrices * e * experts.shared_width,
                cut=Cut.TENSOR,
            ),
        )
    else:
        inside = (
            KeptTensor(
                name="inside of the feed-forward block",
                bytes_per_token=matrices * e * shape.ffn_width,
                cut=Cut.TENSOR,
            ),
        )
    return (
        KeptTensor(name="input of the second norm", bytes_per_token=hidden, cut=Cut.TOKENS),
        KeptTensor(name="input of the feed-forward block", bytes_per_token=hidden, cut=Cut.TOKENS),
        *inside,
        *_mask(shape, masks, "mask behind the feed-forward block"),
    )


def _mask(shape: ModelShape, masks: bool, name: str) -> tuple[KeptTensor, ...]:
    if not masks:
        return ()
    return (KeptTensor(name=name, bytes_per_token=MASK_BYTES * shape.hidden_size, cut=Cut.TOKENS),)
