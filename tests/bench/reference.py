"""A fixed loop of plain Python: how fast this machine is at the moment, beside which milliseconds are read."""

import statistics
import time

from tests.bench.results import Result

LOOPS = 300_000


def seconds() -> float:
    """The time of one reference loop, the median of five."""
    return statistics.median(_once() for _ in range(5))


def measure() -> list[Result]:
    """The loop in milliseconds; on the machine that the goals are for it takes about 20 when nothing else runs."""
    return [
        Result(
            name="reference loop", value=1e3 * seconds(), unit="ms", note=f"{LOOPS:,} additions, plain Python"
        )
    ]


def _once() -> float:
    started = time.perf_counter()
    total = 0
    for number in range(LOOPS):
        total += number & 7
    return time.perf_counter() - started
