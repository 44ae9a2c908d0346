"""The page *Which split?*: questions in order, the technique they lead to, and why not the others."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from django.template.loader import render_to_string
from django.urls import NoReverseMatch, reverse
from django.utils.html import format_html_join
from django.utils.safestring import SafeString, mark_safe
from django.utils.text import slugify

from calculators.fields import AddressForm, Choice, Decimal, WholeNumber
from calculators.lab.spec import Job, Pattern, Spec
from calculators.lab.spec import Phase as LabPhase
from calculators.predict.advisor import (
    QUESTIONS,
    Advice,
    Facts,
    Finding,
    Question,
    Technique,
    advise,
    ask_next,
)
from calculators.predict.advisor.facts import CHOICES, FAR, LINKS, OVERFLOWS
from calculators.predict.links import LADDER
from calculators.predict.rules import TOOLS
from calculators.predict.traffic import Formula
from calculators.python_calls import python_call
from calculators.relief import MOST, relief_chart
from calculators.trials import MOST_RANKS
from calculators.units import plain
from calculators.workbench import Answer, Calculator, Chart, LessonLink, Preset, RunIt, run_address, shown

NOT_KNOWN = ("", "Not known")
YES_NO = (NOT_KNOWN, ("yes", "Yes"), ("no", "No"))
SPOKEN = {"yes": True, "no": False}
BOTH = "layer,stack"
LINK_WORDS = {"fast": "fast", "slow": "slow", FAR: "the internet"}
FAMILY_CODES = {
    Technique.DATA: "dp",
    Technique.SHARDED_DATA: "dp",
    Technique.TENSOR: "tp",
    Technique.PIPELINE: "pp",
    Technique.SEQUENCE: "sp",
    Technique.CONTEXT: "cp",
    Technique.EXPERT: "ep",
}


def _choice(label: str, fact: str) -> Choice:
    return Choice(label=label, required=False, choices=[NOT_KNOWN, *CHOICES[fact].items()])


def _number(label: str, *, high: int = 1_000_000, low: int = 1, help_text: str = "") -> WholeNumber:
    return WholeNumber(label=label, low=low, high=high, instead="nothing", help_text=help_text)


def _measured(label: str, *, high: float = 1, help_text: str = "") -> Decimal:
    return Decimal(label=label, low=0, high=high, instead="nothing", help_text=help_text)


def _link(label: str) -> Choice:
    rungs = [(rung.key, rung.name) for rung in LADDER]
    return Choice(
        label=label,
        required=False,
        choices=[NOT_KNOWN, *((key, LINK_WORDS[key]) for key in LINKS), *rungs],
    )


class WhichForm(AddressForm):
    """What is known, all of it optional."""

    DEFAULTS = {"wording": "practice"}  # noqa: RUF012
    NUMBERS = (
        *("devices_to_fit", "attention_heads", "kv_heads", "layers", "ffn_width", "experts", "expert_width"),
        *("quantisation_block", "redundant_experts", "tokens", "pp", "vpp", "cp", "ep", "dp", "zero"),
        *("requests", "micro_batches", "exchange", "tool"),
    )
    SEEN = (
        *("speed_over_alone", "device_busy", "link_busy", "share_of_memory_ceiling"),
        *("seconds_per_exchange", "hottest_over_mean"),
        *("faster_link_helped", "memory_falls_with_devices", "slower_with_more_hosts"),
    )

    wording = Choice(label="Wording", choices=list(CHOICES["wording"].items()))
    phase = _choice("Phase", "phase")
    fits = Choice(label="Fits", required=False, choices=YES_NO)
    overflow = Choice(
        label="What does not fit",
        required=False,
        choices=[NOT_KNOWN, *OVERFLOWS.items(), (BOTH, "layers, too wide and too many")],
    )
    moe = Choice(label="Mixture of experts", required=False, choices=YES_NO)
    tp = _number("TP", high=4_096)
    sp = Choice(label="Sequence parallelism", required=False, choices=YES_NO)
    wanted = _choice("Wanted", "wanted")
    hosts = _number("Hosts", high=100_000)
    devices_per_host = _number("Devices in a host", high=1_024)
    link_inside = _link("Link inside a host")
    link_between = _link("Link between hosts")

    devices_to_fit = _number("Devices that hold one copy", help_text="at least")
    attention_heads = _number("Attention heads", high=10_000)
    kv_heads = _number("Key-value heads", high=10_000)
    layers = _number("Layers", high=10_000)
    ffn_width = _number("Feed-forward width", high=10_000_000)
    experts = _number("Experts", high=10_000, help_text="in a layer")
    expert_width = _number("Expert width")
    quantisation_block = _number("Quantised block", help_text="weights that share a scale")
    redundant_experts = _number("Redundant experts", low=0, high=10_000, help_text="of a load balancer")
    tokens = _number("Tokens", high=100_000_000, help_text="in a sequence")
    pp = _number("Stages (PP)", high=4_096)
    vpp = _number("Chunks a stage (VPP)", high=4_096)
    cp = _number("CP", high=4_096)
    ep = _number("EP", high=4_096)
    dp = _number("DP", high=1_000_000)
    zero = _number("ZeRO stage", low=0, high=3, help_text="3 for FSDP")
    requests = _number("Requests in flight")
    micro_batches = _number("Micro-batches", help_text="in a step")
    exchange = _choice("Keys and values meet by", "exchange")
    tool = Choice(
        label="Program",
        required=False,
        choices=[NOT_KNOWN, *((key, tool.name) for key, tool in TOOLS.items())],
    )

    speed_over_alone = _measured(
        "Speed, of one device alone", high=1_000, help_text="1 where the split is as fast"
    )
    device_busy = _measured("Devices compute", help_text="share of the time, 0 to 1")
    link_busy = _measured("Link in use", help_text="share of its bandwidth, 0 to 1")
    share_of_memory_ceiling = _measured(
        "Tokens/s, of the memory’s ceiling",
        help_text="0 to 1; the ceiling is memory bandwidth ÷ bytes read a token",
    )
    seconds_per_exchange = _measured("One exchange takes", high=3_600, help_text="seconds")
    hottest_over_mean = _measured("Busiest expert rank", high=1_000_000, help_text="times the mean")
    faster_link_helped = Choice(label="A faster link helped", required=False, choices=YES_NO)
    memory_falls_with_devices = Choice(label="More devices, less memory each", required=False, choices=YES_NO)
    slower_with_more_hosts = Choice(label="More hosts, slower steps", required=False, choices=YES_NO)

    @property
    def facts(self) -> Facts:
        """What is known, for the adviser."""
        values: dict[str, Any] = {
            name: SPOKEN.get(value, value)
            for name, value in self.cleaned_data.items()
            if value not in ("", None)
        }
        if values.get("overflow") == BOTH:
            values["overflow"] = ("layer", "stack")
        return Facts(**values)

    @property
    def kept(self) -> tuple["Asked", ...]:
        """The questions as they were answered, for a page that cannot give advice yet."""
        return tuple(
            Asked(question=question, options=_options(self, question))
            for question in QUESTIONS
            if question.fact == "phase" or self[question.fact].value()
        )

    @property
    def given(self) -> list[Any]:
        """Fields of sizes, settings and measurements that say something: those are always shown."""
        return [self[name] for name in (*self.NUMBERS, *self.SEEN) if self[name].value()]

    @property
    def numbers(self) -> list[SafeString]:
        """Empty fields of sizes and settings."""
        return [_empty_field(name) for name in self.NUMBERS if not self[name].value()]

    @property
    def seen(self) -> list[SafeString]:
        """Empty fields of what was measured."""
        return [_empty_field(name) for name in self.SEEN if not self[name].value()]


@cache
def _empty_field(name: str) -> SafeString:
    """A field that nothing is known of: always the same, so it is drawn once."""
    return render_to_string("calculators/_field.html", {"field": WhichForm({})[name]})


@dataclass(frozen=True, kw_only=True)
class Option:
    """One answer to a question, as a radio button."""

    value: str
    words: str
    is_chosen: bool


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A question on the page: answered already, or asked now."""

    question: Question
    options: tuple[Option, ...]

    @property
    def name(self) -> str:
        """The id of its element."""
        return f"ask-{self.question.fact}"

    @property
    def picks(self) -> SafeString:
        """The radio buttons with their labels."""
        return format_html_join(
            "",
            '<label class="pick{0}" for="id_{1}_{2}"><input type="radio" name="{1}" id="id_{1}_{2}" value="{3}"{4}> '
            "{5}</label>",
            (
                (
                    "" if option.value else " unknown",
                    self.question.fact,
                    slugify(option.value or "unknown"),
                    option.value,
                    mark_safe(" checked") if option.is_chosen else "",
                    option.words,
                )
                for option in self.options
            ),
        )

    @property
    def chosen(self) -> str:
        """The answer that was given."""
        return next(option.words for option in self.options if option.is_chosen)

    @property
    def is_answered(self) -> bool:
        return any(option.is_chosen and option.value for option in self.options)


