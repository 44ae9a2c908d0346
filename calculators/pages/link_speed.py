"""The page *Link speed*: how fast a split can write over every link, and which link a wanted speed needs."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django import forms

from calculators.cluster_fields import device_field, link_field
from calculators.fields import AddressForm, Choice, Decimal, ModelField, WholeNumber
from calculators.link_answers import FAMILIES, MEASURED, NAMES, LinkCase, Split, three_digits, times
from calculators.link_tables import carrier_table, links_chart, numbers_table
from calculators.predict.clusters import Link
from calculators.predict.devices import device
from calculators.predict.links import rung
from calculators.predict.memory import fits, room, serving_memory
from calculators.predict.serving import link_speed
from calculators.python_calls import python_call
from calculators.trials import trial
from calculators.units import counted, iec_bytes, seconds
from calculators.workbench import Answer, Calculator, LessonLink, Preset, Table, run_it

BITS = {"16": 2.0, "8": 1.0, "4": 0.5}


class LinkSpeedForm(AddressForm):
    """A model on so many devices, the speed that is wanted of it, and a link to look at."""

    DEFAULTS = {  # noqa: RUF012
        "model": "lesson",
        "bits": "16",
        "device": "rtx-4090",
        "devices": "2",
        "batch": "1",
        "context": "1024",
        "wanted": "40",
        "link": "ethernet-10",
    }

    model = ModelField()
    bits = Choice(label="Bits per weight", choices=[(key, f"{key} bits") for key in BITS])
    device = device_field()
    devices = WholeNumber(label="Devices", low=1, high=1_024)
    batch = WholeNumber(label="Sequences", low=1, high=100_000, help_text="written at the same time")
    context = WholeNumber(label="Context", low=1, high=10_000_000, help_text="tokens that each looks back on")
    wanted = Decimal(
        label="Tokens per second", low=0.001, high=1_000_000, help_text="wanted for each sequence"
    )
    link = link_field("Link to look at", inside_a_host=False)
    bytes_per_second = Decimal(
        label="Speed, bytes/s", low=1_000, high=1e14, help_text="in one direction", instead="link"
    )
    microseconds = Decimal(
        label="Latency, µs", low=0.001, high=10_000_000, help_text="of one small message", instead="link"
    )

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.fields["link"].choices = [*self.fields["link"].choices, (MEASURED, "my own, as measured")]

    def clean(self) -> dict[str, Any]:
        values = super().clean() or {}
        both = ("bytes_per_second", "microseconds")
        if not any(name in self.errors for name in both):
            missing = [name for name in both if values.get(name) is None]
            if len(missing) == 1 or (missing and values.get("link") == MEASURED):
                for name in missing:
                    self.add_error(
                        name,
                        forms.ValidationError(
                            f"{self.fields[name].label} is empty. A measured link needs its speed and its latency.",
                            code="empty",
                        ),
                    )
        return values

    @property
    def case(self) -> LinkCase:
        """What is to be calculated."""
        values = self.cleaned_data
        measured = None
        if values["bytes_per_second"] is not None:
            measured = Link(
                name="your measured link",
                bytes_per_second=values["bytes_per_second"],
                latency_seconds=values["microseconds"] / 1e6,
            )
        return LinkCase(
            shape=values["model"],
            device=device(values["device"]),
            devices=values["devices"],
            batch=values["batch"],
            context=values["context"],
            wanted=values["wanted"],
            weight_bytes=BITS[values["bits"]],
            link=values["link"],
            measured=measured,
        )


@dataclass(frozen=True, kw_only=True)
class LinkPage(Answer):
    """Both splits on every link, and what follows from them."""

    case: LinkCase
    headline: str
    splits: tuple[Split, ...]
    warnings: tuple[str, ...]
    lesson: str
    numbers: Table
    latencies: Table | None


def _answer(form: LinkSpeedForm) -> LinkPage:
    case = form.case
    tp, pp = splits = tuple(Split(family=family, case=case) for family in FAMILIES)
    return LinkPage(
        case=case,
        headline=_headline(case, tp),
        splits=splits if case.devices > 1 else splits[:1],
        warnings=tuple(_warnings(case)),
        lesson=_lesson(case, tp),
        numbers=numbers_table(case, splits if case.devices > 1 else splits[:1]),
        latencies=carrier_table(case, tp, pp) if case.devices > 1 else None,
        charts=(links_chart(case, tp, pp),) if case.devices > 1 else (),
        python=python_call(
            link_speed,
            case.shape,
            case.layouts["tp"],
            tokens_per_second=case.wanted,
            latency_seconds=float(f"{case.looked_at.link.latency_seconds:.6g}"),
            **case.options,
        ),
        runs=tuple(
            run
            for split in splits
            for run in run_it(
                trial(case.calculation(split.family)),
                label=f"Run it for real: {split.family.upper()}",
                family=split.family,
                back=LINK_SPEED.at(form.address),
            )
        ),
    )


def _headline(case: LinkCase, tp: Split) -> str:
    ceiling = tp.work.device_ceiling.item()
    if case.devices == 1:
        return (
            f"One {case.device.name} reads what a token needs {three_digits(ceiling)} times a second, so it "
            f"writes at most {three_digits(ceiling)} tokens/s, over no link at all. Take two or more."
        )
    return (
        f"A token is due every {seconds(1 / case.wanted)}. Sharing every layer, {case.devices:,} devices spend "
        f"{seconds(tp.device_seconds)} of that reading; the {counted(tp.work.rounds.item(), 'exchange')} have "
        + (f"the other {seconds(tp.seconds_left)}." if tp.seconds_left > 0 else "no time left.")
    )


def _lesson(case: LinkCase, tp: Split) -> str:
    """What a faster cable does for tensor parallelism over TCP, beside what a quicker answer does."""
    if case.devices == 1:
        return ""
    keys = [step.key for step in case.steps]
    speeds = tp.over.tokens_per_second
    slow, fast, quick = (speeds[keys.index(key)] for key in ("ethernet-10", "ethernet-400", "roce-400"))
    waits = tp.work.rounds.item() * rung("ethernet-400").typical_latency_seconds
    return (
        f"Over TCP a cable 40 times as fast, 400 instead of 10 Gbit/s, makes tensor parallelism "
        f"{times(fast / slow)} as fast: {three_digits(slow)} → {three_digits(fast)} tokens/s, because "
        f"{counted(tp.work.rounds.item(), 'exchange')} still wait {seconds(waits)} in all for answers. The same cable "
        f"with RDMA, which answers sooner, makes it {times(quick / slow)} as fast."
    )


def _warnings(case: LinkCase) -> Iterator[str]:
    """Which layouts a device has no room for."""
    sizes = {
        "batch": case.batch,
        "context_tokens": case.context,
        "weight_bytes_per_element": case.weight_bytes,
    }
    for family in FAMILIES[: case.devices]:
        held = serving_memory(case.shape, case.layouts[family], **sizes)
        if not fits(held, case.device):
            split = f" under {NAMES[family].lower()}" if case.devices > 1 else ""
            yield (
                f"It does not fit{split}: a device would hold {iec_bytes(held.total.item())}, and a {case.device.name} "
                f"has room for {iec_bytes(room(case.device).item())}. Take more devices or fewer bits per weight."
            )


LINK_SPEED = Calculator(
    name="link-speed",
    title="Which link do I need?",
    asks="How fast a model can write when its devices must talk for every token: the link speed you can buy, and the "
    "latency that no money shortens.",
    form=LinkSpeedForm,
    answer=_answer,
    presets=(
        Preset(label="The lessons’ example on two RTX 4090", query=""),
        Preset(label="30 tokens/s are enough", query="wanted=30"),
        Preset(
            label="Llama 3.1 70B on two DGX Sparks",
            query="model=llama-3.1-70b&device=dgx-spark&wanted=3.5&link=connectx-7-spark",
        ),
        Preset(
            label="gpt-oss-120b on two Macs",
            query="model=gpt-oss-120b&bits=4&device=m4-max&wanted=60&link=thunderbolt-5",
        ),
        Preset(
            label="A link of my own",
            query="link=measured&bytes_per_second=1170000000&microseconds=85",
        ),
    ),
    lessons=(
        LessonLink(slug="tensor-parallelism", title="Tensor parallelism"),
        LessonLink(slug="pipeline-parallelism", title="Pipeline parallelism"),
        LessonLink(slug="tp-or-pp", title="TP or PP?"),
    ),
)
