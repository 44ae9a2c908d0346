"""How many parameters a model's sizes make: one layer's parts, all of it, and what one token uses of it.

Biases are left out: below 0.1 % of a large model. Every function takes a `ModelShape` and gives whole parameters.
"""

from __future__ import annotations

from calculators.predict.shapes import ModelShape


def total_parameters(shape: ModelShape) -> int:
    """All parameters of the model.

    >>> from calculators.predict.catalogue import MODELS
    >>> total_parameters(MODELS["llama-2-7b"].shape)
    6738415616
    """
    layers = shape.layers * (attention_parameters(shape) + norm_parameters(shape))
    dense = shape.dense_layers * feed_forward_parameters(shape)
    sparse = shape.sparse_layers * sparse_layer_parameters(shape)
    return (
        layers + dense + sparse + embedding_parameters(shape) + output_parameters(shape) + shape.hidden_size
    )


def active_parameters(shape: ModelShape) -> int:
    """Parameters that one token uses: of the experts of a layer only those that it visits, and the shared one.

    The embedding counts whole, as publishers count it, although a token reads one row of it.
    """
    if shape.experts is None:
        return total_parameters(shape)
    idle = shape.experts.routed - shape.experts.per_token
    return total_parameters(shape) - shape.sparse_layers * idle * expert_parameters(shape)


def attention_parameters(shape: ModelShape) -> int:
    """Projections of one layer's attention: query, key, value and output.

    Latent attention (DeepSeek-V2, arXiv 2405.04434 §2.1) projects to the cached vector and its rotary part, from there
    to every head's key and value, and the query directly or through a vector of its own.
    """
    h, heads, width = shape.hidden_size, shape.attention_heads, shape.head_dim
    if shape.latent is None:
        return 2 * h * width * (heads + shape.kv_heads)
    latent = shape.latent
    query_width = heads * (width + latent.rope_dim)
    query = h * latent.query_rank + latent.query_rank * query_width if latent.query_rank else h * query_width
    down = h * (latent.kv_rank + latent.rope_dim)
    up = latent.kv_rank * heads * (width + latent.value_dim)
    return query + down + up + heads * latent.value_dim * h


def feed_forward_parameters(shape: ModelShape) -> int:
    """An ordinary feed-forward block: two matrices, or three where it is gated."""
    return _matrices(shape) * shape.hidden_size * shape.ffn_width


def expert_parameters(shape: ModelShape) -> int:
    """One routed expert; 0 for a dense model."""
    return _matrices(shape) * shape.hidden_size * shape.experts.width if shape.experts else 0


def shared_expert_parameters(shape: ModelShape) -> int:
    """The expert of one sparse layer that every token visits; 0 without one."""
    return _matrices(shape) * shape.hidden_size * shape.experts.shared_width if shape.experts else 0


def router_parameters(shape: ModelShape) -> int:
    """The matrix that scores one sparse layer's experts; 0 for a dense model."""
    return shape.hidden_size * shape.experts.routed if shape.experts else 0


def sparse_layer_parameters(shape: ModelShape) -> int:
    """One sparse layer's feed-forward part: all its experts, the shared one and the router; 0 for a dense model."""
    if shape.experts is None:
        return 0
    experts = shape.experts.routed * expert_parameters(shape)
    return experts + shared_expert_parameters(shape) + router_parameters(shape)


def norm_parameters(shape: ModelShape) -> int:
    """The two norms of one layer."""
    return 2 * shape.hidden_size


def embedding_parameters(shape: ModelShape) -> int:
    """The embedding and learned positions, which the first stage holds."""
    return (shape.vocab_size + shape.positions) * shape.hidden_size


def output_parameters(shape: ModelShape) -> int:
    """The output matrix, which the last stage holds; 0 where it is the embedding again."""
    return 0 if shape.tied_embeddings else shape.vocab_size * shape.hidden_size


def _matrices(shape: ModelShape) -> int:
    return 3 if shape.gated else 2
