"""The figure of a run's page: what was measured beside what was predicted."""

from collections.abc import Iterable

from calculators.figures import Figure, axis, layout, linear_byte_ticks
from calculators.lab.compare import Comparison
from calculators.units import exact_bytes


def wire_figure(comparisons: Iterable[Comparison], *, family: str, steps: int, unit: str) -> Figure:
    """For each rank a hollow bar of the predicted parts, one on another, beside the solid measured one."""
    rows = list(comparisons)
    ranks = [f"rank {c.rank}" for c in rows]
    parts = (
        ("formula", [c.prediction.formula for c in rows], ""),
        ("backend", [c.prediction.backend_excess for c in rows], "\\"),
        ("framing", [c.prediction.framing for c in rows], "/"),
        ("control", [c.prediction.control for c in rows], "."),
    )
    colour = f"var(--{family})"
    data: list[Figure] = [
        {
            "type": "bar",
            "name": f"predicted: {name}",
            "x": ranks,
            "y": values,
            "offsetgroup": "predicted",
            "text": [exact_bytes(value) for value in values],
            "textposition": "none",
            "hovertemplate": "%{x}, " + name + ": %{text}<extra></extra>",
            "marker": {
                "color": "rgba(0,0,0,0)",
                "line": {"color": colour, "width": 2},
                "pattern": {
                    "shape": shape,
                    "fgcolor": colour,
                    "bgcolor": "rgba(0,0,0,0)",
                    "size": 6,
                    "solidity": 0.25,
                },
            },
        }
        for name, values, shape in parts
        if any(values)
    ]
    data.append(
        {
            "type": "bar",
            "name": "measured",
            "x": ranks,
            "y": [c.measured for c in rows],
            "offsetgroup": "measured",
            "text": [exact_bytes(c.measured) for c in rows],
            "textposition": "none",
            "hovertemplate": "%{x}, measured: %{text}<extra></extra>",
            "marker": {"color": colour, "line": {"color": colour, "width": 2}},
        }
    )
    top = max([value for c in rows for value in (c.predicted, c.measured)], default=0)
    shape = layout(height=360) | {
        "barmode": "stack",
        "bargap": 0.4,
        "bargroupgap": 0.15,
        "xaxis": axis("") | {"type": "category", "showgrid": False},
        "margin": {"l": 72, "r": 16, "t": 36, "b": 28},
        "yaxis": axis(f"wire bytes sent in {steps:,} {unit}s") | linear_byte_ticks(top),
    }
    return {"data": data, "layout": shape}
