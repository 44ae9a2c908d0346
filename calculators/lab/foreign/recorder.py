"""Keeps count inside one process of a metered program, and writes what it knows before it is too late.

It writes when groups are formed and before they end, when the process leaves (also by `os._exit`), and about once a
second from a thread, so that a process that is killed has said something a moment earlier.
"""

import atexit
import os
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from calculators.lab.foreign.kernels import Handed
from calculators.lab.foreign.records import Called, Group, Record, Socket
from calculators.lab.meters.sockets import listening_ports, open_connections

MOST_LINES = 4_096
"""Different calls that are told apart; later ones are counted, but not each on its own."""
_QUIET_SECONDS, _QUIET_LOOKS, _QUIET_AT_MOST = 0.01, 2, 0.5
EVERY_SECONDS = 1.0

_Line = tuple[Any, ...]
_Ends = tuple[tuple[str, int], tuple[str, int]]


class Recorder:
    """The counts of this process; `note` is called for every call, from whichever thread makes it."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self._begin()
        atexit.register(self._last_words)
        leave = os._exit

        def exit_at_once(status: int) -> Any:
            self._last_words()
            leave(status)

        os._exit = exit_at_once

    def _begin(self) -> None:
        """Nothing counted yet, in the process that this is."""
        self._pid, self._started = os.getpid(), time.time()
        self._lock, self._writing = threading.Lock(), threading.Lock()
        self._counts: dict[_Line, list[Any]] = {}
        self._groups: dict[tuple[int, str], Group] = {}
        self._sockets: dict[_Ends, Socket] = {}
        self._closed: list[Socket] = []
        self._notes: dict[str, None] = {}
        self._world, self._is_up, self._is_final = 0, False, False
        self._rank = self._size = self._passes = self._left_out = 0
        self._pass = -1
        self._ports: set[int] = set()
        threading.Thread(target=self._keep_writing, name="sixfold-meter", daemon=True).start()

    def formed(self) -> None:
        """A world was formed: this process is a rank now."""
        if os.getpid() != self._pid:
            self._begin()  # forked from a rank, and now one itself
        self._world, self._is_up = self._world + 1, True
        self._rank, self._size = dist.get_rank(), dist.get_world_size()
        self.look()
        self._write()

    def before_end(self, group: Any = None) -> None:
        """A group, or all of them, will end: the last moment to read its sockets."""
        self._look_when_quiet()
        self._write()

    def ended(self, group: Any = None) -> None:
        """Whether the world ended with it."""
        self._is_up = dist.is_initialized()

    def note(self, group: Any, kind: str, function: str, handed: Handed) -> None:
        """Count one call."""
        name = dist.ProcessGroup.unbox(group).group_name
        running = torch._C._current_graph_task_id()
        sizes, element, device, peer, parts = handed
        line = (self._world, name, kind, function, device, running != -1, sizes, element, peer)
        with self._lock:
            if running not in (-1, self._pass):
                self._pass, self._passes = running, self._passes + 1
            count = self._counts.get(line)
            if count is None:
                if len(self._counts) >= MOST_LINES:
                    self._left_out += 1
                    return
                count = self._counts[line] = [0, 0, None]
            count[0] += 1
            if parts is None:
                count[1] += sum(sizes)
            else:
                count[1] += sum(parts)
                count[2] = parts if count[2] is None else tuple(map(sum, zip(count[2], parts, strict=True)))

    def trouble(self, note: str) -> None:
        """Something that the report should say; each once."""
        if len(self._notes) < 20:
            self._notes[note] = None

    def look(self) -> None:
        """See which groups there are, and what every socket has carried so far."""
        if self._is_up:
            self._look_at_groups()
        ports = listening_ports()
        for ends, connection in open_connections().items():
            try:
                sent, received = connection.counters()
            except Exception as error:
                self.trouble(str(error))
                continue
            finally:
                connection.end.close()
            before = self._sockets.get(ends)
            if before is not None and sent < before.sent:
                self._closed.append(before)  # the same two addresses, used again by another connection
            local, remote = ends
            opened_here = local[1] not in ports if before is None else before.opened_here
            self._sockets[ends] = Socket(
                local=local, remote=remote, opened_here=opened_here, sent=sent, received=received
            )

    def _look_when_quiet(self) -> None:
        """See what every socket has carried once nothing has moved for a while.

        A rank is through with its last call when it has what it needs; a thread of gloo may still be sending.
        """
        until = time.monotonic() + _QUIET_AT_MOST
        self.look()
        quiet = 0
        while quiet < _QUIET_LOOKS and time.monotonic() < until:
            seen = dict(self._sockets)
            time.sleep(_QUIET_SECONDS)
            self.look()
            quiet = quiet + 1 if self._sockets == seen else 0

    def _look_at_groups(self) -> None:
        world = c10d._world
        for group, name in list(world.pg_names.items()):
            if (self._world, name) in self._groups:
                continue
            backends = dict(
                pair.split(":", 1) for pair in str(world.pg_backend_config[group]).split(",") if ":" in pair
            )
            members = sorted(world.pg_group_ranks[group].items(), key=lambda pair: pair[1])
            self._groups[self._world, name] = Group(
                world=self._world,
                name=name,
                description=str(getattr(group, "group_desc", "")),
                ranks=tuple(rank for rank, _ in members),
                backends=backends,
            )
            store = world.pg_map[group][1]
            while hasattr(store, "underlying_store"):
                store = store.underlying_store
            if hasattr(store, "port"):
                self._ports.add(int(store.port))

    def _keep_writing(self) -> None:
        while not self._is_final:
            time.sleep(EVERY_SECONDS)
            if self._world and not self._is_final:
                try:
                    self.look()
                    self._write()
                except Exception as error:
                    self.trouble(f"a periodic look failed: {type(error).__name__}: {error}")

    def _last_words(self) -> None:
        if os.getpid() != self._pid or not self._world or self._is_final:
            return  # a forked child is somebody else
        try:
            self._look_when_quiet()
            self._write(is_final=True)
        except FileNotFoundError:
            pass  # the meter is gone, and with it the folder: nobody will ask
        except Exception as error:
            print(f"The meter could not write its record: {error}", file=sys.stderr)

    def _write(self, *, is_final: bool = False) -> None:
        if os.getpid() != self._pid:
            return
        with self._writing:
            if self._is_final:
                return
            self._is_final = is_final
            self._record(is_final=is_final).write(self._folder)

    def _record(self, *, is_final: bool) -> Record:
        with self._lock:
            counts = [(line, tuple(count)) for line, count in self._counts.items()]
        calls = tuple(
            Called(
                world=line[0],
                group=line[1],
                kind=line[2],
                function=line[3],
                device=line[4],
                in_backward=line[5],
                sizes=line[6],
                element_bytes=line[7],
                peer=line[8],
                times=count[0],
                handed_bytes=count[1],
                parts=count[2],
            )
            for line, count in counts
        )
        return Record(
            rank=self._rank,
            world_size=self._size,
            pid=self._pid,
            host=socket.gethostname(),
            started=self._started,
            written=time.time(),
            is_final=is_final,
            worlds=self._world,
            backward_passes=self._passes,
            left_out=self._left_out,
            store_ports=tuple(sorted(self._ports)),
            groups=tuple(self._groups.values()),
            calls=calls,
            sockets=(*self._closed, *self._sockets.values()),
            notes=tuple(self._notes),
        )
