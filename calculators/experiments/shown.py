"""What the page of an experiment shows of a verdict: its figures, hollow beside solid, and its curves."""

from collections.abc import Sequence

from django.utils.html import format_html
from django.utils.safestring import SafeString

from calculators.figures import Figure as Plot
from calculators.figures import axis, figure, predicted_line
from calculators.lab.guided.claims import Curve, Figure, Verdict
from calculators.plots import measured_line
from calculators.runs.charts import SWATCHES, Drawn, joined
from calculators.tables import Row, Table
from calculators.units import plain, seconds, small

_BAR = 110
"""Width of the longer of a figure's two bars [px]."""


def figures_table(verdict: Verdict) -> Table | None:
    """The numbers that the verdict rests on, first those that decide; None where it has none."""
    if not verdict.figures:
        return None
    rows = tuple(
        Row(
            cells=(
                one.what,
                str(one.level),
                "decides" if one.decides else "told beside",
                _bars(one),
                _said(one.predicted, one.unit),
                _said(one.measured, one.unit),
            ),
            is_chosen=one.decides,
        )
        for one in sorted(verdict.figures, key=lambda one: not one.decides)
    )
    return Table(
        caption="The numbers behind the verdict. Each stands on its level; levels are never compared.",
        heads=("What", "Level", "For the verdict", "Beside each other", "Predicted", "Measured"),
        rows=rows,
        texts=4,
        name="figures",
    )


def curves(verdict: Verdict, *, family: str, name: str) -> list[Drawn]:
    """Each curve: what was predicted as a line, what was measured as dots, and the points in a table."""
    return [_curve(one, number, family=family, name=name) for number, one in enumerate(verdict.curves)]


def _curve(curve: Curve, number: int, *, family: str, name: str) -> Drawn:
    data: list[Plot] = []
    if any(value is not None for value in curve.predicted):
        data.append(
            predicted_line(
                "predicted", curve.x, curve.predicted, colour=family, says=_points(curve.predicted)
            )
        )
    if any(value is not None for value in curve.measured):
        data.append(
            measured_line(
                "measured", curve.x, curve.measured, colour=family, says=_points(curve.measured), joined=False
            )
        )
    kind: Plot = {"type": "log"} if curve.logarithmic else {"rangemode": "tozero"}
    rows = tuple(
        Row(cells=(_point(x), _point(_at(curve.predicted, at)), _point(_at(curve.measured, at))))
        for at, x in enumerate(curve.x)
    )
    table = Table(
        caption=f"{curve.name}, in numbers.", heads=(curve.x_title, "Predicted", "Measured"), rows=rows
    )
    return Drawn(
        name=f"curve-{number}",
        figure=figure(data, x=axis(curve.x_title) | kind, y=axis(curve.y_title) | kind, showlegend=True),
        caption=format_html("<b>{}</b>. {}", curve.name, SWATCHES),
        table=table.html,
        family=family,
        file=f"{name}-{number + 1}",
    )


def _bars(one: Figure) -> SafeString:
    """Two bars on one scale, hollow and solid; the cells beside them say the numbers."""
    values = [value for value in (one.predicted, one.measured) if value is not None]
    most = max(map(abs, values), default=0.0)
    if not most:
        return joined([""])
    parts = []
    for value, top, looks in ((one.predicted, 1.5, "hollow"), (one.measured, 12.5, "solid")):
        if value is not None:
            width = max(abs(value) / most * _BAR, 1)
            parts.append(f'<rect class="{looks}" x="1" y="{top}" width="{width:.1f}" height="7"/>')
    size = f'width="{_BAR + 2}" height="21" viewBox="0 0 {_BAR + 2} 21"'
    return joined([f'<svg class="beside" {size} aria-hidden="true">', *parts, "</svg>"])


def _said(value: float | None, unit: str) -> str:
    if value is None:
        return "–"
    if unit == "s":
        return seconds(value)
    return f"{_point(value)} {unit}"


def _points(values: Sequence[float | None]) -> list[str]:
    return [_point(value) for value in values]


def _point(value: float | None) -> str:
    if value is None:
        return "–"
    if 0 < abs(value) < 0.01:
        return small(value)
    # 0.9989 is not 1, and a ratio is judged on such digits.
    return (
        plain(value)
        if abs(value) >= 100 or value == int(value)
        else f"{value:.4g}".replace("-", "\N{MINUS SIGN}")
    )


def _at(values: Sequence[float | None], at: int) -> float | None:
    return values[at] if at < len(values) else None
