"""Two runs beside each other: what their specs say differently, and each quantity of both."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from calculators.figures import predicted_bar
from calculators.lab import store
from calculators.lab.fields import is_read
from calculators.lab.measurements import Quantity
from calculators.lab.store import Run
from calculators.plots import byte_bars, measured_bar
from calculators.runs.charts import SWATCHES, Drawn
from calculators.runs.levels import with_nothing_expected
from calculators.runs.opening import looking
from calculators.runs.words import place_of, title_of
from calculators.tables import Row, Table
from calculators.units import plain, seconds

_QUANTITIES = (
    Quantity.CALLS,
    Quantity.HANDED,
    Quantity.WIRE,
    Quantity.MEMORY,
    Quantity.SECONDS,
    Quantity.STEP_SECONDS,
)
_LEVELS = {
    Quantity.CALLS: "handed",
    Quantity.HANDED: "handed",
    Quantity.WIRE: "wire",
    Quantity.MEMORY: "memory",
    Quantity.SECONDS: "time",
    Quantity.STEP_SECONDS: "time",
}


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line of both specs; None where a run does not read the field."""

    name: str
    first: str | None
    second: str | None

    @property
    def differs(self) -> bool:
        return self.first != self.second


@dataclass(frozen=True, kw_only=True)
class Number:
    """One quantity a step, of all ranks of a run together; None where it was not predicted, or not seen."""

    predicted: float | None
    measured: float | None


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two runs and what was measured of each, a step."""

    first: Run
    second: Run
    numbers: dict[tuple[Quantity, str], tuple[Number, Number]]

    @property
    def runs(self) -> tuple[Run, Run]:
        return self.first, self.second

    @property
    def titles(self) -> tuple[str, str]:
        """What each is, in a line."""
        first, second = (f"{title_of(run.spec)}, {place_of(run.spec)}" for run in self.runs)
        return first, second

    @property
    def lines(self) -> list[Line]:
        """Every field that either reads."""
        values = [run.spec.to_dict() for run in self.runs]
        found = []
        for name in values[0]:
            said = [_said(v[name]) if is_read(name, v) else None for v in values]
            if said != [None, None] and name != "note":
                found.append(Line(name=name, first=said[0], second=said[1]))
        return found

    @property
    def differing(self) -> int:
        """How many lines differ."""
        return sum(line.differs for line in self.lines)

    @property
    def table(self) -> Table:
        """Each quantity of both, and the ratio of what was measured."""
        rows = []
        for (quantity, detail), (one, other) in self.numbers.items():
            says = seconds if quantity.unit == "s" else plain
            rows.append(
                Row(
                    cells=(
                        f"{quantity}, {detail}" if detail else str(quantity),
                        _LEVELS[quantity],
                        "" if quantity.unit == "s" else quantity.unit,
                        *(
                            _number(number, says)
                            for n in (one, other)
                            for number in (n.predicted, n.measured)
                        ),
                        _ratio(one.measured, other.measured),
                    )
                )
            )
        return Table(
            caption="For each measured step, all ranks together. Levels are never mixed: compare along a line.",
            heads=(
                "Quantity",
                "Level",
                "Unit",
                f"Run {self.first.id} predicted",
                "measured",
                f"Run {self.second.id} predicted",
                "measured",
                f"{self.second.id} ÷ {self.first.id}",
            ),
            rows=tuple(rows),
            texts=3,
            name="numbers",
        )

    @property
    def chart(self) -> Drawn | None:
        """Bytes of both, handed and on the wire, hollow beside solid; None where neither was measured."""
        kinds = ((Quantity.HANDED, "handed"), (Quantity.WIRE, "wire"))
        found = {label: self.numbers[key, ""] for key, label in kinds if (key, "") in self.numbers}
        if not found:
            return None
        data, top = [], 0.0
        for number, run in enumerate(self.runs):
            for what, bar in (("predicted", predicted_bar), ("measured", measured_bar)):
                values = [float(getattr(pair[number], what) or 0) for pair in found.values()]
                top = max(top, *values)
                data.append(
                    bar(
                        f"run {run.id} {what}",
                        list(found),
                        values,
                        colour=run.spec.family,
                        pattern="" if number == 0 else "/",
                        offsetgroup=f"{number} {what}",
                    )
                )
        return Drawn(
            name="both",
            figure=byte_bars(data, title="bytes a step, all ranks", top=top),
            caption=SWATCHES,
            table=self.table.html,
            family=self.first.spec.family,
            file=f"runs-{self.first.id}-{self.second.id}",
        )


def compared(first: int, second: int, *, now: datetime) -> Pair | tuple[int, ...]:
    """Both runs; or the numbers of those that are not there."""
    with looking(now=now) as session:
        looked_up = {run_id: store.get_run(session, run_id) for run_id in (first, second)}
        runs = {run_id: run for run_id, run in looked_up.items() if run is not None}
        if missing := tuple(run_id for run_id in looked_up if run_id not in runs):
            return missing
        found = [
            with_nothing_expected(
                store.predictions_of(session, run_id, quantities=_QUANTITIES),
                store.measurements_of(session, run_id, quantities=_QUANTITIES),
            )
            for run_id in (first, second)
        ]
        alone = [store.measurements_of(session, run_id, quantities=_QUANTITIES) for run_id in (first, second)]
    sums: list[dict[tuple[Quantity, str], Number]] = []
    for comparisons, measurements in zip(found, alone, strict=True):
        told: dict[tuple[Quantity, str], Number] = {}
        for m in measurements:
            key, per = (m.quantity, m.detail), _steps(m.quantity, m.steps)
            old = told.get(key, Number(predicted=None, measured=0.0))
            told[key] = Number(predicted=None, measured=(old.measured or 0.0) + m.value / per)
        for c in comparisons:
            key = (c.quantity, c.detail)
            old = told[key]
            expected = (old.predicted or 0.0) + c.predicted / _steps(c.quantity, c.steps)
            told[key] = Number(predicted=expected, measured=old.measured)
        sums.append(told)
    nothing = Number(predicted=None, measured=None)
    keys = sorted({*sums[0], *sums[1]}, key=lambda key: (_QUANTITIES.index(key[0]), key[1]))
    return Pair(
        first=runs[first],
        second=runs[second],
        numbers={key: (sums[0].get(key, nothing), sums[1].get(key, nothing)) for key in keys},
    )


def _steps(quantity: Quantity, steps: int) -> int:
    """By how many a value is divided: memory is held, and a median is of one step already."""
    return 1 if quantity in (Quantity.MEMORY, Quantity.STEP_SECONDS) else max(steps, 1)


def _number(value: float | None, says: Callable[[float], str]) -> str:
    return "–" if value is None else says(value)


def _ratio(one: float | None, other: float | None) -> str:
    if one is None or other is None or one == other == 0:
        return "–"
    if not one:
        return "∞"
    ratio = other / one
    return plain(ratio) if ratio >= 100 or ratio == int(ratio) else f"{ratio:.3g}"


def _said(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)
