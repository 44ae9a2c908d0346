"""What the traffic page says: one calculation answered for two ways to split, side by side."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from calculators.families import WAYS, Case, Way, weights_of
from calculators.predict.rules import Violation
from calculators.predict.traffic import Traffic
from calculators.units import counted
from calculators.workbench import ShownFormula, shown


@dataclass(frozen=True, kw_only=True)
class Split:
    """One way's answer; every figure is for one token, prompt or step.

    weight_bytes   of the whole model on the fullest device [bytes]
    """

    way: Way
    case: Case
    traffic: Traffic
    weight_bytes: float

    @property
    def family(self) -> str:
        return self.way.family

    @property
    def short(self) -> str:
        return self.way.short

    @property
    def name(self) -> str:
        return self.way.name

    @property
    def phrase(self) -> str:
        """Its name inside a sentence."""
        return self.name[0].lower() + self.name[1:]

    @property
    def call(self) -> str:
        return self.way.call

    @property
    def bytes_per_call(self) -> float:
        return self.traffic.bytes_per_call.item()

    @property
    def calls(self) -> float:
        return self.traffic.calls.item()

    @property
    def rounds(self) -> float:
        return self.traffic.rounds.item()

    @property
    def wire_bytes(self) -> float:
        """Sent by the busiest device."""
        return self.traffic.wire_bytes.item()

    @property
    def control_bytes(self) -> float:
        """Sent beside that, when the last stage returns the token."""
        return self.traffic.control_bytes.item()

    @cached_property
    def violations(self) -> tuple[Violation, ...]:
        """The rules that it breaks."""
        return self.way.violations(self.case, self.case.devices)

    @cached_property
    def formulas(self) -> tuple[ShownFormula, ...]:
        return shown(self.traffic.formulas)


@dataclass(frozen=True, kw_only=True)
class TrafficAnswer:
    """Two ways beside each other.

    weights   of the whole model on the fullest device under every way, by its key [bytes]
    """

    case: Case
    first: Split
    second: Split
    weights: Mapping[str, float]

    @property
    def splits(self) -> tuple[Split, ...]:
        return (self.first,) if self.first.way is self.second.way else (self.first, self.second)

    @property
    def unit(self) -> str:
        return self.case.phase.unit

    @property
    def moves_anything(self) -> bool:
        return self.case.devices > 1

    @property
    def ratio(self) -> float | None:
        """Bytes of the first for each byte of the second; None where one sends nothing."""
        if not self.first.wire_bytes or not self.second.wire_bytes:
            return None
        return self.first.wire_bytes / self.second.wire_bytes

    @cached_property
    def violations(self) -> tuple[Violation, ...]:
        return tuple(violation for split in self.splits for violation in split.violations)

    @property
    def control_bytes(self) -> float:
        """What returning the token costs, in neither figure."""
        return max(split.control_bytes for split in self.splits)

    @property
    def sizes(self) -> str:
        """The model in one line."""
        shape = self.case.shape
        experts = ""
        if shape.experts:
            experts = f"{shape.experts.routed} experts of which {shape.experts.per_token} a token, "
        return (
            f"{shape.hidden_size:,} wide, {counted(shape.layers, 'layer')}, "
            f"{counted(shape.attention_heads, 'attention head')}, feed-forward {shape.ffn_width:,} wide, {experts}"
            f"{counted(shape.bytes_per_element, 'byte')} per element"
        )


def answer(case: Case, *, first: str = "tp", second: str = "pp") -> TrafficAnswer:
    """What two ways move in this case. Raises ValueError where the model has nothing that one of them splits."""
    weights = dict(zip(WAYS, weights_of(case, list(WAYS.values())), strict=True))
    one, other = (
        Split(
            way=WAYS[key], case=case, traffic=WAYS[key].traffic(case, case.devices), weight_bytes=weights[key]
        )
        for key in (first, second)
    )
    return TrafficAnswer(case=case, first=one, second=other, weights=weights)
