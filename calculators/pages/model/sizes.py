"""The sizes that were read of a model, in words."""

from collections.abc import Iterable

from calculators.predict.shapes import ModelShape
from calculators.units import counted, plain


def sizes_in_words(shape: ModelShape) -> Iterable[tuple[str, str]]:
    """What was read, in words."""
    matrices = "three matrices" if shape.gated else "two matrices"
    yield "Hidden size", plain(shape.hidden_size)
    yield "Layers", plain(shape.layers)
    if latent := shape.latent:
        yield (
            "Attention heads",
            (f"{shape.attention_heads}, with keys of {shape.head_dim} + {latent.rope_dim} elements"),
        )
        yield "Cached for each token", f"one vector of {latent.kv_rank} + {latent.rope_dim} for all heads"
    else:
        yield "Attention heads", f"{shape.attention_heads}, each {shape.head_dim} wide"
        yield "Key-value heads", f"{shape.kv_heads}{_sharing(shape)}"
    if shape.window:
        yield "Window", f"{shape.window.layers} layers look back {plain(shape.window.tokens)} tokens"
    if shape.dense_layers:
        where = f" in the first {counted(shape.dense_layers, 'layer')}" if shape.experts else ""
        yield "Feed-forward width", f"{plain(shape.ffn_width)}, {matrices}{where}"
    if experts := shape.experts:
        yield (
            "Experts in a layer",
            (
                f"{experts.routed}, each {plain(experts.width)} wide, {matrices}; a token visits {experts.per_token}"
            ),
        )
        if experts.shared_width:
            yield "Shared expert", f"{plain(experts.shared_width)} wide, visited by every token"
    yield "Vocabulary", plain(shape.vocab_size)
    yield "Output matrix", "the embedding again" if shape.tied_embeddings else "its own"
    if shape.positions:
        yield "Learned positions", plain(shape.positions)
    yield "Read from", shape.source


def _sharing(shape: ModelShape) -> str:
    heads, kv = shape.attention_heads, shape.kv_heads
    if heads == kv:
        return ", one for each head"
    return f", each for {heads // kv} heads" if heads % kv == 0 else ""
