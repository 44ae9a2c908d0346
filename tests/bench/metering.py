"""What metering costs: the same steps and collectives with the counting group and without, interleaved.

Three copies of the job run in the same ranks, step by step in a random order that all ranks share: one over the
counting group and two over bare gloo groups. The two bare ones against each other are the control: they show
how far apart two equal things come out here.
"""

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from calculators.lab.devices import Placement
from calculators.lab.launch import LocalLauncher
from calculators.lab.measurements import Event, Failed, StepSeconds
from calculators.lab.plan import Plan, make_plan
from calculators.lab.spec import Spec
from tests.bench.results import Result

STEPS = 2_400
LIMIT = 1.05
CALLS = 2_400
LEAST_BANDWIDTH = 0.95
NOISE = 0.03
REBUILT = 4
"""How often the jobs are built in each order."""

Interval = tuple[float, float, float]
"""A ratio, and the two ends of its 95 % interval."""


def measure(launcher_of: Callable[..., LocalLauncher] = LocalLauncher) -> list[Result]:
    """The ratio of medians with its 95 % bootstrap interval, and the same of the control."""
    spec = Spec.parse({"job": "tensor", "ranks": 2, "layers": 1, "steps": STEPS, "time_limit_seconds": 600})
    plan = make_plan(spec, Placement(device="cpu", backend="gloo", staged=False, note=""))
    times = _times(launcher_of(work=interleave), plan)
    metered, bare, again = times.reshape(STEPS, 3).T
    cost = verdicts(ratio_of_medians(metered, bare), ratio_of_medians(again, bare))
    return [*cost, *_bus_bandwidth(launcher_of)]


def _bus_bandwidth(launcher_of: Callable[..., LocalLauncher]) -> list[Result]:
    """All-reduces of 1 MiB through our ranks' group and a bare one: bus bandwidths are as the inverse of times."""
    spec = Spec.parse(
        {
            "job": "exchange",
            "pattern": "gradients",
            "ranks": 2,
            "call_bytes": 2**20,
            "repeats": 1,
            "steps": CALLS,
            "time_limit_seconds": 600,
        }
    )
    plan = make_plan(spec, Placement(device="cpu", backend="gloo", staged=False, note=""))
    metered, bare, again = _times(launcher_of(work=interleave), plan).reshape(CALLS, 3).T
    ratio, low, high = ratio_of_medians(bare, metered)
    _, same_low, same_high = ratio_of_medians(bare, again)
    is_noisy = max(same_high - 1, 1 - same_low) > NOISE
    bandwidth = 2**20 / float(np.median(metered)) / 1e9
    return [
        Result(
            name="bus bandwidth of our ranks ÷ bare torch.distributed, lower 95 % bound",
            value=low,
            unit="×",
            goal=f"≥ {LEAST_BANDWIDTH:g}",
            met=None if is_noisy else low >= LEAST_BANDWIDTH,
            note=f"1 MiB all-reduces of 2 ranks, {bandwidth:.3g} GB/s; ratio {ratio:.4f}, interval {low:.4f} to "
            f"{high:.4f}; two bare groups {same_low:.4f} to {same_high:.4f}",
        )
    ]


def verdicts(metered: Interval, control: Interval) -> list[Result]:
    """The promise and its control; a control that spreads wider than `NOISE` leaves the promise undecided."""
    ratio, low, high = metered
    same, same_low, same_high = control
    is_noisy = max(same_high - 1, 1 - same_low) > NOISE
    return [
        Result(
            name="metered ÷ unmetered step, upper 95 % bound",
            value=high,
            unit="×",
            goal=f"≤ {LIMIT:g}",
            met=None if is_noisy else high <= LIMIT,
            note=f"ratio of medians {ratio:.4f}, interval {low:.4f} to {high:.4f}, {STEPS} steps each",
        ),
        Result(
            name="A/A control, the same ratio of two bare groups",
            value=same,
            unit="×",
            goal=f"1 ± {NOISE:g}",
            met=not is_noisy,
            note=f"interval {same_low:.4f} to {same_high:.4f}",
        ),
    ]


def ratio_of_medians(
    numerator: NDArray[np.float64], denominator: NDArray[np.float64], *, draws: int = 4_000
) -> Interval:
    """median(numerator) ÷ median(denominator) with its 95 % bootstrap interval; rounds are drawn together."""
    rng = np.random.default_rng(20_261_201)
    rounds = rng.integers(len(numerator), size=(draws, len(numerator)))
    ratios = np.median(numerator[rounds], axis=1) / np.median(denominator[rounds], axis=1)
    low, high = np.quantile(ratios, [0.025, 0.975])
    return float(np.median(numerator) / np.median(denominator)), float(low), float(high)


def interleave(plan: Plan, *, rank: int, store: object, say: Callable[[Event], None]) -> None:
    """What each rank does: rounds of three steps in a shared random order; their times, metered first."""
    import time

    import torch
    import torch.distributed as dist

    from calculators.lab import cores, groups, jobs

    torch.set_num_threads(1)
    size = plan.world_size
    cores.keep_to_own_cores(rank, ranks=size)
    cores.take_short_turns()
    metered = groups.join(store, rank=rank, size=size, backend="gloo", staged=False, timeout_seconds=600)
    # Bare groups like the one within the metered one, and over the same device and thread.
    dist.Backend.register_backend("bare", partial(groups.bare, backend="gloo"), devices=["cpu"])
    bare = [dist.new_group(backend="bare", timeout=timedelta(seconds=600)) for _ in range(2)]
    given = (metered, *bare)
    rng = np.random.default_rng(1)
    times = np.zeros((plan.spec.steps, 3))
    # Where a job's tensors come to lie makes a step up to 5 % slower, and that goes by the order in which jobs are
    # built: they are built again and again, in every order for as many steps.
    orders = list(permutations(range(3))) * REBUILT
    for order, turns in zip(orders, np.array_split(np.arange(plan.spec.steps), len(orders)), strict=True):
        work = {
            which: jobs.build(plan.spec, rank=rank, group=given[which], device=torch.device("cpu"))
            for which in order
        }
        for _ in range(20):
            for job in work.values():
                job.step()
        for turn in turns:
            for which in rng.permutation(3):
                started = time.perf_counter()
                work[which].step()
                times[turn, which] = time.perf_counter() - started
    say(StepSeconds(rank=rank, seconds=tuple(times.ravel().tolist())))
    dist.barrier()


def _times(launcher: LocalLauncher, plan: Plan) -> NDArray[np.float64]:
    """The times of the slower rank of each step: a step is over when both ranks are through."""
    by_rank: list[tuple[float, ...]] = []
    for event in launcher.run(plan):
        if isinstance(event, Failed):
            raise RuntimeError(f"rank {event.rank}: {event.reason}\n{event.traceback}")
        if isinstance(event, StepSeconds):
            by_rank.append(event.seconds)
    return np.max(np.array(by_rank), axis=0)
