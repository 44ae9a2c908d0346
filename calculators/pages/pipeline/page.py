"""The page *Pipeline*: who works when, how long stages wait, and what they hold meanwhile."""

from dataclasses import dataclass
from typing import Any

from django.utils.safestring import SafeString

from calculators.pages.pipeline.case import PipelineCase
from calculators.pages.pipeline.chart import schedules_chart
from calculators.pages.pipeline.form import PipelineForm
from calculators.pages.pipeline.gantt import Gantt
from calculators.pages.pipeline.run import trial_of
from calculators.pages.pipeline.sentences import headline, verdict, what_is_drawn
from calculators.pages.pipeline.tables import numbers_table, stages_table
from calculators.predict import schedules
from calculators.predict.schedules import SCHEDULES, timetable
from calculators.predict.schedules.formulas import formulas
from calculators.python_calls import python_call
from calculators.workbench import Answer, Calculator, LessonLink, Preset, Table, run_it


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
        headline=headline(case, played),
        idea=f"{kind.name}: {kind.idea}",
        warnings=schedules.problems(case.schedule, **case.sizes),
        gantt=Gantt(timetable=played) if played else None,
        drawn=what_is_drawn(case, played),
        stages=stages_table(played) if played else None,
        numbers=numbers_table(case, played),
        verdict=verdict(case, played),
        charts=(schedules_chart(case),),
        explains=lambda: _formulas(case),
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
            trial_of(case),
            label="Run it for real: PP",
            family="pp",
            back=PIPELINE.at(form.address),
        ),
    )


def _formulas(case: PipelineCase) -> tuple[Any, ...]:
    send = case.send if case.has_formula else 0.0
    return formulas(case.schedule, **case.sizes, **case.times, send=send)


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
