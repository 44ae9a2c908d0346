"""Handed, algorithm, wire: the three levels on which bytes are counted, each named wherever a number of it stands."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from calculators.lab.compare import Comparison, compare
from calculators.lab.measurements import Measurement, Prediction, Quantity
from calculators.runs.charts import alike
from calculators.tables import Row, Table
from calculators.units import plain

HANDED = "handed"
ALGORITHM = "algorithm"
WIRE = "wire"


@dataclass(frozen=True, kw_only=True)
class Levels:
    """What one run's ranks handed over, what the textbook makes of it, and what went over the wire."""

    comparisons: tuple[Comparison, ...]

    @property
    def table(self) -> Table | None:
        """The levels below each other, all ranks together; None without a reading of the wire."""
        handed, wire = (self._of(quantity) for quantity in (Quantity.HANDED, Quantity.WIRE))
        if not handed or not wire:
            return None
        rows = (
            (HANDED, "tensors passed to the calls", _sum(handed, "predicted"), _sum(handed, "measured")),
            (
                ALGORITHM,
                "what the textbook’s algorithm sends for them",
                plain(sum(c.prediction.formula for c in wire)),
                "no meter sees it",
            ),
            (
                WIRE,
                "what the sockets sent, headers of messages included",
                _sum(wire, "predicted"),
                _sum(wire, "measured"),
            ),
        )
        return Table(
            caption="Bytes of all ranks together. Levels count different things and are never compared.",
            heads=("Level", "Counts", "Predicted", "Measured"),
            rows=tuple(Row(cells=row) for row in rows),
            texts=2,
            name="levels",
        )

    @property
    def kinds(self) -> Table | None:
        """Calls and handed bytes of each kind on each axis; None where calls were not told apart."""
        by: dict[str, dict[int, dict[Quantity, Comparison]]] = {}
        for c in self.comparisons:
            if c.detail and c.quantity in (Quantity.CALLS, Quantity.HANDED):
                by.setdefault(c.detail, {}).setdefault(c.rank, {})[c.quantity] = c
        if not by:
            return None
        rows = []
        for detail, ranks in by.items():
            axis, _, kind = detail.partition(" ")
            cells = {rank: _pair_of_cells(found) for rank, found in sorted(ranks.items())}
            rows += [
                Row(cells=(kind or detail, axis.upper(), said, *of_all)) for said, of_all in alike(cells)
            ]
        return Table(
            caption="Every kind of call, by axis. Level: handed.",
            heads=(
                "Call",
                "Axis",
                "Ranks",
                "Calls predicted",
                "measured",
                "Bytes handed, predicted",
                "measured",
            ),
            rows=tuple(rows),
            texts=3,
            name="kinds",
        )

    def _of(self, quantity: Quantity) -> list[Comparison]:
        return [c for c in self.comparisons if c.quantity is quantity and not c.detail]


def with_nothing_expected(
    predictions: Sequence[Prediction], measurements: Sequence[Measurement]
) -> list[Comparison]:
    """Comparisons of what was measured by kind, and of kinds that nobody predicted beside a prediction of 0."""
    known = {(p.quantity, p.detail, p.rank, p.peer) for p in predictions}
    surprises = [
        Prediction(quantity=m.quantity, rank=m.rank, detail=m.detail, formula=0.0)
        for m in measurements
        if m.detail
        and m.quantity in (Quantity.CALLS, Quantity.HANDED)
        and m.value
        and (m.quantity, m.detail, m.rank, m.peer) not in known
    ]
    return compare([*predictions, *surprises], measurements)


def _pair_of_cells(found: Mapping[Quantity, Comparison]) -> tuple[str, ...]:
    cells: list[str] = []
    for quantity in (Quantity.CALLS, Quantity.HANDED):
        c = found.get(quantity)
        cells += ["", ""] if c is None else [plain(c.predicted), plain(c.measured)]
    return tuple(cells)


def _sum(comparisons: Sequence[Comparison], what: str) -> str:
    return plain(sum(getattr(c, what) for c in comparisons))
