"""How long a step should take, from a calibration of the same ranks and links: arithmetic, then calls, one by one.

Only jobs whose ranks compute and communicate in turn have a time here: where calls run behind arithmetic, the sum of
both is not the time of either.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from calculators.lab.calibrations import Calibration, Estimate
from calculators.lab.calls import Call
from calculators.lab.limits import VERIFIED_TOKENS
from calculators.lab.link_cost import bucket_bytes, link_cost
from calculators.lab.measurements import StepSeconds
from calculators.lab.spec import Job, Spec
from calculators.lab.splits import calls_of, split_of
from calculators.predict.compute import roofline_seconds

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

HOST_BOUND = 0.5
"""Below this share of the link the host decides: its cores and what else they do."""
_IN_TURN = (Job.TENSOR, Job.PIPELINE, Job.DATA)


@dataclass(frozen=True, kw_only=True)
class StepTime:
    """A step's seconds, in parts that add up, and their 95 % intervals.

    compute   arithmetic on weights and cache, at the speeds that were measured
    host      what Python and PyTorch take to ask for it, and to go on after each wait
    latency   rounds × α, those that no transfer hides
    transfer  bytes ÷ β, less what a rested link lets through at once
    delay     the part of the latency that is the link's own: what is emulated of it
    scatter   how far one step may be from these, since single calls scatter [s]
    """

    compute: Estimate
    host: Estimate
    latency: Estimate
    transfer: Estimate
    delay: float
    scatter: float
    calibration: Calibration

    @property
    def parts(self) -> dict[str, Estimate]:
        """The parts by name, in the order in which they are drawn."""
        return {
            "compute": self.compute,
            "host": self.host,
            "latency": self.latency,
            "transfer": self.transfer,
        }

    @property
    def seconds(self) -> Estimate:
        """All of it, with the interval that the parts' errors and the scatter make together."""
        value = sum(part.value for part in self.parts.values())
        below = math.hypot(1.96 * self.scatter, *(part.value - part.low for part in self.parts.values()))
        above = math.hypot(1.96 * self.scatter, *(part.high - part.value for part in self.parts.values()))
        return Estimate(value=value, low=max(0.0, value - below), high=value + above)

    @property
    def link_share(self) -> float:
        """How much of the time is the link's: bytes ÷ β, and its own delay."""
        return (self.transfer.value + self.delay) / self.seconds.value if self.seconds.value else 0.0

    @property
    def is_host_bound(self) -> bool:
        """Whether the cores decide, not the link."""
        return self.link_share < HOST_BOUND

    @property
    def verdict(self) -> str:
        """What decides, with the numbers that say so."""
        seconds, share = self.seconds, f"{100 * self.link_share:.0f} %"
        said = f"{_ms(seconds.value)} ms a step predicted ({_ms(seconds.low)} to {_ms(seconds.high)})"
        if not self.is_host_bound:
            return f"Link-bound: {said}, of which the link takes {share}. {self.calibration.sentence}"
        return (
            f"Host-bound: {said}, of which the link takes {share}; the rest is this machine's cores and whatever "
            f"else they do, so it varies from run to run. {self.calibration.sentence}"
        )


def why_untimed(spec: Spec, calibration: Calibration | None) -> str:
    """Why no time is predicted for `spec`, and what to do; empty where one is."""
    if spec.job not in _IN_TURN or spec.is_training:
        return (
            f"No time is predicted for the job “{spec.job}”, phase “{spec.phase}”: only where ranks compute and "
            "communicate in turn is a step the sum of both. Tensor parallelism, pipelines and replicas have one in "
            "decode, the first and the last in prefill."
        )
    if spec.job is Job.PIPELINE and not spec.is_decode:
        return (
            "No time is predicted for a pipeline in prefill: its stages work side by side, as its schedule has it. "
            "Take decode."
        )
    if calibration is None:
        on = f"hosts = {spec.hosts}" + (f", link_mbit = {spec.link_mbit:g}" if spec.hosts > 1 else "")
        return (
            f"No time is predicted without a calibration of {spec.ranks} ranks with {on} on this machine. "
            "Make one: python -m calculators.lab calibrate"
            + (f" --ranks {spec.ranks}" if spec.ranks != 2 else "")
            + (f" --hosts {spec.hosts} --link-mbit {spec.link_mbit:g}" if spec.hosts > 1 else "")
        )
    if not calibration.holds_for(spec):
        return (
            f"No time is predicted: run {calibration.run_id} calibrated other ranks, hosts, links or another element "
            "type. Calibrate these."
        )
    return ""


def predicted_step(spec: Spec, calibration: Calibration) -> StepTime:
    """How long a step of `spec` takes on what `calibration` measured. Raises ValueError with `why_untimed`."""
    if reason := why_untimed(spec, calibration):
        raise ValueError(reason)
    calls = calls_of(spec)
    if spec.job is not Job.PIPELINE:
        return _in_turn(spec, calibration, calls, [_arithmetic(spec, calibration, 0, requests=1)], requests=1)
    ranks = range(spec.ranks)
    each = [_arithmetic(spec, calibration, rank, requests=spec.microbatches) for rank in ranks]
    around = _in_turn(spec, calibration, calls, each, requests=spec.microbatches)
    # With several requests under way a step takes as long as the busiest stage works on all of them.
    busiest = max(each, key=lambda parts: parts[0].value + parts[1].value)
    full = _in_turn(
        spec, calibration, (), [tuple(part.of(spec.microbatches) for part in busiest)], requests=1
    )
    return max(around, full, key=lambda step: step.seconds.value)


