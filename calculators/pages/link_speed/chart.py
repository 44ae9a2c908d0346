"""The chart of the page *Link speed*: tokens/s of both splits over every link."""

import math

from calculators.figures import Figure, axis, figure, predicted_line
from calculators.pages.link_speed.case import FAMILIES, Family, LinkCase, Step
from calculators.pages.link_speed.numbers import three_digits
from calculators.pages.link_speed.split import Split
from calculators.predict.serving import Verdict
from calculators.units import seconds
from calculators.workbench import Chart, Row, Table


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
