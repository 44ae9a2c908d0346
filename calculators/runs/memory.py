"""What each rank held: weights, gradients, optimizer state and what it kept for the backward pass; its peak apart."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from calculators.figures import predicted_bar
from calculators.lab.compare import Comparison, compare
from calculators.lab.measurements import Measurement, Prediction, Quantity
from calculators.lab.splits.memory import GRADIENTS, OPTIMIZER, PEAK, SAVED, WEIGHTS
from calculators.plots import byte_bars, measured_bar
from calculators.runs.charts import Drawn, alike
from calculators.tables import Row, Table
from calculators.units import both_bytes, iec_bytes, percent, plain, signed

PARTS = ((WEIGHTS, ""), (GRADIENTS, "/"), (OPTIMIZER, "x"), (SAVED, "."))
"""The parts in the order in which bars stack, each with its pattern."""


@dataclass(frozen=True, kw_only=True)
class Memory:
    """The memory of one run's ranks, in its last warm-up step."""

    comparisons: tuple[Comparison, ...]
    peaks: tuple[Measurement, ...]
    device: str
    family: str
    file: str

    @classmethod
    def of(
        cls,
        predictions: Sequence[Prediction],
        measurements: Sequence[Measurement],
        *,
        device: str,
        family: str,
        file: str,
    ) -> "Memory | None":
        """That of a run; None where none was measured."""
        seen = [m for m in measurements if m.quantity is Quantity.MEMORY]
        if not seen:
            return None
        expected = [p for p in predictions if p.quantity is Quantity.MEMORY]
        return cls(
            comparisons=tuple(compare(expected, seen)),
            peaks=tuple(m for m in seen if m.detail == PEAK),
            device=device,
            family=family,
            file=file,
        )

    @cached_property
    def ranks(self) -> list[int]:
        return sorted({c.rank for c in self.comparisons})

    @property
    def sentence(self) -> str:
        """The fullest rank, said; empty where no part was predicted."""
        if not self.ranks:
            return ""
        totals = {rank: sum(c.measured for c in self.comparisons if c.rank == rank) for rank in self.ranks}
        fullest = max(totals, key=lambda rank: totals[rank])
        predicted = sum(c.predicted for c in self.comparisons if c.rank == fullest)
        return (
            f"Rank {fullest} held {both_bytes(totals[fullest])} of the model and its training; "
            f"{both_bytes(predicted)} were predicted."
        )

    @property
    def peak_sentence(self) -> str:
        """The peak, told apart because it counts something else; empty where it was not measured."""
        if not self.peaks:
            return ""
        whole = (
            "of tensors on the GPU"
            if self.device == "cuda"
            else "of the whole process, Python and torch included; nothing predicts it"
        )
        grouped = alike({m.rank: (iec_bytes(m.value),) for m in self.peaks})
        said = "; ".join(f"{ranks}: {cells[0]}" for ranks, cells in grouped)
        return f"The most at one moment, {whole}: {said}."

    @cached_property
    def chart(self) -> Drawn | None:
        """The bars, hollow beside solid, and their table; None where no part was predicted."""
        if not self.ranks:
            return None
        by = {(c.rank, c.detail): c for c in self.comparisons}
        names = [f"rank {rank}" for rank in self.ranks]
        data = []
        for is_measured in (False, True):
            for part, pattern in PARTS:
                values = [
                    (by[rank, part].measured if is_measured else by[rank, part].predicted)
                    if (rank, part) in by
                    else 0.0
                    for rank in self.ranks
                ]
                if not any(values):
                    continue
                bar = measured_bar if is_measured else predicted_bar
                what = "measured" if is_measured else "predicted"
                data.append(
                    bar(
                        f"{what}: {part}",
                        names,
                        values,
                        colour=self.family,
                        pattern=pattern,
                        offsetgroup=what,
                    )
                )
        tops = [
            sum(getattr(c, what) for c in self.comparisons if c.rank == rank)
            for rank in self.ranks
            for what in ("predicted", "measured")
        ]
        return Drawn(
            name="memory",
            figure=byte_bars(data, title="bytes held", top=max(tops, default=0)),
            caption="Hollow: predicted. Solid: measured. A pattern for each part.",
            table=self._table.html,
            family=self.family,
            file=f"{self.file}-memory",
        )

    @property
    def _table(self) -> Table:
        rows = []
        for part, _ in PARTS:
            of_ranks = {c.rank: _cells(c) for c in self.comparisons if c.detail == part}
            rows += [Row(cells=(part, ranks, *cells)) for ranks, cells in alike(of_ranks)]
        return Table(
            caption="Bytes that each rank held in the last warm-up step.",
            heads=("Part", "Ranks", "Formula", "Beside it", "Predicted", "Measured", "Unexplained"),
            rows=tuple(rows),
            texts=2,
            name="memory",
        )


def _cells(c: Comparison) -> tuple[str, ...]:
    left = signed(c.unexplained) + (
        f" ({percent(c.unexplained_share)})" if c.unexplained and c.predicted else ""
    )
    return (
        plain(c.prediction.formula),
        plain(c.prediction.backend_excess),
        plain(c.predicted),
        plain(c.measured),
        left,
    )
