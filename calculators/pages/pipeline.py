"""The page *Pipeline*: who works when, how long stages wait, and what they hold meanwhile."""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from django.utils.html import format_html
from django.utils.safestring import SafeString

from calculators.fields import AddressForm, Choice, Decimal, WholeNumber
from calculators.figures import Figure, axis, figure, predicted_line
from calculators.gantt import Gantt, counted_micro_batches
from calculators.lab.spec import Job
from calculators.lab.spec import Schedule as LabSchedule
from calculators.predict import schedules
from calculators.predict.schedules import SCHEDULES, Schedule, Timetable, timetable
from calculators.predict.schedules.formulas import formulas
from calculators.predict.shapes import Phase
from calculators.python_calls import python_call
from calculators.trials import Calculation, Trial, trial
from calculators.units import percent, plain, seconds
from calculators.workbench import Answer, Calculator, Chart, LessonLink, Preset, Row, Table, run_it, shown

MOST_OPERATIONS = 1_600
SHORTEST_SECONDS = 1e-9  # below, the work of a stage vanishes beside the longest message in a sum of floats
"""Played and drawn: 16 stages of 50 micro-batches, forward and backward. More takes longer than a slider may."""
MOST_STAGES_DRAWN = 16

_MORE_MARKS = ("star-open", "triangle-down-open", "hexagon-open", "pentagon-open")
"""Figures have six marks, and there are up to nine lines here."""
_MODEL = {"hidden_size": 512, "bytes_per_element": 4, "batch": 1, "tokens": 64}
"""The run's own small model: a schedule says nothing about widths."""


class PipelineForm(AddressForm):
    """A schedule, its sizes, and how long one micro-batch takes in one stage."""

    DEFAULTS = {  # noqa: RUF012
        "schedule": "1f1b",
        "stages": "4",
        "micro_batches": "8",
        "chunks": "2",
        "forward": "10",
        "backward_input": "10",
        "backward_weight": "10",
        "send": "0",
        "last_stage": "1",
    }

    schedule = Choice(label="Schedule", choices=[(key.value, kind.name) for key, kind in SCHEDULES.items()])
    stages = WholeNumber(label="Stages", low=1, high=128)
    micro_batches = WholeNumber(label="Micro-batches", low=1, high=10_000, help_text="in a step")
    chunks = WholeNumber(label="Chunks", low=2, high=16, help_text="on each stage")
    forward = Decimal(label="Forward", low=0, high=100_000)
    backward_input = Decimal(label="Input gradient", low=0, high=100_000)
    backward_weight = Decimal(label="Weight gradient", low=0, high=100_000)
    send = Decimal(label="One message", low=0, high=100_000)
    last_stage = Decimal(
        label="Last stage takes",
        low=0.1,
        high=10,
        help_text="times as long as each other stage, as it also has the output matrix and the loss",
    )

    @property
    def case(self) -> "PipelineCase":
        """What is to be calculated. Raises ValueError, in a sentence, for what has no order of work."""
        values = self.cleaned_data
        schedule = Schedule(values["schedule"])
        return PipelineCase(
            schedule=schedule,
            stages=values["stages"],
            micro_batches=values["micro_batches"],
            chunks=values["chunks"] if schedule is Schedule.INTERLEAVED else None,
            times={name: values[name] / 1_000 for name in ("forward", "backward_input", "backward_weight")},
            send=values["send"] / 1_000,
            last_stage=values["last_stage"],
        )


