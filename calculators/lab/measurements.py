"""What travels out of a run: quantities predicted before it, events and quantities measured during it."""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class Quantity(StrEnum):
    """What is predicted, measured and compared: a total over the run's measured steps, unless its text says else."""

    CALLS = "calls"
    """Collectives and sends that a rank entered (a count; receives are the other end of a send)."""
    HANDED = "handed bytes"
    """Bytes of the tensors that a rank passed to its calls."""
    WIRE = "wire bytes sent"
    """Bytes that a rank's sockets sent, less those sent again."""
    PAIR = "wire bytes to peer"
    """The same, for one ordered pair of ranks."""
    IDLE = "idle control"
    """Wire bytes that a rank sent in an interval in which nothing was asked of it; must be 0."""
    HOST = "interface bytes sent"
    """Bytes that an emulated host's interface sent, headers and acknowledgements included; by its first rank."""
    MEMORY = "bytes held"
    """What a rank holds of weights, gradients, optimizer state, saved for backward, and at its peak (`detail`)."""
    SECONDS = "seconds"
    """Seconds of a rank's measured steps that it was busy, waiting in a call, or idle for want of input (`detail`)."""
    CALL_SECONDS = "seconds of a call"
    """How long one call of a size takes (`detail`), for a calibration."""
    STEP_SECONDS = "seconds of a step"
    """The median over the measured steps: predicted from a calibration of the same devices and links."""
    NVLINK_SENT = "NVLink bytes sent"
    NVLINK_RECEIVED = "NVLink bytes received"
    PCIE_SENT = "PCIe bytes sent"
    PCIE_RECEIVED = "PCIe bytes received"
    INFINIBAND_SENT = "InfiniBand bytes sent"
    INFINIBAND_RECEIVED = "InfiniBand bytes received"
    ENERGY = "energy"
    """Joules that a rank's GPU took, by the driver's counter."""

    @property
    def unit(self) -> str:
        """What a value counts."""
        return _UNITS.get(self, "B")

    @property
    def is_counted(self) -> bool:
        """Whether it is a count that a sound prediction meets, rather than a time that varies from step to step."""
        return self.unit in ("B", "calls")


_UNITS = {
    Quantity.CALLS: "calls",
    Quantity.SECONDS: "s",
    Quantity.CALL_SECONDS: "s",
    Quantity.STEP_SECONDS: "s",
    Quantity.ENERGY: "J",
}


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """One quantity before the run, in the parts that a page names.

    `detail` tells apart what one quantity has several of: a kind of call, a part of memory.
    `formula` is the textbook's, `backend_excess` what this backend's algorithm adds, `framing` what it
    writes around messages, `control` what the job needs besides its formula (a token id returned).
    """

    quantity: Quantity
    rank: int
    peer: int | None = None
    detail: str = ""
    formula: float
    backend_excess: float = 0.0
    framing: float = 0.0
    control: float = 0.0

    @property
    def predicted(self) -> float:
        return self.formula + self.backend_excess + self.framing + self.control


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One quantity as a meter saw it, over `steps` steps; `detail` as in the prediction."""

    quantity: Quantity
    rank: int
    peer: int | None = None
    detail: str = ""
    value: float
    steps: int


# Events: what a launcher yields while a run goes on, in the order in which they reached it.


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far one rank is in one part of its work (“verify”, “warm up”, “measure” …)."""

    rank: int
    part: str
    done: int
    total: int


@dataclass(frozen=True, kw_only=True)
class Log:
    """A line that a rank, or the launcher (rank None), wants kept."""

    rank: int | None
    text: str


@dataclass(frozen=True, kw_only=True)
class Verified:
    """How far a result was from what it was compared with on one rank, against its tolerance."""

    rank: int
    worst: float
    tolerance: float

    @property
    def holds(self) -> bool:
        return self.worst <= self.tolerance  # a nan is not within it

    def sentence(self, what: str, other: str) -> str:
        """The verdict, where `what` was compared with `other` (`Spec.compared`)."""
        said = "equals" if self.holds else "DIFFERS FROM"
        return f"{what} {said} {other}: largest difference {self.worst:.3g}, tolerance {self.tolerance:.3g}"


@dataclass(frozen=True, kw_only=True)
class StepSeconds:
    """How long each measured step took on one rank."""

    rank: int
    seconds: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Series:
    """A number that a rank followed through the run: one value for each step (a loss, how far replicas are apart)."""

    rank: int
    name: str
    values: tuple[float, ...]


class Doing(StrEnum):
    """What a rank did for a while."""

    BUSY = "busy"
    """Computing, or anything else that is not a wait."""
    WAITING = "waiting"
    """Inside a call that moves its own tensor, until that is through."""
    IDLE = "idle"
    """Inside a receive: there was nothing to work on until another rank had sent it."""


class Span(NamedTuple):
    """From when to when [s since the first measured step], at what, and in which call (empty: none)."""

    start: float
    end: float
    doing: Doing
    what: str = ""


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """What a rank did in the last measured steps, without gaps, in order."""

    rank: int
    spans: tuple[Span, ...]


@dataclass(frozen=True, kw_only=True)
class Failed:
    """Why a run ended early: the rank that failed first (None: the launcher itself), and its traceback."""

    rank: int | None
    reason: str
    traceback: str = ""


Event = Progress | Log | Verified | StepSeconds | Series | Timeline | Measurement | Failed
