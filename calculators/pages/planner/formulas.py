"""The formulas that join the numbers of a plan's quickest layout."""

from calculators.pages.planner.numbers import plain_seconds, rounded_rate
from calculators.predict.planner import Plan
from calculators.predict.shapes import Phase
from calculators.predict.traffic import Formula
from calculators.predict.traffic.figures import tex


def formulas(found: Plan) -> tuple[Formula, ...]:
    """How the first's numbers hang together."""
    best, task = found.best, found.task
    size = {name: best[name][0].item() for name in ("dp", "tp", "cp", "pp", "micro_batch", "micro_batches")}
    step = plain_seconds(best["step_seconds"][0])
    devices = Formula(
        gives="Devices",
        symbols=r"d \cdot t \cdot c \cdot p",
        numbers=rf"{tex(size['dp'])} \cdot {tex(size['tp'])} \cdot {tex(size['cp'])} \cdot {tex(size['pp'])} = "
        rf"{tex(task.cluster.devices)}",
        legend=(
            ("d", "replicas, dp"),
            ("t", "ranks that share each layer, tp"),
            ("c", "ranks that share each sequence, cp"),
            ("p", "stages, pp"),
        ),
    )
    if task.phase is Phase.DECODE:
        tokens_per_second = tex(rounded_rate(best["tokens_per_second"][0]))
        rate = Formula(
            gives="Tokens a second",
            symbols=r"\frac{B}{T}",
            numbers=rf"\frac{{{tex(task.batch)}}}{{{step}\,\text{{s}}}} = {tokens_per_second}",
            legend=(("B", "sequences in flight"), ("T", "time of a token")),
        )
        return devices, rate
    micro = Formula(
        gives="Micro-batches of a replica",
        symbols=r"\frac{B}{d \cdot b}",
        numbers=rf"\frac{{{tex(task.batch)}}}{{{tex(size['dp'])} \cdot {tex(size['micro_batch'])}}} = "
        rf"{tex(size['micro_batches'])}",
        legend=(("B", "sequences in a step"), ("d", "replicas"), ("b", "sequences in a micro-batch")),
    )
    rate = Formula(
        gives="Tokens a second",
        symbols=r"\frac{B \cdot s}{T}",
        numbers=rf"\frac{{{tex(task.batch)} \cdot {tex(task.tokens)}}}{{{step}\,\text{{s}}}} = "
        rf"{tex(round(best['tokens_per_second'][0]))}",
        legend=(("B", "sequences in a step"), ("s", "tokens in each"), ("T", "time of a step")),
    )
    return devices, micro, rate
