"""What one rank does: join, prove the split, warm up, then step between two quiet readings.

Run as a module it is a rank that torchrun started: the reference that the fork server is compared with.
"""

import os
import statistics
import sys
import time
import traceback
from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.distributed.pipelining  # preloaded by the fork server: half a second that no run waits for
import torch.distributed.tensor.parallel  # the same

from calculators.lab import cores, groups, jobs
from calculators.lab.measurements import (
    Event,
    Failed,
    Log,
    Progress,
    Quantity,
    Series,
    StepSeconds,
)
from calculators.lab.metering import Metering
from calculators.lab.meters.nccl import NcclNames
from calculators.lab.plan import Plan
from calculators.lab.spec import Job, ReduceScatter

_PROGRESS_SECONDS = 0.1


def run_rank(plan: Plan, *, rank: int, store: dist.Store, say: Callable[[Event], None]) -> None:
    """Do the whole run as `rank`; everything that comes out goes through `say`."""
    spec, placement = plan.spec, plan.placement
    torch.set_num_threads(1)  # ranks share the cores; more threads each only get in each other's way
    if placement.device == "cpu":
        cores.keep_to_own_cores(rank, ranks=plan.world_size)
        cores.take_short_turns()
    device = _device(placement.device, rank)
    progress = _Reporter(rank, say)

    progress("join", 0, 1)
    nccl = NcclNames() if placement.backend == "nccl" and rank == 0 else None
    meters = Metering(plan, rank=rank, store=store, device=device, say=say)
    groups.join(
        store,
        rank=rank,
        size=plan.world_size,
        backend=placement.backend,
        staged=placement.staged,
        timeout_seconds=spec.time_limit_seconds,
        axis=spec.family,
        sums_after_all_to_all=spec.reduce_scatter is ReduceScatter.ALL_TO_ALL,
    )
    job = jobs.build(spec, rank=rank, group=dist.group.WORLD, device=device)

    progress("verify", 0, 1)
    if (verified := job.verify()) is not None:
        say(verified)
        say(Log(rank=rank, text=verified.sentence(*spec.compared)))
    for done in range(spec.warmup_steps):
        # The first steps open connections, plan redistributions and exchange shapes; none is measured.
        progress("warm up", done, spec.warmup_steps)
        if spec.is_training and job.modules and done == spec.warmup_steps - 1:
            meters.watch_memory(job)
        else:
            job.step()

    meters.start()
    seconds = []
    for done in range(spec.steps):
        progress("measure", done, spec.steps)
        started = time.perf_counter()
        job.step()
        _finish(device)
        seconds.append(time.perf_counter() - started)
    meters.finish()
    say(StepSeconds(rank=rank, seconds=tuple(seconds)))
    meters.report(Quantity.STEP_SECONDS, statistics.median(seconds))
    if (verified := job.verify_again()) is not None:
        say(verified)
        say(Log(rank=rank, text="afterwards " + verified.sentence(*spec.compared)))
    for name, values in job.series().items():
        say(Series(rank=rank, name=name, values=tuple(values)))
        if spec.job is Job.CALIBRATION:
            meters.report(Quantity.CALL_SECONDS, statistics.median(values), detail=name, steps=len(values))
    if nccl is not None:
        nccl.tell(lambda text: say(Log(rank=rank, text=text)))
    if placement.staged:
        staging = sum(group.staging_seconds for group in groups.made())
        say(Log(rank=rank, text=f"staging through host memory took {staging:.3f} s"))
    if spec.job is not Job.CALIBRATION:  # it has timed every call itself
        progress("timeline", 0, 1)
        meters.watch_time(job, step_seconds=statistics.median(seconds), finish=lambda: _finish(device))
    progress("done", spec.steps, spec.steps)
    meters.leave()
    dist.destroy_process_group()


class _Reporter:
    """Progress, but not more often than a page can show it."""

    def __init__(self, rank: int, say: Callable[[Event], None]) -> None:
        self._rank, self._say = rank, say
        self._part, self._at = "", 0.0

    def __call__(self, part: str, done: int, total: int) -> None:
        now = time.monotonic()
        if part != self._part or now - self._at >= _PROGRESS_SECONDS:
            self._part, self._at = part, now
            self._say(Progress(rank=self._rank, part=part, done=done, total=total))


def _device(kind: str, rank: int) -> torch.device:
    if kind != "cuda":
        return torch.device("cpu")
    device = torch.device("cuda", rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device


def _finish(device: torch.device) -> None:
    """Wait for a GPU to be through with the step, so that its time is the step's."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def failure(rank: int) -> Failed:
    """The exception of this moment as an event."""
    kind, error, _ = sys.exc_info()
    reason = f"{kind.__name__ if kind else 'Error'}: {error}".strip()
    return Failed(rank=rank, reason=reason.splitlines()[0][:500], traceback=traceback.format_exc())


def _from_torchrun() -> None:
    """`torchrun --nproc-per-node N -m calculators.lab.ranks SPEC.toml`: the same ranks, launched cold."""
    from pathlib import Path

    from calculators.lab.devices import find_devices, place
    from calculators.lab.plan import make_plan
    from calculators.lab.spec import Spec

    spec = Spec.load(Path(sys.argv[1]))
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if size != spec.ranks:
        sys.exit(f"torchrun started {size} ranks, but the spec asks for {spec.ranks}. Start that many.")
    plan = make_plan(spec, place(spec, find_devices()))
    store, _, _ = next(dist.rendezvous("env://", timeout=timedelta(seconds=spec.time_limit_seconds)))
    run_rank(plan, rank=rank, store=store, say=lambda event: print(event, flush=True))


if __name__ == "__main__":
    _from_torchrun()
