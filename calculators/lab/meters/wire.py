"""The wire meter reads what really moved: the kernel's counters of every rank's own TCP sockets.

`sockets.py` reads them. Socket ends are joined across ranks by their addresses, so each byte has a sender and a
receiver, and a reading only counts once both ends agree.
"""

import json
import select
import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from calculators.lab import groups
from calculators.lab.meters.sockets import Address, Connection, open_connections, plain

STILL_SECONDS = 0.010
"""Two readings this far apart must agree before anything counts as quiet."""
PATIENCE_SECONDS = 5.0
"""How long the wire may take to fall quiet."""


class NeverQuiet(RuntimeError):
    """Bytes kept moving although every rank had stopped, or the two ends of a socket disagree."""


class WireMeter:
    """Bytes between this rank and every other, read when nothing moves.

    The meter talks to its peers over a gloo group of its own, made here, whose sockets it leaves out. Make it
    on every rank at the same point, call `attach` on every rank once the job's connections are open (after a
    warm-up step), then `read` on every rank.
    """

    def __init__(self, store: dist.Store, *, rank: int, size: int, timeout_seconds: float) -> None:
        self.rank, self.size = rank, size
        self._store = dist.PrefixStore("meter", store)
        before = open_connections()
        self._own = groups.on_gloo(self._store, rank, size, timedelta(seconds=timeout_seconds))
        self._own.barrier().wait()  # opens whatever a first use opens
        self._left_out = set(open_connections()) - set(before)
        self._peers: dict[int, list[Connection]] = {}

    def attach(self) -> None:
        """Find the connections to each peer: two ends with the same addresses, seen from both sides."""
        mine = {ends: one for ends, one in open_connections().items() if ends not in self._left_out}
        self._store.set(f"ends/{self.rank}", json.dumps(list(mine)))
        owner: dict[tuple[Address, Address], int] = {}
        for peer in range(self.size):
            for local, remote in json.loads(self._store.get(f"ends/{peer}")):
                owner[plain(local), plain(remote)] = peer
        for (local, remote), connection in mine.items():
            other = owner.get((remote, local), self.rank)
            if other != self.rank:
                self._peers.setdefault(other, []).append(connection)
        self.barrier()

    def barrier(self) -> None:
        """Wait for every rank, over the meter's own sockets."""
        self._own.barrier().wait()

    def read(self) -> list[int]:
        """Bytes sent so far to each peer (index), once every rank has stopped and both ends agree.

        Raises `NeverQuiet` when they do not within `PATIENCE_SECONDS`.
        """
        self.barrier()
        patience = time.monotonic() + PATIENCE_SECONDS
        while True:
            first = self._now()
            time.sleep(STILL_SECONDS)
            second = self._now()
            everywhere = self._exchange(second, still=first == second)
            if everywhere is not None:
                # The exchange was the barrier after the reading: nobody went on before all had read.
                return second[0]
            if time.monotonic() > patience:
                raise NeverQuiet(
                    f"{PATIENCE_SECONDS:.0f} s after the last call the sockets of rank {self.rank} still "
                    f"disagree with their other ends: sent {second[0]}, received {second[1]}."
                )

    def wait_for_loss_of(self, peer: int) -> None:
        """Wait until `peer` has closed its connections to this rank, as it does at the latest when it dies."""
        for connection in self._peers.get(peer, ()):
            poll = select.poll()
            poll.register(connection.end, select.POLLRDHUP)  # a reset wakes it, too
            poll.poll()

    def read_alone(self) -> list[int]:
        """Bytes sent so far to each peer (index), by this rank's sockets alone: for when a peer was lost.

        No other rank is asked, so both ends are not compared; two looks at one's own must agree. Raises
        `NeverQuiet` when they do not within `PATIENCE_SECONDS`.
        """
        patience = time.monotonic() + PATIENCE_SECONDS
        while True:
            first = self._now()
            time.sleep(STILL_SECONDS)
            second = self._now()
            if first == second:
                return second[0]
            if time.monotonic() > patience:
                raise NeverQuiet(
                    f"{PATIENCE_SECONDS:.0f} s after the last call the sockets of rank {self.rank} still move: "
                    f"sent {first[0]}, then {second[0]}."
                )

    def agree(self, number: int) -> int:
        """The smallest of every rank's `number`, over the meter's own sockets."""
        mine = torch.tensor([number], dtype=torch.int64)
        every = [torch.empty_like(mine) for _ in range(self.size)]
        self._own.allgather([every], [mine]).wait()
        return int(torch.stack(every).min())

    def close(self) -> None:
        """Let go of the duplicated descriptors."""
        for connection in (c for ends in self._peers.values() for c in ends):
            connection.end.close()

    def _now(self) -> tuple[list[int], list[int]]:
        """Bytes sent to and received from each peer at this moment."""
        sent, received = [0] * self.size, [0] * self.size
        for peer, connections in self._peers.items():
            for connection in connections:
                out, into = connection.counters()
                sent[peer] += out
                received[peer] += into
        return sent, received

    def _exchange(self, counters: tuple[list[int], list[int]], *, still: bool) -> Any:
        """Everybody's counters, or None when someone's moved or a pair's two ends disagree."""
        mine = torch.tensor([[int(still)] * self.size, *counters], dtype=torch.int64)
        every = [torch.empty_like(mine) for _ in range(self.size)]
        self._own.allgather([every], [mine]).wait()
        whole = torch.stack(every)  # rank × (still, sent, received) × peer
        quiet = bool(whole[:, 0].all()) and torch.equal(whole[:, 1], whole[:, 2].T)
        return whole if quiet else None
