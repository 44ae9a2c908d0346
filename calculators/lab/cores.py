"""Which core a rank has and how its threads take turns on it, so that the time of a step is the step's.

The threads that get into each other's way are a rank's own: the one that computes, and gloo's, which moves bytes.
Bytes that come before their receive is posted stay in the socket, and gloo's thread asks for them over and over. That
takes half of a core from a rank that is still computing, and a rank that wakes waits until the other's turn is over,
3 ms on Linux 6.18 (docs/lab.md has the figures). Each function does nothing on a system without its call.
"""

import ctypes
import os
import platform
import struct
from collections.abc import Collection
from pathlib import Path

_TURN_SECONDS = 1e-4
"""The shortest turn that Linux grants."""
_GLOO_NICENESS = 10
"""A tenth of a computing rank's share: too little to be in the way, enough to go on sending meanwhile."""

# sched_setattr(2), which neither Python nor older C libraries offer: its number, and its struct sched_attr with size,
# policy, flags, nice, priority, runtime, deadline, period, util_min and util_max.
_SCHED_SETATTR = {"x86_64": 314, "aarch64": 274, "riscv64": 274}
_SCHED_ATTR = "=IIQiIQQQII"


def cores_of_rank(rank: int, *, ranks: int, usable: Collection[int]) -> frozenset[int]:
    """An equal share of the usable cores for each of the ranks; all of them where there is less than one each."""
    cores = sorted(usable)
    each = len(cores) // ranks
    return frozenset(cores[rank * each : (rank + 1) * each] if each else cores)


def keep_to_own_cores(rank: int, *, ranks: int) -> None:
    """Keep this process, and every thread it starts from now on, to its share of the cores.

    Left alone, the kernel wakes a rank that waited on whichever core it likes, often one where another rank computes.
    """
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores_of_rank(rank, ranks=ranks, usable=os.sched_getaffinity(0)))


def take_short_turns() -> None:
    """Have this thread, and every one that it starts from now on, give a waiting one its turn soon.

    Linux 6.12 and later; an earlier one accepts the call and keeps its own turns.
    """
    number = _SCHED_SETATTR.get(platform.machine())
    if platform.system() == "Linux" and number is not None:
        size, runtime = struct.calcsize(_SCHED_ATTR), round(_TURN_SECONDS * 1e9)
        attributes = struct.pack(_SCHED_ATTR, size, os.SCHED_OTHER, 0, 0, 0, runtime, 0, 0, 0, 0)
        ctypes.CDLL(None).syscall(number, 0, attributes, 0)


def threads() -> frozenset[int]:
    """The threads of this process by their Linux id; none on a system that lists none."""
    return frozenset(int(thread.name) for thread in Path("/proc/self/task").glob("*"))


def give_way(of: Collection[int]) -> None:
    """Have these threads of this process give way to its others: gloo's to those that compute."""
    for thread in of:
        os.setpriority(os.PRIO_PROCESS, thread, _GLOO_NICENESS)
