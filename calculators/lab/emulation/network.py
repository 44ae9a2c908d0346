"""The network that a run wants: hosts, the ranks on each, and what the link of a host can do."""

from dataclasses import dataclass
from math import ceil
from typing import Self

from calculators.lab.spec import Spec

MTU_BYTES = 1_500
ETHERNET_BYTES = 14
FRAME_BYTES = MTU_BYTES + ETHERNET_BYTES
"""A full packet as the shaper and the interface counters see it."""
_TIMER_SECONDS = 100e-6
"""How late the kernel's timer may wake the shaper; what it then missed must fit into the bucket, or rate is lost.

Measured on 2 virtual cores: with a bucket of one packet 10 Mbit/s carried 5 % less, with this none.
"""
_LONGEST_SEGMENT_SECONDS = 1e-3
"""TCP hands over several packets at once; an acknowledgement waits behind them, so they must not take long."""
_MOST_SEGMENTS = 64_000 // MTU_BYTES
_FASTEST_BYTES_PER_SECOND = 2**32
"""Beyond this (34 Gbit/s) the shaper's number has no room, and no kernel copies as fast between namespaces."""


@dataclass(frozen=True, kw_only=True)
class Network:
    """Hosts of `ranks_per_host` ranks each, in consecutive blocks, every one with a link to one switch.

    `link_mbit` limits each direction of each link [10⁶ bit/s], 0 does not; `delay_ms` and `jitter_ms` are
    added on the way out of a host, where the kernel can.
    """

    hosts: int
    ranks_per_host: int
    link_mbit: float = 0.0
    delay_ms: float = 0.0
    jitter_ms: float = 0.0

    @classmethod
    def of(cls, spec: Spec) -> Self:
        """The network that a spec asks for."""
        return cls(
            hosts=spec.hosts,
            ranks_per_host=spec.ranks // spec.hosts,
            link_mbit=spec.link_mbit,
            delay_ms=spec.delay_ms,
            jitter_ms=spec.jitter_ms,
        )

    def host_of(self, rank: int) -> int:
        """The host that a rank lives on."""
        return rank // self.ranks_per_host

    def address(self, host: int) -> str:
        """The address of a host, which only the emulated hosts can reach."""
        return f"10.0.0.{host + 1}"

    @property
    def bytes_per_second(self) -> float:
        """What one direction of a link carries, Ethernet's, IP's and TCP's headers included; 0: no limit."""
        return self.link_mbit * 1e6 / 8

    @property
    def is_shaped(self) -> bool:
        """Whether links are held to their rate; one faster than any copy is not."""
        return 0 < self.bytes_per_second < _FASTEST_BYTES_PER_SECOND

    @property
    def burst_bytes(self) -> int:
        """Bytes that pass an idle link at once: one packet, and what a late timer must make up for."""
        return FRAME_BYTES + ceil(self.bytes_per_second * _TIMER_SECONDS) + 1

    @property
    def segments_at_once(self) -> int:
        """Packets that TCP may hand to the link as one."""
        fit = int(self.bytes_per_second * _LONGEST_SEGMENT_SECONDS / FRAME_BYTES)
        return max(1, min(fit, _MOST_SEGMENTS))

    @property
    def wants_delay(self) -> bool:
        return self.delay_ms > 0 or self.jitter_ms > 0

    def __str__(self) -> str:
        ranks = "1 rank" if self.ranks_per_host == 1 else f"{self.ranks_per_host} ranks"
        link = f"{self.link_mbit:g} Mbit/s each way" if self.is_shaped else "not slowed down"
        return f"{self.hosts} emulated hosts of {ranks} each, links {link}"
