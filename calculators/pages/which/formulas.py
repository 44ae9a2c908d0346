"""The counts that decide between techniques, with the numbers of a case."""

from calculators.predict.advisor import Advice, Facts, Technique
from calculators.predict.traffic import Formula
from calculators.units import plain


def deciding_formulas(facts: Facts, advice: Advice) -> tuple[Formula, ...]:
    """The count that decides, with the case's numbers, or the lessons' where none are given."""
    families = set(advice.families)
    devices = max([*advice.axes.values(), facts.devices or 2, 2])
    layers = facts.layers or 64
    found = []
    if families & {Technique.TENSOR, Technique.PIPELINE}:
        tp, pp = advice.axes.get("tp", devices), advice.axes.get("pp", devices)
        found.append(
            Formula(
                gives="Exchanges for one token, inside layers and between stages",
                symbols=r"n_{\text{TP}} = 2 \cdot L, \quad n_{\text{PP}} = p - 1",
                numbers=rf"n_{{\text{{TP}}}} = 2 \cdot {layers} = {2 * layers}, \quad "
                rf"n_{{\text{{PP}}}} = {pp} - 1 = {pp - 1}",
                legend=(
                    ("L", "layers" if facts.layers else "layers, the lessons’ 64"),
                    ("p", f"stages; a tensor-parallel group of any size, here {tp}, exchanges as often"),
                ),
            )
        )
    if Technique.SHARDED_DATA in families:
        n = facts.dp or devices
        found.append(
            Formula(
                gives="Bytes of model states for each parameter, optimizer sharded and all sharded",
                symbols=r"b_1 = 4 + \frac{12}{n}, \quad b_3 = \frac{16}{n}",
                numbers=rf"b_1 = 4 + \frac{{12}}{{{n}}} = {plain(4 + 12 / n)}, \quad "
                rf"b_3 = \frac{{16}}{{{n}}} = {plain(16 / n)}",
                legend=(("n", "replicas; one alone holds 16 bytes, with mixed-precision Adam"),),
            )
        )
    if Technique.EXPERT in families and facts.experts:
        ep = advice.axes.get("ep") or facts.ep or devices
        found.append(
            Formula(
                gives="Experts of a layer on each device",
                symbols=r"\frac{E}{n}",
                numbers=rf"\frac{{{facts.experts}}}{{{ep}}} = {plain(facts.experts / ep)}",
                legend=(("E", "experts of a layer"), ("n", "expert-parallel ranks")),
            )
        )
    if Technique.CONTEXT in families and facts.tokens:
        cp = max(facts.cp or devices, 2)
        found.append(
            Formula(
                gives="Tokens of one sequence on each device",
                symbols=r"\frac{s}{c}",
                numbers=rf"\frac{{{facts.tokens}}}{{{cp}}} = {plain(facts.tokens / cp)}",
                legend=(("s", "tokens of the sequence"), ("c", "context-parallel ranks")),
            )
        )
    return tuple(found)
