"""What the machine's own counters saw, each at a level of its own, and what no meter could see, from the log."""

from collections.abc import Sequence

from calculators.lab.measurements import Measurement, Quantity
from calculators.lab.store import LogLine
from calculators.tables import Row, Table
from calculators.units import both_bytes, plain

COUNTERS = {
    Quantity.HOST: "interface: packets with their headers and acknowledgements",
    Quantity.NVLINK_SENT: "NVLink",
    Quantity.NVLINK_RECEIVED: "NVLink",
    Quantity.PCIE_SENT: "PCIe",
    Quantity.PCIE_RECEIVED: "PCIe",
    Quantity.INFINIBAND_SENT: "InfiniBand port",
    Quantity.INFINIBAND_RECEIVED: "InfiniBand port",
    Quantity.ENERGY: "energy of the whole GPU",
}
"""The counters of a machine, and the level on which each counts."""
_UNSEEN = (" is not measured", " are not measured", " is not emulated", " are not emulated", "cannot be seen")


def counters_table(measurements: Sequence[Measurement]) -> Table | None:
    """Every counter that was read; None where there was none."""
    rows = [
        Row(cells=(str(m.quantity), m.detail or f"rank {m.rank}", COUNTERS[m.quantity], _value(m)))
        for m in measurements
        if m.quantity in COUNTERS
    ]
    if not rows:
        return None
    return Table(
        caption="Counters of the machine over the measured steps. They count everything that passed, whoever sent it.",
        heads=("Counter", "Of", "Level", "Measured"),
        rows=tuple(rows),
        texts=3,
        name="counters",
    )


def unseen(log: Sequence[LogLine]) -> tuple[str, ...]:
    """What the log says that no meter could see, each once."""
    return tuple(dict.fromkeys(line.text for line in log if any(words in line.text for words in _UNSEEN)))


def _value(m: Measurement) -> str:
    return both_bytes(m.value) if m.quantity.unit == "B" else f"{plain(m.value)} {m.quantity.unit}"
