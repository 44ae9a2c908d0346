"""How many legal layouts the planner evaluates in a second on one core, every column written out and read."""

import time
import tracemalloc

import numpy as np

from calculators.predict.clusters import Link, two_tiers
from calculators.predict.devices import DEVICES
from calculators.predict.links import rung
from calculators.predict.models.catalogue import MODELS
from calculators.predict.planner import AXES, COLUMNS, LAYOUTS_IN_A_CHUNK, Task, evaluate
from tests.bench import reference
from tests.bench.results import Result, at_least, at_most, rate

LAYOUTS_A_SECOND = 2e6
AXES_THAT_VARY = 8
PASSES = 7
CHUNKS_HELD = 3
"""Times the columns of one chunk: the chunk, the one before it, and what is calculated in between."""
CACHE_LINE = 8
"""Of a column one value in so many is read: memory comes in lines of 64 bytes, so that is all of it."""


def measure() -> list[Result]:
    """The rate of each sweep, the axes that vary in it, and what it holds in memory beside what it went through."""
    return [result for name, task in sweeps().items() for result in _measured(name, task)]


def sweeps() -> dict[str, Task]:
    """A dense model on a thousand and on 16,384 devices, and DeepSeek-V3 on the 2,048 that it was trained on."""
    dense = MODELS["llama-3.1-70b"].shape
    return {
        "70B on 1,024 H100": _task(dense, device="h100", devices=1024, batch=1024),
        "70B on 16,384 H100": _task(dense, device="h100", devices=16_384, batch=16_384),
        "DeepSeek-V3 on 2,048 H200": _task(
            MODELS["deepseek-v3"].shape,
            device="h200",
            devices=2048,
            batch=4096,
            uneven_stages=True,  # 61 layers divide by nothing
        ),
    }


def _task(shape, *, device: str, devices: int, batch: int, **given: bool) -> Task:  # type: ignore[no-untyped-def]
    inside, between = Link.on(rung("nvlink-4")), Link.on(rung("infiniband-ndr"))
    cluster = two_tiers(DEVICES[device], devices=devices, devices_per_host=8, inside=inside, between=between)
    return Task(shape=shape, cluster=cluster, tokens=8192, batch=batch, **given)


def _measured(name: str, task: Task) -> list[Result]:
    varying, layouts, chunks = _axes(task)
    # The machine's speed changes within seconds, so the loop runs beside every pass and the best of them counts.
    passes = [(reference.seconds(), _pass(task)) for _ in range(PASSES)]
    loop, seconds = min(passes, key=lambda each: each[1] / each[0])
    held = _peak(task)
    swept = 8 * len(COLUMNS) * layouts
    return [
        rate(
            f"layouts a second, {name}",
            layouts / seconds,
            LAYOUTS_A_SECOND,
            "layouts/s",
            note=f"{layouts:,} legal layouts in {chunks} chunks, {len(COLUMNS)} columns each, {seconds:.3f} s at best; "
            f"varying: {', '.join(varying)}; Calculon evaluates about 200 a second",
        ).judged_at(1e3 * loop / reference.GOAL_MS),
        at_least(f"axes varying, {name}", len(varying), AXES_THAT_VARY, "axes"),
        at_most(
            f"memory held in a sweep, {name}",
            held / 1e6,
            CHUNKS_HELD * 8 * len(COLUMNS) * LAYOUTS_IN_A_CHUNK / 1e6,
            "MB",
            note=f"{CHUNKS_HELD} times the columns of a chunk; columns of {swept / 1e6:,.0f} MB went by",
        ),
    ]


def _pass(task: Task) -> float:
    """Seconds of one sweep."""
    started = time.perf_counter()
    for found in evaluate(task):
        for name in COLUMNS:
            found[name][::CACHE_LINE].sum()
    return time.perf_counter() - started


def _axes(task: Task) -> tuple[list[str], int, int]:
    """Axes that take more than one value among the legal layouts, how many layouts there are, in how many chunks."""
    values: dict[str, set[float]] = {axis: set() for axis in AXES}
    layouts = chunks = 0
    for found in evaluate(task):
        layouts, chunks = layouts + len(found), chunks + 1
        for axis in AXES:
            values[axis].update(np.unique(found[axis]).tolist())
    return [axis for axis in AXES if len(values[axis]) > 1], layouts, chunks


def _peak(task: Task) -> int:
    """The most memory that a sweep holds at a time [bytes]."""
    tracemalloc.start()
    try:
        _pass(task)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
