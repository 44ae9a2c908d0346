"""The page *One layout*: the rules it keeps, what it moves and where, what a step waits for, what a device holds."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from django.utils.safestring import SafeString

from calculators.fields import query_of
from calculators.pages.layout.case import LayoutCase
from calculators.pages.layout.families import of_a_rank
from calculators.pages.layout.form import LayoutForm
from calculators.pages.layout.formulas import AxisFormulas, explained_by
from calculators.pages.layout.pairs import Pairs, pairs_of
from calculators.pages.layout.runs import runs
from calculators.pages.layout.sentences import busiest, headline, left_out, misfit, what_follows
from calculators.pages.layout.strips import memory_chart, time_chart
from calculators.pages.layout.tables import axes_table, calls_table
from calculators.pages.layout.tiers import tiers_chart
from calculators.pages.layout.ways_on import Broken, instead, memory_address, planner_address
from calculators.predict.rules import Violation, check
from calculators.predict.shapes import Phase
from calculators.predict.traffic import composed
from calculators.python_calls import python_call
from calculators.workbench import FORMULAS, Answer, Calculator, LessonLink, Preset, Table


@dataclass(frozen=True, kw_only=True)
class LayoutPage(Answer):
    """What the page says of one layout; of one that breaks a rule, the rules alone."""

    case: LayoutCase
    follows: str
    broken: tuple[Broken, ...]
    remarks: tuple[Violation, ...]
    headline: SafeString | str = ""
    misfit: str = ""
    left_out: str = ""
    axes: Table | None = None
    busiest: str = ""
    memory_address: str = ""
    planner_address: str = ""

    @property
    def moves_anything(self) -> bool:
        return self.axes is not None

    @cached_property
    def calls(self) -> Table | None:
        """What the axes move, call by call."""
        return calls_table(self.case) if self.moves_anything else None

    @cached_property
    def pairs(self) -> Pairs | None:
        """Who sends to whom."""
        return pairs_of(self.case) if self.moves_anything else None

    @property
    def explained(self) -> tuple[AxisFormulas, ...]:
        """The formulas of each axis that a family speaks for."""
        return self._explained[0]

    @property
    def unexplained(self) -> str:
        """The axes that none speaks for, in a sentence."""
        return self._explained[1]

    @cached_property
    def _explained(self) -> tuple[tuple[AxisFormulas, ...], str]:
        axes = self.case.axes if self.moves_anything else ()
        return explained_by({name: of_a_rank(self.case, name) for name in axes})


def _answer(form: LayoutForm) -> LayoutPage:
    case = form.case
    common = {
        "case": case,
        "follows": what_follows(case),
        "broken": tuple(Broken(violation=each, instead=instead(form, each)) for each in case.broken),
        "remarks": case.remarks,
        "left_out": left_out(case),
    }
    if case.broken:
        return LayoutPage(**common, python=_rules_in_python(case))
    times, memory = time_chart(case), memory_chart(case)
    ends = {
        "headline": headline(case),
        "misfit": misfit(case),
        "memory_address": memory_address(form, case),
        "planner_address": planner_address(form, case),
        "python": python_call(composed, case.shape, **case.asked),
    }
    if not case.axes:
        return LayoutPage(**common, **ends, charts=(times, memory))
    return LayoutPage(
        **common,
        **ends,
        axes=axes_table(case),
        busiest=busiest(case),
        charts=(tiers_chart(case), times, memory),
        runs=tuple(runs(case, LAYOUT.at(form.address))),
    )


def _rules_in_python(case: LayoutCase) -> str:
    known: dict[str, Any] = {"phase": case.phase, "devices": case.cluster.devices}
    if case.phase is not Phase.DECODE:
        known["tokens"] = case.tokens
    if case.is_training:
        known |= {"batch": case.batch, "micro_batch": case.micro_batch}
    if case.uneven_stages:
        known["uneven_stages"] = True
    return python_call(check, case.shape, case.layout, **known)


def address_of(state: Mapping[str, str]) -> str:
    """The address of this page in a state, said by its fields; what it leaves out has its default."""
    said = {
        name: state[name]
        for name in LayoutForm.base_fields
        if name in state and state[name] != LayoutForm.DEFAULTS[name]
    }
    return LAYOUT.at(query_of(said))


LAYOUT = Calculator(
    name="layout",
    title="One layout",
    asks="Everything about one way to lay a model out on a cluster: the rules it keeps, what travels and over which "
    "link, what a step waits for and what a device holds.",
    form=LayoutForm,
    answer=_answer,
    parts={
        "each_call": "Call by call",
        "exchange": "Who sends to whom",
        **FORMULAS,
    },
    presets=(
        Preset(label="Llama 3.1 70B on 64 H100", query=""),
        Preset(label="Tensor parallelism across hosts", query="tp=16&pp=2"),
        Preset(
            label="DeepSeek-V3 on 2,048 H200",
            query="device=h200&devices=2048&model=deepseek-v3&tp=1&pp=16&ep=64&sp=off&tokens=4096&batch=15360&stages=uneven",
        ),
        Preset(
            label="Mixtral on 16",
            query="devices=16&model=mixtral-8x7b&tp=2&pp=1&ep=8&tokens=4096",
        ),
        Preset(
            label="One long document",
            query="devices=8&model=llama-3.1-8b&tp=1&cp=8&pp=1&sp=off&recompute=full&tokens=131072&batch=1",
        ),
        Preset(
            label="Two boxes at home",
            query="device=dgx-spark&devices=2&devices_per_host=1&between=connectx-7-spark&phase=decode&tp=2&pp=1&tokens=4096"
            "&batch=1",
        ),
        Preset(label="A layout that cannot be", query="tp=6&pp=3"),
    ),
    lessons=(
        LessonLink(slug="tp-or-pp", title="TP or PP?"),
        LessonLink(slug="tensor-parallelism", title="Tensor parallelism"),
        LessonLink(slug="pipeline-parallelism", title="Pipeline parallelism"),
    ),
)
