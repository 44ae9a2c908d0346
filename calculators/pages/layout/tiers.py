"""The chart of what crosses each kind of link."""

from collections.abc import Mapping

from calculators.figures import axis, figure, log_byte_ticks, predicted_bar
from calculators.pages.layout.case import LayoutCase
from calculators.pages.layout.words import AXIS_FAMILIES, badge
from calculators.predict.clusters import Tier
from calculators.predict.collectives import transfer_seconds
from calculators.predict.traffic import tier_bytes
from calculators.units import iec_bytes, seconds
from calculators.workbench import Chart, Row, Table


def tiers_chart(case: LayoutCase) -> Chart:
    """What crosses each kind of link, by axis. Links that join nobody, where each host has one device, are left out."""
    found = tier_bytes(case.composition, case.cluster)
    joining = [number for number, tier in enumerate(case.cluster.tiers) if tier.devices > 1]
    names = [case.cluster.tiers[number].link.name for number in joining]
    sent = {name: [float(found.axes[name][number]) for number in joining] for name in case.axes}
    data = [
        predicted_bar(
            name.upper(),
            names,
            [value or None for value in values],  # type: ignore[misc]
            colour=AXIS_FAMILIES[name],
            pattern="/" if name in ("etp", "edp") else "",
            says=[iec_bytes(value) for value in values],
        )
        for name, values in sent.items()
    ]
    drawn = [value for values in sent.values() for value in values if value]
    return Chart(
        name="tiers",
        figure=figure(
            data,
            x=axis("") | {"type": "category"},
            y=axis(f"bytes per {case.phase.unit}") | log_byte_ticks(drawn),
            barmode="group",
        ),
        caption=(
            f"What all ranks together send over each kind of link for each {case.phase.unit}, predicted. The scale "
            "counts in powers of two."
        ),
        table=_tier_table(case, sent, [case.cluster.tiers[number] for number in joining]),
    )


def _tier_table(case: LayoutCase, sent: Mapping[str, list[float]], tiers: list[Tier]) -> Table:
    whole = [sum(values[number] for values in sent.values()) for number in range(len(tiers))]
    each = [value / case.cluster.devices for value in whole]
    least = [
        transfer_seconds(
            value, 0, bytes_per_second=tier.link.bytes_per_second, latency_seconds=tier.link.latency_seconds
        ).item()
        for value, tier in zip(each, tiers, strict=True)
    ]
    return Table(
        name="tiers",
        caption="The same numbers, and how long a link takes at least for what its device sends on average.",
        heads=("", *(tier.link.name for tier in tiers)),
        rows=(
            *(Row(cells=(badge(name), *map(iec_bytes, values))) for name, values in sent.items()),
            Row(cells=("All ranks together", *map(iec_bytes, whole)), is_total=True),
            Row(cells=("A device, on average", *map(iec_bytes, each))),
            Row(cells=("Its link takes", *map(seconds, least))),
        ),
    )
