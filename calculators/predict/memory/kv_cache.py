"""What serving keeps of the tokens read and written so far: their keys and values, in every layer."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from calculators.predict.arrays import (
    Floats,
    amounts,
    anywhere,
    check_broadcast,
    counts,
    floats,
    positive,
)
from calculators.predict.shapes import ModelShape
from calculators.predict.stages import check_stage, depth_of_stage


def kv_bytes_per_token(shape: ModelShape, *, tp: ArrayLike = 1, bytes_per_element: ArrayLike = 2) -> Floats:
    """Bytes that one more token adds to one rank's cache, all layers attending to everything.

    2·L·a_kv·d·e, of which each of t tensor ranks holds one part in min(t, a_kv): with more ranks than key-value heads
    the heads are repeated. Latent attention caches L·(d_c + d_rope)·e, whole on every tensor rank, for the vector
    serves all heads (DeepSeek-V2, arXiv 2405.04434 §2.1).

    Raises ValueError where a size is below 1 or a width is not above 0.

    >>> from calculators.predict.models.catalogue import MODELS
    >>> kv_bytes_per_token(MODELS["llama-3.1-70b"].shape, tp=[1, 4, 8, 16]).tolist()
    [327680.0, 81920.0, 40960.0, 40960.0]
    """
    given = counts(tp=tp) | _width(bytes_per_element)
    check_broadcast(given)
    return shape.layers * layer_bytes(shape, given["tp"], given["bytes_per_element"])


def kv_cache_bytes(
    shape: ModelShape,
    *,
    context_tokens: ArrayLike,
    batch: ArrayLike = 1,
    tp: ArrayLike = 1,
    pp: ArrayLike = 1,
    cp: ArrayLike = 1,
    dcp: ArrayLike = 1,
    bytes_per_element: ArrayLike = 2,
    stage: ArrayLike = 0,
) -> Floats:
    """Bytes of the cache on one rank of `stage`, for `batch` sequences of `context_tokens` each.

    A layer with a sliding window keeps no more tokens than the window has, however long the context; windowed layers
    are dealt evenly to the stages. Context parallelism divides the tokens of each sequence; dcp (decode context
    parallelism, vLLM) does so too among tensor ranks that would otherwise repeat each other's heads, so dcp is at
    most tp ÷ key-value heads (1 for latent attention).

    Raises ValueError where a size is below 1, or dcp exceeds what is repeated.

    >>> from calculators.predict.models.catalogue import MODELS
    >>> kv_cache_bytes(MODELS["llama-3.1-8b"].shape, context_tokens=131072).item() / 2**30
    16.0
    """
    given = counts(context_tokens=context_tokens, batch=batch, tp=tp, pp=pp, cp=cp, dcp=dcp)
    given |= _width(bytes_per_element) | amounts(stage=stage)
    check_broadcast(given)
    check_dcp(shape, tp=given["tp"], dcp=given["dcp"])
    check_stage(given["stage"], given["pp"])
    return cache_of_rank(shape, stage=given["stage"], given=given)


def cache_of_rank(shape: ModelShape, *, stage: Floats, given: dict[str, Floats]) -> Floats:
    """`kv_cache_bytes` of arguments that were checked."""
    p, context, parts = given["pp"], given["context_tokens"], given["cp"] * given["dcp"]
    layers = depth_of_stage(shape, stage, pp=p)
    if shape.window is None:
        token_layers = layers * (context / parts)
    else:
        whole = layers_without_window(shape, layers, pp=p)
        kept = np.minimum(context, shape.window.tokens)
        token_layers = (whole * context + (layers - whole) * kept) / parts
    return token_layers * given["batch"] * layer_bytes(shape, given["tp"], given["bytes_per_element"])


def layers_without_window(shape: ModelShape, layers: Floats, *, pp: ArrayLike) -> Floats:
    """Of a stage's `layers`, those that look back on everything: windowed layers are dealt evenly to the stages."""
    windowed = shape.window.layers if shape.window else 0
    return np.minimum(np.ceil((shape.layers - windowed) / floats(pp)), layers)


def tokens_in_layers(shape: ModelShape, context: Floats) -> Floats:
    """Tokens that one more token looks back on, each layer's within its window, all layers together."""
    if shape.window is None:
        return shape.layers * context
    inside = shape.window.layers * np.minimum(context, shape.window.tokens)
    return floats((shape.layers - shape.window.layers) * context + inside)


def check_dcp(shape: ModelShape, *, tp: Floats, dcp: Floats) -> None:
    """Raises ValueError where `dcp` exceeds how often tensor ranks repeat a key-value head."""
    heads = 1 if shape.latent else shape.kv_heads
    repeated = np.maximum(np.floor(tp / heads), 1)
    too_many = dcp > repeated
    if anywhere(too_many):
        given, most = (
            np.broadcast_to(values, too_many.shape)[too_many].flat[0] for values in (dcp, repeated)
        )
        raise ValueError(
            f"dcp is {given:g}, but it shares out what tensor ranks repeat, and {heads} key-value heads are held "
            f"{most:g} times here. Use {most:g} or less."
        )


def layer_bytes(shape: ModelShape, tp: Floats, bytes_per_element: Floats) -> Floats:
    """What one token takes in one layer on one tensor rank [bytes]."""
    if shape.latent:
        return (shape.latent.kv_rank + shape.latent.rope_dim) * bytes_per_element
    return (2 * shape.kv_heads * shape.head_dim) * bytes_per_element / np.minimum(tp, shape.kv_heads)


def _width(bytes_per_element: ArrayLike) -> dict[str, Floats]:
    # half a byte is a 4-bit cache, so a width is no count
    return positive(bytes_per_element=bytes_per_element)
