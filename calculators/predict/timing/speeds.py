"""What of a data sheet's speeds is reached."""

from __future__ import annotations

from dataclasses import dataclass

from calculators.predict.arrays import said
from calculators.predict.devices import Device

# 108 multiprocessors of an A100 (data sheet), a tile of 128 by 256 each (NVIDIA's guide to matrix multiplication). A
# device with less memory bandwidth has fewer in proportion; larger ones have 132 to 148 and are taken as an A100.
OUTPUTS_AT_ONCE = 108 * 128 * 256
FULL_SIZE_BYTES_PER_SECOND = 2.039e12  # memory of that A100


@dataclass(frozen=True, kw_only=True)
class Efficiency:
    """What is reached of the data sheet: the only two fitted numbers.

    matmul     of the matrix units' peak, while they have operands to work on
    bandwidth  of the peak bandwidth, of memory and of links alike
    """

    matmul: float
    bandwidth: float

    def __post_init__(self) -> None:
        for name in ("matmul", "bandwidth"):
            share = getattr(self, name)
            if not isinstance(share, int | float) or not 0 < share <= 1.5:
                raise ValueError(
                    f"{name} is {said(share)}, but it is a share of the data sheet: more than 0, and about 1 "
                    "at most."
                )


FITTED = Efficiency(matmul=0.968, bandwidth=0.733)
"""Least squares of the relative errors of four step times, those with full recomputation in Korthikanti 2022 (arXiv
2205.05198), table 5. tests/predict/test_timing.py finds them again, and judges them on what was not fitted."""

PEAK = Efficiency(matmul=1.0, bandwidth=1.0)
"""Every device and link at the speed that its data sheet prints."""


@dataclass(frozen=True, kw_only=True)
class Speeds:
    """What one device and its links reach; `outputs` of a matrix product are worked on at once."""

    flops_per_second: float
    bytes_per_second: float
    link_share: float
    outputs: float

    @classmethod
    def of(cls, device: Device, efficiency: Efficiency) -> Speeds:
        """Those of `device`."""
        smaller = min(1.0, device.memory_bytes_per_second / FULL_SIZE_BYTES_PER_SECOND)
        return cls(
            flops_per_second=efficiency.matmul * device.flops_per_second,
            bytes_per_second=efficiency.bandwidth * device.memory_bytes_per_second,
            link_share=efficiency.bandwidth,
            outputs=OUTPUTS_AT_ONCE * smaller,
        )