@dataclass(frozen=True, kw_only=True)
class PipelineCase:
    """One pipeline to look at; times in seconds."""

    schedule: Schedule
    stages: int
    micro_batches: int
    chunks: int | None
    times: dict[str, float]
    send: float
    last_stage: float

    def __post_init__(self) -> None:
        schedules.check(self.schedule, **self.sizes)
        if not sum(self.times.values()):
            raise ValueError(
                "Forward, input gradient and weight gradient are all 0, so there is no work to plan."
            )
        if sum(self.times.values()) < SHORTEST_SECONDS:
            raise ValueError(
                "Forward, input gradient and weight gradient take less than a nanosecond together, but no stage works "
                "so fast. Give one of them 1e-6 ms or more."
            )

    @property
    def sizes(self) -> dict[str, Any]:
        """What fixes the order of work."""
        return {"stages": self.stages, "micro_batches": self.micro_batches, "chunks": self.chunks}

    @property
    def is_even(self) -> bool:
        """Whether all stages take equal times, as the formulas say."""
        return self.last_stage == 1 or self.stages == 1

    @property
    def has_formula(self) -> bool:
        """Whether a formula is known: not for messages that take time in the newer schedules."""
        known = (Schedule.NAIVE, Schedule.GPIPE, Schedule.ONE_F_ONE_B)
        return not self.send or self.schedule in known

    @property
    def played_times(self) -> dict[str, Any]:
        """The times of every stage, one number where they are equal."""
        if self.is_even:
            return dict(self.times)
        others = self.stages - 1
        return {name: [time] * others + [time * self.last_stage] for name, time in self.times.items()}

    def play(self, micro_batches: int) -> Timetable:
        """The step operation by operation."""
        return timetable(
            self.schedule,
            **self.sizes | {"micro_batches": micro_batches},
            **self.played_times,
            send=self.send,
        )

    def drawable_micro_batches(self) -> int:
        """As many micro-batches as the page plays: all, or fewer that fill the pipeline too; 0 where none do."""
        kind = SCHEDULES[self.schedule]
        chunks = (self.chunks or kind.chunks or 1) if self.schedule is not Schedule.DUALPIPE else 1
        each = self.stages * chunks * (3 if kind.splits else 2)
        if self.schedule is Schedule.NAIVE:
            each *= (
                4  # nothing happens at the same time, so the picture is as long as all operations in a row
            )
        most = MOST_OPERATIONS // each
        if self.stages > MOST_STAGES_DRAWN:
            return 0
        if self.micro_batches <= most:
            return self.micro_batches
        step = self.stages if self.schedule is Schedule.INTERLEAVED else 2
        fewer = most // step * step
        return (
            fewer
            if fewer >= 1 and not schedules.problems(self.schedule, **self.sizes | {"micro_batches": fewer})
            else 0
        )


@dataclass(frozen=True, kw_only=True)
class PipelinePage(Answer):
    """What the page says of a pipeline."""

    headline: SafeString | str
    idea: str
    warnings: tuple[str, ...]
    gantt: Gantt | None
    drawn: str
    stages: Table | None
    numbers: Table
    verdict: str


def _answer(form: PipelineForm) -> PipelinePage:
    case = form.case
    drawn = case.drawable_micro_batches()
    played = case.play(drawn) if drawn else None
    kind = SCHEDULES[case.schedule]
    return PipelinePage(
        headline=_headline(case, played),
        idea=f"{kind.name}: {kind.idea}",
        warnings=schedules.problems(case.schedule, **case.sizes),
        gantt=Gantt(timetable=played) if played else None,
        drawn=_drawn(case, played),
        stages=_stages(played) if played else None,
        numbers=_numbers(case, played),
        verdict=_verdict(case, played),
        charts=(_chart(case),),
        formulas=shown(_formulas(case)),
        python=python_call(
            timetable,
            case.schedule.value,
            stages=case.stages,
            micro_batches=case.micro_batches,
            **({"chunks": case.chunks} if case.chunks else {}),
            **case.played_times,
            **({"send": case.send} if case.send else {}),
        ),
        runs=run_it(
            _trial(case),
            label="Run it for real: PP",
            family="pp",
            back=PIPELINE.at(form.address),
        ),
    )


def _formulas(case: PipelineCase) -> tuple[Any, ...]:
    send = case.send if case.has_formula else 0.0
    return formulas(case.schedule, **case.sizes, **case.times, send=send)


def _bubble(case: PipelineCase) -> float:
    return float(schedules.bubble_seconds(case.schedule, **case.sizes, **case.times, send=case.send))


def _work(case: PipelineCase) -> float:
    return float(schedules.ideal_seconds(micro_batches=case.micro_batches, **case.times))


