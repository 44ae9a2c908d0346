"""Predicted against measured, part by part; the rest has a name of its own: unexplained."""

from collections.abc import Iterable
from dataclasses import dataclass

from calculators.lab.measurements import Measurement, Prediction, Quantity

TOLERATED_SHARE = 0.01
"""More than this share of the prediction unexplained is shown as a failure of the model."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One quantity of one rank (or ordered pair): what the plan said and what the meter saw."""

    prediction: Prediction
    measurement: Measurement

    @property
    def quantity(self) -> Quantity:
        return self.prediction.quantity

    @property
    def rank(self) -> int:
        return self.prediction.rank

    @property
    def peer(self) -> int | None:
        return self.prediction.peer

    @property
    def detail(self) -> str:
        return self.prediction.detail

    @property
    def steps(self) -> int:
        return self.measurement.steps

    @property
    def predicted(self) -> float:
        return self.prediction.predicted

    @property
    def measured(self) -> float:
        return self.measurement.value

    @property
    def unexplained(self) -> float:
        """Measured − predicted; never an input to the other parts."""
        return self.measured - self.predicted

    @property
    def unexplained_share(self) -> float:
        """Unexplained as a share of predicted; infinite when nothing was predicted and something came."""
        if self.predicted:
            return self.unexplained / self.predicted
        return 0.0 if self.unexplained == 0 else float("inf")

    @property
    def is_explained(self) -> bool:
        return abs(self.unexplained_share) <= TOLERATED_SHARE

    def to_dict(self) -> dict[str, object]:
        """The row of the JSON and CSV downloads."""
        return {
            "quantity": str(self.quantity),
            "detail": self.detail,
            "rank": self.rank,
            "formula": self.prediction.formula,
            "backend_excess": self.prediction.backend_excess,
            "framing": self.prediction.framing,
            "control": self.prediction.control,
            "predicted": self.predicted,
            "measured": self.measured,
            "unexplained": self.unexplained,
        }


def compare(predictions: Iterable[Prediction], measurements: Iterable[Measurement]) -> list[Comparison]:
    """Every prediction that was measured, beside its measurement, in the predictions' order."""
    seen = {(m.quantity, m.detail, m.rank, m.peer): m for m in measurements}
    return [
        Comparison(prediction=p, measurement=seen[key])
        for p in predictions
        if (key := (p.quantity, p.detail, p.rank, p.peer)) in seen
    ]


def matrix(comparisons: Iterable[Comparison], *, world_size: int, measured: bool) -> list[list[float]]:
    """Wire bytes from each rank (row) to each other (column), [bytes]; measured or predicted."""
    cells = [[0.0] * world_size for _ in range(world_size)]
    for c in comparisons:
        if c.quantity is Quantity.PAIR and c.peer is not None:
            cells[c.rank][c.peer] = c.measured if measured else c.predicted
    return cells
