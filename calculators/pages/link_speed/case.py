"""One case of the page *Link speed*: a model on so many devices, and all links that it could go over."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from calculators.lab.spec import Job
from calculators.predict.clusters import Link
from calculators.predict.devices import Device
from calculators.predict.links import LADDER, Reach
from calculators.predict.shapes import Layout, Layouts, ModelShape, Phase
from calculators.trials import Calculation

Family = Literal["tp", "pp"]
FAMILIES: tuple[Family, ...] = ("tp", "pp")
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
