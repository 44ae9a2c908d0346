"""The table beside the figure of the wire: the parts of the prediction, and what is left, rank by rank."""

from collections.abc import Sequence

from django.utils.html import format_html
from django.utils.safestring import SafeString

from calculators.lab.compare import Comparison
from calculators.runs.charts import joined
from calculators.units import counted, plain, signed


def wire_table(wire: Sequence[Comparison], *, steps: int, unit: str) -> SafeString:
    """Written by hand: tests and readers find its numbers by their attributes."""
    rows = [
        format_html(
            '<tr data-rank="{}"><th scope="row" class="rank">rank {}</th>'
            '<td class="num">{}</td><td class="num">{}</td><td class="num">{}</td><td class="num">{}</td>'
            '<td class="num total" data-predicted>{}</td><td class="num total" data-measured>{}</td>'
            '<td class="num{}" data-unexplained>{}</td></tr>',
            c.rank,
            c.rank,
            plain(c.prediction.formula),
            plain(c.prediction.backend_excess),
            plain(c.prediction.framing),
            plain(c.prediction.control),
            plain(c.predicted),
            plain(c.measured),
            "" if c.is_explained else " bad",
            signed(c.unexplained),
        )
        for c in wire
    ]
    return format_html(
        '<div class="scroll" tabindex="0" role="region" aria-label="Predicted against measured, by rank">'
        '<table class="table" id="wire"><caption>Bytes that each rank’s sockets sent over {}. Formula is the level '
        "algorithm; the columns after it lead from there to the level wire.</caption><thead><tr>"
        '<th scope="col">Rank</th><th scope="col" class="num">Formula</th><th scope="col" class="num">Backend</th>'
        '<th scope="col" class="num">Framing</th><th scope="col" class="num">Control</th>'
        '<th scope="col" class="num"><span class="swatch predicted"></span> Predicted</th>'
        '<th scope="col" class="num"><span class="swatch"></span> Measured</th>'
        '<th scope="col" class="num">Unexplained</th></tr></thead><tbody>{}</tbody></table></div>',
        counted(steps, unit),
        joined(rows),
    )
