"""From what a calibration run timed to what it says of this machine and this link, each number with its interval."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from calculators.lab.link_cost import LinkCost, bucket_bytes, link_cost
from calculators.lab.measurements import Series
from calculators.lab.spec import Job, Spec
from calculators.lab.splits.calibration import (
    ENDS,
    LAYERS,
    MULTIPLICATIONS,
    MULTIPLYING,
    READING,
    RESUMED,
    SMALL_LAYERS,
    WEIGHT_BYTES,
    Timed,
    calls,
)
from calculators.predict.calibration import Fit, bus_bandwidth, fit_rounds_and_bytes
from calculators.predict.collectives import Kind

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

_SAME_LINK = ("ranks", "hosts", "link_mbit", "delay_ms", "jitter_ms", "dtype")
_STEADY_ON_GLOO = (Kind.SEND, Kind.ALL_REDUCE, Kind.REDUCE_SCATTER)
"""The calls that α and β are fitted to on gloo. Its all-gather and all-to-all begin with one large message each way,
and a rank's word that it is ready may queue behind its own: then one direction waits for the other, and the call takes
up to twice its bytes' time (docs/calibration.md)."""
_NORMAL_975 = 1.959963984540054
_MOST_FITS = 50


class NoCalibration(ValueError):
    """A run that says nothing of a link; the text says why."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A number with its 95 % interval."""

    value: float
    low: float
    high: float

    @property
    def error(self) -> float:
        """Standard error, as the interval tells it."""
        return (self.high - self.low) / (2 * _NORMAL_975)

    def of(self, amount: float) -> "Estimate":
        """So many of it, where it is the time of one: amount × value."""
        return Estimate(value=amount * self.value, low=amount * self.low, high=amount * self.high)

    def per(self, amount: float) -> "Estimate":
        """How many a second, where it is the time of `amount` of them; unbounded where it may be none."""
        high = amount / self.low if self.low > 0 else math.inf
        return Estimate(value=amount / self.value, low=amount / self.high, high=high)

    @classmethod
    def mean(cls, samples: Sequence[float]) -> "Estimate":
        """The mean without the slowest tenth, between 1.96 standard errors: what many of them in a row add up to."""
        ordered = sorted(samples)
        kept = ordered[: max(2, math.ceil(0.9 * len(ordered)))]
        value = float(np.mean(kept))
        half = _NORMAL_975 * float(np.std(kept, ddof=1)) / math.sqrt(len(kept)) if len(kept) > 1 else 0.0
        return cls(value=value, low=max(value / 2, value - half), high=value + half)

    @classmethod
    def median(cls, samples: Sequence[float]) -> "Estimate":
        """The median of `samples`, between two of them that have it between them 95 times in 100, however they lie.

        The k-th from either end, with the largest k for which that holds; the outermost where none does.
        """
        ordered = sorted(samples)
        n = len(ordered)
        outside = np.cumsum([math.comb(n, k) / 2**n for k in range(n)])  # P(fewer than k+1 below the median)
        k = max(0, int(np.searchsorted(outside, 0.025, side="right")) - 1)
        return cls(value=float(np.median(ordered)), low=ordered[k], high=ordered[n - 1 - k])


