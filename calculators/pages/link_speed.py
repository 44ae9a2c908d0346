"""The page *Link speed*: how fast a split can write over every link, and which link a wanted speed needs."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from django import forms
from django.utils.safestring import SafeString, mark_safe

from calculators.cluster_fields import device_field, link_field
from calculators.fields import AddressForm, Choice, Decimal, ModelField, WholeNumber
from calculators.figures import Figure, axis, figure, predicted_line
from calculators.lab.spec import Job
from calculators.predict.clusters import Link
from calculators.predict.devices import Device, device
from calculators.predict.links import LADDER, Reach, rung
from calculators.predict.memory import fits, room, serving_memory
from calculators.predict.rules import Violation, check
from calculators.predict.serving import (
    DecodeSpeed,
    DecodeWork,
    Limit,
    LinkNeeded,
    Verdict,
    decode_work,
    link_speed,
)
from calculators.predict.serving_formulas import decode_formulas
from calculators.predict.shapes import Layout, Layouts, ModelShape, Phase
from calculators.python_calls import python_call
from calculators.trials import Calculation, trial
from calculators.units import counted, exact_bytes, iec_bytes, plain, seconds
from calculators.workbench import (
    Answer,
    Calculator,
    Chart,
    LessonLink,
    Preset,
    Row,
    ShownFormula,
    Table,
    run_it,
    shown,
)

Family = Literal["tp", "pp"]
FAMILIES: tuple[Family, ...] = ("tp", "pp")
NAMES = {"tp": "Tensor parallelism", "pp": "Pipeline parallelism"}
CALLS = {"tp": "all-reduce", "pp": "send"}
JOBS = {"tp": Job.TENSOR, "pp": Job.PIPELINE}
MEASURED = "measured"
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
    def case(self) -> "LinkCase":
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
class Step:
    """One link of the chart: a rung of the ladder, or the one that was measured."""

    key: str
    name: str
    short: str
    carrier: str
    link: Link


@dataclass(frozen=True, kw_only=True)
class LinkCase:
    """A model on so many devices, and the tokens/s that are wanted for each sequence."""

    shape: ModelShape
    device: Device
    devices: int
    batch: int
    context: int
    wanted: float
    weight_bytes: float
    link: str
    measured: Link | None

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """The rungs that join devices, and the measured link: the soonest to answer first, then the fastest."""
        found = [
            Step(key=each.key, name=each.name, short=each.short, carrier=each.carrier, link=Link.on(each))
            for each in LADDER
            if each.reach is not Reach.MEMORY
        ]
        if self.measured:
            found.append(
                Step(
                    key=MEASURED,
                    name="Your measured link",
                    short="measured by you",
                    carrier="your measured link",
                    link=self.measured,
                )
            )
        return tuple(sorted(found, key=lambda step: (step.link.latency_seconds, -step.link.bytes_per_second)))

    @property
    def looked_at(self) -> Step:
        """The link whose numbers stand in the formulas."""
        return next(step for step in self.steps if step.key == self.link)

    @property
    def options(self) -> dict[str, Any]:
        """What is known besides the layout, as arguments of `serving.decode_work`."""
        return {
            "device": self.device,
            "batch": self.batch,
            "context_tokens": self.context,
            "weight_bytes_per_element": self.weight_bytes,
        }

    def layout(self, family: Family) -> Layout:
        """All devices on one axis; tensor parallelism slices the experts too, as servers do unasked."""
        if family == "pp":
            return Layout(pp=self.devices)
        return Layout(tp=self.devices, etp=self.devices if self.shape.is_sparse else 1)

    def layouts(self, family: Family) -> Layouts:
        """The same for calculations."""
        layout = self.layout(family)
        said = {axis: getattr(layout, axis) for axis in ("tp", "etp", "pp") if getattr(layout, axis) != 1}
        return Layouts(**said)

    def calculation(self, family: Family) -> Calculation:
        """The same in the words of a trial."""
        return Calculation(
            job=JOBS[family],
            phase=Phase.DECODE,
            hidden_size=self.shape.hidden_size,
            bytes_per_element=self.shape.bytes_per_element,
            layers=self.shape.layers,
            batch=self.batch,
            tokens=self.context,
            devices=self.devices,
        )


@dataclass(frozen=True, kw_only=True)
class Split:
    """One family's answer on every link."""

    family: Family
    case: LinkCase

    @property
    def name(self) -> str:
        return NAMES[self.family]

    @cached_property
    def work(self) -> DecodeWork:
        return decode_work(self.case.shape, self.case.layouts(self.family), **self.case.options)

    @cached_property
    def over(self) -> DecodeSpeed:
        """Over each link of the case."""
        links = [step.link for step in self.case.steps]
        return self.work.over(
            bytes_per_second=[link.bytes_per_second for link in links],
            latency_seconds=[link.latency_seconds for link in links],
        )

    @cached_property
    def needed(self) -> LinkNeeded:
        """At the latency of each link of the case."""
        latencies = [step.link.latency_seconds for step in self.case.steps]
        return self.work.link_needed(tokens_per_second=self.case.wanted, latency_seconds=latencies)

    @cached_property
    def speeds(self) -> list[float]:
        """Tokens/s of each sequence over each link of the case."""
        speeds: list[float] = self.over.tokens_per_second.tolist()
        return speeds

    @cached_property
    def limits(self) -> tuple[Limit, ...]:
        """What takes most of a token's time on each."""
        return tuple(Limit(int(value)) for value in self.over.limit)

    @cached_property
    def verdicts(self) -> tuple[Verdict, ...]:
        return tuple(Verdict(int(value)) for value in self.over.verdict(self.case.wanted))

    @property
    def device_seconds(self) -> float:
        return self.work.device_seconds.item()

    @property
    def seconds_left(self) -> float:
        """Of each token, for its exchanges."""
        return 1 / self.case.wanted - self.device_seconds

    @property
    def seconds_each(self) -> float:
        """What an exchange may take, latency and bytes."""
        return self.seconds_left / self.work.rounds.item()

    @property
    def least_gbit(self) -> float:
        """Needed if exchanges answered at once."""
        return self.work.link_needed(tokens_per_second=self.case.wanted).gbit_per_second.item()

    @property
    def violations(self) -> tuple[Violation, ...]:
        return check(self.case.shape, self.case.layout(self.family))

    @property
    def formulas(self) -> tuple[ShownFormula, ...]:
        link = self.case.looked_at.link
        return shown(decode_formulas(self.work, device=self.case.device, link=link, wanted=self.case.wanted))

    @property
    def says(self) -> str:
        """What the wanted speed asks of a link, in a sentence or two."""
        wanted = _speed(self.case.wanted)
        if self.seconds_left <= 0:
            return (
                f"The devices alone allow {_speed(self.work.device_ceiling.item())} tokens/s, "
                f"so no link reaches {wanted}. {self._what_helps}"
            )
        reached = sum(verdict is Verdict.REACHES for verdict in self.verdicts)
        return (
            f"{_of(reached, len(self.verdicts))} links reach {wanted}. Each of its "
            f"{counted(self.work.rounds.item(), 'exchange')} a token may take {seconds(self.seconds_each)}, "
            f"latency and bytes together; the bytes alone need {_gbit(self.least_gbit)}."
        )

    @property
    def _what_helps(self) -> str:
        if self.family == "pp":
            return "A pipeline’s stages read one after another: it holds more, but no token comes sooner."
        return "Fewer bits per weight, faster memory or more devices help."


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
    splits = tuple(Split(family=family, case=case) for family in FAMILIES)
    tp, pp = splits
    return LinkPage(
        case=case,
        headline=_headline(case, tp),
        splits=splits,
        warnings=tuple(_warnings(case)),
        lesson=_lesson(case, tp),
        numbers=_numbers(case, splits),
        latencies=_by_latency(case, tp, pp) if case.devices > 1 else None,
        charts=(_chart(case, tp, pp),) if case.devices > 1 else (),
        python=python_call(
            link_speed,
            case.shape,
            case.layouts("tp"),
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
            f"One {case.device.name} reads its weights {_speed(ceiling)} times a second, so it writes at most "
            f"{_speed(ceiling)} tokens/s, over no link at all. Take two or more."
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
        f"{_times(fast / slow)} as fast: {_speed(slow)} → {_speed(fast)} tokens/s, because "
        f"{counted(tp.work.rounds.item(), 'exchange')} still wait {seconds(waits)} in all for answers. The same cable "
        f"with RDMA, which answers sooner, makes it {_times(quick / slow)} as fast."
    )


def _warnings(case: LinkCase) -> Iterator[str]:
    """Which layouts a device has no room for."""
    sizes = {
        "batch": case.batch,
        "context_tokens": case.context,
        "weight_bytes_per_element": case.weight_bytes,
    }
    for family in FAMILIES[: case.devices]:
        held = serving_memory(case.shape, case.layouts(family), **sizes)
        if not fits(held, case.device):
            split = f" under {NAMES[family].lower()}" if case.devices > 1 else ""
            yield (
                f"It does not fit{split}: a device would hold {iec_bytes(held.total.item())}, and a {case.device.name} "
                f"has room for {iec_bytes(room(case.device).item())}. Take more devices or fewer bits per weight."
            )


def _numbers(case: LinkCase, splits: tuple[Split, ...]) -> Table:
    def row(label: str, *cells: str, total: bool = False) -> Row:
        return Row(cells=(label, *cells), is_total=total)

    heads = tuple(_badge(split.family, split.name) for split in splits)
    rows = [
        row("A device reads, along all stages", *(iec_bytes(_read(split.work)) for split in splits)),
        row("The devices take", *(seconds(split.device_seconds) for split in splits)),
        row("Tokens/s over a perfect link", *(_speed(split.work.device_ceiling.item()) for split in splits)),
    ]
    if case.devices > 1:
        rows += [
            row("Exchanges for each token", *(_exchanges(split) for split in splits)),
            row(
                "Bytes that cross, one after another",
                *(_bytes(split.work.sent_bytes.item()) for split in splits),
            ),
            row("Time left for them", *(_left(split, split.seconds_left) for split in splits)),
            row("An exchange may take", *(_left(split, split.seconds_each) for split in splits)),
            row(
                "Needed if each answered at once", *(_gbit(split.least_gbit) for split in splits), total=True
            ),
        ]
    return Table(
        name="numbers",
        caption=f"Predicted for {_speed(case.wanted)} tokens/s on {counted(case.devices, 'device')}.",
        heads=("", *heads),
        rows=tuple(rows),
    )


def _by_latency(case: LinkCase, tp: Split, pp: Split) -> Table:
    """What links of one carrier could give at most, and the speed they would need."""
    carriers: dict[str, int] = {}
    for index, step in enumerate(case.steps):
        carriers.setdefault(step.carrier, index)
    ceilings = [split.over.latency_ceiling.tolist() for split in (tp, pp)]
    needed = [split.needed.gbit_per_second.tolist() for split in (tp, pp)]
    rows = []
    for carrier, index in carriers.items():
        cells: list[str] = []
        for ceiling, gbit in zip(ceilings, needed, strict=True):
            cells += [_speed(ceiling[index]), _gbit(gbit[index])]
        rows.append(
            Row(
                cells=(carrier, seconds(case.steps[index].link.latency_seconds), *cells),
                is_chosen=carrier == case.looked_at.carrier,
            )
        )
    return Table(
        name="latencies",
        caption=f"The most tokens/s, however fast the cable, and the cable for {_speed(case.wanted)}. "
        "∞: none is fast enough.",
        heads=("Carried by", "Latency", "TP at most", "TP needs", "PP at most", "PP needs"),
        rows=tuple(rows),
    )


def _chart(case: LinkCase, tp: Split, pp: Split) -> Chart:
    return Chart(
        name="links",
        figure=_figure(case, {split.family: split.speeds for split in (tp, pp)}),
        caption=(
            "Tokens/s of each sequence over every link, predicted. The links that answer soonest are on top; those of "
            "one carrier are joined, the fastest cable first. Where such a line runs straight down, a faster cable "
            "gains nothing."
        ),
        table=Table(
            name="speeds",
            caption=f"Tokens/s, and what takes most of a token’s time. ✓ reaches {_speed(case.wanted)}.",
            heads=("Link", "Gbit/s", "Latency", "TP", "held up by", "PP", "held up by"),
            rows=tuple(_link_row(case, index, tp, pp) for index in range(len(case.steps))),
        ),
    )


def _link_row(case: LinkCase, index: int, tp: Split, pp: Split) -> Row:
    step = case.steps[index]
    cells: list[str] = []
    for split in (tp, pp):
        reached = split.verdicts[index] is Verdict.REACHES
        cells += [_speed(split.speeds[index]) + (" ✓" if reached else ""), split.limits[index].words]
    return Row(
        cells=(
            step.short.replace(" ", "\N{NO-BREAK SPACE}"),
            _speed(step.link.bytes_per_second * 8 / 1e9),
            seconds(step.link.latency_seconds),
            *cells,
        ),
        is_chosen=step.key == case.link,
    )


def _figure(case: LinkCase, reached: dict[str, list[float]]) -> Figure:
    traces = []
    for mark, family in enumerate(FAMILIES):
        # An empty place between carriers, so that only links of one carrier are joined.
        marks: list[tuple[Step | None, float | None]] = []
        for step, speed in zip(case.steps, reached[family], strict=True):
            if marks and marks[-1][0] and marks[-1][0].carrier != step.carrier:
                marks.append((None, None))
            marks.append((step, speed))
        trace = predicted_line(
            f"{family.upper()}, predicted",
            [speed for _, speed in marks],
            [step and step.short for step, _ in marks],
            colour=family,
            says=["" if speed is None else f"{_speed(speed)} tokens/s" for _, speed in marks],
            mark=mark,
        )
        trace["hovertemplate"] = "%{y}: %{text}<extra>" + family.upper() + "</extra>"
        trace["marker"]["size"] = [15 if step and step.key == case.link else 9 for step, _ in marks]
        traces.append(trace)
    shown_speeds = [*reached["tp"], *reached["pp"], case.wanted]
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
                "text": f"{_speed(case.wanted)} wanted",
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
        "ticktext": [_speed(tick) for tick in ticks],
        "minor": {"ticks": ""},
    }