def _headline(case: PipelineCase, played: Timetable | None) -> SafeString | str:
    """Both conventions in one breath, from the timetable of this very step or else from the formula."""
    if played and played.micro_batches == case.micro_batches:
        worked, waited, whole = float(played.busy.mean()), played.bubble_seconds, played.period
    elif case.is_even and case.has_formula:
        worked, waited = _work(case), _bubble(case)
        whole = worked + waited
    else:
        return "No formula is known for this case, and the step is too large to be played here."
    if case.stages == 1:
        return f"One stage has nobody to wait for: it works all {seconds(whole)} of a step."
    average = "" if case.is_even else " on average"
    return format_html(
        "In a step of {} each stage{} works {} and waits "
        '<strong class="num"><span class="swatch predicted"></span> {}</strong>: '
        "<strong>{}</strong> of the useful time, <strong>{}</strong> of the whole.",
        seconds(whole),
        average,
        seconds(worked),
        seconds(_clean(waited)),
        _share(_clean(waited) / worked),
        _share(_clean(waited) / whole),
    )


def _drawn(case: PipelineCase, played: Timetable | None) -> str:
    if played is None:
        return (
            f"The timetable is played and drawn for up to {MOST_STAGES_DRAWN} stages and {MOST_OPERATIONS:,} "
            "operations; this step is larger, so what follows is from the formulas alone. The Python below plays it "
            "whole."
        )
    sentences = []
    if played.chunks > 1:
        sentences.append(
            "A label is a micro-batch and a chunk of the stage: 3b is the third micro-batch in its second chunk."
        )
    if case.schedule in (Schedule.DUALPIPE, Schedule.DUALPIPE_V):
        sentences.append("Halved boxes run side by side.")
    if case.schedule is Schedule.DUALPIPE:
        sentences.append(f"Micro-batches from {played.micro_batches // 2 + 1} on enter at the last stage.")
    if played.micro_batches < case.micro_batches:
        sentences.append(
            f"Drawn with {played.micro_batches} of the {case.micro_batches:,} micro-batches; the others lengthen "
            "the middle."
        )
    if not math.isclose(played.makespan, played.period):
        sentences.append(
            f"From first to last it takes {seconds(played.makespan)}, but no stage spends more than "
            f"{seconds(played.period)} on a step: as its paper assumes, a stage that is done early starts the next one."
        )
    return " ".join(sentences)


def _stages(played: Timetable) -> Table:
    """Each stage's work, waiting and memory."""
    return Table(
        name="stages",
        caption=(
            f"What each stage does in a step of {counted_micro_batches(played.micro_batches)}, and how many "
            "micro-batches’ activations it holds at most."
        ),
        heads=("Stage", "Works", "Waits", "Holds at most"),
        rows=tuple(
            Row(
                cells=(
                    stage,
                    seconds(float(played.busy[stage])),
                    seconds(_clean(float(played.idle[stage]))),
                    plain(float(held)),
                )
            )
            for stage, held in enumerate(played.peak_in_flight)
        ),
    )


def _numbers(case: PipelineCase, played: Timetable | None) -> Table:
    """The formula's figures beside those of the timetable."""
    shares = (
        "Time of a step",
        "Bubble: time that a stage waits",
        "Idle over useful",
        "Idle share of the whole",
    )
    formula = _spread(_work(case), _bubble(case)) if case.has_formula else ("no formula",) * len(shares)
    found = _spread(float(played.busy.mean()), played.bubble_seconds) if played else ("",) * len(shares)
    held = float(schedules.peak_in_flight(case.schedule, **case.sizes))
    sends = float(schedules.sends_per_micro_batch(case.schedule, stages=case.stages, chunks=case.chunks))
    most = plain(float(played.peak_in_flight.max())) if played else ""
    rows = (
        *zip(shares, formula, found, strict=True),
        ("Fullest stage holds, micro-batches", plain(held), most),
        ("Messages of one micro-batch, there and back", plain(sends), ""),
        ("Copies of the weights", plain(schedules.parameter_copies(case.schedule)), ""),
    )
    heads = ["Figure", "By formula"]
    if played:
        whole = played.micro_batches == case.micro_batches
        heads.append("Played" if whole else f"Played, {played.micro_batches} micro-batches")
    return Table(
        name="numbers",
        caption="Predicted, for one training step.",
        heads=tuple(heads),
        rows=tuple(Row(cells=cells[: len(heads)]) for cells in rows),
    )


