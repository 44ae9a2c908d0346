"""The sizes of a model put into formulas: its parameters, part by part, and what it caches for each token."""

from __future__ import annotations

from collections.abc import Iterable

from calculators.predict.arrays import positive
from calculators.predict.formulas import Formula, legend_of, tex, tex_bytes, tex_product
from calculators.predict.models.parameters import (
    attention_parameters,
    feed_forward_parameters,
    parameter_parts,
    sparse_layer_parameters,
)
from calculators.predict.shapes import Experts, LatentAttention, ModelShape

_LEGEND = {
    "h": "hidden size",
    "L": "layers",
    "L_d": "layers without experts",
    "L_s": "layers with experts",
    "a": "attention heads",
    "k": "key-value heads",
    "d": "width of a head",
    "c": "width of the cached vector",
    "r": "width of the rotary part",
    "q": "width of the compressed query",
    "u": "width of a head’s value",
    "m": "matrices of a feed-forward block",
    "f": "feed-forward width",
    "w": "width of an expert",
    "w_s": "width of the shared expert",
    "E": "experts in a layer",
    "V": "vocabulary",
    "s": "learned positions",
    "Q": "queries of a layer",
    "K": "keys and values of a layer",
    "N": "all layers",
    "A": "attention of a layer",
    "F": "feed-forward block",
    "S": "experts, shared expert and router of a layer",
    "e": "bytes per cached element",
}

Terms = list[tuple[str, str]]
"""A sum: each term in letters, and with its numbers."""


def parameter_formulas(shape: ModelShape) -> tuple[Formula, ...]:
    """How the parameters of `shape` add up: attention, feed-forward block, experts, all.

    >>> from calculators.predict.models.catalogue import MODELS
    >>> [formula.gives for formula in parameter_formulas(MODELS["mixtral-8x7b"].shape)]
    ['Attention of one layer', 'Experts of one layer', 'All layers', 'All parameters']
    """
    found = [*_attention(shape)]
    if shape.dense_layers:
        m, h, f = _matrices(shape), shape.hidden_size, shape.ffn_width
        found.append(
            _formula(
                "Feed-forward block of one layer",
                [(r"m\,h\,f", tex_product(m, h, f))],
                feed_forward_parameters(shape),
                "mhf",
            )
        )
    if shape.experts:
        found.append(_experts(shape, shape.experts))
    layers, total = _layers(shape)
    return (*found, layers, _all(shape, total))


def cache_formula(shape: ModelShape, *, bytes_per_element: int = 2) -> Formula:
    """What one token adds to the KV cache while every layer keeps it [bytes].

    >>> from calculators.predict.models.catalogue import MODELS
    >>> cache_formula(MODELS["deepseek-v3"].shape).numbers
    '61 \\\\cdot \\\\left( 512 + 64 \\\\right) \\\\cdot 2 = 70{,}272\\\\,\\\\text{B}'
    """
    positive(bytes_per_element=bytes_per_element)
    layers, e = shape.layers, bytes_per_element
    if latent := shape.latent:
        width = latent.kv_rank + latent.rope_dim
        symbols, letters = r"L \left( c + r \right) e", "Lcre"
        numbers = rf"{layers} \cdot \left( {tex(latent.kv_rank)} + {tex(latent.rope_dim)} \right) \cdot {e}"
    else:
        width = 2 * shape.kv_heads * shape.head_dim
        symbols, letters = r"2\,L\,k\,d\,e", "Lkde"
        numbers = tex_product(2, layers, shape.kv_heads, shape.head_dim, e)
    return Formula(
        gives="Keys and values of one token",
        symbols=symbols,
        numbers=f"{numbers} = {tex_bytes(layers * width * e)}",
        legend=_legend(letters),
    )


def _attention(shape: ModelShape) -> tuple[Formula, ...]:
    h, a, d = shape.hidden_size, shape.attention_heads, shape.head_dim
    if shape.latent:
        return _latent_attention(shape, shape.latent)
    terms = [
        (r"2\,h\,d \left( a + k \right)", rf"{tex_product(2, h, d)} \left( {a} + {shape.kv_heads} \right)")
    ]
    return (_formula("Attention of one layer", terms, attention_parameters(shape), "hdak"),)