@dataclass(frozen=True, kw_only=True)
class TimeOfRun:
    """A run's steps as they were predicted and as they were, for one plot of both."""

    predicted: StepTime
    measured: tuple[StepSeconds, ...]

    @property
    def measured_median(self) -> float:
        """The median of all ranks' steps [s]."""
        return median(seconds for rank in self.measured for seconds in rank.seconds)

    @property
    def error(self) -> float:
        """Predicted beyond measured, as a share of measured."""
        return self.predicted.seconds.value / self.measured_median - 1


def time_of_run(session: "Session", run_id: int) -> TimeOfRun | None:
    """Predicted beside measured steps of a run; None where no time was predicted or none measured."""
    from calculators.lab import calibrations, store

    run = store.get_run(session, run_id)
    measured = tuple(store.step_seconds_of(session, run_id))
    if run is None or not measured:
        return None
    known = calibrations.latest(
        session, run.spec, machine=run.machine, backend=run.backend, device=run.device, before=run_id
    )
    if known is None or why_untimed(run.spec, known):
        return None
    return TimeOfRun(predicted=predicted_step(run.spec, known), measured=measured)


def _in_turn(
    spec: Spec,
    calibration: Calibration,
    calls: Iterable[Call],
    arithmetic: Sequence[tuple[Estimate, ...]],
    *,
    requests: int,
) -> StepTime:
    """Pieces of arithmetic and the calls between them, each waiting for the one before; calls are of all requests."""
    calls = tuple(calls)
    costs = [(call.times / requests, link_cost(spec, call, backend=calibration.backend)) for call in calls]
    compute, host = (_added(parts) for parts in zip(*arithmetic, strict=True))
    alpha, per_byte = calibration.latency_seconds.value, calibration.seconds_per_byte.value
    rounds = sum(times * cost.exposed_rounds(alpha, per_byte) for times, cost in costs)
    latency = calibration.latency_seconds.of(rounds)
    number = sum(times for times, _ in costs)
    host = _added([host, calibration.resume_seconds.of(number)])
    # While nobody sends, the link's bucket fills; what has come into it by the next call passes at once.
    rest = (compute.value + host.value + latency.value) / max(_turns(calls) / requests, 1)
    free = min(bucket_bytes(spec), rest / per_byte)
    sent = sum(times * max(0.0, cost.bytes - free) for times, cost in costs)
    transfer = calibration.seconds_per_byte.of(sent)
    return StepTime(
        compute=compute,
        host=host,
        latency=latency,
        transfer=transfer,
        delay=min(rounds * spec.delay_ms / 1e3, latency.value),
        scatter=calibration.scatter * (latency.value + transfer.value) / math.sqrt(max(number, 1)),
        calibration=calibration,
    )


def _arithmetic(
    spec: Spec, calibration: Calibration, rank: int, *, requests: int
) -> tuple[Estimate, Estimate]:
    """Arithmetic of one rank for one request, and what it costs to ask for it."""
    layers = len(split_of(spec).layers_by_rank(spec)[rank])
    slices = spec.ranks if spec.job is Job.TENSOR else 1
    replicas = spec.ranks if spec.job is Job.DATA else 1
    tokens = spec.batch // replicas // requests * spec.tokens_in_flight
    of_layer = (4 * spec.hidden_size**2 + 2 * spec.hidden_size * spec.ffn_width) / slices
    has_ends = spec.job is not Job.PIPELINE or rank == spec.ranks - 1
    parameters = layers * of_layer + has_ends * spec.hidden_size * spec.vocab_size
    seen = min(spec.context, VERIFIED_TOKENS + spec.warmup_steps + spec.steps // 2) if spec.is_decode else 0
    cached = 2 * spec.hidden_size / slices * layers * (tokens * seen if spec.is_decode else 0)
    attended = seen if spec.is_decode else spec.tokens / 2
    flops = 2 * tokens * parameters + 4 * tokens * attended * layers * spec.hidden_size / slices
    read = (parameters + cached) * spec.dtype.bytes_per_element
    memory, speed = calibration.memory_bytes_per_second, calibration.flops_per_second
    value, high, low = (
        float(roofline_seconds(flops, read, flops_per_second=of.f, bytes_per_second=of.b))
        for of in (
            _Speeds(speed.value, memory.value),
            _Speeds(speed.low, memory.low),
            _Speeds(speed.high, memory.high),
        )
    )
    host = _added([calibration.layer_seconds.of(layers), calibration.ends_seconds.of(float(has_ends))])
    return Estimate(value=value, low=low, high=high), host


def _turns(calls: Iterable[Call]) -> int:
    """How often in a step the busiest link is used in one direction: sends of different ranks use different ones."""
    calls = tuple(calls)
    sends = [
        sum(c.times for c in calls if not c.is_collective and c.source == source)
        for source in {c.source for c in calls}
    ]
    return sum(call.times for call in calls if call.is_collective) + max(sends, default=0)


@dataclass(frozen=True)
class _Speeds:
    f: float
    b: float


def _added(parts: Iterable[Estimate]) -> Estimate:
    """One after the other; errors of one machine go together, so intervals add up."""
    parts = list(parts)
    return Estimate(
        value=sum(part.value for part in parts),
        low=sum(part.low for part in parts),
        high=sum(part.high for part in parts),
    )


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:,.3g}"