@dataclass(frozen=True, kw_only=True)
class TimedCall:
    """One kind of call at one full size: its median time, and its bus bandwidth as nccl-tests defines it."""

    kind: Kind
    size: int
    seconds: Estimate
    bus_bytes_per_second: Estimate
    fitted_seconds: float
    """What latency and speed together say of it."""


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """What one run found on `machine`; `spec` says for which ranks, hosts and links it holds.

    latency_seconds   α, of one round of messages, software included [s]
    seconds_per_byte  1/β, of a byte in one direction of the busiest link [s]
    scatter           typical distance of one call from what these two say, as a share of its time
    memory_bytes_per_second, flops_per_second  of one rank while all of them read weights, or multiply
    layer_seconds, ends_seconds  what Python and PyTorch take to ask for a layer, for embedding and head [s]
    resume_seconds    what a rank loses when it goes on after a wait, and its core has done something else [s]
    """

    run_id: int
    machine: str
    backend: str
    device: str
    spec: Spec
    latency_seconds: Estimate
    seconds_per_byte: Estimate
    scatter: float
    samples: int
    outliers: int
    calls: tuple[TimedCall, ...]
    memory_bytes_per_second: Estimate
    flops_per_second: Estimate
    layer_seconds: Estimate
    ends_seconds: Estimate
    resume_seconds: Estimate

    @property
    def bytes_per_second(self) -> Estimate:
        """β, of one direction [bytes/s]."""
        return self.seconds_per_byte.per(1)

    @property
    def sentence(self) -> str:
        """Latency and speed with their intervals, for people."""
        latency, speed = self.latency_seconds, self.bytes_per_second
        return (
            f"Calibrated by run {self.run_id}: a round takes {latency.value * 1e6:,.0f} µs "
            f"({latency.low * 1e6:,.0f} to {latency.high * 1e6:,.0f}), the link carries "
            f"{speed.value * 8 / 1e6:,.1f} Mbit/s ({speed.low * 8 / 1e6:,.1f} to {speed.high * 8 / 1e6:,.1f})."
        )

    def holds_for(self, spec: Spec) -> bool:
        """Whether `spec` has the same ranks, hosts, links and element type."""
        return all(getattr(self.spec, name) == getattr(spec, name) for name in _SAME_LINK)


def of_run(session: "Session", run_id: int) -> Calibration:
    """What the run of this number found. Raises `NoCalibration`."""
    from calculators.lab import store

    run = store.get_run(session, run_id)
    if run is None:
        raise NoCalibration(f"There is no run {run_id} in this ledger. `list` shows those there are.")
    if run.spec.job is not Job.CALIBRATION:
        raise NoCalibration(
            f"Run {run_id} is a run of the job “{run.spec.job}”, which times no single calls. Take a calibration."
        )
    if not run.succeeded:
        raise NoCalibration(
            f"Run {run_id} is {run.state} and {'' if run.verified else 'not '}verified: what it timed is not to be "
            "relied on. Calibrate again."
        )
    series = store.series_of(session, run_id)
    return of_series(
        run.spec, series, run_id=run.id, machine=run.machine, backend=run.backend, device=run.device
    )


def latest(
    session: "Session", spec: Spec, *, machine: str, backend: str, device: str, before: int | None = None
) -> Calibration | None:
    """The newest calibration on `machine` of the ranks, hosts and links that `spec` has; None without one.

    With `before`, the newest that the run of this number could have known.
    """
    from calculators.lab import store

    for run in store.verified_runs(
        session, Job.CALIBRATION, machine=machine, backend=backend, world_size=spec.ranks
    ):
        alike = all(getattr(run.spec, name) == getattr(spec, name) for name in _SAME_LINK)
        if alike and run.device == device and (before is None or run.id < before):
            try:
                return of_run(session, run.id)
            except NoCalibration:  # too crowded a moment: an older one may do
                continue
    return None


