"""The formulas behind `routing`, with a layer's numbers in their places."""

from __future__ import annotations

import numpy as np

from calculators.predict.formulas import Formula, legend_of, tex, tex_bytes, tex_product
from calculators.predict.traffic.expert import expected_ranks
from calculators.predict.traffic.routing import RoutedLayer

_LETTERS = {
    "T": "tokens on each rank",
    "k": "experts that each token visits",
    "D": "copies of a token: one for each rank that has some of its experts",
    "E": "experts in the layer",
    "n": "ranks that share the experts",
    "h": "hidden size",
    "e": "bytes per element on the way to the experts",
    "a": "how steeply the wish for experts falls: 0 for all alike",
    "r": "place of an expert by how much it is wanted",
    "f": "capacity factor",
    "R": "bytes that a rank receives in the dispatch",
}


def routing_formulas(layer: RoutedLayer) -> tuple[Formula, ...]:
    """What balanced ranks would send, how much the hottest expert is wanted, its places, and the imbalance."""
    n, experts = layer.routed.wanted.shape
    t, k, h, e = layer.tokens, layer.experts_per_token, layer.hidden_size, layer.dispatch_bytes_per_element
    each, letter = float(k), "k"
    if layer.copies == "rank":
        each, letter = expected_ranks(experts=experts, experts_per_token=k, ranks=n).item(), "D"
    balanced = t * each * h * e * (n - 1) / n
    found = [
        Formula(
            gives="Bytes that each rank would send in a balanced dispatch without a limit",
            symbols=rf"T\,{letter}\,h\,e \cdot \frac{{n-1}}{{n}}",
            numbers=rf"{tex_product(t, each, h, e)} \cdot \frac{{{n}-1}}{{{n}}}"
            rf" = {tex_bytes(round(balanced))}",
            legend=_legend("T", letter, "h", "e", "n"),
        )
    ]
    if layer.copies == "rank":
        found.append(
            Formula(
                gives="Ranks that have some of a token’s experts, when all experts are wanted alike",
                symbols=r"D = n \cdot \left(1 - \frac{\left(E - E/n\right)!\,\left(E-k\right)!}"
                r"{E!\,\left(E-E/n-k\right)!}\right)",
                numbers=rf"D = {tex(each)}",
                legend=_legend("n", "E", "k"),
            )
        )
    if layer.skew:
        total = float(np.sum(np.arange(1, experts + 1, dtype=float) ** -layer.skew))
        found.append(
            Formula(
                gives="Of all copies, those that want the most wanted expert (a token visits it once at most)",
                symbols=r"\frac{1}{\sum_{r=1}^{E} r^{-a}}",
                numbers=rf"\frac{{1}}{{{tex(total)}}} = {tex(1 / total)}",
                legend=_legend("E", "r", "a"),
            )
        )
    if layer.routed.capacity is not None and layer.capacity_factor is not None:
        found.append(
            Formula(
                gives="Places in each expert for one rank’s tokens",
                symbols=r"\left\lceil \frac{f\,T\,k}{E} \right\rceil",
                numbers=rf"\left\lceil \frac{{{tex_product(layer.capacity_factor, t, k)}}}{{{experts}}}"
                rf" \right\rceil = {tex(layer.routed.capacity)}",
                legend=_legend("f", "T", "k", "E"),
            )
        )
    spread = layer.exchange.received_spread
    if spread.mean:
        found.append(
            Formula(
                gives="The busiest receiver over the mean: the exchange ends when it has got everything",
                symbols=r"\frac{\max R}{\frac{1}{n} \sum R}",
                numbers=rf"\frac{{{tex(round(spread.hottest))}}}{{{tex(round(spread.mean))}}}"
                rf" = {tex(spread.imbalance)}",
                legend=_legend("R", "n"),
            )
        )
    return tuple(found)


def _legend(*letters: str) -> tuple[tuple[str, str], ...]:
    return legend_of(letters, _LETTERS)
