"""The interconnect ladder: what one direction of each link carries, and how long a small message takes.

Everything here is one direction, in bytes, because that is what one rank can send. Vendors do not agree: NVLink and
PCIe are sold with both directions added up, networks as one direction in bits, so the first is halved and the second
divided by 8. Whoever measures about 40 % of what was sold has often read a sum of both directions (so
stas00/ml-engineering, network/README.md). `duplex_bytes_per_second` stands beside, to compare with a data sheet.

Latencies are those of one round (`clusters.Link`), one way, software included: from what a bare message takes to what a
whole small collective is seen to take, which goes out in one round or few. Where only collectives were measured, rounds
× latency is therefore the most that a ring takes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

import numpy as np
from numpy.typing import ArrayLike

from calculators.predict.arrays import Floats, counts


class Reach(StrEnum):
    """What a rung joins."""

    MEMORY = "memory"
    HOST = "host"
    CABLE = "cable"
    NETWORK = "network"
    AIR = "air"

    @property
    def words(self) -> str:
        """As a page says it."""
        return {
            "memory": "a device and its own memory",
            "host": "devices of one host",
            "cable": "hosts, by a direct cable or a cluster's fabric",
            "network": "hosts, by wired Ethernet and TCP",
            "air": "hosts, by radio",
        }[self.value]


@dataclass(frozen=True, kw_only=True)
class Rung:
    """One rung: one-direction `bytes_per_second` and the range of a round's `latency_seconds` (least, most).

    short                    its name on an axis, GbE for Gbit Ethernet
    carrier                  what answers: hardware and software that set the latency, whatever the cable
    duplex_bytes_per_second  both directions together; None for what both share (memory, radio) or nobody measured
    links                    how many links of one device make up the figure
    conflict                 what sources disagree about or a reader trips over, in one sentence
    """

    key: str
    name: str
    short: str
    reach: Reach
    bytes_per_second: float
    latency_seconds: tuple[float, float]
    carrier: str
    direction: str
    source: str
    duplex_bytes_per_second: float | None = None
    links: int = 1
    conflict: str = ""

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

    @property
    def joins_devices(self) -> bool:
        """Whether two devices can talk over it; a memory is there for comparison only."""
        return self.reach is not Reach.MEMORY


_STAS = "stas00/ml-engineering network/README.md"
_LINE_RATE = "the line rate divided by 8"
_KERNEL_TCP = (5e-5, 3e-4)  # usually measured; Jeff Geerling's clusters show 300 µs
# 2 to 5 µs usually measured by verbs (the port alone is 0.5 µs on EDR, 0.6 µs on HDR, IBTA); an all-reduce of two
# hosts takes 6.6 µs and twice 2.7 µs in torch's model of NCCL, torch/distributed/tensor/_collective_utils.py
_RDMA = (2e-6, 1.2e-5)
_DRAM = (3e-7, 8e-7)  # hundreds of nanoseconds, usually measured
# 1 µs for a bare message; small all-reduce 3.5 µs on 4 × H800 in NCCL issue 1984, 6 µs on 2 × H100 in issue 1259
_NVLINK = (1e-6, 6e-6)
_PCIE = (1e-5, 5.4e-5)  # 8 GPUs all-reduce 8 B in 54 µs, NCCL issue 1439
_BRIDGE = (1.9e-4, 4.75e-4)  # half of the round trips of 0.38 to 0.95 ms in exo issue 2295
_RADIO = (4.9e-3, 3e-2)  # under load, exo issue 2295

# Fastest first. Kernel TCP costs tens to hundreds of microseconds on any wired link: that, not the cable,
# sets the latency of Ethernet without RDMA.
LADDER = (
    Rung(
        key="hbm3e-b200",
        name="HBM3e of a B200",
        short="HBM3e, B200",
        reach=Reach.MEMORY,
        bytes_per_second=8.0e12,
        latency_seconds=_DRAM,
        carrier="memory",
        direction="memory, reads and writes share it",
        source="stas00/ml-engineering accelerator table, peak",
    ),
    Rung(
        key="hbm3e-h200",
        name="HBM3e of an H200",
        short="HBM3e, H200",
        reach=Reach.MEMORY,
        bytes_per_second=4.8e12,
        latency_seconds=_DRAM,
        carrier="memory",
        direction="memory, reads and writes share it",
        source="stas00/ml-engineering accelerator table, peak",
    ),
    Rung(
        key="hbm3-h100",
        name="HBM3 of an H100",
        short="HBM3, H100",
        reach=Reach.MEMORY,
        bytes_per_second=3.35e12,
        latency_seconds=_DRAM,
        carrier="memory",
        direction="memory, reads and writes share it",
        source="NVIDIA H100 SXM data sheet, peak; latency as usually measured",
    ),
    Rung(
        key="gddr7-5090",
        name="GDDR7 of an RTX 5090",
        short="GDDR7, RTX 5090",
        reach=Reach.MEMORY,
        bytes_per_second=1.792e12,
        latency_seconds=_DRAM,
        carrier="memory",
        direction="memory, reads and writes share it",
        source="the DGX Spark handbook of exo labs, peak",
    ),
    Rung(
        key="gddr6x-4090",
        name="GDDR6X of an RTX 4090",
        short="GDDR6X, RTX 4090",
        reach=Reach.MEMORY,
        bytes_per_second=1.008e12,
        latency_seconds=_DRAM,
        carrier="memory",
        direction="memory, reads and writes share it",
        source="NVIDIA RTX 4090 specification, peak",
    ),
    Rung(
        key="nvlink-5",
        name="NVLink 5 (B200)",
        short="NVLink 5",
        reach=Reach.HOST,
        bytes_per_second=900e9,
        latency_seconds=_NVLINK,
        carrier="NVLink",
        direction="per GPU; sold as 1,800 GB/s, both directions",
        source=f"{_STAS}; latency as NVLink 4",
        duplex_bytes_per_second=1800e9,
        links=18,
        conflict="NVIDIA's Mission Control page prints 900 GB/s for each link; all 18 together carry that one way.",
    ),
    Rung(
        key="lpddr5-m3-ultra",
        name="Memory of an Apple M3 Ultra",
        short="M3 Ultra’s memory",
        reach=Reach.MEMORY,
        bytes_per_second=819e9,
        latency_seconds=_DRAM,
        carrier="memory",
        direction="memory, reads and writes share it",
        source="Apple's Mac Studio specification, peak",
    ),
    Rung(
        key="lpddr5x-m4-max",
        name="Memory of an Apple M4 Max",
        short="M4 Max’s memory",
        reach=Reach.MEMORY,
        bytes_per_second=546e9,
        latency_seconds=_DRAM,
        carrier="memory",
        direction="memory, reads and writes share it",
        source="Apple's Mac Studio specification, peak",
    ),
    Rung(
        key="nvlink-4",
        name="NVLink 4 (H100, H200)",
        short="NVLink 4",
        reach=Reach.HOST,
        bytes_per_second=450e9,
        latency_seconds=_NVLINK,
        carrier="NVLink",
        direction="per GPU; sold as 900 GB/s, both directions",
        source=f"{_STAS}; peers measured 396 GB/s one way on H200, 380 on H100 in NCCL issue 1264",
        duplex_bytes_per_second=900e9,
        links=18,
    ),
    Rung(
        key="nvlink-3",
        name="NVLink 3 (A100)",
        short="NVLink 3",
        reach=Reach.HOST,
        bytes_per_second=300e9,
        latency_seconds=_NVLINK,
        carrier="NVLink",
        direction="per GPU; sold as 600 GB/s, both directions",
        source=f"{_STAS}; latency as NVLink 4",
        duplex_bytes_per_second=600e9,
        links=12,
    ),
    Rung(
        key="lpddr5x-spark",
        name="LPDDR5x of a DGX Spark (and of an Apple M4 Pro)",
        short="LPDDR5x, DGX Spark",
        reach=Reach.MEMORY,
        bytes_per_second=273e9,
        latency_seconds=_DRAM,
        carrier="memory",
        direction="memory, reads and writes share it",
        source="the DGX Spark handbook of exo labs, peak",
    ),
    Rung(
        key="pcie-6",
        name="PCIe 6.0 x16",
        short="PCIe 6",
        reach=Reach.HOST,
        bytes_per_second=121e9,
        latency_seconds=_PCIE,
        carrier="PCIe",
        direction="sold as 242 GB/s, both directions",
        source=f"{_STAS}; latency as PCIe 5.0",
        duplex_bytes_per_second=242e9,
    ),
    Rung(
        key="infiniband-xdr",
        name="InfiniBand XDR, one port",
        short="InfiniBand XDR",
        reach=Reach.CABLE,
        bytes_per_second=100e9,
        latency_seconds=_RDMA,
        carrier="RDMA",
        direction="800 Gbit/s each way",
        source=f"{_STAS} (IBTA); latency as RDMA links usually show",
        duplex_bytes_per_second=200e9,
    ),
    Rung(
        key="pcie-5",
        name="PCIe 5.0 x16",
        short="PCIe 5",
        reach=Reach.HOST,
        bytes_per_second=63e9,
        latency_seconds=_PCIE,
        carrier="PCIe",
        direction="sold as 126 GB/s, both directions",
        source=f"{_STAS}; host to device measured 55.4 GB/s",
        duplex_bytes_per_second=126e9,
    ),
    Rung(
        key="infiniband-ndr",
        name="InfiniBand NDR, one port",
        short="InfiniBand NDR",
        reach=Reach.CABLE,
        bytes_per_second=50e9,
        latency_seconds=_RDMA,
        carrier="RDMA",
        direction="400 Gbit/s each way",
        source=f"{_STAS} (IBTA); latency as RDMA links usually show",
        duplex_bytes_per_second=100e9,
    ),
    Rung(
        key="roce-400",
        name="400 Gbit Ethernet (RDMA)",
        short="400 GbE, RDMA",
        reach=Reach.CABLE,
        bytes_per_second=50e9,
        latency_seconds=_RDMA,
        carrier="RDMA",
        direction="400 Gbit/s each way, before headers",
        source=f"{_LINE_RATE}; latency as RDMA links usually show",
        duplex_bytes_per_second=100e9,
    ),
    Rung(
        key="ethernet-400",
        name="400 Gbit Ethernet (TCP)",
        short="400 GbE, TCP",
        reach=Reach.NETWORK,
        bytes_per_second=50e9,
        latency_seconds=_KERNEL_TCP,
        carrier="kernel TCP",
        direction="each way, before headers",
        source=f"{_LINE_RATE}; kernel TCP latency as usually measured",
        duplex_bytes_per_second=100e9,
    ),
    Rung(
        key="pcie-4",
        name="PCIe 4.0 x16",
        short="PCIe 4",
        reach=Reach.HOST,
        bytes_per_second=31e9,
        latency_seconds=_PCIE,
        carrier="PCIe",
        direction="sold as 62 GB/s, both directions",
        source=f"{_STAS}; latency as PCIe 5.0",
        duplex_bytes_per_second=62e9,
    ),
    Rung(
        key="infiniband-hdr",
        name="InfiniBand HDR, one port",
        short="InfiniBand HDR",
        reach=Reach.CABLE,
        bytes_per_second=25e9,
        latency_seconds=_RDMA,
        carrier="RDMA",
        direction="200 Gbit/s each way",
        source=f"{_STAS} (IBTA); latency as RDMA links usually show",
        duplex_bytes_per_second=50e9,
    ),
    Rung(
        key="connectx-7-spark",
        name="Two DGX Sparks, one 200 GbE cable (RDMA)",
        short="Sparks, RDMA",
        reach=Reach.CABLE,
        bytes_per_second=23.7e9,
        latency_seconds=_RDMA,
        carrier="RDMA",
        direction="measured, 189.85 Gbit/s each way",
        source="NVIDIA dgx-spark-playbooks performance_benchmarking_guide.md: both interfaces of one cable together",
        conflict="Two PCIe 5.0 x4 links feed the card: one interface alone gives half, a second cable nothing more.",
    ),
    Rung(
        key="pcie-3",
        name="PCIe 3.0 x16",
        short="PCIe 3",
        reach=Reach.HOST,
        bytes_per_second=15.75e9,
        latency_seconds=_PCIE,
        carrier="PCIe",
        direction="sold as 31.5 GB/s, both directions",
        source="16 lanes of 8 GT/s, 128 of 130 bits; latency as PCIe 5.0",
        duplex_bytes_per_second=31.5e9,
    ),
    Rung(
        key="roce-100",
        name="100 Gbit Ethernet (RDMA)",
        short="100 GbE, RDMA",
        reach=Reach.CABLE,
        bytes_per_second=12.5e9,
        latency_seconds=_RDMA,
        carrier="RDMA",
        direction="100 Gbit/s each way, before headers",
        source=f"{_LINE_RATE}; latency as RDMA links usually show",
        duplex_bytes_per_second=25e9,
    ),
    Rung(
        key="ethernet-100",
        name="100 Gbit Ethernet (TCP)",
        short="100 GbE, TCP",
        reach=Reach.NETWORK,
        bytes_per_second=12.5e9,
        latency_seconds=_KERNEL_TCP,
        carrier="kernel TCP",
        direction="each way, before headers",
        source=f"{_LINE_RATE}; kernel TCP latency as usually measured",
        duplex_bytes_per_second=25e9,
    ),
    Rung(
        key="thunderbolt-5-rdma",
        name="Thunderbolt 5 between hosts (RDMA)",
        short="Thunderbolt 5, RDMA",
        reach=Reach.CABLE,
        bytes_per_second=8e9,
        latency_seconds=(3e-6, 5e-5),
        carrier="RDMA over Thunderbolt",
        direction="64 Gbit/s each way between hosts; 80 on the cable",
        source="Intel's host-to-host table; latency as its users report it",
        duplex_bytes_per_second=16e9,
        conflict="Some report about 3 µs of latency, Jeff Geerling less than 50 µs: sources differ tenfold.",
    ),
    Rung(
        key="thunderbolt-5",
        name="Thunderbolt 5 between hosts (IP)",
        short="Thunderbolt 5, IP",
        reach=Reach.CABLE,
        bytes_per_second=8e9,
        latency_seconds=_BRIDGE,
        carrier="IP over Thunderbolt",
        direction="64 Gbit/s each way between hosts; 80 on the cable",
        source="Intel's host-to-host table; half of the round trips in exo issue 2295",
        duplex_bytes_per_second=16e9,
    ),
    Rung(
        key="thunderbolt-4",
        name="Thunderbolt 4 or USB4 between hosts (IP)",
        short="Thunderbolt 4, IP",
        reach=Reach.CABLE,
        bytes_per_second=4e9,
        latency_seconds=_BRIDGE,
        carrier="IP over Thunderbolt",
        direction="32 Gbit/s each way between hosts; 40 on the cable",
        source="Intel's host-to-host table; latency as Thunderbolt 5",
        duplex_bytes_per_second=8e9,
    ),
    Rung(
        key="ethernet-25",
        name="25 Gbit Ethernet (TCP)",
        short="25 GbE, TCP",
        reach=Reach.NETWORK,
        bytes_per_second=3.125e9,
        latency_seconds=_KERNEL_TCP,
        carrier="kernel TCP",
        direction="each way, before headers",
        source=f"{_LINE_RATE}; kernel TCP latency as usually measured",
        duplex_bytes_per_second=6.25e9,
    ),
    Rung(
        key="connectx-7-spark-tcp",
        name="Two DGX Sparks, one 200 GbE cable (untuned TCP)",
        short="Sparks, TCP",
        reach=Reach.CABLE,
        bytes_per_second=2.225e9,
        latency_seconds=_KERNEL_TCP,
        carrier="kernel TCP",
        direction="measured, 17.8 Gbit/s each way",
        source="LLMKube issue 1423, where RDMA over the same cable gave 109 Gbit/s; latency as kernel TCP",
        conflict="Sixteen streams of iperf3 were seen at 96 Gbit/s (catharsis.net.au); one untuned connection at 17.8.",
    ),
    Rung(
        key="ethernet-10",
        name="10 Gbit Ethernet (TCP)",
        short="10 GbE, TCP",
        reach=Reach.NETWORK,
        bytes_per_second=1.25e9,
        latency_seconds=_KERNEL_TCP,
        carrier="kernel TCP",
        direction="each way, before headers",
        source=f"{_LINE_RATE}; kernel TCP latency as usually measured",
        duplex_bytes_per_second=2.5e9,
    ),
    Rung(
        key="ethernet-5",
        name="5 Gbit Ethernet (TCP)",
        short="5 GbE, TCP",
        reach=Reach.NETWORK,
        bytes_per_second=0.625e9,
        latency_seconds=_KERNEL_TCP,
        carrier="kernel TCP",
        direction="each way, before headers",
        source=f"{_LINE_RATE}; kernel TCP latency as usually measured",
        duplex_bytes_per_second=1.25e9,
    ),
    Rung(
        key="ethernet-2.5",
        name="2.5 Gbit Ethernet (TCP)",
        short="2.5 GbE, TCP",
        reach=Reach.NETWORK,
        bytes_per_second=0.3125e9,
        latency_seconds=_KERNEL_TCP,
        carrier="kernel TCP",
        direction="each way, before headers",
        source=f"{_LINE_RATE}; kernel TCP latency as usually measured",
        duplex_bytes_per_second=0.625e9,
    ),
    Rung(
        key="wifi-7",
        name="Wi-Fi 7 in a home",
        short="Wi-Fi 7",
        reach=Reach.AIR,
        bytes_per_second=0.2e9,
        latency_seconds=_RADIO,
        carrier="Wi-Fi",
        direction="shared by everybody and both directions: 1 to 3 Gbit/s",
        source="throughput as published tests report it; latency as Wi-Fi 6",
    ),
    Rung(
        key="ethernet-1",
        name="1 Gbit Ethernet (TCP)",
        short="1 GbE, TCP",
        reach=Reach.NETWORK,
        bytes_per_second=0.125e9,
        latency_seconds=_KERNEL_TCP,
        carrier="kernel TCP",
        direction="each way, before headers",
        source=f"{_LINE_RATE}; kernel TCP latency as usually measured",
        duplex_bytes_per_second=0.25e9,
    ),
    Rung(
        key="wifi-6",
        name="Wi-Fi 6 in a home",
        short="Wi-Fi 6",
        reach=Reach.AIR,
        bytes_per_second=0.08e9,
        latency_seconds=_RADIO,
        carrier="Wi-Fi",
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


# Ultra-Scale Playbook (Hugging Face), figure pp_comm_bandwidth: 256 MB among all GPUs of so many H100 hosts, 8 each.
_PLAYBOOK_HOSTS = (1, 2, 4, 8, 16, 32, 64)
BUS_BYTES_PER_SECOND: Mapping[str, tuple[float, ...]] = MappingProxyType(
    {
        "all-reduce": (435.97e9, 361.75e9, 160.14e9, 99.56e9, 84.74e9, 64.93e9, 32.94e9),
        "all-gather": (249.85e9, 184.61e9, 118.97e9, 69.00e9, 54.97e9, 27.97e9, 11.04e9),
        "reduce-scatter": (249.73e9, 181.55e9, 115.76e9, 68.55e9, 54.52e9, 27.94e9, 11.07e9),
    }
)


def bus_bytes_per_second(call: str, hosts: ArrayLike) -> Floats:
    """Bus bandwidth [bytes/s] that `call` was seen to reach among all GPUs of `hosts` H100 hosts, 256 MB at a time.

    Measured at 1, 2, 4 … 64 hosts by the Ultra-Scale Playbook; between them a straight line between logarithms, and
    beyond 64 hosts refused. Raises ValueError for another call or more hosts.

    >>> (bus_bytes_per_second("all-reduce", [1, 8, 64]) / 1e9).round(2).tolist()
    [435.97, 99.56, 32.94]
    """
    if call not in BUS_BYTES_PER_SECOND:
        raise ValueError(
            f"call is {call!r}, which was not measured. Use one of: {', '.join(BUS_BYTES_PER_SECOND)}."
        )
    number = counts(hosts=hosts)["hosts"]
    if np.any(number > _PLAYBOOK_HOSTS[-1]):
        raise ValueError(
            f"hosts is {number.max():g}, but nothing was measured beyond {_PLAYBOOK_HOSTS[-1]}. Use that or fewer."
        )
    measured = BUS_BYTES_PER_SECOND[call]
    return np.asarray(np.exp(np.interp(np.log(number), np.log(_PLAYBOOK_HOSTS), np.log(measured))))
