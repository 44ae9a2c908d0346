"""Ranks that come to grief in one chosen way; the launcher is told to run these instead of the real work."""

import os
import signal
import time
from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed as dist

from calculators.lab import groups, ranks
from calculators.lab.measurements import Event, Progress
from calculators.lab.plan import Plan


def one_raises(plan: Plan, *, rank: int, store: dist.Store, say: Callable[[Event], None]) -> None:
    """Rank 1 raises between two all-reduces; its peers find their connections closed."""
    _all_reduce_until(plan, rank, store, say, lambda: _raise())


def one_is_killed(plan: Plan, *, rank: int, store: dist.Store, say: Callable[[Event], None]) -> None:
    """Rank 1 gets SIGKILL between two all-reduces and can say nothing."""
    _all_reduce_until(plan, rank, store, say, lambda: os.kill(os.getpid(), signal.SIGKILL))


def one_leaves(plan: Plan, *, rank: int, store: dist.Store, say: Callable[[Event], None]) -> None:
    """Rank 1 exits with a code of its own."""
    _all_reduce_until(plan, rank, store, say, lambda: os._exit(7))


def none_ends(plan: Plan, *, rank: int, store: dist.Store, say: Callable[[Event], None]) -> None:
    """Every rank says where it is, and its process id, and sleeps."""
    say(Progress(rank=rank, part=f"sleep in {os.getpid()}", done=0, total=1))
    time.sleep(600)


def one_leaves_quietly(plan: Plan, *, rank: int, store: dist.Store, say: Callable[[Event], None]) -> None:
    """Rank 1 exits as if all were well."""
    _all_reduce_until(plan, rank, store, say, lambda: os._exit(0))


def one_hoards(plan: Plan, *, rank: int, store: dist.Store, say: Callable[[Event], None]) -> None:
    """Rank 1 takes 16 MiB of memory after the other, up to 1 GiB."""
    held = []
    while rank == 1 and len(held) < 64:
        held.append(torch.ones(4 * 2**20))
        say(Progress(rank=rank, part="hoard", done=len(held), total=64))
        time.sleep(0.02)
    time.sleep(600)


def one_is_killed_in(
    part: str, plan: Plan, *, rank: int, store: dist.Store, say: Callable[[Event], None]
) -> None:
    """The real work, but rank 1 gets SIGKILL as soon as it has said that it begins `part`."""
    _real_work_until(part, lambda: os.kill(os.getpid(), signal.SIGKILL), plan, rank, store, say)


def one_hangs_in(
    part: str, plan: Plan, *, rank: int, store: dist.Store, say: Callable[[Event], None]
) -> None:
    """The real work, but rank 1 stays in `part` for ten minutes."""
    _real_work_until(part, lambda: time.sleep(600), plan, rank, store, say)


def never_build(network: object, end: object) -> None:
    """Instead of what makes emulated hosts: nothing, for ten minutes."""
    time.sleep(600)


def _real_work_until(
    part: str,
    fail: Callable[[], None],
    plan: Plan,
    rank: int,
    store: dist.Store,
    say: Callable[[Event], None],
) -> None:
    def tell(event: Event) -> None:
        say(event)
        if rank == 1 and isinstance(event, Progress) and event.part == part:
            fail()

    ranks.run_rank(plan, rank=rank, store=store, say=tell)


def _all_reduce_until(
    plan: Plan, rank: int, store: dist.Store, say: Callable[[Event], None], fail: Callable[[], None]
) -> None:
    group = groups.on_gloo(store, rank, plan.world_size, timedelta(seconds=60))
    for turn in range(1_000_000):
        say(Progress(rank=rank, part="turn", done=turn, total=0))
        if turn == 20 and rank == 1:
            fail()
        group.allreduce([torch.ones(4)]).wait()


def _raise() -> None:
    raise ArithmeticError("the hidden state of layer 3 is not a number")
