"""Arithmetic: how many operations (FLOPs) a model's step needs, and how long that takes at least.

Operations are counted as everybody counts them: a multiplication and an addition are two. What a step really takes,
with all that is not arithmetic, is in `timing`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from calculators.predict.arrays import Floats, amounts, check_broadcast, counts, positive
from calculators.predict.memory.kv_cache import tokens_in_layers
from calculators.predict.models.parameters import computed_parameters
from calculators.predict.shapes import ModelShape

SECONDS_PER_DAY = 86_400


def gpt_step_flops(
    *,
    hidden_size: ArrayLike,
    layers: ArrayLike,
    vocab_size: ArrayLike,
    tokens: ArrayLike,
    batch: ArrayLike,
    full_recompute: bool = False,
) -> Floats:
    """Operations of one training step of a GPT: 72·B·L·s·h²·(1 + s/(6h) + V/(12·h·L)), or 96 with full recomputation.

    Recomputation repeats the layers' forward pass and not the logits: 96·B·L·s·h²·(1 + s/(6h) + V/(16·h·L)). Attention
    is counted whole, as if every token looked at all others. Source: Narayanan 2021 (arXiv 2104.04473) §5.1, eq. 3.
    Raises ValueError where a size is below 1.

    >>> flops = gpt_step_flops(hidden_size=12288, layers=96, vocab_size=51200, tokens=2048, batch=1536)
    >>> f"{flops.item():.3e}"
    '3.386e+18'
    """
    given = counts(hidden_size=hidden_size, layers=layers, vocab_size=vocab_size, tokens=tokens, batch=batch)
    h, depth, s = given["hidden_size"], given["layers"], given["tokens"]
    passes = 4 if full_recompute else 3
    whole = 24 * passes * given["batch"] * depth * s * h**2
    return np.asarray(whole * (1 + s / (6 * h) + given["vocab_size"] / (4 * passes * h * depth)))


def forward_flops(shape: ModelShape, *, tokens: ArrayLike, causal: bool = True) -> Floats:
    """Operations of one sequence of `tokens` on its way through the model, logits included.

    2 for each parameter that a token is multiplied by (of the experts those that it visits), and 4·heads·head_dim for
    each token that it looks at: with `causal` those before it (and within a layer's window), else all of them.

    >>> from calculators.predict.models.catalogue import MODELS
    >>> forward_flops(MODELS["llama-3.1-8b"].shape, tokens=8192).item() / 8192 / 1e9
    17.157332992
    """
    s = counts(tokens=tokens)["tokens"]
    looked_at = attended_tokens(shape, tokens=s) if causal else s
    each = 2.0 * computed_parameters(shape) + shape.layers * attention_width(shape) * 2 * looked_at
    return np.asarray(s * each)


def training_flops(
    shape: ModelShape, *, tokens: ArrayLike, batch: ArrayLike = 1, causal: bool = True
) -> Floats:
    """Operations of a training step of `batch` sequences: three times the forward pass. Recomputation is not counted.

    >>> from calculators.predict.models.catalogue import MODELS
    >>> f"{training_flops(MODELS['llama-3.1-405b'].shape, tokens=8192, batch=2048).item():.2e}"
    '4.23e+19'
    """
    given = counts(tokens=tokens, batch=batch)
    return np.asarray(3 * given["batch"] * forward_flops(shape, tokens=given["tokens"], causal=causal))


def decode_flops(
    shape: ModelShape, *, context_tokens: ArrayLike = 0, tp: ArrayLike = 1, cp: ArrayLike = 1
) -> Floats:
    """Operations for one more token of one sequence: about 2 a parameter, and attention to the context.

    Those of one device of each stage, all stages together: tp shares all of them, cp the tokens that are looked at.

    >>> from calculators.predict.models.catalogue import MODELS
    >>> decode_flops(MODELS["llama-3.1-70b"].shape, context_tokens=[0, 4096]).round(-9).tolist()
    [139000000000.0, 150000000000.0]
    """
    context = amounts(context_tokens=context_tokens)["context_tokens"]
    ways = counts(tp=tp, cp=cp)
    check_broadcast({"context_tokens": context, **ways})
    looked_at = tokens_in_layers(shape, context) / ways["cp"]
    return np.asarray(
        (2.0 * computed_parameters(shape) + 2 * attention_width(shape) * looked_at) / ways["tp"]
    )


def training_days(
    *, tokens: ArrayLike, parameters: ArrayLike, devices: ArrayLike, flops_per_second: ArrayLike
) -> Floats:
    """Days to train on `tokens` tokens, with full recomputation: 8·T·P ÷ (n·X), X what one device reaches [FLOP/s].

    Source: Narayanan 2021 §5.1, eq. 4. Raises ValueError where a size is below 1.

    >>> training_days(tokens=300e9, parameters=175e9, devices=1024, flops_per_second=140e12).round(1).item()
    33.9
    """
    given = {
        **counts(tokens=tokens, parameters=parameters, devices=devices),
        **positive(flops_per_second=flops_per_second),
    }
    check_broadcast(given)
    return np.asarray(
        8
        * given["tokens"]
        * given["parameters"]
        / (given["devices"] * given["flops_per_second"])
        / SECONDS_PER_DAY
    )


def roofline_seconds(
    flops: ArrayLike, moved_bytes: ArrayLike, *, flops_per_second: ArrayLike, bytes_per_second: ArrayLike
) -> Floats:
    """Least time for so many operations on so many bytes of memory, which go on side by side: the longer of the two.

    Source: Williams 2009, Roofline. Raises ValueError where an amount is negative or a speed not above 0.

    >>> roofline_seconds([1e12, 100e12], 1e12, flops_per_second=100e12, bytes_per_second=2e12).tolist()
    [0.5, 1.0]
    """
    given = amounts(flops=flops, moved_bytes=moved_bytes)
    speeds = positive(flops_per_second=flops_per_second, bytes_per_second=bytes_per_second)
    check_broadcast({**given, **speeds})
    return np.maximum(
        given["flops"] / speeds["flops_per_second"], given["moved_bytes"] / speeds["bytes_per_second"]
    )


def attended_tokens(shape: ModelShape, *, tokens: ArrayLike) -> Floats:
    """How many tokens a token of a causal sequence looks at, on average over the sequence and the layers.

    Half of the sequence, s/2; in a layer with a window w < s: w − w²/(2s).

    >>> from calculators.predict.models.catalogue import MODELS
    >>> attended_tokens(MODELS["llama-3.1-8b"].shape, tokens=8192).item()
    4096.0
    """
    s = counts(tokens=tokens)["tokens"]
    if shape.window is None:
        return np.asarray(s / 2)
    reach = np.minimum(s, shape.window.tokens)
    share = shape.window.layers / shape.layers
    return np.asarray((1 - share) * s / 2 + share * (reach - reach**2 / (2 * s)))


def attention_width(shape: ModelShape) -> int:
    """Elements of all heads' keys and values together, which a query multiplies with: heads·(key + value).

    Ordinary attention: 2·heads·head_dim, so that 2·width operations meet each token that is looked at.
    """
    if shape.latent is None:
        return 2 * shape.attention_heads * shape.head_dim
    return shape.attention_heads * (shape.head_dim + shape.latent.rope_dim + shape.latent.value_dim)


@dataclass(frozen=True, kw_only=True)
class Matmul:
    """One matrix product with weights: rows × `inner` by `inner` × `outer`, and which side tensor parallelism cuts."""

    inner: int
    outer: int
    cut: str = ""  # "inner", "outer" or neither


def attention_matmuls(shape: ModelShape) -> tuple[Matmul, ...]:
    """The projections of one layer's attention, query, key and value of ordinary attention in one.

    >>> from calculators.predict.models.catalogue import MODELS
    >>> [(each.inner, each.outer) for each in attention_matmuls(MODELS["llama-3.1-8b"].shape)]
    [(4096, 6144), (4096, 4096)]
    """
    h, heads, width, latent = shape.hidden_size, shape.attention_heads, shape.head_dim, shape.latent
    if latent is None:
        return (
            Matmul(inner=h, outer=(heads + 2 * shape.kv_heads) * width, cut="outer"),
            Matmul(inner=heads * width, outer=h, cut="inner"),
        )
    queries = heads * (width + latent.rope_dim)
    query: tuple[Matmul, ...] = (Matmul(inner=h, outer=queries, cut="outer"),)
    if latent.query_rank:
        query = (
            Matmul(inner=h, outer=latent.query_rank),
            Matmul(inner=latent.query_rank, outer=queries, cut="outer"),
        )
    return (
        *query,
        Matmul(inner=h, outer=latent.kv_rank + latent.rope_dim),
        Matmul(inner=latent.kv_rank, outer=heads * (width + latent.value_dim), cut="outer"),
        Matmul(inner=heads * latent.value_dim, outer=h, cut="inner"),
    )


def feed_forward_matmuls(shape: ModelShape, width: int) -> tuple[Matmul, ...]:
    """A feed-forward block of this inner `width` (an expert's, say), gate and up projection in one; none of width 0."""
    if not width:
        return ()
    return (
        Matmul(inner=shape.hidden_size, outer=(2 if shape.gated else 1) * width, cut="outer"),
        Matmul(inner=width, outer=shape.hidden_size, cut="inner"),
    )
