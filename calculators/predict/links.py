"""The interconnect ladder: what one direction of each link carries, and how long a small message takes.

Marketing adds both directions up for NVLink and PCIe, networks are sold in bits; everything here is one
direction, in bytes. Latencies are what a small message or collective is seen to take, software included.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Rung:
    """One rung: one-direction `bytes_per_second` and the range of its `latency_seconds` (least, most)."""

    key: str
    name: str
    bytes_per_second: float
    latency_seconds: tuple[float, float]
    direction: str
    source: str

    @property
    def gb_per_s(self) -> float:
        """One direction in GB/s, decimal."""
        return self.bytes_per_second / 1e9

    @property
    def gbit_per_s(self) -> float:
        """One direction in Gbit/s, as networks are sold."""
        return self.bytes_per_second * 8 / 1e9

    @property
    def typical_latency_seconds(self) -> float:
        """The geometric middle of the range: links differ by factors, not by sums."""
        least, most = self.latency_seconds
        return float((least * most) ** 0.5)


# Fastest first. Kernel TCP costs tens to hundreds of microseconds on any wired link: that, not the cable,
# sets the latency of Ethernet without RDMA.
LADDER = (
    Rung(
        key="hbm3-h100",
        name="HBM3 of an H100",
        bytes_per_second=3.35e12,
        latency_seconds=(3e-7, 8e-7),
        direction="memory, reads and writes share it",
        source="NVIDIA H100 SXM data sheet, peak; latency as usually measured",
    ),
    Rung(
        key="nvlink-5",
        name="NVLink 5 (B200)",
        bytes_per_second=900e9,
        latency_seconds=(3.5e-6, 6e-6),
        direction="per GPU; sold as 1,800 GB/s, both directions",
        source="stas00/ml-engineering network/README.md; latency as NVLink 4",
    ),
    Rung(
        key="nvlink-4",
        name="NVLink 4 (H100, H200)",
        bytes_per_second=450e9,
        latency_seconds=(3.5e-6, 6e-6),
        direction="per GPU; sold as 900 GB/s, both directions",
        source="stas00/ml-engineering network/README.md; small all-reduce in NCCL issues 1259 and 1984",
    ),
    Rung(
        key="nvlink-3",
        name="NVLink 3 (A100)",
        bytes_per_second=300e9,
        latency_seconds=(3.5e-6, 6e-6),
        direction="per GPU; sold as 600 GB/s, both directions",
        source="stas00/ml-engineering network/README.md; latency as NVLink 4",
    ),
    Rung(
        key="pcie-5",
        name="PCIe 5.0 x16",
        bytes_per_second=63e9,
        latency_seconds=(1e-5, 5.4e-5),
        direction="sold as 126 GB/s, both directions",
        source="stas00/ml-engineering network/README.md; 8 GPUs all-reduce 8 B in 54 µs, NCCL issue 1439",
    ),
    Rung(
        key="infiniband-ndr",
        name="InfiniBand NDR, one port",
        bytes_per_second=50e9,
        latency_seconds=(2e-6, 5e-6),
        direction="400 Gbit/s each way",
        source="stas00/ml-engineering network/README.md (IBTA); latency as RDMA links usually show",
    ),
    Rung(
        key="pcie-4",
        name="PCIe 4.0 x16",
        bytes_per_second=31e9,
        latency_seconds=(1e-5, 5.4e-5),
        direction="sold as 62 GB/s, both directions",
        source="stas00/ml-engineering network/README.md; latency as PCIe 5.0",
    ),
    Rung(
        key="connectx-7-spark",
        name="Two DGX Sparks, one 200 GbE cable (RDMA)",
        bytes_per_second=23.7e9,
        latency_seconds=(2e-6, 5e-6),
        direction="measured, 189.85 Gbit/s each way",
        source="NVIDIA dgx-spark-playbooks performance_benchmarking_guide.md",
    ),
    Rung(
        key="thunderbolt-5",
        name="Thunderbolt 5 between hosts (IP)",
        bytes_per_second=8e9,
        latency_seconds=(3.8e-4, 9.5e-4),
        direction="64 Gbit/s each way between hosts; 80 on the cable",
        source="Intel's host-to-host table; round trips in exo issue 2295",
    ),
    Rung(
        key="ethernet-10",
        name="10 Gbit Ethernet (TCP)",
        bytes_per_second=1.25e9,
        latency_seconds=(5e-5, 3e-4),
        direction="each way, before headers",
        source="the line rate divided by 8; kernel TCP latency as usually measured",
    ),
    Rung(
        key="ethernet-2.5",
        name="2.5 Gbit Ethernet (TCP)",
        bytes_per_second=0.3125e9,
        latency_seconds=(5e-5, 3e-4),
        direction="each way, before headers",
        source="the line rate divided by 8; kernel TCP latency as usually measured",
    ),
    Rung(
        key="ethernet-1",
        name="1 Gbit Ethernet (TCP)",
        bytes_per_second=0.125e9,
        latency_seconds=(5e-5, 3e-4),
        direction="each way, before headers",
        source="the line rate divided by 8; kernel TCP latency as usually measured",
    ),
    Rung(
        key="wifi-6",
        name="Wi-Fi 6 in a home",
        bytes_per_second=0.08e9,
        latency_seconds=(4.9e-3, 3e-2),
        direction="shared by everybody and both directions: 400 to 900 Mbit/s",
        source="throughput as published tests report it; latency under load in exo issue 2295",
    ),
)
RUNGS = {rung.key: rung for rung in LADDER}


def rung(key: str) -> Rung:
    """The rung with this key. Raises ValueError that names them all.

    >>> rung("ethernet-10").gbit_per_s
    10.0
    """
    if key not in RUNGS:
        raise ValueError(f"link is {key!r}, which is not on the ladder. Use one of: {', '.join(RUNGS)}.")
    return RUNGS[key]