@dataclass(frozen=True, kw_only=True)
class Side:
    """One wording's answer."""

    wording: str
    advice: Advice

    @property
    def families(self) -> tuple[tuple[str, str], ...]:
        return badges(self.advice)


@dataclass(frozen=True, kw_only=True)
class WayOn:
    """Another calculator, with the numbers of this case."""

    says: str
    address: str


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


def badges(advice: Advice) -> tuple[tuple[str, str], ...]:
    """The code of each family that an advice uses, with its size where one is suggested."""
    found = []
    for family in advice.families:
        code = FAMILY_CODES[family]
        size = advice.axes.get(code)
        found.append((code, f"{code.upper()} {size}" if size else code.upper()))
    return tuple(found)


def _answer(form: WhichForm) -> WhichPage:
    facts = form.facts
    advice = advise(facts)
    back = WHICH.at(form.address)
    return WhichPage(
        advice=advice,
        facts=facts,
        asked=_asked(form, facts, advice),
        sides=_sides(facts, advice),
        ways_on=tuple(_ways_on(facts, advice)),
        formulas=shown(_formulas(facts, advice)),
        charts=_charts(facts, advice),
        python=python_call(advise, facts),
        runs=tuple(_runs(facts, advice, back)),
    )


def _charts(facts: Facts, advice: Advice) -> tuple[Chart, ...]:
    """What each split would leave on a device, once there is an advice to hold it against."""
    if advice.technique is Technique.ASK_MORE:
        return ()
    devices = max([*advice.axes.values(), facts.devices or MOST])
    training, sparse = facts.phase == "training", bool(facts.moe or facts.experts)
    return (relief_chart(training=training, sparse=sparse, devices=devices),)


