"""What each rank did from moment to moment: busy, waiting in a call, or idle for want of input; drawn as SVG.

Busy is solid, because it was measured; waiting is ruled and idle is hatched. Only as much is drawn as can be told
apart; the table beside the picture is of all.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape

from django.utils.safestring import SafeString

from calculators.lab.measurements import Doing, Measurement, Quantity, Span, Timeline
from calculators.runs.charts import joined
from calculators.tables import Row, Table
from calculators.units import counted, percent, seconds

ROW, BAR, AXIS = 30, 24, 22
WIDTH = 940  # a wide column less the names of the rows
MOST_SPANS = 240
"""Of one rank; of more, each would be thinner than a hand of pixels."""
_NICE = (1, 2, 5)


@dataclass(frozen=True, kw_only=True)
class Timelines:
    """The last steps of one run, rank by rank."""

    timelines: tuple[Timeline, ...]
    sums: tuple[Measurement, ...]

    @classmethod
    def of(cls, timelines: Sequence[Timeline], measurements: Sequence[Measurement]) -> "Timelines | None":
        """Those of a run; None where no rank told one."""
        told = tuple(timeline for timeline in timelines if timeline.spans)
        sums = tuple(m for m in measurements if m.quantity is Quantity.SECONDS)
        return cls(timelines=told, sums=sums) if told else None

    @property
    def ranks(self) -> list[int]:
        """The rows from the top."""
        return [timeline.rank for timeline in self.timelines]

    @cached_property
    def end(self) -> float:
        """The end of what was told [s]."""
        return max(timeline.spans[-1].end for timeline in self.timelines)

    @cached_property
    def drawn_until(self) -> float:
        """The end of what is drawn [s]: no rank has more spans before it than can be told apart."""
        return min(
            [self.end, *(t.spans[MOST_SPANS - 1].end for t in self.timelines if len(t.spans) > MOST_SPANS)]
        )

    @property
    def drawn_sentence(self) -> str:
        """What is drawn of what was told."""
        steps = max((m.steps for m in self.sums), default=0)
        all_of_it = (
            f"{seconds(self.end)}, {counted(steps, 'step')} after the measured ones"
            if steps
            else seconds(self.end)
        )
        if self.drawn_until >= self.end:
            return f"All of it is drawn: {all_of_it}."
        return f"The first {seconds(self.drawn_until)} are drawn, of {all_of_it}; the table is of all."

    @property
    def svg(self) -> SafeString:
        """The picture."""
        scale = WIDTH / self.drawn_until if self.drawn_until > 0 else 0.0
        height = len(self.timelines) * ROW + AXIS
        shapes: dict[Doing, list[str]] = {doing: [] for doing in Doing}
        for number, timeline in enumerate(self.timelines):
            for doing, start, end in self._merged(timeline.spans, scale):
                shapes[doing].append(
                    f"M{start:.1f} {number * ROW + 3}h{max(end - start, 0.4):.1f}v{BAR}H{start:.1f}z"
                )
        paths = [
            f'<path class="timeline-{doing}" d="{"".join(boxes)}"/>'
            for doing, boxes in shapes.items()
            if boxes
        ]
        said = " ".join(
            f"{row.cells[0]}: busy {row.cells[2]}, waiting {row.cells[4]}, idle {row.cells[6]}."
            for row in self._rows
        )
        size = f'width="{WIDTH + 2}" height="{height}" viewBox="0 0 {WIDTH + 2} {height}"'
        return joined(
            [
                f'<svg class="gantt-svg" role="img" {size}><title>What each rank did</title>',
                f"<desc>{escape(said)}</desc>{_PATTERNS}",
                *paths,
                self._axis(scale, height),
                "</svg>",
            ]
        )

    @property
    def table(self) -> Table:
        """The shares of all steps that were followed."""
        return Table(
            caption="What each rank did with its time, in all steps that were followed.",
            heads=("Rank", "Busy", "share", "Waiting", "share", "Idle", "share"),
            rows=tuple(self._rows),
            name="shares",
        )

    @cached_property
    def _rows(self) -> list[Row]:
        rows = []
        for timeline in self.timelines:
            spent = self._spent(timeline)
            whole = sum(spent.values())
            cells = [f"rank {timeline.rank}"]
            for doing in Doing:
                share = spent[doing] / whole if whole else 0.0
                cells += [seconds(spent[doing]), percent(round(share, 3))]
            rows.append(Row(cells=tuple(cells)))
        return rows

    def _spent(self, timeline: Timeline) -> dict[Doing, float]:
        """By the meter's own sums, which count spans that were not kept one by one, too."""
        told = {Doing(m.detail): m.value for m in self.sums if m.rank == timeline.rank}
        if told:
            return {doing: told.get(doing, 0.0) for doing in Doing}
        spent = dict.fromkeys(Doing, 0.0)
        for span in timeline.spans:
            spent[span.doing] += span.end - span.start
        return spent

    def _merged(self, spans: Sequence[Span], scale: float) -> Iterator[tuple[Doing, float, float]]:
        """Spans in pixels; neighbours that do the same are one."""
        last: tuple[Doing, float, float] | None = None
        for span in spans:
            if span.start >= self.drawn_until:
                break
            start, end = span.start * scale, min(span.end, self.drawn_until) * scale
            if last is not None and last[0] is span.doing and start - last[2] < 0.05:
                last = (span.doing, last[1], end)
                continue
            if last is not None:
                yield last
            last = (span.doing, start, end)
        if last is not None:
            yield last

    def _axis(self, scale: float, height: int) -> str:
        if scale <= 0:
            return ""
        step = _round_step(90 / scale)
        ticks = []
        for number in range(int(self.drawn_until / step) + 1):
            x = min(max(number * step * scale, 0.5), WIDTH)
            edge = "first" if number == 0 else "last" if WIDTH - x < 24 else "middle"
            ticks.append(
                f'<path d="M{x:.1f} {height - AXIS}v4"/>'
                f'<text x="{x:.1f}" y="{height - 5}" class="{edge}">{seconds(number * step)}</text>'
            )
        return f'<g class="gantt-axis">{"".join(ticks)}</g>'


# Referred to by the style sheet, so there is one set a page.
_PATTERNS = (
    '<defs><pattern id="timeline-ruled" width="8" height="6" patternUnits="userSpaceOnUse">'
    '<rect class="timeline-ground" width="8" height="6"/><path class="timeline-line" d="M0 1.5h8M0 4.5h8"/></pattern>'
    '<pattern id="timeline-hatched" width="6" height="6" patternUnits="userSpaceOnUse">'
    '<path class="gantt-idle-line" d="M-1 1l2-2M0 6l6-6M5 7l2-2"/></pattern></defs>'
)


def _round_step(least: float) -> float:
    """The smallest of 1, 2, 5, 10 … that is at least this long."""
    power = 1e-12
    while True:
        for nice in _NICE:
            if nice * power >= least:
                return nice * power
        power *= 10
