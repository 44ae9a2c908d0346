"""Who sends to whom: ranks while they can be drawn, then hosts, then a sentence."""

from dataclasses import dataclass

from django.utils.safestring import SafeString

from calculators.pages.layout.case import LayoutCase
from calculators.pages.layout.heat import MOST_IN_A_PICTURE, MOST_IN_A_TABLE, HeatMap
from calculators.pages.layout.words import AXIS_FAMILIES, badge
from calculators.predict.traffic import block_matrices
from calculators.units import counted, iec_bytes, plain
from calculators.workbench import Row, Table

MOST_HOSTS = 128
"""Between more hosts than this only the totals of each link are calculated: the page is to answer at once."""
MOST_KINDS = 10


@dataclass(frozen=True, kw_only=True)
class Pairs:
    """Who sends to whom: a table of numbers, or a picture and the kinds of pairs; else only why not."""

    says: str
    table: SafeString | str = ""
    svg: SafeString | str = ""
    keys: tuple[tuple[str, str], ...] = ()
    kinds: Table | None = None


def pairs_of(case: LayoutCase) -> Pairs:
    """Who sends to whom: ranks while they can be drawn, then hosts, then a sentence."""
    devices, in_a_host = case.cluster.devices, case.cluster.devices_per_host
    hosts = -(-devices // in_a_host)
    if any(share.algorithm == "in-switch" and share.ranks > 1 for share in case.composition.shares):
        return Pairs(
            says=f"With {case.backend.name} ranks send to the switch, which adds and copies, not to each other: there "
            "are no pairs to show."
        )
    if devices <= MOST_IN_A_PICTURE:
        found = HeatMap(matrices=block_matrices(case.composition, devices=1))
        if devices <= MOST_IN_A_TABLE:
            says = f"What each rank (row) sends to each other for each {case.phase.unit}, in {found.unit}"
            return Pairs(says=says, table=found.table(says=says, name="pairs"), keys=_keys(found))
        return _drawn(case, found, what="rank", every=in_a_host)
    if hosts == 1:
        return Pairs(
            says=f"Pairs of ranks are shown for up to {MOST_IN_A_PICTURE} devices, pairs of hosts beyond. Here all "
            f"{devices:,} share one host."
        )
    if hosts > MOST_HOSTS:
        return Pairs(
            says=f"Pairs of ranks are shown for up to {MOST_IN_A_PICTURE} devices, and pairs of hosts for up to "
            f"{MOST_HOSTS}. Of {hosts:,} hosts the totals of each link above are all that is calculated."
        )
    found = HeatMap(matrices=block_matrices(case.composition, devices=in_a_host))
    return _drawn(case, found, what="host", every=1, draws=hosts <= MOST_IN_A_PICTURE)


def _drawn(case: LayoutCase, found: HeatMap, *, what: str, every: int, draws: bool = True) -> Pairs:
    shown_pairs = (
        f"What each {what} (row) sends to each other for each {case.phase.unit}, predicted. "
        if draws
        else f"More than {MOST_IN_A_PICTURE} {what}s are not drawn; these are the kinds of pairs. "
    )
    more = (
        f"With {case.cluster.devices:,} ranks, pairs of hosts stand for pairs of ranks; on the diagonal is what stays "
        "inside a host."
        if what == "host"
        else "A line begins each host."
        if 1 < case.cluster.devices_per_host < case.cluster.devices
        else ""
    )
    return Pairs(
        says=f"{shown_pairs}{more}".strip(),
        svg=found.svg(what=what, every=every) if draws else "",
        keys=_keys(found) if draws else (),
        kinds=_kinds(found, what),
    )


def _keys(found: HeatMap) -> tuple[tuple[str, str], ...]:
    """Family and name of each axis that leads somewhere, in the order of the axes."""
    leading = found.leading[found.total > 0]
    return tuple(
        (AXIS_FAMILIES[name], name.upper())
        for index, name in enumerate(found.axes)
        if (leading == index).any()
    )


def _kinds(found: HeatMap, what: str) -> Table:
    kinds = found.kinds
    left = len(kinds) - MOST_KINDS
    more = f" {counted(left, 'kind')} that send less are left out." if left > 0 else ""
    return Table(
        name="kinds",
        caption=f"Pairs of {what}s that send the same, the busiest first.{more}",
        heads=("Pairs", "Mostly", "For example", "Each sends"),
        texts=3,
        rows=tuple(
            Row(
                cells=(
                    plain(kind.pairs),
                    badge(kind.axis),
                    f"inside {what} {kind.sender}"
                    if kind.sender == kind.receiver
                    else f"{what} {kind.sender} to {kind.receiver}",
                    iec_bytes(kind.each_bytes),
                )
            )
            for kind in kinds[:MOST_KINDS]
        ),
    )
