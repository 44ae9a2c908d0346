"""What the page *Link speed* answers: a model split two ways, how fast it writes over each link, and what it needs."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from calculators.lab.spec import Job
from calculators.predict.clusters import Link
from calculators.predict.devices import Device
from calculators.predict.links import LADDER, Reach
from calculators.predict.rules import Violation, check
from calculators.predict.serving import (
    DecodeSpeed,
    DecodeWork,
    Limit,
    LinkNeeded,
    Verdict,
    decode_work,
)
from calculators.predict.serving_formulas import decode_formulas
from calculators.predict.shapes import Layout, Layouts, ModelShape, Phase
from calculators.trials import Calculation
from calculators.units import counted, plain, seconds
from calculators.workbench import ShownFormula, shown

Family = Literal["tp", "pp"]
FAMILIES: tuple[Family, ...] = ("tp", "pp")
NAMES = {"tp": "Tensor parallelism", "pp": "Pipeline parallelism"}
JOBS = {"tp": Job.TENSOR, "pp": Job.PIPELINE}
MEASURED = "measured"


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

    @cached_property
    def layouts(self) -> dict[Family, Layouts]:
        """The same of both families, for calculations."""
        return {family: self._layouts(family) for family in FAMILIES}

    def _layouts(self, family: Family) -> Layouts:
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
        return NAMES[self.family] if self.case.devices > 1 else "One device"

    @cached_property
    def work(self) -> DecodeWork:
        return decode_work(self.case.shape, self.case.layouts[self.family], **self.case.options)

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
    def said(self) -> list[str]:
        """The same as a page says it."""
        return [three_digits(speed) for speed in self.speeds]

    @cached_property
    def limits(self) -> tuple[Limit, ...]:
        """What takes most of a token's time on each."""
        return tuple(Limit(int(value)) for value in self.over.limit.tolist())

    @cached_property
    def verdicts(self) -> tuple[Verdict, ...]:
        return tuple(Verdict(int(value)) for value in self.over.verdict(self.case.wanted).tolist())

    @cached_property
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
        wanted = three_digits(self.case.wanted)
        if self.seconds_left <= 0:
            return (
                f"The devices alone allow {three_digits(self.work.device_ceiling.item())} tokens/s, "
                f"so no link reaches {wanted}. {self._what_helps}"
            )
        reached = sum(verdict is Verdict.REACHES for verdict in self.verdicts)
        return (
            f"{so_many_of(reached, len(self.verdicts))} links reach {wanted}. Each of its "
            f"{counted(self.work.rounds.item(), 'exchange')} a token may take {seconds(self.seconds_each)}, "
            f"latency and bytes together; the bytes alone need {gbit(self.least_gbit)}."
        )

    @property
    def _what_helps(self) -> str:
        if self.family == "pp":
            return "A pipeline’s stages read one after another: it holds more, but no token comes sooner."
        return "Fewer bits per weight, faster memory or more devices help."


def three_digits(value: float) -> str:
    """Three digits, as many as a prediction is worth."""
    return plain(float(f"{value:.3g}"))


def times(value: float) -> str:
    """A factor."""
    return f"{plain(float(f'{value:.3g}'))}×"


def gbit(value: float) -> str:
    """A link's speed as networks are sold; ∞ where none is fast enough."""
    if math.isinf(value):
        return "∞"
    return f"{value * 1e3:.2g} Mbit/s" if 0 < value < 0.1 else f"{three_digits(value)} Gbit/s"


def so_many_of(count: int, all_of_them: int) -> str:
    """The start of a sentence: 3 of 26, None of 26, All 26."""
    return f"All {all_of_them}" if count == all_of_them else f"{count or 'None'} of {all_of_them}"
