"""What Plotly figures of this site are made of, as plain dicts: building a `go.Figure` costs 4 ms.

Hollow is predicted, solid is measured. Colours are custom properties of the style sheet, `var(--tp)`;
static/charts.js reads them when it draws. A chart stands beside a table of the same numbers (`workbench.Chart`).
"""

import math
from collections.abc import Sequence
from typing import Any

from calculators.units import exact_bytes, iec_bytes

Figure = dict[str, Any]

NO_FILL = "rgba(0,0,0,0)"
_SYMBOLS = ("circle-open", "square-open", "diamond-open", "triangle-up-open", "cross-open", "x-open")


def figure(data: list[Figure], *, x: Figure, y: Figure, height: int = 340, **more: Any) -> Figure:
    """A figure of these traces on these axes; `more` joins its layout (barmode and the like)."""
    return {"data": data, "layout": layout(height=height) | {"xaxis": x, "yaxis": y} | more}


def predicted_line(
    name: str,
    x: Sequence[Any],
    y: Sequence[Any],
    *,
    colour: str,
    says: Sequence[str] | None = None,
    mark: int = 0,
) -> Figure:
    """A dotted line with hollow marks; `says` is the text of each mark, `mark` one of six shapes."""
    said = list(says) if says is not None else [str(value) for value in y]
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": name,
        "x": list(x),
        "y": list(y),
        "text": said,
        "hovertemplate": "%{x}: %{text}<extra>" + name + "</extra>",
        "line": {"color": f"var(--{colour})", "width": 1.5, "dash": "dot"},
        "marker": {
            "symbol": _SYMBOLS[mark % len(_SYMBOLS)],
            "size": 10,
            "color": f"var(--{colour})",
            "line": {"width": 2},
        },
    }


def predicted_bar(
    name: str,
    x: Sequence[Any],
    y: Sequence[float],
    *,
    colour: str,
    says: Sequence[str] | None = None,
    pattern: str = "",
    **more: Any,
) -> Figure:
    """A hollow bar; parts that stack are told apart by `pattern`, one of Plotly's (a slash, x, -, |, + or a dot)."""
    paint = f"var(--{colour})"
    marker = {
        "color": NO_FILL,
        "line": {"color": paint, "width": 2},
        "pattern": {"shape": pattern, "fgcolor": paint, "bgcolor": NO_FILL, "size": 6, "solidity": 0.25},
    }
    return bar(name, x, y, says=says, marker=marker) | more


def bar(
    name: str, x: Sequence[Any], y: Sequence[float], *, says: Sequence[str] | None, marker: Figure
) -> Figure:
    """A bar as `marker` paints it, that says each value in bytes or as `says` has it."""
    return {
        "type": "bar",
        "name": name,
        "x": list(x),
        "y": list(y),
        "text": list(says) if says is not None else [exact_bytes(value) for value in y],
        "textposition": "none",
        "hovertemplate": "%{x}, " + name + ": %{text}<extra></extra>",
        "marker": marker,
    }


def level(value: float, says: str) -> Figure:
    """A horizontal line across a figure at `value`, for its layout's `shapes` and `annotations`: a limit, a wish."""
    return {
        "shapes": [
            {
                "type": "line",
                "xref": "paper",
                "x0": 0,
                "x1": 1,
                "y0": value,
                "y1": value,
                "line": {"color": "var(--bad)", "width": 1.5, "dash": "dash"},
            }
        ],
        "annotations": [
            {
                "xref": "paper",
                "x": 1,
                "xanchor": "right",
                "y": value,
                "yanchor": "bottom",
                "showarrow": False,
                "text": says,
                "font": {"color": "var(--bad)"},
            }
        ],
    }


def layout(*, height: int) -> Figure:
    """What every figure shares: no background of its own, the legend above, the page's colours."""
    return {
        "height": height,
        "margin": {"l": 72, "r": 16, "t": 36, "b": 48},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": "system-ui, sans-serif", "size": 13, "color": "var(--ink)"},
        "legend": {
            "orientation": "h",
            "x": 0,
            "y": 1.02,
            "yanchor": "bottom",
            "itemclick": False,
            "traceorder": "normal",
        },
        "hoverlabel": {
            "bgcolor": "var(--raised)",
            "bordercolor": "var(--line)",
            "font": {"color": "var(--ink)"},
        },
        "dragmode": False,
    }


def axis(title: str) -> Figure:
    """An axis with a title, its lines as quiet as the page's."""
    return {
        "title": {"text": title, "font": {"color": "var(--muted)"}, "standoff": 8},
        "gridcolor": "var(--line)",
        "linecolor": "var(--line)",
        "zerolinecolor": "var(--line)",
        "tickcolor": "var(--line)",
        "fixedrange": True,
        "automargin": True,
    }


def log_byte_ticks(values: Sequence[float]) -> Figure:
    """A log axis whose ticks are powers of two: 1 KiB, 8 KiB, 64 KiB …"""
    if not values:
        return {"type": "log"}
    low, high = math.floor(math.log2(min(values))), math.ceil(math.log2(max(values)))
    step = max(1, math.ceil((high - low + 2) / 8))
    ticks = [2.0**power for power in range(low - 1, high + step + 1, step)]
    return {
        "type": "log",
        "range": [math.log10(2.0 ** (low - 1)), math.log10(2.0 ** (high + 1))],
        "tickvals": ticks,
        "ticktext": [iec_bytes(tick) for tick in ticks],
        "minor": {"ticks": ""},
    }


def linear_byte_ticks(top: float) -> Figure:
    """A linear axis from 0 whose ticks are whole steps in a unit of 1024s."""
    if top <= 0:
        return {"rangemode": "tozero"}
    unit = 1024.0 ** math.floor(math.log(max(top, 1), 1024))
    rough = top / unit / 4
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(nice for nice in (1, 2, 2.5, 5, 10) if nice * power >= rough) * power * unit
    ticks = [step * i for i in range(math.ceil(top / step) + 1)]
    return {
        "tickvals": ticks,
        "ticktext": [iec_bytes(tick) for tick in ticks],
        "range": [0, max(top * 1.06, ticks[-1])],
    }
