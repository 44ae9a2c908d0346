"""The chart of the page *Memory*: a layout beside its neighbours, each lever's state as a bar of its parts."""

from collections.abc import Sequence

from calculators.figures import Figure, axis, figure, level, linear_byte_ticks, predicted_bar
from calculators.pages.memory.levers import short, under_bar
from calculators.pages.memory.parts import HEADS, LOOKS, NAMES
from calculators.predict.devices import Device
from calculators.predict.memory import PARTS
from calculators.predict.memory.levers import Case, Lever
from calculators.units import iec_bytes
from calculators.workbench import Chart, Row, Table

MOST_BARS = 9  # more would not be read at 390 px


def memory_chart(case: Case, found: Sequence[Lever], chosen: Device, limit: float) -> Chart:
    """This layout beside its neighbours: each lever's state as a bar of its parts."""
    neighbours = found[: MOST_BARS - 1]
    names = ["as it is", *(short(lever) for lever in neighbours)]
    under = ["now", *(under_bar(lever) for lever in neighbours)]
    held = [case.memory, *(lever.memory for lever in neighbours)]
    columns = {part: [getattr(memory, part).item() for memory in held] for part in PARTS}
    drawn = [part for part in PARTS if any(columns[part])]
    totals = [memory.total.item() for memory in held]
    data = [
        predicted_bar(
            NAMES[part],
            under,
            columns[part],
            colour=LOOKS[part][0],
            pattern=LOOKS[part][1],
            says=[iec_bytes(size) for size in columns[part]],
        )
        for part in drawn
    ]
    data.append(_limit(f"{chosen.name}, {iec_bytes(limit)}"))
    return Chart(
        name="memory",
        figure=figure(
            data,
            x=axis("") | {"type": "category"},
            y=axis("bytes on the fullest device") | linear_byte_ticks(max(*totals, limit)),
            barmode="stack",
            bargap=0.35,
            height=400,
            meta={"narrowHeight": 480},
            shapes=level(limit, "")["shapes"],
        ),
        caption=(
            f"What the fullest device holds, predicted: this layout, and each change alone. The line is what "
            f"{chosen.name} has room for."
        ),
        table=Table(
            name="neighbours",
            caption="The same numbers.",
            heads=("", "Together", *(HEADS.get(part, NAMES[part]) for part in drawn)),
            rows=tuple(
                Row(
                    cells=(
                        name,
                        iec_bytes(totals[row]),
                        *(iec_bytes(columns[part][row]) for part in drawn),
                    ),
                    is_chosen=row == 0,
                )
                for row, name in enumerate(names)
            ),
        ),
    )


def _limit(says: str) -> Figure:
    """The device's line in the legend: words beside the line itself would cover bars."""
    line = {"color": "var(--bad)", "width": 1.5, "dash": "dash"}
    return {"type": "scatter", "mode": "lines", "name": says, "x": ["now"], "y": [None], "line": line}
