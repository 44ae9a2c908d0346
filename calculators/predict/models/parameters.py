"""How many parameters a model's sizes make: one layer's parts, all of it, and what one token uses of it.

Biases are counted apart (`bias_parameters`): few models have all of them, and they are below 0.1 % of a large one.
So are attention sinks and norms beyond two a layer, which are smaller still and not counted at all.
Every function takes a `ModelShape` and gives whole parameters.
"""

from __future__ import annotations

from dataclasses import dataclass

from calculators.predict.shapes import ModelShape


def total_parameters(shape: ModelShape) -> int:
    """All parameters of the model.

    >>> from calculators.predict.models.catalogue import MODELS
    >>> total_parameters(MODELS["llama-2-7b"].shape)
    6738415616
    """
    return parameter_parts(shape).total


@dataclass(frozen=True, kw_only=True)
class Parts:
    """Where a model's parameters are, over all its layers. A dense model has none in the three expert parts."""

    embedding: int
    attention: int
    feed_forward: int
    experts: int
    shared_experts: int
    router: int
    norms: int
    output: int

    @property
    def total(self) -> int:
        """All of them."""
        layers = self.attention + self.feed_forward + self.experts + self.shared_experts + self.router
        return self.embedding + layers + self.norms + self.output


def parameter_parts(shape: ModelShape) -> Parts:
    """The parameters of the whole model by part.

    >>> from calculators.predict.models.catalogue import MODELS
    >>> parts = parameter_parts(MODELS["mixtral-8x7b"].shape)
    >>> f"{parts.experts / parts.total:.1%}"
    '96.6%'
    """
    routed = shape.experts.routed if shape.experts else 0
    return Parts(
        embedding=embedding_parameters(shape),
        attention=shape.layers * attention_parameters(shape),
        feed_forward=shape.dense_layers * feed_forward_parameters(shape),
        experts=shape.sparse_layers * routed * expert_parameters(shape),
        shared_experts=shape.sparse_layers * shared_expert_parameters(shape),
        router=shape.sparse_layers * router_parameters(shape),
        norms=shape.layers * norm_parameters(shape) + shape.hidden_size,
        output=output_parameters(shape),
    )


def active_parameters(shape: ModelShape) -> int:
    """Parameters that one token uses: of the experts of a layer only those that it visits, and the shared one.

    The embedding counts whole, although a token reads one row of it. Publishers differ: Mistral counts it as well,
    OpenAI leaves it out, Z.ai (GLM) the output matrix too. A published figure lies between this and that.

    >>> from calculators.predict.models.catalogue import MODELS
    >>> f"{active_parameters(MODELS['mixtral-8x7b'].shape) / 1e9:.1f} billion"
    '12.9 billion'
    """
    if shape.experts is None:
        return total_parameters(shape)
    idle = shape.experts.routed - shape.experts.per_token
    return total_parameters(shape) - shape.sparse_layers * idle * expert_parameters(shape)


def computed_parameters(shape: ModelShape) -> int:
    """Parameters that one token is multiplied by: the active ones without the rows that are only looked up."""
    looked_up = embedding_parameters(shape) - (table_parameters(shape) if shape.tied_embeddings else 0)
    return active_parameters(shape) - looked_up


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


def table_parameters(shape: ModelShape) -> int:
    """A matrix between the vocabulary and the hidden size: the embedding without positions, or the output matrix."""
    return shape.vocab_size * shape.hidden_size


def output_parameters(shape: ModelShape) -> int:
    """The output matrix, which the last stage holds; 0 where it is the embedding again."""
    return 0 if shape.tied_embeddings else table_parameters(shape)


def bias_parameters(shape: ModelShape) -> int:
    """What `total_parameters` leaves out where every matrix and norm has a bias, as in GPT: an upper bound for others.

    With it a GPT counts what Narayanan 2021 (arXiv 2104.04473, equation 2) counts, and the two vectors of a last norm.
    """
    h, heads, width = shape.hidden_size, shape.attention_heads, shape.head_dim
    inner = _matrices(shape) - 1  # of a block's matrices all but the last end inside it
    attention = (heads + 2 * shape.kv_heads) * width + h
    if latent := shape.latent:
        query = latent.query_rank + heads * (width + latent.rope_dim)
        keys = latent.kv_rank + latent.rope_dim + heads * (width + latent.value_dim)
        attention = query + keys + h
    sparse = 0
    if experts := shape.experts:
        shared = inner * experts.shared_width + h if experts.shared_width else 0
        sparse = experts.routed * (inner * experts.width + h + 1) + shared  # 1: the router's
    return (
        shape.layers * (attention + norm_parameters(shape))
        + shape.dense_layers * (inner * shape.ffn_width + h)
        + shape.sparse_layers * sparse
        + h
    )


def prediction_module_parameters(shape: ModelShape) -> int:
    """One module that predicts a further token (MTP), which `total_parameters` leaves out, as publishers do.

    One more layer, of the last layer's kind, behind a matrix that joins two hidden states into one; it shares the
    embedding and the output matrix (DeepSeek-V3, arXiv 2412.19437 §2.2).
    """
    feed_forward = sparse_layer_parameters(shape) if shape.experts else feed_forward_parameters(shape)
    joining = 2 * shape.hidden_size * shape.hidden_size + 2 * shape.hidden_size
    return attention_parameters(shape) + feed_forward + norm_parameters(shape) + joining


def _matrices(shape: ModelShape) -> int:
    return 3 if shape.gated else 2
