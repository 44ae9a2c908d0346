"""The page *Which split?*: questions in order, the technique they lead to, and why not the others."""

from dataclasses import dataclass

from calculators.pages.which.badges import FAMILY_CODES, badges
from calculators.pages.which.form import WhichForm
from calculators.pages.which.formulas import deciding_formulas
from calculators.pages.which.questions import Asked, asked
from calculators.pages.which.relief import MOST, relief_chart
from calculators.pages.which.runs import runs
from calculators.pages.which.ways_on import WayOn, ways_on
from calculators.predict.advisor import Advice, Facts, Technique, advise
from calculators.python_calls import python_call
from calculators.workbench import Answer, Calculator, Chart, LessonLink, Preset


@dataclass(frozen=True, kw_only=True)
class Side:
    """One wording's answer."""

    wording: str
    advice: Advice

    @property
    def families(self) -> tuple[tuple[str, str], ...]:
        return badges(self.advice)


@dataclass(frozen=True, kw_only=True)
class WhichPage(Answer):
    """The advice, its two wordings where they differ, what to ask, and the ways on."""

    advice: Advice
    facts: Facts
    asked: tuple[Asked, ...]
    sides: tuple[Side, ...] = ()
    ways_on: tuple[WayOn, ...] = ()

    @property
    def is_decided(self) -> bool:
        return self.advice.technique is not Technique.ASK_MORE

    @property
    def families(self) -> tuple[tuple[str, str], ...]:
        """The families of the advice: the code of each, and its size where one is suggested."""
        return badges(self.advice)

    @property
    def family(self) -> str:
        """The code of the one family, empty for several and none."""
        codes = {FAMILY_CODES[family] for family in self.advice.families}
        return codes.pop() if len(codes) == 1 else ""

    @property
    def next_question(self) -> str:
        """What to answer next, empty when nothing would change the advice."""
        return next((asked.question.asks for asked in reversed(self.asked) if not asked.is_answered), "")

    @property
    def still_open(self) -> bool:
        """Whether another answer would change the advice."""
        return any(not asked.is_answered for asked in self.asked)


def _answer(form: WhichForm) -> WhichPage:
    facts = form.facts
    advice = advise(facts)
    back = WHICH.at(form.address)
    return WhichPage(
        advice=advice,
        facts=facts,
        asked=asked(form, facts, advice),
        sides=_sides(facts, advice),
        ways_on=tuple(ways_on(facts, advice)),
        explains=lambda: deciding_formulas(facts, advice),
        charts=_charts(facts, advice),
        python=python_call(advise, facts),
        runs=tuple(runs(facts, advice, back)),
    )


def _charts(facts: Facts, advice: Advice) -> tuple[Chart, ...]:
    """What each split would leave on a device, once there is an advice to hold it against."""
    if advice.technique is Technique.ASK_MORE:
        return ()
    devices = max([*advice.axes.values(), facts.devices or MOST])
    training, sparse = facts.phase == "training", bool(facts.moe or facts.experts)
    return (relief_chart(training=training, sparse=sparse, devices=devices),)


def _sides(facts: Facts, advice: Advice) -> tuple[Side, ...]:
    if advice.otherwise is None:
        return ()
    exam, practice = (advice, advice.otherwise) if facts.wording == "exam" else (advice.otherwise, advice)
    return (
        Side(wording="As an exam asks it", advice=exam),
        Side(wording="As code and wire do it", advice=practice),
    )


WHICH = Calculator(
    name="which",
    title="Which split?",
    asks="Answer what you know, one question at a time: what to use, how that was reached, and why not the rest.",
    form=WhichForm,
    answer=_answer,
    parts={},
    presets=(
        Preset(label="Days for an epoch", query="phase=training&fits=yes&wanted=throughput"),
        Preset(label="A layer too wide", query="phase=training&overflow=layer&moe=no"),
        Preset(label="120 layers", query="phase=training&overflow=stack&moe=no&layers=120"),
        Preset(label="Trim beside TP 8", query="phase=training&overflow=activations&tp=8"),
        Preset(
            label="One long document",
            query="phase=training&overflow=sequence&tp=1&tokens=131072",
        ),
        Preset(
            label="64 experts",
            query="phase=training&overflow=experts&moe=yes&hosts=1&devices_per_host=8&experts=64",
        ),
        Preset(
            label="Two servers of 8",
            query="phase=training&overflow=layer%2Cstack&moe=no&hosts=2&devices_per_host=8"
            "&link_inside=fast&link_between=slow&layers=96",
        ),
        Preset(
            label="Six cards, 64 heads",
            query="phase=serving&fits=no&tp=6&hosts=1&devices_per_host=6&attention_heads=64&kv_heads=8&tool=vllm",
        ),
        Preset(
            label="Experts over Ethernet",
            query="phase=serving&overflow=experts&moe=yes&hosts=4&devices_per_host=1&link_between=ethernet-10",
        ),
        Preset(
            label="A link that idles",
            query="phase=serving&tp=4&hosts=4&devices_per_host=1&link_between=ethernet-1&link_busy=0.02",
        ),
        Preset(
            label="Half the time idle",
            query="phase=serving&hosts=2&devices_per_host=1&pp=2&device_busy=0.5",
        ),
    ),
    lessons=(
        LessonLink(slug="tp-or-pp", title="TP or PP?"),
        LessonLink(slug="tensor-parallelism", title="Tensor parallelism"),
        LessonLink(slug="pipeline-parallelism", title="Pipeline parallelism"),
    ),
)