def _read(work: DecodeWork) -> float:
    return float(work.weight_bytes.item() + work.kv_bytes.item())


def _exchanges(split: Split) -> str:
    work = split.work
    said = counted(work.calls.item(), CALLS[split.family])
    return f"{said} and the token id’s way back" if work.rounds > work.calls else said


def _left(split: Split, value: float) -> str:
    return seconds(value) if split.seconds_left > 0 else "none"


def _badge(family: Family, name: str) -> SafeString:
    said = f'<span class="badge family-{family}">{family.upper()}</span> <span class="long">{name}</span>'
    return mark_safe(said)  # noqa: S308 our own words


def _bytes(value: float) -> str:
    return exact_bytes(value) if value < 1024 else iec_bytes(value)


def _speed(value: float) -> str:
    """Three digits, as many as a prediction is worth."""
    return plain(float(f"{value:.3g}"))


def _times(value: float) -> str:
    return f"{plain(float(f'{value:.3g}'))}×"


def _gbit(value: float) -> str:
    if math.isinf(value):
        return "∞"
    return f"{value * 1e3:.2g} Mbit/s" if 0 < value < 0.1 else f"{_speed(value)} Gbit/s"


def _of(count: int, all_of_them: int) -> str:
    return f"All {all_of_them}" if count == all_of_them else f"{count or 'None'} of {all_of_them}"


LINK_SPEED = Calculator(
    name="link_speed",
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
