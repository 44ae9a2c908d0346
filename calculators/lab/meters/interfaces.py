"""The interface meter reads what crossed an emulated host's cable: whole packets, headers and acknowledgements too.

These bytes are not those of the wire meter, which are what TCP carried for each pair of ranks: an interface counts
every rank of its host together, and nothing that stays on the host.
"""

import sys
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Self

from calculators.lab.emulation.network import ETHERNET_BYTES, MTU_BYTES
from calculators.lab.meters.problems import CannotSee

_IP_BYTES, _TCP_BYTES = 20, 32  # IPv4 without options; TCP with timestamps, as Linux sends it
HEADER_BYTES = ETHERNET_BYTES + _IP_BYTES + _TCP_BYTES
"""The most in front of a packet's payload; Linux leaves Ethernet's 14 bytes out when a veth uses NAPI, as ours do."""
SEGMENT_BYTES = MTU_BYTES - _IP_BYTES - _TCP_BYTES
"""The most payload of one packet."""


@dataclass(frozen=True, kw_only=True)
class InterfaceCounters:
    """Bytes and packets that left and reached a host since its interface was made."""

    sent_bytes: int
    sent_packets: int
    received_bytes: int
    received_packets: int

    def __sub__(self, before: Self) -> "InterfaceCounters":
        return InterfaceCounters(
            sent_bytes=self.sent_bytes - before.sent_bytes,
            sent_packets=self.sent_packets - before.sent_packets,
            received_bytes=self.received_bytes - before.received_bytes,
            received_packets=self.received_packets - before.received_packets,
        )


def read_interface(name: str = "eth0") -> InterfaceCounters:
    """The counters of an interface of this process's own host. Raises `CannotSee`."""
    if sys.platform != "linux":
        raise CannotSee(f"emulated hosts and their interfaces are Linux's, and this is {sys.platform}")
    for line in Path("/proc/self/net/dev").read_text(encoding="ascii").splitlines():
        found, _, numbers = line.partition(":")
        if found.strip() == name:
            values = [int(number) for number in numbers.split()]
            return InterfaceCounters(
                received_bytes=values[0],
                received_packets=values[1],
                sent_bytes=values[8],
                sent_packets=values[9],
            )
    raise CannotSee(f"this host has no interface “{name}”: it is not an emulated one")


def most_header_bytes(
    *, sent_bytes: int, sent_messages: int, received_bytes: int, received_messages: int
) -> int:
    """What a host's interface may send beyond `sent_bytes` of payload.

    Each message ends with a packet that need not be full, and each packet that came may be acknowledged alone.
    """
    packets = ceil(sent_bytes / SEGMENT_BYTES) + sent_messages
    acknowledgements = ceil(received_bytes / SEGMENT_BYTES) + received_messages
    return (packets + acknowledgements) * HEADER_BYTES
