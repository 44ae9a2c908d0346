"""A model split one way: how fast it writes over each link, and what it needs of one."""

from dataclasses import dataclass
from functools import cached_property

from calculators.pages.link_speed.case import Family, LinkCase
from calculators.pages.link_speed.numbers import gbit, so_many_of, three_digits
from calculators.predict.rules import Violation, check
from calculators.predict.serving import DecodeSpeed, DecodeWork, Limit, LinkNeeded, Verdict, decode_work
from calculators.predict.serving_formulas import decode_formulas
from calculators.units import counted, seconds
from calculators.workbench import ShownFormula, shown

NAMES = {"tp": "Tensor parallelism", "pp": "Pipeline parallelism"}


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
