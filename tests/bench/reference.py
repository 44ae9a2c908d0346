"""A fixed loop of plain Python: how fast this machine is at the moment, beside which milliseconds are read."""

import statistics
import time

from tests.bench.results import Result

LOOPS = 300_000
GOAL_MS = 14.5
"""What the loop takes on the 2-core machine that the goals were set on, when nothing else runs there."""


def seconds() -> float:
    """The time of one reference loop, the median of five."""
    return statistics.median(once() for _ in range(5))


def slowness() -> float:
    """How many times slower than the machine of the goals this one is at the moment."""
    return 1e3 * seconds() / GOAL_MS


def measure() -> list[Result]:
    """The loop in milliseconds."""
    note = f"{LOOPS:,} additions in plain Python; {GOAL_MS} on the machine of the goals"
    return [Result(name="reference loop", value=1e3 * seconds(), unit="ms", note=note)]


def once() -> float:
    """Seconds of one loop."""
    started = time.perf_counter()
    total = 0
    for number in range(LOOPS):
        total += number & 7
    return time.perf_counter() - started
