"""The kernel's counters of this process's own TCP connections, with nothing but the standard library.

Linux keeps, for every connection, how many bytes it sent, sent again and received (`TCP_INFO`). They are read on
duplicates of the process's descriptors: no root, nothing in the way of the traffic.
"""

import os
import socket
import struct
import sys
from dataclasses import dataclass
from typing import Any

from calculators.lab.meters.problems import CannotSee

# Offsets into struct tcp_info (linux/tcp.h), each an unsigned 64-bit number.
_BYTES_RECEIVED, _BYTES_SENT, _BYTES_RETRANSMITTED = 128, 200, 208
_TCP_INFO_BYTES = 216
# The first byte is the state (net/tcp_states.h): TIME_WAIT, CLOSE_WAIT, LAST_ACK, CLOSING.
_PEER_HAS_CLOSED = (6, 8, 9, 11)

Address = tuple[str, int]


@dataclass(frozen=True)
class Connection:
    """One end of an established TCP connection of this process."""

    local: Address
    remote: Address
    end: socket.socket

    def counters(self) -> tuple[int, int]:
        """Bytes sent for the first time, and bytes received."""
        info = self.end.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
        if len(info) < _TCP_INFO_BYTES:
            raise CannotSee(
                f"this kernel's TCP_INFO has {len(info)} bytes; this needs {_TCP_INFO_BYTES} (Linux 4.19)"
            )
        sent, again, received = (
            struct.unpack_from("=Q", info, offset)[0]
            for offset in (_BYTES_SENT, _BYTES_RETRANSMITTED, _BYTES_RECEIVED)
        )
        # The peer's closing takes a place in the sequence, and is counted as if it were a byte.
        return sent - again, received - (info[0] in _PEER_HAS_CLOSED)


def open_connections() -> dict[tuple[Address, Address], Connection]:
    """Every established TCP connection of this process, by its two addresses."""
    found: dict[tuple[Address, Address], Connection] = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            if not os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                continue
            end = socket.socket(fileno=os.dup(int(name)))
        except OSError:
            continue  # closed since it was listed, or not a socket that Python knows
        try:
            if end.family in (socket.AF_INET, socket.AF_INET6) and end.type == socket.SOCK_STREAM:
                local, remote = plain(end.getsockname()), plain(end.getpeername())
                if (local, remote) not in found:
                    found[local, remote] = Connection(local, remote, end)
                    continue
        except OSError:
            pass  # listening, or not connected
        end.close()
    return found


def listening_ports() -> frozenset[int]:
    """The TCP ports at which this process waits for connections."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            if not os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(name))) as end:
                if end.family in (socket.AF_INET, socket.AF_INET6) and end.getsockopt(
                    socket.SOL_SOCKET, socket.SO_ACCEPTCONN
                ):
                    found.add(int(end.getsockname()[1]))
        except OSError:
            continue
    return frozenset(found)


def plain(address: Any) -> Address:
    """Host and port, with IPv4 written the same whether its socket is IPv4 or IPv6."""
    return str(address[0]).removeprefix("::ffff:"), int(address[1])


def why_wire_is_unseen(backend: str) -> str | None:
    """Why the wire meter cannot see a run over `backend` here; None when it can."""
    if sys.platform != "linux":
        return f"the wire meter reads Linux's TCP_INFO, and this is {sys.platform}"
    if backend != "gloo":
        return f"{backend} moves bytes over NVLink, PCIe or shared memory, which have no TCP counters"
    return None
