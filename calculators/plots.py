"""The figures of the traffic and run pages: bytes over devices, and what was measured beside what was predicted."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from calculators.answers import Case, Family
from calculators.figures import Figure, axis, layout, linear_byte_ticks, log_byte_ticks
from calculators.lab.compare import Comparison
from calculators.units import exact_bytes, iec_bytes

_FAMILY_NAMES = {"tp": "TP", "pp": "PP"}
_SYMBOLS = {"tp": "circle-open", "pp": "square-open"}


@dataclass(frozen=True, kw_only=True)
class CurveRow:
    """Bytes that the busiest device sends, over this many devices; None where the sizes do not divide."""

    devices: int
    tp: float | None
    pp: float | None
    is_chosen: bool


def traffic_curve(case: Case) -> tuple[CurveRow, ...]:
    """The case over 2, 4, 8 … devices, and over its own number."""
    sizes = sorted({2, 4, 8, 16, 32, 64} | ({case.devices} if case.devices > 1 else set()))
    sent = {family: case.traffic(family, sizes).wire_bytes.tolist() for family in _FAMILY_NAMES}
    return tuple(
        CurveRow(
            devices=devices,
            tp=sent["tp"][i] if case.works("tp", devices) else None,
            pp=sent["pp"][i] if case.works("pp", devices) else None,
            is_chosen=devices == case.devices,
        )
        for i, devices in enumerate(sizes)
    )


def traffic_figure(rows: Sequence[CurveRow], *, unit: str) -> Figure:
    """Bytes against devices, both on log axes; a size that breaks a rule leaves a gap."""
    families: tuple[Family, ...] = ("tp", "pp")
    data = []
    for family in families:
        values = [getattr(row, family) for row in rows]
        data.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": f"{_FAMILY_NAMES[family]}, predicted",
                "x": [row.devices for row in rows],
                "y": values,
                "text": ["" if v is None else f"{iec_bytes(v)} ({exact_bytes(v)})" for v in values],
                "hovertemplate": "%{x} devices: %{text}<extra>" + _FAMILY_NAMES[family] + "</extra>",
                "connectgaps": True,
                "line": {"color": f"var(--{family})", "width": 1.5, "dash": "dot"},
                "marker": {
                    "symbol": _SYMBOLS[family],
                    "size": [16 if row.is_chosen else 10 for row in rows],
                    "color": f"var(--{family})",
                    "line": {"width": 2},
                },
            }
        )
    shown = [value for row in rows for value in (row.tp, row.pp) if value]
    shape = layout(height=340) | {
        "xaxis": axis("devices")
        | {"type": "log", "tickvals": [r.devices for r in rows], "ticktext": [str(r.devices) for r in rows]},
        "yaxis": axis(f"bytes sent per {unit}") | log_byte_ticks(shown),
    }
    return {"data": data, "layout": shape}


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
