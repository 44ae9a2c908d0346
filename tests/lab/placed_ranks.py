"""Ranks that tell, after an ordinary run, on which cores they were and how their threads take turns there."""

import ctypes
import json
import os
import platform
import struct
from collections.abc import Callable
from pathlib import Path

from calculators.lab.measurements import Event, Log
from calculators.lab.plan import Plan

_SCHED_GETATTR = {"x86_64": 315, "aarch64": 275}


def tell(plan: Plan, *, rank: int, store: object, say: Callable[[Event], None]) -> None:
    """Do the run, then say the cores of this rank, the niceness of each thread by name, and how long its turns are."""
    from calculators.lab.ranks import run_rank

    run_rank(plan, rank=rank, store=store, say=say)
    niceness = {
        (thread / "comm").read_text().strip(): os.getpriority(os.PRIO_PROCESS, int(thread.name))
        for thread in Path("/proc/self/task").iterdir()
    }
    said = {"cores": sorted(os.sched_getaffinity(0)), "niceness": niceness, "turn": _turn_seconds()}
    say(Log(rank=rank, text=json.dumps(said)))


def _turn_seconds() -> float | None:
    """The turn of this thread as the kernel tells it [s]; None where it tells none: Linux before 6.12, for example."""
    number = _SCHED_GETATTR.get(platform.machine())
    attributes = ctypes.create_string_buffer(56)
    if number is None or ctypes.CDLL(None).syscall(number, 0, attributes, len(attributes), 0):
        return None
    return struct.unpack_from("=Q", attributes, 24)[0] / 1e9 or None
