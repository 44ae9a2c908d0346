"""The charts of a step's time and a device's memory, each a bar that lies, part after part."""

from collections.abc import Mapping
from typing import Any

from calculators.figures import Figure, axis, figure, predicted_bar
from calculators.layout_fields import GIB
from calculators.pages.layout.case import LayoutCase
from calculators.pages.layout.words import MEMORY_PAINT, MEMORY_PARTS, TIME_PAINT, TIME_PARTS, first_up
from calculators.predict.shapes import Phase
from calculators.units import both_bytes, iec_bytes, seconds, whole_percent
from calculators.workbench import Chart, Row, Table


def time_chart(case: LayoutCase) -> Chart:
    """What a step, a token or the prompts wait for."""
    found = {name: getattr(case.time, name).item() for name in TIME_PARTS}
    parts = {name: value for name, value in found.items() if value > 0}
    says = {name: seconds(value) for name, value in parts.items()}
    what = {"decode": "a token", "prefill": "reading the prompts", "training": "a step"}[case.phase.value]
    return Chart(
        name="time",
        figure=_strip(parts, TIME_PARTS, TIME_PAINT, says, f"seconds of {what}"),
        caption=f"What {what} waits for, predicted. Exchanges count only where nothing hides them.",
        table=Table(
            name="time",
            caption="The same numbers.",
            heads=("Part", "Time", "Share"),
            rows=(
                *(
                    Row(cells=(first_up(TIME_PARTS[name]), says[name], _share(value / case.seconds)))
                    for name, value in parts.items()
                ),
                Row(cells=("Together", seconds(case.seconds), "100 %"), is_total=True),
            ),
        ),
    )


def memory_chart(case: LayoutCase) -> Chart:
    """What the fullest device holds, beside what it has."""
    found = {name: getattr(case.memory, name).item() for name in MEMORY_PARTS}
    parts = {name: value for name, value in found.items() if value > 0}
    device = case.cluster.device
    line = {
        "type": "line",
        "xref": "x",
        "yref": "paper",
        "x0": case.limit_bytes / GIB,
        "x1": case.limit_bytes / GIB,
        "y0": 0,
        "y1": 1,
        "line": {"color": "var(--bad)", "width": 1.5, "dash": "dash"},
    }
    return Chart(
        name="memory",
        figure=_strip(
            {name: value / GIB for name, value in parts.items()},
            MEMORY_PARTS,
            MEMORY_PAINT,
            {name: iec_bytes(value) for name, value in parts.items()},
            "GiB on the fullest device; the line is what is there",
            most=1.04 * max(case.limit_bytes, case.memory_bytes) / GIB,
            shapes=[line],
        ),
        caption=(
            f"What the fullest device holds, predicted, beside the {iec_bytes(max(case.limit_bytes, 0))} that "
            f"{device.name} has without the reserve."
            + (
                " A prompt that is read in one piece needs more activations than are counted here."
                if case.phase is Phase.PREFILL
                else ""
            )
        ),
        table=Table(
            name="memory",
            caption="The same numbers.",
            heads=("Part", "Bytes", "Share of the device"),
            rows=(
                *(
                    Row(
                        cells=(
                            first_up(MEMORY_PARTS[name]),
                            both_bytes(value),
                            _share(value / device.memory_bytes),
                        )
                    )
                    for name, value in parts.items()
                ),
                Row(
                    cells=(
                        "Together",
                        both_bytes(case.memory_bytes),
                        whole_percent(case.memory_bytes / device.memory_bytes),
                    ),
                    is_total=True,
                ),
            ),
        ),
    )


def _strip(
    parts: Mapping[str, float],
    names: Mapping[str, str],
    paint: Mapping[str, tuple[str, str]],
    says: Mapping[str, str],
    title: str,
    *,
    most: float | None = None,
    **more: Any,
) -> Figure:
    """One bar that lies, part after part; `most` is where its axis ends, if not with the bar."""
    data = [
        predicted_bar(
            names[part],
            [value],
            [""],  # type: ignore[list-item]
            colour=paint[part][0],
            pattern=paint[part][1],
            says=[says[part]],
            orientation="h",
            hovertemplate=f"{names[part]}: %{{text}}<extra></extra>",
        )
        for part, value in parts.items()
    ]
    ticks = {"showticklabels": False, "showgrid": False}
    return figure(
        data,
        x=axis(title) | ({"range": [0, most]} if most else {"rangemode": "tozero"}),
        y=axis("") | ticks,
        height=180,
        barmode="stack",
        bargap=0.35,
        **more,
    )


def _share(part: float) -> str:
    return "under 1 %" if 0 < part < 0.005 else whole_percent(part)
