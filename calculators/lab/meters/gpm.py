"""NVLink, C2C and PCIe bytes of one GPU where it keeps GPU performance metrics (GPM: Hopper or newer).

GPM gives no counter. It compares two samples and says the average between them in MiB/s; times the seconds
between them that is bytes. Every `read` takes a sample, asks for the average since the one before it and adds that
up, so that readings subtract like those of a counter. The seconds are ours, not the driver's: what a sample takes to
be made (`Reading.at` is its middle) is the error of a byte count, relative to the interval.
"""

import time
from types import ModuleType
from typing import Any

from calculators.lab.meters import counters, driver
from calculators.lab.meters.counters import Count, Reading
from calculators.lab.meters.counters import each_moved as each_moved
from calculators.lab.meters.counters import moved as moved
from calculators.lab.meters.problems import CannotSee

MIB = 1024.0**2
REFRESH_SECONDS = 0.11
"""nvmlGpmSampleGet's documentation: two samples must be more than 100 ms apart, as the GPU refreshes them no sooner."""

# Metric, quantity, what it counts. Note the order: of PCIe and C2C sent comes first, of NVLink received (pynvml.py).
_TOTALS = (
    (20, counters.PCIE_SENT, "GPM average × time (metric 20)"),
    (21, counters.PCIE_RECEIVED, "GPM average × time (metric 21)"),
    (60, counters.NVLINK_RECEIVED, "GPM average × time (metric 60)"),
    (61, counters.NVLINK_SENT, "GPM average × time (metric 61)"),
    (100, counters.NVLINK_SENT, "GPM average × time, C2C with protocol (metric 100)"),
    (101, counters.NVLINK_RECEIVED, "GPM average × time, C2C with protocol (metric 101)"),
    (102, counters.NVLINK_SENT, "GPM average × time, C2C payload (metric 102)"),
    (103, counters.NVLINK_RECEIVED, "GPM average × time, C2C payload (metric 103)"),
)
_LINKS = tuple(
    (
        62 + 2 * link + sent,
        (counters.NVLINK_RECEIVED, counters.NVLINK_SENT)[sent],
        f"GPM average × time, link {link} (metric {62 + 2 * link + sent})",
    )
    for link in range(18)
    for sent in (0, 1)
)


class GpmMeter:
    """GPM of the GPU that NVML counts as `gpu`; with `links`, each NVLink on its own besides their total."""

    def __init__(self, gpu: int, *, links: bool = False) -> None:
        self.gpu = gpu
        self._nvml: ModuleType
        self._nvml, self._handle = driver.open_gpu(gpu)
        self._samples: list[Any] = []
        try:
            with driver.asked_for("GPU performance metrics (GPM)", gpu):
                if not self._nvml.nvmlGpmQueryDeviceSupport(self._handle).isSupportedDevice:
                    raise CannotSee(f"GPU {gpu} keeps no GPU performance metrics (GPM); Hopper and newer do")
                self._samples = [self._nvml.nvmlGpmSampleAlloc() for _ in range(2)]
            self._metrics = _TOTALS + (_LINKS if links else ())
            self._bytes: dict[int, float] = {}
            self._at = self._sample()
            offered, _ = self._next()
            self._metrics = tuple(metric for metric in self._metrics if metric[0] in offered)
            if not self._metrics:
                raise CannotSee(f"GPU {gpu} keeps GPU performance metrics, but none of NVLink, C2C or PCIe")
            self._bytes = {metric: 0.0 for metric, _, _ in self._metrics}
        except BaseException:
            self.close()
            raise

    def read(self) -> Reading:
        """Wait until the GPU has refreshed its metrics, take a sample, and add up the average since the last.

        The wait, `REFRESH_SECONDS`, brings what moved just before into the sample.
        """
        rates, seconds = self._next()
        for metric, _, source in self._metrics:
            if metric not in rates:
                raise CannotSee(f"GPU {self.gpu} does not say {source} any more")
            self._bytes[metric] += average_bytes(rates[metric], seconds)
        counts = tuple(
            Count(quantity=quantity, source=source, place="", raw=self._bytes[metric], unit=1.0)
            for metric, quantity, source in self._metrics
        )
        return Reading(at=self._at, counts=counts)

    def close(self) -> None:
        """Free the samples and let go of NVML."""
        try:
            for sample in self._samples:
                self._nvml.nvmlGpmSampleFree(sample)
            self._samples = []
            self._nvml.nvmlShutdown()
        except self._nvml.NVMLError:
            return  # it is shut down already, or the GPU that it held is gone

    def _next(self) -> tuple[dict[int, float], float]:
        """A new sample: the averages since the last, and the seconds."""
        time.sleep(REFRESH_SECONDS)
        self._samples.reverse()
        at, before = self._sample(), self._at
        with driver.asked_for("GPU performance metrics (GPM)", self.gpu):
            rates = self._rates(*self._samples)
        self._at = at
        return rates, at - before

    def _sample(self) -> float:
        """Take the later of the two samples, and say when."""
        started = time.monotonic()
        with driver.asked_for("GPU performance metrics (GPM)", self.gpu):
            self._nvml.nvmlGpmSampleGet(self._handle, self._samples[1])
        return (started + time.monotonic()) / 2

    def _rates(self, before: Any, after: Any) -> dict[int, float]:
        """MiB/s of each metric that this GPU has, on average between two samples."""
        asked = self._nvml.c_nvmlGpmMetricsGet_t()
        asked.version = self._nvml.NVML_GPM_METRICS_GET_VERSION
        asked.numMetrics = len(self._metrics)
        asked.sample1, asked.sample2 = before, after
        for place, (metric, _, _) in enumerate(self._metrics):
            asked.metrics[place].metricId = metric
        self._nvml.nvmlGpmMetricsGet(asked)
        answers = [asked.metrics[place] for place in range(len(self._metrics))]
        return {one.metricId: one.value for one in answers if one.nvmlReturn == self._nvml.NVML_SUCCESS}


def average_bytes(mib_per_s: float, seconds: float) -> float:
    """The bytes of an average over an interval."""
    return mib_per_s * MIB * seconds