def _latent_attention(shape: ModelShape, latent: LatentAttention) -> tuple[Formula, ...]:
    h, a, d = shape.hidden_size, shape.attention_heads, shape.head_dim
    c, r, q, u = latent.kv_rank, latent.rope_dim, latent.query_rank, latent.value_dim
    width = rf"{tex(a)} \left( {d} + {r} \right)"
    if q:
        query = [(r"h\,q", tex_product(h, q)), (r"q\,a \left( d + r \right)", rf"{tex(q)} \cdot {width}")]
    else:
        query = [(r"h\,a \left( d + r \right)", rf"{tex(h)} \cdot {width}")]
    keys = [
        (r"h \left( c + r \right)", rf"{tex(h)} \left( {c} + {r} \right)"),
        (r"c\,a \left( d + u \right)", rf"{tex_product(c, a)} \left( {d} + {u} \right)"),
    ]
    sizes = (
        h * q + q * a * (d + r) if q else h * a * (d + r),
        h * (c + r) + c * a * (d + u),
        a * u * h,
    )
    whole = [("Q", tex(sizes[0])), ("K", tex(sizes[1])), (r"a\,u\,h", tex_product(a, u, h))]
    return (
        _formula("Queries of one layer", query, sizes[0], "hqadr" if q else "hadr"),
        _formula("Keys and values of one layer", keys, sizes[1], "hcradu"),
        _formula("Attention of one layer", whole, attention_parameters(shape), "QKauh"),
    )


def _experts(shape: ModelShape, experts: Experts) -> Formula:
    m, h = _matrices(shape), shape.hidden_size
    terms = [
        (r"E\,m\,h\,w", tex_product(experts.routed, m, h, experts.width)),
        (r"E\,h", tex_product(experts.routed, h)),
    ]
    letters = ["E", "m", "h", "w"]
    if experts.shared_width:
        terms.append((r"m\,h\,w_s", tex_product(m, h, experts.shared_width)))
        letters.append("w_s")
    return _formula("Experts of one layer", terms, sparse_layer_parameters(shape), letters)


def _layers(shape: ModelShape) -> tuple[Formula, int]:
    attention, norms = attention_parameters(shape), 2 * shape.hidden_size
    terms = [
        (
            r"L \left( A + 2\,h \right)",
            rf"{shape.layers} \left( {tex(attention)} + {tex_product(2, shape.hidden_size)} \right)",
        )
    ]
    total = shape.layers * (attention + norms)
    letters = ["L", "A", "h"]
    if shape.dense_layers:
        name, block = "L_d" if shape.experts else "L", feed_forward_parameters(shape)
        terms.append((rf"{name}\,F", tex_product(shape.dense_layers, block)))
        total += shape.dense_layers * block
        letters += [name, "F"]
    if shape.experts:
        name, block = "L_s" if shape.dense_layers else "L", sparse_layer_parameters(shape)
        terms.append((rf"{name}\,S", tex_product(shape.sparse_layers, block)))
        total += shape.sparse_layers * block
        letters += [name, "S"]
    return _formula("All layers", terms, total, letters), total


def _all(shape: ModelShape, layers: int) -> Formula:
    h, v = shape.hidden_size, shape.vocab_size
    embedding, letters = (r"V\,h", tex_product(v, h)), "VhN"
    if shape.positions:
        positions = rf"\left( {tex(v)} + {tex(shape.positions)} \right) {tex(h)}"
        embedding, letters = (r"\left( V + s \right) h", positions), "VshN"
    terms = [embedding, ("N", tex(layers)), ("h", tex(h))]
    if not shape.tied_embeddings:
        terms.append((r"V\,h", tex_product(v, h)))
    return _formula("All parameters", terms, parameter_parts(shape).total, letters)


def _formula(gives: str, terms: Terms, total: int, letters: Iterable[str]) -> Formula:
    return Formula(
        gives=gives,
        symbols=" + ".join(symbols for symbols, _ in terms),
        numbers=" + ".join(numbers for _, numbers in terms) + f" = {tex(total)}",
        legend=_legend(letters),
    )


def _legend(letters: Iterable[str]) -> tuple[tuple[str, str], ...]:
    return legend_of(letters, _LEGEND)


def _matrices(shape: ModelShape) -> int:
    return 3 if shape.gated else 2
