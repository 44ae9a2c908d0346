"""What the traffic page says: one calculation answered for tensor and pipeline parallelism, side by side."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from calculators.lab.spec import Job
from calculators.predict.collectives import transfer_seconds
from calculators.predict.links import LADDER, Rung
from calculators.predict.parameters import attention_parameters, feed_forward_parameters, norm_parameters
from calculators.predict.rules import Violation, check, sizes_that_work
from calculators.predict.shapes import Layout, ModelShape, Phase
from calculators.predict.traffic import Traffic, pipeline_parallel, tensor_parallel
from calculators.trials import Calculation
from calculators.units import counted
from calculators.workbench import ShownFormula, shown

Family = Literal["tp", "pp"]
NAMES: dict[Family, str] = {"tp": "Tensor parallelism", "pp": "Pipeline parallelism"}
JOBS: dict[Family, Job] = {"tp": Job.TENSOR, "pp": Job.PIPELINE}


@dataclass(frozen=True, kw_only=True)
class Case:
    """What is calculated: a model, how much of it is in flight, and over how many devices."""

    shape: ModelShape
    phase: Phase = Phase.DECODE
    devices: int = 2
    batch: int = 1
    tokens: int = 1
    micro_batches: int = 1

    def traffic(self, family: Family, devices: int | list[int] | None = None) -> Traffic:
        """What `family` moves over this many devices (the case's own, unless others are named)."""
        over = self.devices if devices is None else devices
        if family == "tp":
            return tensor_parallel(layers=self.shape.layers, ranks=over, **self.in_flight)
        return pipeline_parallel(stages=over, **self.in_flight)

    @property
    def in_flight(self) -> dict[str, Any]:
        """What moves, in the words of `predict.traffic`."""
        return {
            "hidden_size": self.shape.hidden_size,
            "phase": self.phase,
            "batch": self.batch,
            "tokens": self.tokens,
            "micro_batches": self.micro_batches,
            "bytes_per_element": self.shape.bytes_per_element,
        }

    def layout(self, family: Family) -> Layout:
        """All devices on the axis of one family."""
        return Layout(**{family: self.devices})

    def works(self, family: Family, devices: int) -> bool:
        """Whether `family` breaks no divisibility rule over this many devices."""
        return devices in sizes_that_work(self.shape, family)

    def violations(self, family: Family) -> tuple[Violation, ...]:
        """The divisibility rules that `family` breaks."""
        return check(self.shape, self.layout(family))

    def calculation(self, family: Family) -> Calculation:
        """The same case in the words of a trial."""
        return Calculation(
            job=JOBS[family],
            phase=self.phase,
            hidden_size=self.shape.hidden_size,
            bytes_per_element=self.shape.bytes_per_element,
            layers=self.shape.layers,
            batch=self.batch,
            tokens=self.tokens,
            devices=self.devices,
            micro_batches=self.micro_batches,
        )


@dataclass(frozen=True, kw_only=True)
class Split:
    """One family's answer; every figure is for one token, prompt or step."""

    family: Family
    case: Case
    traffic: Traffic
    violations: tuple[Violation, ...]

    @property
    def name(self) -> str:
        return NAMES[self.family]

    @property
    def job(self) -> Job:
        return JOBS[self.family]

    @property
    def call(self) -> str:
        return "all-reduce" if self.family == "tp" else "send"

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
    def control_calls(self) -> float:
        return self.traffic.control_calls.item()

    @property
    def control_bytes(self) -> float:
        return self.traffic.control_bytes.item()

    @property
    def weight_bytes(self) -> float:
        """Weights of the layers on the fullest device [bytes]: a slice of each, or a stage of them."""
        shape = self.case.shape
        layers = shape.layers if self.family == "tp" else -(-shape.layers // self.case.devices)
        layer = attention_parameters(shape) + feed_forward_parameters(shape) + norm_parameters(shape)
        parameters = layers * layer
        return parameters * shape.bytes_per_element / (self.case.devices if self.family == "tp" else 1)

    @cached_property
    def formulas(self) -> tuple[ShownFormula, ...]:
        return shown(self.traffic.formulas)

    def seconds_on(self, rung: Rung) -> float:
        """Seconds that the exchanges of one token (prompt, step) take at least, when nothing hides them.

        A rung's latency is what a small call is seen to take on it, so it counts once for each call. In a pipeline
        each boundary waits for the one before, so the bytes of all of them count.
        """
        sent = self.wire_bytes if self.family == "tp" else self.calls * self.bytes_per_call
        return float(
            transfer_seconds(
                sent,
                self.calls,
                bytes_per_second=rung.bytes_per_second,
                latency_seconds=rung.typical_latency_seconds,
            )
        )


@dataclass(frozen=True, kw_only=True)
class LadderRow:
    """How long the exchanges take on one rung."""

    rung: Rung
    tp_seconds: float
    pp_seconds: float
    tp_latency_seconds: float

    @property
    def tp_latency_share(self) -> float:
        return self.tp_latency_seconds / self.tp_seconds if self.tp_seconds else 0.0


@dataclass(frozen=True, kw_only=True)
class TrafficAnswer:
    """Both answers and what follows from them."""

    case: Case
    tp: Split
    pp: Split

    @property
    def splits(self) -> tuple[Split, Split]:
        return self.tp, self.pp

    @property
    def unit(self) -> str:
        return self.case.phase.unit

    @property
    def moves_anything(self) -> bool:
        return self.case.devices > 1

    @property
    def ratio(self) -> float:
        """Bytes of tensor parallelism for each byte of pipeline parallelism."""
        return self.tp.wire_bytes / self.pp.wire_bytes

    @property
    def violations(self) -> tuple[Violation, ...]:
        return self.tp.violations + self.pp.violations

    @property
    def sizes(self) -> str:
        """The model in one line."""
        shape = self.case.shape
        return (
            f"{shape.hidden_size:,} wide, {counted(shape.layers, 'layer')}, "
            f"{counted(shape.attention_heads, 'attention head')}, feed-forward {shape.ffn_width:,} wide, "
            f"{counted(shape.bytes_per_element, 'byte')} per element"
        )

    @cached_property
    def ladder(self) -> tuple[LadderRow, ...]:
        return tuple(
            LadderRow(
                rung=rung,
                tp_seconds=self.tp.seconds_on(rung),
                pp_seconds=self.pp.seconds_on(rung),
                tp_latency_seconds=self.tp.calls * rung.typical_latency_seconds,
            )
            for rung in LADDER
        )


def answer(case: Case) -> TrafficAnswer:
    """What tensor and pipeline parallelism move in this case."""
    tp, pp = (
        Split(family=family, case=case, traffic=case.traffic(family), violations=case.violations(family))
        for family in NAMES
    )
    return TrafficAnswer(case=case, tp=tp, pp=pp)