def of_series(
    spec: Spec, series: Iterable[Series], *, run_id: int, machine: str, backend: str, device: str
) -> Calibration:
    """What the series of all ranks say together. Raises `NoCalibration` where they give no latency or no speed."""
    series = list(series)
    seconds = _over_ranks(series, _mean)
    slowest = _over_ranks(series, max)  # a step is through when the last rank is
    costs = _costs(spec, backend)
    try:
        fit = _fit(costs, seconds, backend)
    except ValueError as error:
        raise NoCalibration(f"Run {run_id} gives no latency and speed. {error}") from error
    layer = Estimate.mean(slowest[LAYERS]).of(1 / SMALL_LAYERS)
    resumed = Estimate.mean(slowest[RESUMED])
    return Calibration(
        run_id=run_id,
        machine=machine,
        backend=backend,
        device=device,
        spec=spec,
        latency_seconds=_of_fit(fit.latency_seconds, *fit.latency_interval),
        seconds_per_byte=_of_fit(
            fit.seconds_per_byte, *(1 / speed for speed in reversed(fit.bytes_per_second_interval))
        ),
        scatter=fit.scatter,
        samples=fit.samples,
        outliers=fit.outliers,
        calls=tuple(
            _timed_call(spec, timed, seconds[timed.name], cost, fit) for timed, cost in costs.items()
        ),
        memory_bytes_per_second=Estimate.mean(slowest[READING]).per(WEIGHT_BYTES),
        flops_per_second=Estimate.mean(slowest[MULTIPLYING]).per(MULTIPLICATIONS),
        layer_seconds=layer,
        ends_seconds=Estimate.mean(slowest[ENDS]),
        resume_seconds=Estimate(
            value=max(0.0, resumed.value - layer.value),
            low=max(0.0, resumed.low - layer.high),
            high=max(0.0, resumed.high - layer.low),
        ),
    )


def _mean(values: Sequence[float]) -> float:
    """Of all ranks that timed a call, as nccl-tests takes it."""
    return sum(values) / len(values)


def _over_ranks(
    series: Iterable[Series], together: Callable[[Sequence[float]], float]
) -> dict[str, list[float]]:
    """Each sample's time, of all ranks together."""
    of_ranks: dict[str, list[tuple[float, ...]]] = {}
    for one in series:
        of_ranks.setdefault(one.name, []).append(one.values)
    return {name: [together(each) for each in zip(*values, strict=True)] for name, values in of_ranks.items()}


def _costs(spec: Spec, backend: str) -> dict[Timed, LinkCost]:
    """Rounds and bytes of each timed call on a link that has rested, whose first bucketful is free."""
    free = bucket_bytes(spec)
    costs = {}
    for call in calls(spec):
        if not call.is_control:
            cost = link_cost(spec, call, backend=backend)
            timed = Timed(kind=call.op, size=call.payload_bytes)
            costs[timed] = replace(cost, bytes=max(0.0, cost.bytes - free))
    return costs


def _fit(costs: dict[Timed, LinkCost], seconds: dict[str, list[float]], backend: str) -> Fit:
    """α and β from the mean time of each call; how much of α is hidden depends on both, so they are fitted anew."""
    chosen = [timed for timed in costs if backend != "gloo" or timed.kind in _STEADY_ON_GLOO]
    means = [Estimate.mean(seconds[timed.name]).value for timed in chosen]
    rounds = [costs[timed].rounds for timed in chosen]
    for _ in range(_MOST_FITS):
        fit = fit_rounds_and_bytes(
            rounds=rounds, sent_bytes=[costs[timed].bytes for timed in chosen], seconds=means
        )
        found = fit.latency_seconds, fit.seconds_per_byte
        before, rounds = rounds, [costs[timed].exposed_rounds(*found) for timed in chosen]
        if np.allclose(before, rounds, rtol=0, atol=1e-9):
            break
    return fit


def _of_fit(value: float, low: float, high: float) -> Estimate:
    return Estimate(value=value, low=max(0.0, low), high=high)


def _timed_call(spec: Spec, timed: Timed, samples: list[float], cost: LinkCost, fit: Fit) -> TimedCall:
    seconds = Estimate.median(samples)
    return TimedCall(
        kind=timed.kind,
        size=timed.size,
        seconds=seconds,
        bus_bytes_per_second=seconds.per(float(bus_bandwidth(timed.kind, timed.size, 1.0, spec.ranks))),
        fitted_seconds=cost.exposed_rounds(fit.latency_seconds, fit.seconds_per_byte) * fit.latency_seconds
        + cost.bytes * fit.seconds_per_byte,
    )
