"""From what was measured at one level to what a claim at another level is about, by the textbook's factors.

Bytes that an algorithm sends cannot be read anywhere: sockets show what the backend's own algorithm sent. But the
bytes handed to each kind of call are counted, and the textbook says what its algorithm sends for them.
"""

from calculators.lab.guided.claims import Result
from calculators.lab.measurements import Quantity
from calculators.predict.collectives import TEXTBOOK, Kind, sent_bytes


def algorithm_bytes(result: Result, *kinds: Kind, axis: str, ranks: int | None = None) -> float:
    """What the textbook's algorithm sends, on all ranks together, for the calls that `axis` was seen to make [B].

    kinds  of call, those that the claim is about; a kind that was never called adds nothing
    ranks  of one group; None for all of the run's
    """
    size = result.run.world_size if ranks is None else ranks
    return sum(
        float(sent_bytes(kind, _full_size(kind, handed, size), size, algorithm=TEXTBOOK.algorithm_of(kind)))
        for kind in kinds
        for handed in _handed(result, f"{axis} {kind}")
    )


def _full_size(kind: Kind, handed: float, ranks: int) -> float:
    """An all-gather is handed a slice of what it gives; the others are handed the whole."""
    return handed * ranks if kind is Kind.ALL_GATHER else handed


def _handed(result: Result, detail: str) -> list[float]:
    """What each rank handed over in calls of this name."""
    return [m.value for m in result.measurements if (m.quantity, m.detail) == (Quantity.HANDED, detail)]
