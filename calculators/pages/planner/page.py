"""The page *Planner*: every legal layout of a model on a cluster, the best of them, and why not the others."""

from dataclasses import dataclass

from django.utils.safestring import SafeString

from calculators.pages.planner.form import PlannerForm
from calculators.pages.planner.formulas import formulas
from calculators.pages.planner.found import address
from calculators.pages.planner.frontier import frontier_chart
from calculators.pages.planner.kinds import kinds_of
from calculators.pages.planner.parts import parts_chart
from calculators.pages.planner.runs import runs
from calculators.pages.planner.sentences import headline, nothing_fits, searched
from calculators.pages.planner.tables import best_table, instead_table
from calculators.predict.planner import Plan, plan
from calculators.python_calls import python_call
from calculators.workbench import Answer, Calculator, LessonLink, Preset, Table

SHOWN = 10


@dataclass(frozen=True, kw_only=True)
class PlannerPage(Answer):
    """What came of the search, in words and figures."""

    plan: Plan
    headline: SafeString | str
    searched: str
    best: Table | None = None
    reasons: tuple[str, ...] = ()
    instead: Table | None = None
    layout_address: str = ""


def _answer(form: PlannerForm) -> PlannerPage:
    task = form.task
    kinds = kinds_of(task)
    found = plan(task, count=SHOWN, kinds=kinds)
    python = python_call(plan, task)
    if not len(found.best):
        return PlannerPage(
            plan=found,
            headline=nothing_fits(found),
            searched=searched(found),
            layout_address=address(form, found.smallest, 0) if found.smallest else "",
            charts=(frontier_chart(form, found),) if found.legal else (),
            python=python,
        )
    return PlannerPage(
        plan=found,
        best=best_table(form, found),
        headline=headline(found),
        searched=searched(found),
        reasons=found.reasons,
        instead=instead_table(form, found, kinds),
        layout_address=address(form, found.best, 0),
        charts=(parts_chart(found), frontier_chart(form, found)),
        explains=lambda: formulas(found),
        python=python,
        runs=tuple(runs(found, PLANNER.at(form.address))),
    )


PLANNER = Calculator(
    name="planner",
    title="Planner",
    asks="Every legal layout of a model on your cluster, evaluated at once: the quickest that fit, and why.",
    form=PlannerForm,
    answer=_answer,
    parts={},
    presets=(
        Preset(label="Llama 3.1 70B on 1,024 H100", query=""),
        Preset(
            label="DeepSeek-V3 on 2,048 H200",
            query="device=h200&devices=2048&model=deepseek-v3&tokens=4096&batch=4096&stages=uneven",
        ),
        Preset(
            label="Llama 3.1 405B on 16,384 H100",
            query="devices=16384&model=llama-3.1-405b&batch=2048&stages=uneven",
        ),
        Preset(
            label="Serving 70B to 64 from one host",
            query="devices=8&phase=decode&batch=64",
        ),
        Preset(
            label="Two boxes at home",
            query="device=dgx-spark&devices=2&devices_per_host=1&between=connectx-7-spark&phase=decode&tokens=4096&batch=1",
        ),
        Preset(
            label="Four gaming cards",
            query="device=rtx-4090&devices=4&devices_per_host=4&inside=pcie-4&model=qwen3-32b&phase=decode&tokens=4096"
            "&batch=1&reserve=1",
        ),
    ),
    lessons=(
        LessonLink(slug="tp-or-pp", title="TP or PP?"),
        LessonLink(slug="tensor-parallelism", title="Tensor parallelism"),
        LessonLink(slug="pipeline-parallelism", title="Pipeline parallelism"),
    ),
)
