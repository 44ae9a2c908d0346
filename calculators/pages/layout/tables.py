"""The tables of the page *One layout*: what each axis moves, and the same call by call."""

from calculators.pages.layout.case import LayoutCase
from calculators.pages.layout.words import badge
from calculators.predict import placement
from calculators.units import both_bytes, iec_bytes, plain
from calculators.workbench import Row, Table


def axes_table(case: LayoutCase) -> Table:
    """Each axis on which anything moves, and all of them."""
    rows = [
        Row(
            cells=(
                badge(name),
                ", ".join(dict.fromkeys(str(part.share.kind) for part in moved.parts)),
                _reach(case, name),
                plain(moved.calls),
                plain(moved.rounds),
                iec_bytes(float(moved.handed.max())),
                iec_bytes(moved.sent_bytes),
            )
        )
        for name, moved in case.axes.items()
    ]
    total = Row(
        cells=(
            "All",
            "",
            "",
            plain(sum(moved.calls for moved in case.axes.values())),
            plain(sum(moved.rounds for moved in case.axes.values())),
            iec_bytes(case.handed_bytes),
            iec_bytes(case.sent_bytes),
        ),
        is_total=True,
    )
    return Table(
        name="axes",
        caption=(
            f"Predicted for each {case.phase.unit}. Calls and rounds are those of all stages, bytes those of the "
            "rank that is busiest on this axis; the last line is the rank that is busiest on all together."
        ),
        heads=("Axis", "Calls are", "Among", "Calls", "Rounds", "Handed over", "Busiest rank sends"),
        texts=3,
        rows=(*rows, total),
    )


def calls_table(case: LayoutCase) -> Table:
    """The calls of each axis by their purpose."""
    return Table(
        name="calls",
        caption=f"The same call by call, for each {case.phase.unit}.",
        heads=("Axis", "Call", "Of what", "As", "Calls", "Bytes in a call", "Busiest rank sends"),
        texts=4,
        rows=tuple(
            Row(
                cells=(
                    badge(name),
                    str(part.share.kind),
                    part.share.what,
                    part.share.algorithm,
                    plain(part.calls),
                    both_bytes(part.bytes_per_call),
                    iec_bytes(float(part.sent.max())),
                )
            )
            for name, moved in case.axes.items()
            for part in moved.parts
        ),
    )


def _reach(case: LayoutCase, name: str) -> str:
    """How many ranks call together, and over which link."""
    layouts = case.layouts
    ranks = case.axes[name].ranks
    start = placement.stride(layouts, "cp" if name == "dp" else name).item()
    inside = int(case.cluster.tier_of(start * ranks)) == 0 and case.cluster.devices_per_host > 1
    where = "inside a host" if inside else "between hosts"
    return f"{plain(ranks)} {'stages' if name == 'pp' else 'ranks'} {where}"
