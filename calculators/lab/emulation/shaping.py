"""What makes a virtual cable slow: a token bucket at each of its ends, and a delay where the kernel has one.

Three things keep small messages honest and TCP undisturbed, each measured (docs/emulation.md): the bucket holds
little more than one packet; TCP may not hand over so many packets as one that an acknowledgement waits long
behind them; and packets arrive through one queue (NAPI), because two cores would let them overtake each other.
"""

import array
import fcntl
import socket
import struct
from pathlib import Path
from typing import Any

from pyroute2.netlink.exceptions import NetlinkError  # type: ignore[import-untyped]

from calculators.lab.emulation.network import Network

_QUEUE_BYTES = 64 * 2**20  # more than the send buffers of all ranks of a host: nothing is ever dropped
_TBF, _NETEM = 0x1_0000, 0x2_0000  # handles of the two queueing disciplines
_TBF_CLASS = 0x1_0001
_SIOCETHTOOL, _SET_TSO, _SET_GRO = 0x8946, 0x1F, 0x2C  # linux/sockios.h, linux/ethtool.h
_NETEM_PACKETS = 100_000


def shape(route: Any, index: int, network: Network) -> None:
    """Limit what leaves through the interface `index` to the link's rate."""
    if network.is_shaped:
        route.tc(
            "add",
            kind="tbf",
            index=index,
            handle=_TBF,
            rate=round(network.bytes_per_second),
            burst=network.burst_bytes,
            limit=_QUEUE_BYTES,
        )


def delay(route: Any, index: int, network: Network) -> bool:
    """Delay what leaves through `index`; False when this kernel has no netem."""
    try:
        route.tc(
            "add",
            kind="netem",
            index=index,
            handle=_NETEM,
            **({"parent": _TBF_CLASS} if network.is_shaped else {}),
            delay=round(network.delay_ms * 1_000),
            jitter=round(network.jitter_ms * 1_000),
            limit=_NETEM_PACKETS,
        )
    except NetlinkError as error:
        if error.code == 2:  # ENOENT: no such queueing discipline
            return False
        raise
    return True


def keep_order(name: str) -> None:
    """Let an end of a veth pair, in this thread's namespace, take packets through one queue and in order."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        for command, value in ((_SET_TSO, 0), (_SET_GRO, 1)):
            request = array.array("B", struct.pack("=II", command, value))
            asked = struct.pack("16sP16x", name.encode(), request.buffer_info()[0])
            fcntl.ioctl(control, _SIOCETHTOOL, asked)


def quieten() -> None:
    """No IPv6, which announces itself, and no probing for a lost packet where none can be lost.

    Only this thread's namespace. Where /proc/sys may not be written, a few packets more are all that comes of it.
    """
    for name, value in (("ipv6/conf/default/disable_ipv6", "1"), ("ipv4/tcp_early_retrans", "0")):
        try:
            Path("/proc/sys/net", name).write_text(value)
        except OSError:
            continue