def _asked(form: WhichForm, facts: Facts, advice: Advice) -> tuple[Asked, ...]:
    """Questions answered so far, and the next; once it is decided, all whose answer would change that."""
    left = () if advice.finding is Finding.RULE else ask_next(facts)
    if advice.technique is Technique.ASK_MORE:
        left = left[:1]
    now = {question.fact for question in left} | {"phase"}
    return tuple(
        Asked(question=question, options=_options(form, question))
        for question in QUESTIONS
        if question.fact in now or form[question.fact].value()
    )


def _options(form: WhichForm, question: Question) -> tuple[Option, ...]:
    chosen = str(form[question.fact].value() or "")
    offered = [(_said(value), words) for value, words in question.choices]
    if question.fact == "overflow":
        offered.append((BOTH, "layers, too wide and too many"))
    if chosen and chosen not in dict(offered):
        field = form.fields[question.fact]
        words = dict(field.choices).get(chosen, chosen) if isinstance(field, Choice) else chosen
        offered.append((chosen, words))
    return tuple(
        Option(value=value, words=words[0].upper() + words[1:], is_chosen=value == chosen)
        for value, words in (*offered, NOT_KNOWN)
    )


def _said(value: Any) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def _sides(facts: Facts, advice: Advice) -> tuple[Side, ...]:
    if advice.otherwise is None:
        return ()
    exam, practice = (advice, advice.otherwise) if facts.wording == "exam" else (advice.otherwise, advice)
    return (
        Side(wording="As an exam asks it", advice=exam),
        Side(wording="As code and wire do it", advice=practice),
    )


def _formulas(facts: Facts, advice: Advice) -> tuple[Formula, ...]:
    """The count that decides, with the case's numbers, or the lessons' where none are given."""
    families = set(advice.families)
    devices = max([*advice.axes.values(), facts.devices or 2, 2])
    layers = facts.layers or 64
    found = []
    if families & {Technique.TENSOR, Technique.PIPELINE}:
        tp, pp = advice.axes.get("tp", devices), advice.axes.get("pp", devices)
        found.append(
            Formula(
                gives="Exchanges for one token, inside layers and between stages",
                symbols=r"n_{\text{TP}} = 2 \cdot L, \quad n_{\text{PP}} = p - 1",
                numbers=rf"n_{{\text{{TP}}}} = 2 \cdot {layers} = {2 * layers}, \quad "
                rf"n_{{\text{{PP}}}} = {pp} - 1 = {pp - 1}",
                legend=(
                    ("L", "layers" if facts.layers else "layers, the lessons’ 64"),
                    ("p", f"stages; a tensor-parallel group of any size, here {tp}, exchanges as often"),
                ),
            )
        )
    if Technique.SHARDED_DATA in families:
        n = facts.dp or devices
        found.append(
            Formula(
                gives="Bytes of model states for each parameter, optimizer sharded and all sharded",
                symbols=r"b_1 = 4 + \frac{12}{n}, \quad b_3 = \frac{16}{n}",
                numbers=rf"b_1 = 4 + \frac{{12}}{{{n}}} = {plain(4 + 12 / n)}, \quad "
                rf"b_3 = \frac{{16}}{{{n}}} = {plain(16 / n)}",
                legend=(("n", "replicas; one alone holds 16 bytes, with mixed-precision Adam"),),
            )
        )
    if Technique.EXPERT in families and facts.experts:
        ep = advice.axes.get("ep") or facts.ep or devices
        found.append(
            Formula(
                gives="Experts of a layer on each device",
                symbols=r"\frac{E}{n}",
                numbers=rf"\frac{{{facts.experts}}}{{{ep}}} = {plain(facts.experts / ep)}",
                legend=(("E", "experts of a layer"), ("n", "expert-parallel ranks")),
            )
        )
    if Technique.CONTEXT in families and facts.tokens:
        cp = max(facts.cp or devices, 2)
        found.append(
            Formula(
                gives="Tokens of one sequence on each device",
                symbols=r"\frac{s}{c}",
                numbers=rf"\frac{{{facts.tokens}}}{{{cp}}} = {plain(facts.tokens / cp)}",
                legend=(("s", "tokens of the sequence"), ("c", "context-parallel ranks")),
            )
        )
    return tuple(found)


