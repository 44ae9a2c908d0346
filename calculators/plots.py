"""What figures of measurements are drawn with: solid bars, lines and dots beside the hollow ones of `figures`."""

from collections.abc import Iterable, Sequence
from typing import Any

from calculators.figures import (
    Figure,
    axis,
    bar,
    figure,
    linear_byte_ticks,
    predicted_bar,
)
from calculators.lab.compare import Comparison

_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x")
_DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
PARTS = (("formula", ""), ("backend", "\\"), ("framing", "/"), ("control", "."))
"""The parts of a prediction, each with the pattern that tells it apart where they stack."""


def measured_bar(
    name: str,
    x: Sequence[Any],
    y: Sequence[float],
    *,
    colour: str,
    says: Sequence[str] | None = None,
    pattern: str = "",
    **more: Any,
) -> Figure:
    """A solid bar; parts that stack are told apart by `pattern`, in the colour of the page on it."""
    paint = f"var(--{colour})"
    marker = {
        "color": paint,
        "line": {"color": paint, "width": 2},
        "pattern": {
            "shape": pattern,
            "fgcolor": "var(--raised)",
            "bgcolor": paint,
            "size": 6,
            "solidity": 0.3,
        },
    }
    return bar(name, x, y, says=says, marker=marker) | more


def measured_line(
    name: str,
    x: Sequence[Any],
    y: Sequence[Any],
    *,
    colour: str,
    says: Sequence[str] | None = None,
    mark: int = 0,
    joined: bool = True,
) -> Figure:
    """Solid marks; where they are `joined`, by a line whose dashes tell one rank from another, as its marks do."""
    return {
        "type": "scatter",
        "mode": "lines+markers" if joined else "markers",
        "name": name,
        "x": list(x),
        "y": list(y),
        "text": list(says) if says is not None else [str(value) for value in y],
        "hovertemplate": "%{x}: %{text}<extra>" + name + "</extra>",
        "line": {"color": f"var(--{colour})", "width": 1.5, "dash": _DASHES[mark % len(_DASHES)]},
        "marker": {
            "symbol": _SYMBOLS[mark % len(_SYMBOLS)],
            "size": 9 if not joined or len(y) <= 40 else 5,
            "color": f"var(--{colour})",
        },
    }


def level_line(name: str, x: Sequence[Any], value: float, *, colour: str, says: str) -> Figure:
    """A dotted level across a figure: what was predicted of all that is drawn."""
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": list(x),
        "y": [value] * len(x),
        "text": [says] * len(x),
        "hovertemplate": "%{text}<extra>" + name + "</extra>",
        "line": {"color": f"var(--{colour})", "width": 2, "dash": "dot"},
    }


def byte_bars(data: Sequence[Figure], *, title: str, top: float) -> Figure:
    """Bars that stand in pairs, predicted and measured, each a stack of parts."""
    return figure(
        list(data),
        x=axis("") | {"type": "category", "showgrid": False},
        y=axis(title) | linear_byte_ticks(top),
        height=360,
        barmode="stack",
        bargap=0.4,
        bargroupgap=0.15,
        margin={"l": 72, "r": 16, "t": 36, "b": 28},
        meta={"narrowHeight": 240 + 17 * len(data)},  # there the legend has a line for each
    )


def wire_figure(comparisons: Iterable[Comparison], *, family: str, steps: int, unit: str) -> Figure:
    """For each rank a hollow bar of the predicted parts, one on another, beside the solid measured one."""
    rows = list(comparisons)
    ranks = [f"rank {c.rank}" for c in rows]
    values = {
        "formula": [c.prediction.formula for c in rows],
        "backend": [c.prediction.backend_excess for c in rows],
        "framing": [c.prediction.framing for c in rows],
        "control": [c.prediction.control for c in rows],
    }
    data = [
        predicted_bar(
            f"predicted: {name}", ranks, values[name], colour=family, pattern=shape, offsetgroup="predicted"
        )
        for name, shape in PARTS
        if any(values[name])
    ]
    measured = [c.measured for c in rows]
    data.append(measured_bar("measured", ranks, measured, colour=family, offsetgroup="measured"))
    top = max([value for c in rows for value in (c.predicted, c.measured)], default=0)
    return byte_bars(data, title=f"wire bytes sent in {steps:,} {unit}s", top=top)
