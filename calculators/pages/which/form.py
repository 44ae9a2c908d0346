"""What the page *Which split?* asks for: facts of the model, the hardware, the settings and what was measured."""

from functools import cache
from typing import Any

from django.template.loader import render_to_string
from django.utils.safestring import SafeString

from calculators.fields import AddressForm, Choice, Decimal, WholeNumber
from calculators.pages.which.questions import BOTH, NOT_KNOWN, Asked, options_of
from calculators.predict.advisor import QUESTIONS, Facts
from calculators.predict.advisor.facts import CHOICES, FAR, LINKS, OVERFLOWS
from calculators.predict.links import LADDER
from calculators.predict.rules import TOOLS

YES_NO = (NOT_KNOWN, ("yes", "Yes"), ("no", "No"))
SPOKEN = {"yes": True, "no": False}
LINK_WORDS = {"fast": "fast", "slow": "slow", FAR: "the internet"}


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
    def kept(self) -> tuple[Asked, ...]:
        """The questions as they were answered, for a page that cannot give advice yet."""
        return tuple(
            Asked(question=question, options=options_of(self, question))
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
