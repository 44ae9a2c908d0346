"""What travels out of a run: quantities predicted before it, events and quantities measured during it."""

from dataclasses import dataclass
from enum import StrEnum


class Quantity(StrEnum):
    """What is predicted, measured and compared; always a total over the run's measured steps."""

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


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """One quantity before the run, in the parts that a page names.

    `formula` is the textbook's, `backend_excess` what this backend's algorithm adds, `framing` what it
    writes around messages, `control` what the job needs besides its formula (a token id returned).
    """

    quantity: Quantity
    rank: int
    peer: int | None = None
    formula: float
    backend_excess: float = 0.0
    framing: float = 0.0
    control: float = 0.0

    @property
    def predicted(self) -> float:
        return self.formula + self.backend_excess + self.framing + self.control


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One quantity as a meter saw it, over `steps` steps."""

    quantity: Quantity
    rank: int
    peer: int | None = None
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
class Failed:
    """Why a run ended early: the rank that failed first (None: the launcher itself), and its traceback."""

    rank: int | None
    reason: str
    traceback: str = ""


Event = Progress | Log | Verified | StepSeconds | Measurement | Failed