_PATTERNS: Mapping[Technique, tuple[Pattern, str]] = {
    Technique.DATA: (Pattern.GRADIENTS, "gradients of replicas"),
    Technique.SHARDED_DATA: (Pattern.ZERO_3, "weights and gradients of full sharding"),
    Technique.CONTEXT: (Pattern.RING, "keys and values around a ring"),
    Technique.EXPERT: (Pattern.EXPERTS, "tokens to experts and back"),
}
_JOBS = {Technique.TENSOR: Job.TENSOR, Technique.PIPELINE: Job.PIPELINE}


def _runs(facts: Facts, advice: Advice, back: str) -> list[RunIt]:
    """A run for each family of the advice that the lab can run, with few enough ranks for one machine."""
    found = []
    for family in advice.families:
        code = FAMILY_CODES[family]
        wanted = advice.axes.get(code) or getattr(facts, code) or facts.devices or 2
        ranks = min(max(wanted, 2), MOST_RANKS)
        if family in _JOBS:
            phase = LabPhase.TRAINING if facts.phase == "training" else LabPhase.DECODE
            spec = Spec(job=_JOBS[family], phase=phase, ranks=ranks)
            kept = f"a small model, split {ranks} ways by {family.label.lower()}"
        elif family in _PATTERNS:
            pattern, words = _PATTERNS[family]
            spec = Spec(job=Job.EXCHANGE, phase=LabPhase.TRAINING, pattern=pattern, ranks=ranks)
            kept = f"the exchanges alone: {words}, over {ranks} ranks"
        else:
            continue
        scaled = f"{ranks} ranks instead of {wanted}: they share one machine." if wanted != ranks else ""
        found.append(
            RunIt(
                label=f"Run it for real: {code.upper()}",
                address=run_address(spec, back=back),
                kept=kept,
                differences=(scaled,) if scaled else (),
                family=code,
            )
        )
    return found


def _ways_on(facts: Facts, advice: Advice) -> list[WayOn]:
    families = set(advice.families)
    devices = max([*advice.axes.values(), facts.devices or 2])
    stages = advice.axes.get("pp") or facts.pp or devices
    phase = "training" if facts.phase == "training" else "decode"
    asked: list[tuple[str, str, Callable[[], bool]]] = [
        (
            "traffic",
            f"devices={devices}" + ("" if phase == "decode" else f"&phase={phase}"),
            lambda: True,
        ),
        ("pipeline", f"stages={max(stages, 2)}", lambda: Technique.PIPELINE in families),
        ("link-speed", "", lambda: bool(families & {Technique.TENSOR, Technique.PIPELINE})),
        ("memory", "", lambda: facts.one_fits is not True or Technique.SHARDED_DATA in families),
        ("experts", "", lambda: Technique.EXPERT in families),
        ("planner", "", lambda: True),
    ]
    says = {
        "traffic": "What crosses the link",
        "pipeline": f"The pipeline’s schedule, {max(stages, 2)} stages",
        "link-speed": "What link it needs",
        "memory": "What each device holds",
        "experts": "Where tokens go",
        "planner": "Every layout, ranked",
    }
    found = []
    for name, query, wanted in asked:
        try:
            address = reverse(f"calculators:{name}")
        except NoReverseMatch:
            continue
        if wanted():
            found.append(WayOn(says=says[name], address=f"{address}?{query}" if query else address))
    return found


WHICH = Calculator(
    name="which",
    title="Which split?",
    asks="Answer what you know, one question at a time: what to use, how that was reached, and why not the rest.",
    form=WhichForm,
    answer=_answer,
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
