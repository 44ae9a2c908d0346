"""What ranks followed from step to step: a loss, how far replicas are apart, tokens, and how long each step took."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from django.utils.html import format_html
from django.utils.safestring import SafeString

from calculators.figures import Figure, axis, figure
from calculators.lab.clock import StepTime
from calculators.lab.measurements import Prediction, Quantity, Series, StepSeconds
from calculators.plots import level_line, measured_line
from calculators.runs.charts import Drawn, joined
from calculators.tables import Row, Table
from calculators.units import plain, seconds, small

MOST_ROWS = 64
"""Of the table of every value; of more, evenly spaced ones are shown and the downloads have all."""

Says = Callable[[float], str]


@dataclass(frozen=True, kw_only=True)
class Lines:
    """One number followed by one or more ranks: a line each, solid, because it was measured."""

    name: str
    title: str
    lines: tuple[tuple[int, tuple[float, ...]], ...]
    says: Says
    family: str
    unit: str
    file: str
    predicted: float | None = None

    @property
    def drawn(self) -> Drawn:
        """The figure and its tables."""
        steps = list(range(1, 1 + max(len(values) for _, values in self.lines)))
        data: list[Figure] = [
            measured_line(
                f"rank {rank}",
                steps[: len(values)],
                values,
                colour=self.family,
                says=[self.says(value) for value in values],
                mark=number,
            )
            for number, (rank, values) in enumerate(self.lines)
        ]
        if self.predicted is not None:
            data.append(
                level_line(
                    "predicted", steps, self.predicted, colour=self.family, says=self.says(self.predicted)
                )
            )
        return Drawn(
            name=self.name,
            figure=figure(
                data,
                x=axis(f"measured {self.unit}"),
                y=axis(self.title) | {"rangemode": "tozero"},
                height=300,
                showlegend=True,
            ),
            caption=f"{self.title[:1].upper()}{self.title[1:]}, measured {self.unit} by {self.unit}.",
            table=joined([self._summary.html, self._every]),
            family=self.family,
            file=f"{self.file}-{self.name}",
        )

    @property
    def _summary(self) -> Table:
        heads = ["Rank", "First", "Last", "Lowest", "Median", "Highest"]
        rows = []
        for rank, values in self.lines:
            told = (values[0], values[-1], min(values), statistics.median(values), max(values))
            cells = [f"rank {rank}", *map(self.says, told)]
            if self.predicted is not None:
                cells.append(self.says(self.predicted))
            rows.append(Row(cells=tuple(cells)))
        if self.predicted is not None:
            heads.append("Predicted")
        return Table(caption=f"In short: {self.title}.", heads=tuple(heads), rows=tuple(rows), name=self.name)

    @property
    def _every(self) -> SafeString:
        steps = max(len(values) for _, values in self.lines)
        stride = -(-steps // MOST_ROWS)
        rows = [
            Row(
                cells=(
                    str(step + 1),
                    *(self.says(values[step]) if step < len(values) else "" for _, values in self.lines),
                )
            )
            for step in range(0, steps, stride)
        ]
        which = "Every value" if stride == 1 else f"One value in {stride}; the JSON download has all"
        table = Table(
            caption=f"{which}.",
            heads=(self.unit.capitalize(), *(f"rank {rank}" for rank, _ in self.lines)),
            rows=tuple(rows),
        )
        return format_html("<details><summary>{}</summary>{}</details>", which, table.html)


def followed(series: Sequence[Series], *, family: str, unit: str, file: str) -> list[Lines]:
    """A figure for each name that ranks followed a number under."""
    names = dict.fromkeys(one.name for one in series if one.values)
    return [
        Lines(
            name=f"series-{number}",
            title=name,
            lines=tuple((one.rank, one.values) for one in series if one.name == name and one.values),
            says=seconds if name.startswith("seconds") else _said,
            family=family,
            unit=unit,
            file=file,
        )
        for number, name in enumerate(names)
    ]


def step_times(
    step_seconds: Sequence[StepSeconds],
    predictions: Sequence[Prediction],
    *,
    said: StepTime | None,
    family: str,
    unit: str,
    file: str,
) -> Lines | None:
    """How long each step took, beside what a calibration said it would; None where nobody timed any."""
    lines = tuple((s.rank, s.seconds) for s in step_seconds if s.seconds)
    if not lines:
        return None
    expected = [p.predicted for p in predictions if p.quantity is Quantity.STEP_SECONDS and not p.detail]
    if said is not None and not expected:
        expected = [said.seconds.value]
    return Lines(
        name="step-times",
        title=f"seconds a {unit}",
        lines=lines,
        says=seconds,
        family=family,
        unit=unit,
        file=file,
        predicted=max(expected, default=None),
    )


def _said(value: float) -> str:
    """A number that may be a count or the thousandth part of one."""
    return small(value) if 0 < abs(value) < 0.1 else plain(value)
