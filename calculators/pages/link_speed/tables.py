"""The tables of the page *Link speed*: what each split has to do for a token, and what each carrier allows."""

from django.utils.html import format_html
from django.utils.safestring import SafeString

from calculators.pages.link_speed.case import LinkCase
from calculators.pages.link_speed.numbers import gbit, three_digits
from calculators.pages.link_speed.split import Split
from calculators.predict.serving import DecodeWork
from calculators.units import counted, exact_bytes, iec_bytes, seconds
from calculators.workbench import Row, Table

CALLS = {"tp": "all-reduce", "pp": "send"}


def numbers_table(case: LinkCase, splits: tuple[Split, ...]) -> Table:
    """What each split reads, sends and has time for."""

    def row(label: str, *cells: str, total: bool = False) -> Row:
        return Row(cells=(label, *cells), is_total=total)

    heads = tuple(_head(split) for split in splits)
    rows = [
        row("A device reads, along all stages", *(iec_bytes(_read(split.work)) for split in splits)),
        row("The devices take", *(seconds(split.device_seconds) for split in splits)),
        row(
            "Tokens/s over a perfect link",
            *(three_digits(split.work.device_ceiling.item()) for split in splits),
        ),
    ]
    if case.devices > 1:
        rows += [
            row("Exchanges for each token", *(_exchanges(split) for split in splits)),
            row(
                "Bytes that cross, one after another",
                *(_bytes(split.work.sent_bytes.item()) for split in splits),
            ),
            row("Time left for them", *(_left(split, split.seconds_left) for split in splits)),
            row("An exchange may take", *(_left(split, split.seconds_each) for split in splits)),
            row("Needed if each answered at once", *(gbit(split.least_gbit) for split in splits), total=True),
        ]
    return Table(
        name="numbers",
        caption=f"Predicted for {three_digits(case.wanted)} tokens/s on {counted(case.devices, 'device')}.",
        heads=("", *heads),
        rows=tuple(rows),
    )


def carrier_table(case: LinkCase, tp: Split, pp: Split) -> Table:
    """What links of one carrier could give at most, and the speed they would need."""
    carriers: dict[str, int] = {}
    for index, step in enumerate(case.steps):
        carriers.setdefault(step.carrier, index)
    ceilings = [split.over.latency_ceiling.tolist() for split in (tp, pp)]
    needed = [split.needed.gbit_per_second.tolist() for split in (tp, pp)]
    rows = []
    for carrier, index in carriers.items():
        cells: list[str] = []
        for ceiling, speed in zip(ceilings, needed, strict=True):
            cells += [three_digits(ceiling[index]), gbit(speed[index])]
        rows.append(
            Row(
                cells=(carrier, seconds(case.steps[index].link.latency_seconds), *cells),
                is_chosen=carrier == case.looked_at.carrier,
            )
        )
    return Table(
        name="latencies",
        caption=f"The most tokens/s, however fast the cable, and the cable for {three_digits(case.wanted)}. "
        "∞: none is fast enough.",
        heads=("Carried by", "Latency", "TP at most", "TP needs", "PP at most", "PP needs"),
        rows=tuple(rows),
    )


def _read(work: DecodeWork) -> float:
    return float(work.weight_bytes.item() + work.kv_bytes.item())


def _exchanges(split: Split) -> str:
    work = split.work
    said = counted(work.calls.item(), CALLS[split.family])
    return f"{said} and the token id’s way back" if work.rounds > work.calls else said


def _left(split: Split, value: float) -> str:
    return seconds(value) if split.seconds_left > 0 else "none"


def _head(split: Split) -> SafeString | str:
    if split.case.devices == 1:
        return split.name
    return format_html(
        '<span class="badge family-{}">{}</span> <span class="long">{}</span>',
        split.family,
        split.family.upper(),
        split.name,
    )


def _bytes(value: float) -> str:
    return exact_bytes(value) if value < 1024 else iec_bytes(value)
