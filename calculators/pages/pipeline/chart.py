"""The chart of the page *Pipeline*: how much of a step every schedule waits, by micro-batches."""

import numpy as np

from calculators.figures import Figure, axis, figure, predicted_line
from calculators.pages.pipeline.case import PipelineCase
from calculators.pages.pipeline.shares import share
from calculators.predict import schedules
from calculators.predict.schedules import SCHEDULES, Schedule
from calculators.units import plain
from calculators.workbench import Chart, Row, Table

_MORE_MARKS = ("star-open", "triangle-down-open", "hexagon-open", "pentagon-open")
"""Figures have six marks, and there are up to nine lines here."""


def schedules_chart(case: PipelineCase) -> Chart:
    """Idle share against micro-batches for every schedule; in the figure those with equal curves share a line."""
    many = _micro_batches(case)
    curves = {schedule: _curve(case, schedule, many) for schedule in SCHEDULES}
    lines: dict[tuple[float | None, ...], list[Schedule]] = {}
    for schedule, curve in curves.items():
        if schedule is not Schedule.NAIVE and any(value is not None for value in curve):
            lines.setdefault(curve, []).append(schedule)
    data: list[Figure] = [
        predicted_line(
            ", ".join(_name(schedule, case) for schedule in members),
            many,
            curve,
            colour="pp" if case.schedule in members else "muted",
            mark=number,
            says=["" if value is None else share(value) for value in curve],
        )
        for number, (curve, members) in enumerate(lines.items())
    ]
    for line, symbol in zip(data[6:], _MORE_MARKS, strict=False):
        line["marker"]["symbol"] = symbol
    plainly = not case.send and case.is_even
    told = "" if plainly else " Stages are taken as equal here and messages as immediate."
    doubled = [str(m) if m != case.micro_batches or _is_doubled(case, m) else "" for m in many]
    layout = {
        "x": axis("micro-batches in a step") | {"type": "log", "tickvals": many, "ticktext": doubled},
        "y": axis("idle share of the whole") | {"tickformat": ".0%", "rangemode": "tozero"},
    }
    drawn = figure(data, **layout, height=400)
    drawn["layout"]["legend"] |= {"font": {"size": 11}, "entrywidth": 86}
    return Chart(
        name="schedules",
        figure=drawn,
        caption=(
            "Idle share of the whole time, predicted by the formulas; the chosen schedule in colour. More "
            "micro-batches shrink every bubble but the naive schedule’s, which is only in the table. A mark is "
            f"missing where a schedule cannot run with so few.{told}"
        ),
        table=Table(
            name="shares",
            caption="The same numbers: idle share of the whole, by micro-batches in a step.",
            heads=("Schedule", *(plain(m) for m in many)),
            rows=tuple(
                Row(
                    cells=(
                        _name(schedule, case),
                        *("–" if value is None else share(value) for value in curve),
                    ),
                    is_chosen=schedule is case.schedule,
                )
                for schedule, curve in curves.items()
            ),
        ),
    )


def _curve(case: PipelineCase, schedule: Schedule, many: list[int]) -> tuple[float | None, ...]:
    """The idle share at each number of micro-batches, None where the schedule cannot run with it."""
    chunks = (case.chunks or 2) if schedule is Schedule.INTERLEAVED else None
    sizes = {"stages": case.stages, "chunks": chunks}
    waited = schedules.bubble_seconds(schedule, **sizes, micro_batches=np.array(many), **case.times)
    bubbles = np.broadcast_to(waited, len(many)).tolist()
    each = sum(case.times.values())
    return tuple(
        None
        if schedules.problems(schedule, **sizes, micro_batches=m)
        else round(bubble / (bubble + m * each), 6)
        for m, bubble in zip(many, bubbles, strict=True)
    )


def _micro_batches(case: PipelineCase) -> list[int]:
    """From as many as there are stages, doubled six times; what was given joins them."""
    doubled = {case.stages * 2**power for power in range(7)}
    return sorted(doubled | {case.micro_batches})


def _is_doubled(case: PipelineCase, micro_batches: int) -> bool:
    return micro_batches in {case.stages * 2**power for power in range(7)}


def _name(schedule: Schedule, case: PipelineCase) -> str:
    if schedule is Schedule.INTERLEAVED:
        return f"Interleaved ×{case.chunks or 2}"
    return SCHEDULES[schedule].name
