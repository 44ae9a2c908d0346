"""Timings as ranks of a calibration would leave them, on a link whose latency and speed are known."""

from collections.abc import Callable
from dataclasses import replace

from calculators.lab.link_cost import bucket_bytes, link_cost
from calculators.lab.measurements import Series
from calculators.lab.spec import Spec
from calculators.lab.splits.calibration import ARITHMETIC, Timed, calls, samples
from calculators.predict.collectives import Kind

ARITHMETIC_SECONDS = 0.002
"""Of every piece of arithmetic."""


def timings(
    spec: Spec, *, latency: float, speed: float, factor: Callable[[], float] = lambda: 1.0
) -> list[Series]:
    """What both ranks say; each sample is multiplied by `factor`."""
    found: dict[str, float] = dict.fromkeys(ARITHMETIC, ARITHMETIC_SECONDS)
    for call in calls(spec):
        if call.is_control:
            continue
        cost = link_cost(spec, call, backend="gloo")
        cost = replace(cost, bytes=max(0.0, cost.bytes - bucket_bytes(spec)))
        rounds = cost.exposed_rounds(latency, 1 / speed)
        found[Timed(kind=call.op, size=call.payload_bytes).name] = rounds * latency + cost.bytes / speed
    return [
        Series(rank=rank, name=name, values=tuple(factor() * seconds for _ in range(samples(spec))))
        for name, seconds in found.items()
        for rank in range(spec.ranks)
        if rank == 0 or not name.startswith(Kind.SEND)
    ]
