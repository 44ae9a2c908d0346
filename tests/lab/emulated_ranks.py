"""What ranks on emulated hosts do in tests, beside their real work, and how to see what is left of them."""

import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from calculators.lab.measurements import Event, Progress
from calculators.lab.plan import Plan


def talk_and_count(plan: Plan, *, rank: int, store: Any, say: Callable[[Event], None]) -> None:
    """Rank 0 sends the last rank `call_bytes` in one piece; both say what their interface and socket counted."""
    import struct

    from calculators.lab.meters.interfaces import read_interface

    address = store.get("address").decode() if rank else ""
    if rank == 0:
        with socket.create_server(("10.0.0.1", 0)) as server:
            store.set("address", str(server.getsockname()[1]))
            end, _ = server.accept()
    else:
        end = socket.create_connection(("10.0.0.1", int(address)))
    with end:
        before, started = read_interface(), time.monotonic()
        end.sendall(b"!")
        end.recv(1)  # both have looked before anything that counts goes on
        if rank == 0:
            end.sendall(bytes(plan.spec.call_bytes))
            end.recv(1)
        else:
            left = plan.spec.call_bytes
            while left:
                left -= len(end.recv(left))
            end.sendall(b"!")
        seconds = time.monotonic() - started
        time.sleep(0.05)  # the last acknowledgement
        counted = read_interface() - before
        info = end.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
        again = struct.unpack_from("=Q", info, 208)[0]
        said = f"{counted.sent_bytes} {counted.sent_packets} {counted.received_bytes} {again} {seconds}"
        say(Progress(rank=rank, part=said, done=0, total=1))
        store.set(f"done {rank}", "")
        store.wait([f"done {peer}" for peer in range(plan.world_size)])


def say_where(plan: Plan, *, rank: int, store: Any, say: Callable[[Event], None]) -> None:
    """Every rank says its process, its namespace and its addresses, and sleeps."""
    from calculators.lab import groups

    inode = os.readlink("/proc/self/ns/net")
    names = ",".join(name for _, name in socket.if_nameindex())
    part = f"{os.getpid()} {inode} {groups._address} {names}"
    say(Progress(rank=rank, part=part, done=0, total=1))
    time.sleep(600)


def killed_builder(network: Any, end: socket.socket) -> None:
    """Stands where hosts are built, and is killed before any is."""
    os.kill(os.getpid(), signal.SIGKILL)


def namespaces_held_by(pid: int) -> set[str]:
    """The network namespaces that a process has descriptors of."""
    return {link for link in _links(Path(f"/proc/{pid}/fd").glob("*")) if link.startswith("net:")}


def namespaces_alive(wanted: set[str]) -> set[str]:
    """Those of `wanted` that any process is in or holds a descriptor of."""
    links = {*_links(Path("/proc").glob("[0-9]*/ns/net")), *_links(Path("/proc").glob("[0-9]*/fd/*"))}
    return wanted & links


def _links(paths: Iterator[Path]) -> Iterator[str]:
    while True:
        try:
            path = next(paths, None)
            if path is None:
                return
            yield os.readlink(path)
        except OSError:
            continue
