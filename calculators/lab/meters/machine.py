"""The counters of the machine under a rank: its emulated host's interface, its GPU's links and energy, InfiniBand.

Several ranks may stand on one GPU, host or port, and its counter counts them all. So one of them reads it: the first
rank on an emulated host, the first on a GPU, and rank 0 for InfiniBand.
"""

from collections.abc import Callable, Iterator
from typing import Protocol

from calculators.lab.devices import find_devices
from calculators.lab.emulation.network import Network
from calculators.lab.measurements import Quantity
from calculators.lab.meters.counters import Reading, Seen, moved
from calculators.lab.meters.energy import EnergyMeter
from calculators.lab.meters.gpm import GpmMeter
from calculators.lab.meters.infiniband import InfinibandMeter
from calculators.lab.meters.interfaces import InterfaceCounters, read_interface
from calculators.lab.meters.nvml import NvlinkMeter, PcieMeter
from calculators.lab.meters.problems import CannotSee
from calculators.lab.plan import Plan


class Counter(Protocol):
    """A meter that is read twice."""

    def read(self) -> Reading: ...

    def close(self) -> None: ...


class MachineMeters:
    """Every counter that `rank` reads for the machine; what cannot be seen goes to `say`, and the others go on."""

    def __init__(self, plan: Plan, *, rank: int, say: Callable[[str], None]) -> None:
        self._plan, self._rank, self._say = plan, rank, say
        self._counters: list[tuple[str, Counter, Reading]] = []
        self._interface: InterfaceCounters | None = None

    def start(self) -> None:
        """Remember where every counter stands."""
        spec = self._plan.spec
        if spec.hosts > 1 and self._rank % Network.of(spec).ranks_per_host == 0:
            self._try("The emulated host's interface", self._read_interface)
        for name, make in self._hardware():
            self._try(name, lambda name=name, make=make: self._begin(name, make()))  # type: ignore[misc]

    def finish(self) -> Iterator[tuple[Quantity, str, float]]:
        """What each counter saw since `start`: quantity, detail and value."""
        if (before := self._interface) is not None:
            seen = read_interface() - before
            host = f"host {Network.of(self._plan.spec).host_of(self._rank)}"
            yield Quantity.HOST, host, float(seen.sent_bytes)
        for name, counter, before_reading in self._counters:
            found: list[Seen] = []
            self._try(name, lambda c=counter, b=before_reading, f=found: f.extend(moved(b, c.read())))  # type: ignore[misc]
            for one in found:
                yield Quantity(one.quantity), one.detail, one.value
            counter.close()

    def _hardware(self) -> Iterator[tuple[str, Callable[[], Counter]]]:
        placement = self._plan.placement
        if placement.device != "cuda":
            return
        gpus = find_devices().gpus  # in CUDA's order, so a rank's GPU is its own number modulo theirs
        if self._rank < len(gpus):
            gpu = gpus[self._rank].index
            yield "NVLink", lambda: NvlinkMeter(gpu)
            yield "PCIe", lambda: PcieMeter(gpu)
            yield "The GPU's own averages", lambda: GpmMeter(gpu)
            yield "Energy", lambda: EnergyMeter(gpu)
        if self._rank == 0 and placement.backend == "nccl":
            yield "InfiniBand", InfinibandMeter

    def _begin(self, name: str, counter: Counter) -> None:
        self._counters.append((name, counter, counter.read()))

    def _read_interface(self) -> None:
        self._interface = read_interface()

    def _try(self, name: str, look: Callable[[], None]) -> None:
        try:
            look()
        except CannotSee as reason:
            self._say(f"{name} is not measured: {reason}.")
