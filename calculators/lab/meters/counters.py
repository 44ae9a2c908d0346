"""What hardware meters share: cumulative counters, read twice and subtracted.

A counter only grows, so what moved is the later reading less the earlier. One that went back has wrapped or was
reset, and one that stands at its end no longer counts: both are said, and no number is made of them.

Levels never mix: `source` names the counter and what it counts (payload, or protocol too), and only counts of one
source are added up.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from calculators.lab.meters.problems import CannotSee

# The quantities, worded as `calculators.lab.measurements.Quantity` words them.
NVLINK_SENT, NVLINK_RECEIVED = "NVLink bytes sent", "NVLink bytes received"
PCIE_SENT, PCIE_RECEIVED = "PCIe bytes sent", "PCIe bytes received"
INFINIBAND_SENT, INFINIBAND_RECEIVED = "InfiniBand bytes sent", "InfiniBand bytes received"
ENERGY = "energy"


@dataclass(frozen=True, kw_only=True)
class Count:
    """One counter at one moment.

    `place` tells apart counters of one source that are added up (the links of a GPU). `raw` is the number as the
    counter gives it, `unit` what one of it is in bytes or joules, `full` the number at which it stops or wraps.
    """

    quantity: str
    source: str
    place: str
    raw: float
    unit: float
    full: int = 2**64 - 1


@dataclass(frozen=True, kw_only=True)
class Reading:
    """Every counter of a meter, at `at` seconds of a clock that only goes forward."""

    at: float
    counts: tuple[Count, ...]


@dataclass(frozen=True, kw_only=True)
class Moved:
    """What one counter counted between two readings, in bytes or joules."""

    quantity: str
    source: str
    place: str
    value: float
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What a meter saw between two readings: `detail` is the counter, its level and how many were added up."""

    quantity: str
    detail: str
    value: float


def each_moved(before: Reading, after: Reading) -> tuple[Moved, ...]:
    """What each counter counted from `before` to `after`; `CannotSee` where one cannot have counted that."""
    if after.at <= before.at:
        raise CannotSee(
            f"its two readings are in the wrong order: the first was taken at {before.at:g} s and the second at "
            f"{after.at:g} s"
        )
    earlier = {_name(count): count for count in before.counts}
    if gone := [name for name in earlier if name not in {_name(count) for count in after.counts}]:
        raise CannotSee(f"{_said(gone[0])} was there at the first reading and is gone at the second")
    return tuple(
        Moved(
            quantity=count.quantity,
            source=count.source,
            place=count.place,
            value=_difference(earlier[_name(count)], count),
            seconds=after.at - before.at,
        )
        for count in after.counts
        if _name(count) in earlier
    )


def moved(before: Reading, after: Reading) -> tuple[Seen, ...]:
    """What each source counted from `before` to `after`, over all its places."""
    sums: dict[tuple[str, str], list[Moved]] = {}
    for one in each_moved(before, after):
        sums.setdefault((one.quantity, one.source), []).append(one)
    return tuple(
        Seen(quantity=quantity, detail=_detail(source, ones), value=sum(one.value for one in ones))
        for (quantity, source), ones in sums.items()
    )


def _difference(before: Count, after: Count) -> float:
    if after.raw >= after.full:
        raise CannotSee(
            f"{_said(_name(after))} stands at its end, {after.full:,}, and counts no further; reset it or its device"
        )
    if after.raw < before.raw:
        raise CannotSee(
            f"{_said(_name(after))} went back from {before.raw:,} to {after.raw:,}: it wrapped or was reset while the "
            f"run was measured. Measure fewer steps, and reset nothing meanwhile"
        )
    return (after.raw - before.raw) * after.unit


def _name(count: Count) -> tuple[str, str, str]:
    return count.quantity, count.source, count.place


def _said(name: tuple[str, str, str]) -> str:
    quantity, source, place = name
    return f"the counter of {quantity}, {source}{f', {place},' if place else ','}"


def _detail(source: str, ones: Iterable[Moved]) -> str:
    places = len({one.place for one in ones if one.place})
    return f"{source}, {places} links" if places > 1 else source
