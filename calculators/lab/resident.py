"""What ranks hold in memory, read a few times a second from the outside."""

import time
from collections.abc import Mapping
from typing import Any

import psutil  # type: ignore[import-untyped]

LOOK_SECONDS = 0.25


class Resident:
    """Resident memory of each rank, beyond what it has in common with the process that it was forked from.

    That process has imported torch. Files that are mapped (its libraries) are left out on both sides where the system
    tells them apart (Linux); memory of a GPU is not in it. What a rank held last is known after its end, too.
    """

    def __init__(self, pids: Mapping[int, int]) -> None:
        self._processes: dict[int, Any] = {}
        self._next = 0.0
        self._parent: Any = None
        self._common = 0
        self.bytes_of: dict[int, int] = {}
        for rank, pid in pids.items():
            try:
                self._processes[rank] = psutil.Process(pid)
                if self._parent is None:
                    self._parent = psutil.Process(self._processes[rank].ppid())
                    self._common = _own_bytes(self._parent)
            except psutil.Error:
                continue
        self.look()

    def look(self) -> None:
        """Read again, unless it has just been done."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + LOOK_SECONDS
        for rank, process in self._processes.items():
            try:
                held = _own_bytes(process)
            except psutil.Error:
                continue
            if held:  # a process that is ending has none any more
                self.bytes_of[rank] = max(0, held - self._common)

    @property
    def parent_is_gone(self) -> bool:
        """Whether the process that the ranks were forked from has ended."""
        try:
            return self._parent is not None and self._parent.status() == psutil.STATUS_ZOMBIE
        except psutil.Error:
            return True

    @property
    def total_bytes(self) -> int:
        """Of all ranks together."""
        return sum(self.bytes_of.values())

    @property
    def largest(self) -> int:
        """The rank that holds most."""
        return max(self.bytes_of, key=lambda rank: self.bytes_of[rank])


def _own_bytes(process: Any) -> int:
    memory = process.memory_info()
    return int(memory.rss) - int(getattr(memory, "shared", 0))
