"""Published step times and throughputs, and the models, clusters and programs that they were measured with."""

from __future__ import annotations

from dataclasses import dataclass, replace

from calculators.predict.clusters import Cluster, Link, two_tiers
from calculators.predict.devices import DEVICES
from calculators.predict.implementations import (
    ELEMENTARY,
    MEGATRON_2021,
    MEGATRON_2022,
    Implementation,
)
from calculators.predict.shapes import Layout, Layouts, ModelShape, Recompute


def gpt(name: str, *, hidden: int, heads: int, layers: int) -> ModelShape:
    """A GPT of the Megatron papers: 2,048 tokens, 51,200 words."""
    return ModelShape(
        name=name,
        hidden_size=hidden,
        layers=layers,
        attention_heads=heads,
        kv_heads=heads,
        head_dim=hidden // heads,
        ffn_width=4 * hidden,
        vocab_size=51_200,
        bytes_per_element=2,
        source="Narayanan 2021, table 1; Korthikanti 2022, table 3",
        gated=False,
        tied_embeddings=True,
        positions=2048,
    )


# Latency of a round in NCCL's own model, rings with its Simple protocol: NVLink, network (src/graph/tuning.cc).
NVLINK_SECONDS, NETWORK_SECONDS = 3.4e-6, 14e-6


def hosts(device: str, devices: int, *, inside: float, between: float) -> Cluster:
    """Hosts of eight; links in GB/s of one direction for each device, as their data sheets have it."""
    return two_tiers(
        DEVICES[device],
        devices=devices,
        devices_per_host=8,
        inside=Link(name="NVLink", bytes_per_second=1e9 * inside, latency_seconds=NVLINK_SECONDS),
        between=Link(name="network", bytes_per_second=1e9 * between, latency_seconds=NETWORK_SECONDS),
    )


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One published run. `measured` is in seconds a step, or in FLOP/s of one device."""

    shape: ModelShape
    layouts: Layouts
    cluster: Cluster
    batch: int
    tokens: int
    program: Implementation
    measured: float


def dgx_a100(devices: int) -> Cluster:
    """NVLink 3 and one HDR InfiniBand port of 200 Gbit/s for each device."""
    return hosts("a100-80", devices, inside=300, between=25)


# Korthikanti 2022 (arXiv 2205.05198) table 5: name, hidden, heads, layers, tp, pp, vpp, micro-batch, batch; seconds
# with full recomputation; with sequence parallelism and selective recomputation. Layouts as in its figure 1.
_KORTHIKANTI = (
    ("22B", 6144, 64, 48, 8, 1, 1, 4, 4, 1.42, 1.10),
    ("175B", 12288, 96, 96, 8, 8, 3, 1, 64, 18.13, 13.75),
    ("530B", 20480, 128, 105, 8, 35, 3, 1, 280, 49.05, 37.83),
    ("1T", 25600, 160, 128, 8, 64, 1, 1, 512, 94.42, 71.49),
)


def korthikanti(*, full: bool) -> tuple[Measured, ...]:
    """Four runs, either with full recomputation or with sequence parallelism and selective recomputation [s]."""
    return tuple(
        Measured(
            shape=gpt(name, hidden=hidden, heads=heads, layers=layers),
            layouts=Layouts.of(
                Layout(tp=tp, pp=pp, vpp=vpp, sp=not full),
                micro_batch=micro_batch,
                recompute=int(Recompute.FULL if full else Recompute.SELECTIVE),
            ),
            cluster=dgx_a100(tp * pp),
            batch=batch,
            tokens=2048,
            program=MEGATRON_2022,
            measured=with_full if full else selective,
        )
        for name, hidden, heads, layers, tp, pp, vpp, micro_batch, batch, with_full, selective in _KORTHIKANTI
    )


# Narayanan 2021 (arXiv 2104.04473) table 1: name, hidden, heads, layers, tp, pp, devices, batch, TFLOP/s of a device.
# From the script that ran it (Megatron-LM examples/academic_paper_scripts/sc21/run_table_1.sh): micro-batch, chunks a
# stage, and whether gradients travel during the backward pass (torch's DDP in four, Megatron's own of then in six).
_NARAYANAN = (
    ("1.7B", 2304, 24, 24, 1, 1, 32, 512, 137, 16, 1, True),
    ("3.6B", 3072, 32, 30, 2, 1, 64, 512, 138, 16, 1, True),
    ("7.5B", 4096, 32, 36, 4, 1, 128, 512, 142, 16, 1, True),
    ("18.4B", 6144, 48, 40, 8, 1, 256, 1024, 135, 8, 1, True),
    ("39.1B", 8192, 64, 48, 8, 2, 512, 1536, 138, 4, 1, False),
    ("76.1B", 10240, 80, 60, 8, 4, 1024, 1792, 140, 2, 3, False),
    ("145.6B", 12288, 96, 80, 8, 8, 1536, 2304, 148, 2, 2, False),
    ("310.1B", 16384, 128, 96, 8, 16, 1920, 2160, 155, 1, 2, False),
    ("529.6B", 20480, 128, 105, 8, 35, 2520, 2520, 163, 1, 3, False),
    ("1008B", 25600, 160, 128, 8, 64, 3072, 3072, 163, 1, 1, False),
)


def narayanan() -> tuple[Measured, ...]:
    """Ten runs with full recomputation [FLOP/s]."""
    return tuple(
        Measured(
            shape=gpt(name, hidden=hidden, heads=heads, layers=layers),
            layouts=Layouts.of(
                Layout(dp=devices // (tp * pp), tp=tp, pp=pp, vpp=vpp),
                micro_batch=micro_batch,
                recompute=int(Recompute.FULL),
            ),
            cluster=dgx_a100(devices),
            batch=batch,
            tokens=2048,
            program=replace(MEGATRON_2021, overlapped_data=overlapped),
            measured=1e12 * teraflops,
        )
        for name, hidden, heads, layers, tp, pp, devices, batch, teraflops, micro_batch, vpp, overlapped in _NARAYANAN
    )


# Llama 3 (arXiv 2407.21783) table 4: cp, dp, devices, tokens, sequences a replica, TFLOP/s of a device. TP 8, PP 16,
# one sequence at a time; §3.3.2: one layer a chunk (the first chunk is the embedding, the last one the output), weights
# gathered once a step (FSDP without resharding after forward); NVLink 4, RoCE of 400 Gbit/s.
_LLAMA_3 = (
    (1, 64, 8192, 8192, 32, 430),
    (1, 128, 16384, 8192, 16, 400),
    (16, 8, 16384, 131_072, 16, 380),
)


def llama_3(shape: ModelShape) -> tuple[Measured, ...]:
    """Three runs of the 405B model [FLOP/s]."""
    return tuple(
        Measured(
            shape=shape,
            layouts=Layouts.of(Layout(dp=dp, tp=8, pp=16, cp=cp, vpp=8, sp=True, zero=2)),
            cluster=hosts("h100", devices, inside=450, between=50),
            batch=dp * each,
            tokens=tokens,
            program=ELEMENTARY,
            measured=1e12 * teraflops,
        )
        for cp, dp, devices, tokens, each, teraflops in _LLAMA_3
    )
