"""Joules that one GPU took, by the driver's own count: millijoules since the driver was loaded (Volta or newer).

It is the whole GPU, idle power included, and whatever else computes there: of ranks that share a GPU, each sees all.
"""

import time

from calculators.lab.meters import counters, driver
from calculators.lab.meters.counters import Count, Reading
from calculators.lab.meters.counters import each_moved as each_moved
from calculators.lab.meters.counters import moved as moved

JOULES_PER_MILLIJOULE = 1e-3


class EnergyMeter:
    """The energy counter of the GPU that NVML counts as `gpu`."""

    def __init__(self, gpu: int) -> None:
        self.gpu = gpu
        self._nvml, self._handle = driver.open_gpu(gpu)
        try:
            self.read()
        except BaseException:
            self.close()
            raise

    def read(self) -> Reading:
        """Energy so far; `CannotSee` when this GPU does not count it or is not there any more."""
        with driver.asked_for("energy counter", self.gpu):
            millijoules = self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._handle)
        count = Count(
            quantity=counters.ENERGY,
            source=f"whole GPU {self.gpu}, since its driver was loaded",
            place="",
            raw=millijoules,
            unit=JOULES_PER_MILLIJOULE,
        )
        return Reading(at=time.monotonic(), counts=(count,))

    def close(self) -> None:
        """Let go of NVML."""
        try:
            self._nvml.nvmlShutdown()
        except self._nvml.NVMLError:
            return  # it is shut down already, or the GPU that it held is gone
