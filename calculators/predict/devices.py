"""Accelerators that people ask about: memory, its bandwidth and dense 16-bit arithmetic, each with its source.

The arithmetic is dense: data sheets print it doubled, "with sparsity", which no ordinary model has.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Device:
    """One accelerator: `memory_bytes`, `memory_bytes_per_second`, dense 16-bit matrix `flops_per_second`, all peak."""

    key: str
    name: str
    memory_bytes: float
    memory_bytes_per_second: float
    flops_per_second: float
    source: str

    @property
    def flops_per_byte(self) -> float:
        """Arithmetic for each byte read at which memory and arithmetic take equally long (the roofline's ridge)."""
        return self.flops_per_second / self.memory_bytes_per_second


# A memory sold as 80 GB or less by NVIDIA is so many GiB, and nvidia-smi reports nearly that; 141 and 180 are decimal.
_DEVICES = (
    Device(
        key="a100-80",
        name="A100 SXM 80 GB",
        memory_bytes=80 * 2**30,
        memory_bytes_per_second=2.039e12,
        flops_per_second=312e12,
        source="NVIDIA A100 80 GB data sheet",
    ),
    Device(
        key="h100",
        name="H100 SXM",
        memory_bytes=80 * 2**30,
        memory_bytes_per_second=3.35e12,
        flops_per_second=989e12,
        source="NVIDIA H100 SXM data sheet; memory as stas00/ml-engineering lists it",
    ),
    Device(
        key="h200",
        name="H200 SXM",
        memory_bytes=141e9,
        memory_bytes_per_second=4.8e12,
        flops_per_second=989e12,
        source="NVIDIA H200 data sheet; bandwidth as stas00/ml-engineering lists it",
    ),
    Device(
        key="b200",
        name="B200",
        memory_bytes=180e9,
        memory_bytes_per_second=8.0e12,
        flops_per_second=2.25e15,
        source="NVIDIA DGX B200 data sheet, an eighth of it and half of its sparse figure; bandwidth as "
        "stas00/ml-engineering lists it",
    ),
    Device(
        key="l40s",
        name="L40S",
        memory_bytes=48 * 2**30,
        memory_bytes_per_second=864e9,
        flops_per_second=362e12,
        source="NVIDIA L40S data sheet",
    ),
    Device(
        key="rtx-5090",
        name="GeForce RTX 5090",
        memory_bytes=32 * 2**30,
        memory_bytes_per_second=1.792e12,
        flops_per_second=209.5e12,
        source="NVIDIA RTX Blackwell white paper, accumulating in 32 bits; bandwidth as the DGX Spark handbook of "
        "exo labs lists it",
    ),
    Device(
        key="rtx-4090",
        name="GeForce RTX 4090",
        memory_bytes=24 * 2**30,
        memory_bytes_per_second=1.008e12,
        flops_per_second=165.2e12,
        source="NVIDIA Ada white paper, accumulating in 32 bits",
    ),
    Device(
        key="rtx-3090",
        name="GeForce RTX 3090",
        memory_bytes=24 * 2**30,
        memory_bytes_per_second=936e9,
        flops_per_second=71e12,
        source="NVIDIA Ampere GA102 white paper, accumulating in 32 bits",
    ),
    Device(
        key="dgx-spark",
        name="DGX Spark",
        memory_bytes=128e9,
        memory_bytes_per_second=273e9,
        flops_per_second=125e12,
        source="128 GB in NVIDIA's documentation of NIM; bandwidth as the DGX Spark handbook of exo labs lists it; "
        "arithmetic not published in 16 bits: an eighth of the petaflop that is sold in sparse 4 bits",
    ),
    Device(
        key="m3-ultra",
        name="Apple M3 Ultra, 80 GPU cores",
        memory_bytes=512e9,
        memory_bytes_per_second=819e9,
        flops_per_second=28e12,
        source="Apple's Mac Studio specification, largest memory; Apple publishes no arithmetic: 80 cores × 128 lanes "
        "× 2 × 1.4 GHz, an estimate",
    ),
    Device(
        key="m4-max",
        name="Apple M4 Max, 40 GPU cores",
        memory_bytes=128e9,
        memory_bytes_per_second=546e9,
        flops_per_second=16e12,
        source="Apple's Mac Studio specification, largest memory; Apple publishes no arithmetic: 40 cores × 128 lanes "
        "× 2 × 1.6 GHz, an estimate",
    ),
    Device(
        key="m4-pro",
        name="Apple M4 Pro, 20 GPU cores",
        memory_bytes=64e9,
        memory_bytes_per_second=273e9,
        flops_per_second=8e12,
        source="Apple's Mac mini specification, largest memory; Apple publishes no arithmetic: 20 cores × 128 lanes "
        "× 2 × 1.6 GHz, an estimate",
    ),
)
DEVICES = {device.key: device for device in _DEVICES}


def device(key: str) -> Device:
    """The device with this key. Raises ValueError that names them all.

    >>> device("dgx-spark").memory_bytes_per_second
    273000000000.0
    """
    if key not in DEVICES:
        raise ValueError(
            f"device is {key!r}, which is not in the catalogue. Use one of: {', '.join(DEVICES)}."
        )
    return DEVICES[key]
