"""The chart and the tables of the page *Link speed*: every link, what it gives and what stands in its way."""

import math

from django.utils.html import format_html
from django.utils.safestring import SafeString

from calculators.figures import Figure, axis, figure, predicted_line
from calculators.link_answers import FAMILIES, Family, LinkCase, Split, Step, gbit, three_digits
from calculators.predict.serving import DecodeWork, Verdict
from calculators.units import counted, exact_bytes, iec_bytes, seconds
from calculators.workbench import Chart, Row, Table

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


def links_chart(case: LinkCase, tp: Split, pp: Split) -> Chart:
    """Tokens/s of both splits over every link."""
    return Chart(
        name="links",
        figure=_figure(case, {split.family: split for split in (tp, pp)}),
        caption=(
            "Tokens/s of each sequence over every link, predicted. The links that answer soonest are on top; those of "
            "one carrier are joined, the fastest cable first. Where such a line runs straight down, a faster cable "
            "gains nothing."
        ),
        table=Table(
            name="speeds",
            caption=f"Tokens/s, and what takes most of a token’s time. ✓ reaches {three_digits(case.wanted)}.",
            heads=("Link", "TP", "PP", "TP held up by", "PP held up by", "Gbit/s", "Latency"),
            rows=tuple(_link_row(case, index, tp, pp) for index in range(len(case.steps))),
        ),
    )


def _link_row(case: LinkCase, index: int, tp: Split, pp: Split) -> Row:
    step = case.steps[index]
    return Row(
        cells=(
            step.short.replace(" ", "\N{NO-BREAK SPACE}"),
            *(
                ("✓ " if split.verdicts[index] is Verdict.REACHES else "") + split.said[index]
                for split in (tp, pp)
            ),
            *(split.limits[index].words for split in (tp, pp)),
            three_digits(step.link.bytes_per_second * 8 / 1e9),
            seconds(step.link.latency_seconds),
        ),
        is_chosen=step.key == case.link,
    )


def _figure(case: LinkCase, splits: dict[Family, Split]) -> Figure:
    traces = []
    for mark, family in enumerate(FAMILIES):
        # An empty place between carriers, so that only links of one carrier are joined.
        marks: list[tuple[Step | None, float | None, str]] = []
        for step, speed, said in zip(case.steps, splits[family].speeds, splits[family].said, strict=True):
            if marks and marks[-1][0] and marks[-1][0].carrier != step.carrier:
                marks.append((None, None, ""))
            marks.append((step, speed, f"{said} tokens/s"))
        trace = predicted_line(
            f"{family.upper()}, predicted",
            [speed for _, speed, _ in marks],
            [step and step.short for step, _, _ in marks],
            colour=family,
            says=[said for _, _, said in marks],
            mark=mark,
        )
        trace["hovertemplate"] = "%{y}: %{text}<extra>" + family.upper() + "</extra>"
        trace["marker"]["size"] = [15 if step and step.key == case.link else 9 for step, _, _ in marks]
        traces.append(trace)
    shown_speeds = [*splits["tp"].speeds, *splits["pp"].speeds, case.wanted]
    scale = _speed_ticks(min(shown_speeds), max(shown_speeds))
    return figure(
        traces,
        x=axis("tokens/s") | scale,
        y=axis("") | {"type": "category", "autorange": "reversed", "dtick": 1, "tickfont": {"size": 12}},
        height=(height := 110 + 22 * len(case.steps)),
        meta={"narrowHeight": height},
        shapes=[
            {
                "type": "line",
                "yref": "paper",
                "x0": case.wanted,
                "x1": case.wanted,
                "y0": 0,
                "y1": 1,
                "line": {"color": "var(--ink)", "width": 1.5, "dash": "dash"},
            }
        ],
        annotations=[
            {
                "x": math.log10(case.wanted),
                "xanchor": "right"
                if case.wanted > math.sqrt(min(shown_speeds) * max(shown_speeds))
                else "left",
                "yref": "paper",
                "y": 0,
                "yanchor": "bottom",
                "showarrow": False,
                "text": f"{three_digits(case.wanted)} wanted",
                "font": {"color": "var(--ink)"},
            }
        ],
    )


def _speed_ticks(low: float, high: float) -> Figure:
    """A log axis with ticks at 1, 2, 5, 10 …, or at powers of ten where it is long."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    digits = (1, 2, 5) if high / low < 300 else (1,)
    ticks = [digit * 10.0**power for power in range(first, last + 1) for digit in digits]
    return {
        "type": "log",
        "range": [math.log10(low) - 0.12, math.log10(high) + 0.12],
        "tickvals": ticks,
        "ticktext": [three_digits(tick) for tick in ticks],
        "minor": {"ticks": ""},
    }


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