def _spread(worked: float, waited: float) -> tuple[str, str, str, str]:
    """A step's length, its bubble, and the bubble by both conventions."""
    waited = _clean(waited)
    return (
        seconds(worked + waited),
        seconds(waited),
        _share(waited / worked),
        _share(waited / (worked + waited)),
    )


def _verdict(case: PipelineCase, played: Timetable | None) -> str:
    """Whether formula and timetable agree, and why not."""
    kind = SCHEDULES[case.schedule]
    if not case.has_formula:
        return f"No formula is known for {kind.name} when messages take time: what is played is the answer."
    if not case.is_even:
        return (
            "The formulas take all stages to be equal. Here the last differs, so what is played is the answer: every "
            "micro-batch passes the slowest stage, and the others wait for it."
        )
    if played is None:
        return f"The formula of {kind.name} is exact {kind.exact_when}. Source: {kind.source}."
    if math.isclose(played.bubble_seconds, _bubble(case), rel_tol=1e-9, abs_tol=1e-12):
        return f"Formula and timetable agree. Source: {kind.source}."
    return (
        f"The timetable differs: the formula of {kind.name} is exact {kind.exact_when}, and with enough micro-batches. "
        f"What is played is the answer. Source of the formula: {kind.source}."
    )


def _chart(case: PipelineCase) -> Chart:
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
            says=["" if value is None else _share(value) for value in curve],
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
                        *("–" if value is None else _share(value) for value in curve),
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


def _trial(case: PipelineCase) -> Trial | None:
    """A run of the lab with this schedule, or with the one of its two that comes nearest."""
    found = trial(
        Calculation(
            job=Job.PIPELINE,
            phase=Phase.TRAINING,
            layers=case.stages,
            devices=case.stages,
            micro_batches=case.micro_batches,
            **_MODEL,
        )
    )
    if found is None:
        return None
    gpipe = case.schedule in (Schedule.GPIPE, Schedule.NAIVE)
    taken = LabSchedule.GPIPE if gpipe else LabSchedule.ONE_F_ONE_B
    differences = [*found.differences]
    if case.schedule.value != taken.value:
        differences.append(
            f"It follows {'GPipe' if gpipe else '1F1B'} instead of {SCHEDULES[case.schedule].name}: the lab runs "
            "those two."
        )
    differences.append(
        "It measures the bytes that stages send, not yet who works when: ranks that share a processor’s cores "
        "wait for one another in ways that devices of their own do not."
    )
    return replace(found, spec=replace(found.spec, schedule=taken), differences=tuple(differences))


def _share(value: float) -> str:
    """A share of a hundred that never breaks before its sign."""
    return percent(round(value, 4)).replace(" %", "\N{NO-BREAK SPACE}%")


def _clean(value: float) -> float:
    """Zero where sums of floats leave a trace of it."""
    return 0.0 if abs(value) < 1e-12 else value


PIPELINE = Calculator(
    name="pipeline",
    title="Who waits in a pipeline",
    asks="Eleven schedules, operation by operation: how long stages wait, and what they hold meanwhile.",
    form=PipelineForm,
    answer=_answer,
    presets=(
        Preset(label="The lesson's pipeline", query=""),
        Preset(label="The same, interleaved", query="schedule=interleaved"),
        Preset(label="No bubble, more memory", query="schedule=zb-h2"),
        Preset(label="Fewer micro-batches than stages", query="stages=8&micro_batches=4"),
        Preset(label="DualPipe, as published", query="schedule=dualpipe&stages=8&micro_batches=20"),
        Preset(label="A slow last stage", query="micro_batches=16&last_stage=1.4"),
    ),
    lessons=(
        LessonLink(slug="pipeline-parallelism", title="Pipeline parallelism"),
        LessonLink(slug="tp-or-pp", title="TP or PP?"),
    ),
)
