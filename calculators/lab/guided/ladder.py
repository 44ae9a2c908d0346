"""The interconnect ladder: one model decoded over links of every speed, each layer cut and the stack cut, with the time
that a calibration of the same link predicts beside what was measured.
"""

import statistics
from collections.abc import Mapping

from calculators.lab import calibrations, clock
from calculators.lab.guided.claims import (
    Curve,
    Figure,
    Guided,
    Level,
    Result,
    Unmeasured,
    Variant,
    Verdict,
    held_if,
)
from calculators.lab.guided.variants import variant
from calculators.lab.measurements import Doing, Quantity
from calculators.lab.spec import Job

RUNGS = (10.0, 20.0, 50.0, 100.0, 0.0)
"""Mbit/s of each host's link; 0 is as fast as this machine moves bytes between two hosts of its own."""
LEAST_RATIO = 20.0
SHORTEST = 1e-4
"""Seconds of a token's exchanges below which the timeline cannot tell them from none."""
LARGEST_ERROR = 0.15
"""Median error of predicted time that still counts as predicted, on rungs where the link decides."""

# 8 KiB a call, and hardly any arithmetic: what is left is what the link costs.
_DECODE = {
    "ranks": 2,
    "hosts": 2,
    "layers": 32,
    "hidden_size": 64,
    "attention_heads": 4,
    "ffn_width": 64,
    "vocab_size": 64,
    "batch": 32,
    "steps": 10,
}
_CALIBRATION = {"job": "calibration", "ranks": 2, "hosts": 2, "steps": 10, "repeats": 1}


def _largest_bytes(rate: float) -> int:
    """How large the largest timed collective is: at a slow link 4 MiB would take seconds each."""
    return 2**22 if rate == 0 else 2**20 if rate >= 50 else 2**18


def _variants() -> tuple[Variant, ...]:
    each: list[Variant] = []
    for rate in RUNGS:
        link = {"link_mbit": rate}
        each += [
            variant(
                f"calibration-{rate:g}",
                f"Calibration, {_named(rate)}",
                _CALIBRATION,
                link,
                {"call_bytes": _largest_bytes(rate)},
            ),
            variant(f"tensor-{rate:g}", f"TP, {_named(rate)}", {"job": "tensor"}, _DECODE, link),
            variant(f"pipeline-{rate:g}", f"PP, {_named(rate)}", {"job": "pipeline"}, _DECODE, link),
        ]
    return tuple(each)


def _named(rate: float) -> str:
    return f"{rate:g} Mbit/s" if rate else "not slowed down"


def _exchange_seconds(result: Result) -> float:
    """A token's time less what ranks computed: the mean of ranks that work at once, the sum of those in turn.

    All of it from the timeline, so that both are of the same tokens. A difference of two large times: it may come out
    below 0 where exchanges take next to nothing.
    """
    told = [m for m in result.measurements if m.quantity is Quantity.SECONDS]
    if not told:
        raise Unmeasured(f"run {result.run.id} has no timeline")
    ranks, steps = result.run.world_size, told[0].steps
    token = sum(m.value for m in told) / ranks / steps
    busy = sum(m.value for m in told if m.detail == Doing.BUSY) / steps
    return token - (busy / ranks if result.spec.job is Job.TENSOR else busy)


def _judge(results: Mapping[str, Result]) -> Verdict:
    ratios, errors, figures = [], [], []
    measured: dict[str, list[float]] = {"tensor": [], "pipeline": []}
    predicted: dict[str, list[float]] = {"tensor": [], "pipeline": []}
    speeds, host_bound = [], []
    for rate in RUNGS:
        calibration = _calibration(results[f"calibration-{rate:g}"])
        speeds.append(8 * calibration.bytes_per_second.value / 1e6)
        tensor, pipeline = (results[f"{job}-{rate:g}"] for job in ("tensor", "pipeline"))
        seconds = _exchange_seconds(pipeline)
        ratio = _exchange_seconds(tensor) / max(seconds, SHORTEST)
        ratios.append(ratio)
        figures.append(
            Figure(
                what=f"time of a token's exchanges, TP ÷ PP, {_named(rate)}"
                + (
                    f" (at least: PP's were shorter than {SHORTEST * 1e3:g} ms)" if seconds < SHORTEST else ""
                ),
                unit="×",
                measured=ratio,
                level=Level.TIME,
            )
        )
        for job, result in (("tensor", tensor), ("pipeline", pipeline)):
            step = clock.predicted_step(result.spec, calibration)
            seconds = statistics.median(result.seconds_of_steps())
            measured[job].append(seconds)
            predicted[job].append(step.seconds.value)
            if step.is_host_bound:
                host_bound.append(f"{job} {_named(rate)}")
            else:
                errors.append(abs(step.seconds.value / seconds - 1))
            figures.append(
                Figure(
                    what=f"seconds of a token, {'TP' if job == 'tensor' else 'PP'}, {_named(rate)}"
                    + (" (host-bound)" if step.is_host_bound else f" (link {step.link_share:.0%})"),
                    unit="s",
                    predicted=step.seconds.value,
                    measured=seconds,
                    level=Level.TIME,
                    decides=not step.is_host_bound,
                )
            )
    error = statistics.median(errors) if errors else 0.0
    return Verdict(
        outcome=held_if(min(ratios) >= LEAST_RATIO and bool(errors) and error <= LARGEST_ERROR),
        sentence=f"A token's exchanges took {min(ratios):.0f} to {max(ratios):.0f} times as long with each layer "
        f"cut as with the stack cut. Where the link decides, times were predicted with a median error of {error:.0%}"
        + (f"; host-bound: {', '.join(host_bound)}." if host_bound else "."),
        figures=tuple(figures),
        curves=tuple(
            Curve(
                name=f"{title}, tokens per second of one sequence",
                x_title="link, Mbit/s as calibrated",
                y_title="tokens per second",
                x=tuple(speeds),
                predicted=tuple(1 / seconds for seconds in predicted[job]),
                measured=tuple(1 / seconds for seconds in measured[job]),
                logarithmic=True,
            )
            for job, title in (("tensor", "TP"), ("pipeline", "PP"))
        ),
    )


def _calibration(result: Result) -> calibrations.Calibration:
    run = result.run
    try:
        return calibrations.of_series(
            run.spec,
            result.series,
            run_id=run.id,
            machine=run.machine,
            backend=run.backend,
            device=run.device,
        )
    except calibrations.NoCalibration as error:
        raise Unmeasured(str(error).removesuffix(".")) from error


EXPERIMENTS = (
    Guided(
        name="ladder",
        title="The interconnect ladder on one machine",
        family="tp",
        lesson="interconnect-ladder",
        claim="On every rung of the ladder a token's exchanges take at least 20 times as long with each layer cut "
        "as with the stack cut, and on the slow rungs the link alone says how long.",
        about="Two emulated hosts with one rank each, and a link between them that is slowed down from run to run. "
        "On each rung the link is calibrated first, by ping-pong and large collectives alone; the 8 KiB exchanges "
        "of decoding are then predicted from that. On fast rungs this machine's cores decide, not the link, and "
        "the page says so.",
        level=Level.TIME,
        variants=_variants(),
        judge=_judge,
        needs=("wire", "hosts"),
    ),
)
