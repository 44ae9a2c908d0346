"""Accelerators that people ask about: memory, its bandwidth and dense 16-bit arithmetic, each with its source."""

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
)
DEVICES = {device.key: device for device in _DEVICES}


def device(key: str) -> Device:
    """The device with this key. Raises ValueError that names them all."""
    if key not in DEVICES:
        raise ValueError(
            f"device is {key!r}, which is not in the catalogue. Use one of: {', '.join(DEVICES)}."
        )
    return DEVICES[key]
