"""Real gloo ranks on this machine, and what the kernel says that their sockets sent: for one test module."""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

Readings = dict[tuple[Any, Any], int]  # (own address, peer's address) → bytes sent


@dataclass(frozen=True, kw_only=True)
class Call:
    """One collective to watch: its name, the bytes of the tensor handed to it, and its element type.

    An uneven all-to-all says in `parts` how many bytes go from each rank (row) to each other (column).
    """

    name: str
    size: int
    dtype: torch.dtype = torch.uint8
    root: int = 0
    parts: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Watched:
    """The (ranks, ranks) bytes that the sockets sent during `repeats` calls [bytes]."""

    call: Call
    sent: np.ndarray = field(compare=False)


def watch(calls: list[Call], ranks: int, *, repeats: int, folder: Path) -> list[Watched]:
    """Start `ranks` processes, run each call `repeats` times between quiet readings, join these."""
    arguments = (ranks, calls, repeats, str(folder))
    mp.start_processes(_rank, args=arguments, nprocs=ranks, join=True, start_method="spawn")
    results = [torch.load(folder / f"rank{rank}.pt", weights_only=False) for rank in range(ranks)]
    return [
        Watched(call=call, sent=_joined([of_rank[i] for of_rank in results])) for i, call in enumerate(calls)
    ]


def _rank(rank: int, ranks: int, calls: list[Call], repeats: int, folder: str) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/rendezvous",
        rank=rank,
        world_size=ranks,
        timeout=timedelta(seconds=60),
    )
    sockets = _own_connections()  # of the group under watch: the one for barriers is made after it
    quiet = dist.new_group()
    results: list[Readings] = []
    for call in calls:
        once = _prepared(call, rank, ranks)
        before = _quiet_reading(sockets, quiet)
        for _ in range(repeats):
            once()
        after = _quiet_reading(sockets, quiet)
        results.append({pair: after[pair] - before[pair] for pair in after})
    torch.save(results, f"{folder}/rank{rank}.pt")
    dist.barrier(group=quiet)
    dist.destroy_process_group()


def _prepared(call: Call, rank: int, ranks: int) -> Callable[[], object]:
    def tensor(size: int) -> torch.Tensor:
        return torch.zeros(size // call.dtype.itemsize, dtype=call.dtype)

    whole = tensor(call.size)
    destination = (call.root + 1) % ranks
    match call.name:
        case "all_reduce":
            return lambda: dist.all_reduce(whole)
        case "broadcast":
            return lambda: dist.broadcast(whole, src=call.root)
        case "all_gather":
            gathered = tensor(call.size * ranks)
            return lambda: dist.all_gather_into_tensor(gathered, whole)
        case "all_to_all":
            received = tensor(call.size)
            return lambda: dist.all_to_all_single(received, whole)
        case "all_to_all_v":
            sends, receives = list(call.parts[rank]), [row[rank] for row in call.parts]
            given, taken = tensor(sum(sends)), tensor(sum(receives))
            return lambda: dist.all_to_all_single(taken, given, receives, sends)
        case "reduce_scatter":
            part = tensor(call.size // ranks)
            return lambda: dist.reduce_scatter_tensor(part, whole)
        case "barrier":
            return dist.barrier
        case "send" if rank == call.root:
            return lambda: dist.send(whole, dst=destination)
        case "send" if rank == destination:
            return lambda: dist.recv(whole, src=call.root)
        case "send" | "nothing":
            return lambda: None
    raise ValueError(f"There is no call named {call.name}.")


def _quiet_reading(sockets: dict[tuple[Any, Any], socket.socket], quiet: dist.ProcessGroup) -> Readings:
    dist.barrier(group=quiet)
    reading = _reading(sockets)
    while True:
        time.sleep(0.01)
        again = _reading(sockets)
        if again == reading:
            break
        reading = again
    dist.barrier(group=quiet)  # nobody starts the next call while another still reads
    return reading


def _reading(sockets: dict[tuple[Any, Any], socket.socket]) -> Readings:
    def sent(connection: socket.socket) -> int:
        info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
        # struct tcp_info in linux/tcp.h: tcpi_bytes_sent at byte 200, tcpi_bytes_retrans after it
        bytes_sent, bytes_retransmitted = struct.unpack_from("QQ", info, 200)
        return bytes_sent - bytes_retransmitted

    return {pair: sent(connection) for pair, connection in sockets.items()}


def _own_connections() -> dict[tuple[Any, Any], socket.socket]:
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            if not os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                continue
            connection = socket.socket(fileno=os.dup(int(name)))
            if connection.family in (socket.AF_INET, socket.AF_INET6):
                found[connection.getsockname(), connection.getpeername()] = connection
        except OSError:  # a listening socket has no peer; the folder's own descriptor is gone again
            continue
    return found


def _joined(readings: list[Readings]) -> np.ndarray:
    owner = {own: rank for rank, reading in enumerate(readings) for own, _ in reading}
    sent = np.zeros((len(readings), len(readings)))
    for rank, reading in enumerate(readings):
        for (_, peer), count in reading.items():
            sent[rank, owner[peer]] += count
    return sent
