"""The chart of what a step of each of the quickest layouts waits for."""

from calculators.figures import axis, figure, predicted_bar
from calculators.pages.layout.words import TIME_PAINT, TIME_PARTS
from calculators.predict.planner import Plan
from calculators.predict.shapes import Phase
from calculators.units import seconds
from calculators.workbench import Chart, Row, Table


def parts_chart(found: Plan) -> Chart:
    """What a step of each of the best waits for, stacked."""
    best = found.best
    what = "step" if found.task.phase is Phase.TRAINING else "token"
    names = [f"{row + 1}" for row in range(len(best))]
    shown = [part for part in TIME_PARTS if best[f"{part}_seconds"].max() > 0]
    data = [
        predicted_bar(
            TIME_PARTS[part],
            names,
            best[f"{part}_seconds"].tolist(),
            colour=TIME_PAINT[part][0],
            pattern=TIME_PAINT[part][1],
            says=[seconds(value) for value in best[f"{part}_seconds"]],
        )
        for part in shown
    ]
    return Chart(
        name="parts",
        figure=figure(
            data,
            x=axis("place in the table above") | {"type": "category"},
            y=axis(f"seconds of a {what}"),
            barmode="stack",
        ),
        caption=f"What a {what} of each waits for, predicted. Exchanges count only where nothing hides them.",
        table=Table(
            name="parts",
            caption="The same numbers.",
            heads=("", *(TIME_PARTS[part] for part in shown), "Together"),
            rows=tuple(
                Row(
                    cells=(
                        names[row],
                        *(seconds(best[f"{part}_seconds"][row]) for part in shown),
                        seconds(best["step_seconds"][row]),
                    ),
                    is_chosen=row == 0,
                )
                for row in range(len(best))
            ),
        ),
    )
