"""What a decode step reads from memory: the weights that its tokens touch, and the keys and values behind them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from calculators.predict.arrays import (
    Floats,
    amounts,
    anywhere,
    check_broadcast,
    counts,
    positive,
)
from calculators.predict.exchanges import sizes
from calculators.predict.memory.kv_cache import layer_bytes, tokens_in_layers
from calculators.predict.memory.states import attention_of_rank
from calculators.predict.models.parameters import (
    expert_parameters,
    feed_forward_parameters,
    norm_parameters,
    router_parameters,
    shared_expert_parameters,
    table_parameters,
)
from calculators.predict.shapes import Layouts, ModelShape


@dataclass(frozen=True, kw_only=True, eq=False)
class Reading:
    """What one device of each stage reads in a pass, all stages together, as arrays [bytes]."""

    weight_bytes: Floats
    kv_bytes: Floats

    @property
    def total_bytes(self) -> Floats:
        """Both."""
        return self.weight_bytes + self.kv_bytes


def reading(
    shape: ModelShape,
    layouts: Layouts,
    *,
    batch: ArrayLike = 1,
    context_tokens: ArrayLike = 0,
    weight_bytes_per_element: ArrayLike | None = None,
    kv_bytes_per_element: ArrayLike = 2,
) -> Reading:
    """What devices read to give each of `batch` sequences, which travel as one group, its next token.

    weights  all that a device of each stage holds (`model_states.rank_parameters`); but of the experts those that the
             tokens touch (`distinct_experts`), shared by ep and etp, of whom the fullest has at least one, and none of
             the embedding, of which a token reads one row. The stages of a pipeline read one after another, so a pass
             reads them all
    cache    2·L·kv_heads·head_dim elements for each token looked back on (latent attention: kv_rank + rope_dim a
             layer), within each layer's window, shared by cp and by at most as many of tp as there are key-value heads
             (`kv_cache`)

    batch                     of one replica; where replicas share experts (ep over dp), all their tokens touch them
    weight_bytes_per_element  e.g. 0.5 for 4-bit weights; None for the model's own

    Raises ValueError where a size is below 1 or a width not above 0.

    >>> from calculators.predict.models.catalogue import MODELS
    >>> read = reading(MODELS["llama-3.1-70b"].shape, Layouts(tp=[1, 2]), context_tokens=1_000)
    >>> (read.weight_bytes / 1e9).round(1).tolist(), (read.kv_bytes / 1e6).round(1).tolist()
    ([139.0, 69.5], [327.7, 163.8])
    """
    given = counts(batch=batch, **sizes(layouts))
    context = amounts(context_tokens=context_tokens)["context_tokens"]
    own = shape.bytes_per_element if weight_bytes_per_element is None else weight_bytes_per_element
    widths = positive(weight_bytes_per_element=own, kv_bytes_per_element=kv_bytes_per_element)
    check_broadcast({**given, "context_tokens": context, **widths})
    cached = tokens_in_layers(shape, context) / given["cp"]
    return Reading(
        weight_bytes=widths["weight_bytes_per_element"] * _parameters_read(shape, given),
        kv_bytes=given["batch"] * cached * layer_bytes(shape, given["tp"], widths["kv_bytes_per_element"]),
    )


def distinct_experts(routed: ArrayLike, per_token: ArrayLike, tokens: ArrayLike) -> Floats:
    """How many of a layer's experts `tokens` touch together, on average: E·(1 − (1 − k/E)^T).

    Each token is taken to choose its k of E evenly and alone; a real router has favourites and touches fewer.

    >>> distinct_experts(routed=128, per_token=8, tokens=[1, 16, 1024]).round(1).tolist()
    [8.0, 82.4, 128.0]
    """
    given = counts(routed=routed, per_token=per_token)
    amount = amounts(tokens=tokens)["tokens"]
    check_broadcast({**given, "tokens": amount})
    if anywhere(given["per_token"] > given["routed"]):
        raise ValueError(
            f"per_token is {np.max(given['per_token']):g}, but there are only {np.min(given['routed']):g} experts. "
            "Use as many or fewer."
        )
    missed = (1 - given["per_token"] / given["routed"]) ** amount
    return np.asarray(given["routed"] * (1 - missed))


def _parameters_read(shape: ModelShape, given: dict[str, Floats]) -> Floats:
    """By one device of each stage, all stages together: what it holds, but of the experts those that are touched."""
    tp, cp, ep, etp = (given[axis] for axis in ("tp", "cp", "ep", "etp"))
    split = (
        shape.dense_layers * feed_forward_parameters(shape)
        + shape.sparse_layers * shared_expert_parameters(shape)
        + table_parameters(shape)  # the output matrix, read whole also where it is the embedding
    )
    copied = (
        shape.layers * norm_parameters(shape)
        + shape.sparse_layers * router_parameters(shape)
        + shape.hidden_size
    )
    common = shape.layers * attention_of_rank(shape, tp) + split / tp + copied
    if shape.experts is None:
        return common
    copies = np.maximum(1, given["dp"] * tp * cp / (ep * etp))
    tokens = given["batch"] * given["dp"] / copies
    touched = distinct_experts(shape.experts.routed, shape.experts.per_token, tokens)
    # The fullest device has at least the mean, and never less than one whole expert where any is touched.
    fullest = np.maximum(touched / ep, np.minimum(touched, 1))
    return common + shape.sparse_layers * expert_parameters(shape) * fullest / etp
