"""InfiniBand and RoCE bytes of this machine's adapters, by the kernel's counters of each port.

`counters/port_xmit_data` and `port_rcv_data` count octets ÷ 4 (linux: Documentation/ABI/stable/sysfs-class-infiniband;
the 4 is fixed, whatever the width of the link), headers included. Where a driver has no such counter (EFA), its
`hw_counters/tx_bytes` and `rx_bytes` count bytes. Both count whatever crosses the port, whoever sent it. An old
adapter's counter has 32 bits and stops at its end instead of wrapping.
"""

import time
from pathlib import Path

from calculators.lab.meters import counters
from calculators.lab.meters.counters import Count, Reading
from calculators.lab.meters.counters import each_moved as each_moved
from calculators.lab.meters.counters import moved as moved
from calculators.lab.meters.problems import CannotSee

SYSFS = Path("/sys/class/infiniband")
WORD_BYTES = 4.0
_END_OF_32_BITS = 2**32 - 1

_FILES = (
    ("counters/port_xmit_data", "counters/port_rcv_data", WORD_BYTES),
    ("hw_counters/tx_bytes", "hw_counters/rx_bytes", 1.0),
)


class InfinibandMeter:
    """The counters of every port that is up, below `root`."""

    def __init__(self, root: Path = SYSFS) -> None:
        ports = sorted(root.glob("*/ports/*"))
        if not ports:
            raise CannotSee(f"there is no InfiniBand or RoCE adapter ({root} has no ports)")
        up = [port for port in ports if _state(port / "state") == "ACTIVE"]
        if not up:
            raise CannotSee(f"no InfiniBand or RoCE port is up: {', '.join(map(_name, ports))}")
        found = [(port, files) for port in up if (files := _counted_in(port))]
        if not found:
            raise CannotSee(
                f"{', '.join(map(_name, up))}: the driver counts neither {_FILES[0][0]} nor {_FILES[1][0]}"
            )
        self._ports = found
        self.read()

    def read(self) -> Reading:
        """Every counter at this moment; `CannotSee` when one is not there any more."""
        counts = []
        for port, (sent, received, unit) in self._ports:
            layer = _text(port / "link_layer")
            carries = "RoCE, " if layer == "Ethernet" else ""
            for quantity, name in (
                (counters.INFINIBAND_SENT, sent),
                (counters.INFINIBAND_RECEIVED, received),
            ):
                source = f"{_name(port)}, {carries}with headers ({Path(name).name})"
                raw = _whole(port / name)
                # A 32-bit counter rests exactly on its end; a 64-bit one is there for one word only.
                full = _END_OF_32_BITS if raw == _END_OF_32_BITS else 2**64 - 1
                counts.append(
                    Count(quantity=quantity, source=source, place="", raw=raw, unit=unit, full=full)
                )
        return Reading(at=time.monotonic(), counts=tuple(counts))

    def close(self) -> None:
        """Nothing is held open."""


def _counted_in(port: Path) -> tuple[str, str, float] | None:
    return next(
        (files for files in _FILES if (port / files[0]).exists() and (port / files[1]).exists()), None
    )


def _name(port: Path) -> str:
    return f"{port.parent.parent.name} port {port.name}"


def _state(path: Path) -> str:
    """The name of a port’s state: the file says “4: ACTIVE”."""
    return _text(path).rpartition(":")[2].strip()


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


def _whole(path: Path) -> int:
    try:
        return int(path.read_text(encoding="ascii"))
    except OSError as error:
        raise CannotSee(f"{path} cannot be read any more: {error.strerror}") from error
    except ValueError as error:
        raise CannotSee(f"{path} holds no whole number") from error
