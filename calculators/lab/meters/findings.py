"""What `doctor` says of the hardware meters: each tried once on every GPU, and whether it ever ran on hardware."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from calculators.lab.devices import Devices
from calculators.lab.doctor import Finding
from calculators.lab.meters import energy, gpm, infiniband, nvml
from calculators.lab.meters.problems import CannotSee

NOT_RUN = "not run on hardware yet, only on constructed sequences of counters"


@dataclass(frozen=True, kw_only=True)
class _Meter:
    """A meter of one GPU; `ran_on` is the hardware that it was seen to work on (docs/meters.md), empty for none."""

    sees: str
    make: Callable[[int], Any]
    ran_on: str = ""


_OF_A_GPU = (
    _Meter(sees="NVLink bytes (NVML counters)", make=nvml.NvlinkMeter),
    _Meter(sees="PCIe bytes (NVML counters)", make=nvml.PcieMeter),
    _Meter(sees="NVLink and PCIe bytes (GPM averages)", make=gpm.GpmMeter),
    _Meter(sees="energy (NVML counter)", make=energy.EnergyMeter),
)


def hardware_findings(devices: Devices, infiniband_root: Path = infiniband.SYSFS) -> Iterator[Finding]:
    """For every meter of hardware what it sees here, or why it cannot see."""
    for meter in _OF_A_GPU:
        if not devices.gpus:
            yield _blind(meter.sees, f"no NVIDIA GPU: {devices.no_gpu_reason}", meter.ran_on)
            continue
        for gpu in devices.gpus:
            yield _tried(f"{meter.sees} of GPU {gpu.index}", partial(meter.make, gpu.index), meter.ran_on)
    yield _tried("InfiniBand bytes (port counters)", partial(infiniband.InfinibandMeter, infiniband_root), "")


def _tried(sees: str, make: Callable[[], Any], ran_on: str) -> Finding:
    try:
        meter = make()
    except CannotSee as reason:
        return _blind(sees, str(reason), ran_on)
    try:
        sources = dict.fromkeys(count.source for count in meter.read().counts)
    except CannotSee as reason:
        return _blind(sees, str(reason), ran_on)
    finally:
        meter.close()
    return Finding(ok=True, text=f"{sees}: can be read, {'; '.join(sources)}. {_state(ran_on)}")


def _blind(sees: str, reason: str, ran_on: str) -> Finding:
    return Finding(ok=False, text=f"{sees}: cannot be seen, {reason}. {_state(ran_on)}")


def _state(ran_on: str) -> str:
    return f"This meter ran on {ran_on}" if ran_on else f"This meter has {NOT_RUN}"
