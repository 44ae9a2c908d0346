"""A timetable as a picture: one row a stage, time from left to right, drawn on the server as SVG.

Forward, input gradient and weight gradient differ in tone and pattern of the pipeline's colour and in their
letter; what is idle is hatched. Everything is outlined, not filled: it is predicted. `static/pipeline.css`
colours it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape

from calculators.predict.schedules import Operation, Schedule, Timetable, Work, kind_of
from calculators.units import counted, seconds, whole_percent

ROW = 30
BAR = 24
_AXIS = 22
_WIDTH = 630  # a page's column; a long step is drawn wider and scrolls
_WIDEST = 9_000
_ROOMIEST = 56  # of the shortest operation: a short step need not fill the column
_LETTER = 7.6  # width of a character of a label, 11 px tabular figures
_MOST_LABELS = 900
_UNLABELLED = 6.0

_LETTERS = {
    Work.FORWARD: "F",
    Work.BACKWARD: "B",
    Work.BACKWARD_INPUT: "B",
    Work.BACKWARD_WEIGHT: "W",
}
_NICE = (1, 2, 5)


@dataclass(frozen=True, kw_only=True)
class Key:
    """One entry of the legend: the class of its swatch, and what it stands for."""

    swatch: str
    says: str


@dataclass(frozen=True, kw_only=True)
class Gantt:
    """The picture of one timetable, and the same in words."""

    timetable: Timetable

    @property
    def title(self) -> str:
        """What is drawn, in a few words."""
        played = self.timetable
        batches = counted_micro_batches(played.micro_batches)
        return f"{kind_of(played.schedule).name}: {batches} in {counted(played.stages, 'stage')}"

    @property
    def stages(self) -> range:
        """The numbers of the rows, from the top."""
        return range(self.timetable.stages)

    @cached_property
    def sentences(self) -> tuple[str, ...]:
        """The picture in words, a sentence a stage."""
        played = self.timetable
        return tuple(
            f"Stage {stage} works {seconds(float(played.busy[stage]))} between {seconds(row[0].start)} and "
            f"{seconds(row[-1].end)}, and waits {whole_percent(float(played.idle[stage]) / played.period)} of a step."
            for stage, row in enumerate(played.rows)
        )

    @property
    def orders(self) -> tuple[str, ...]:
        """Each stage's operations in their order: F1 F2 B1 …; none where they are too many to read."""
        if not self._is_labelled:
            return ()
        return tuple(" ".join(self._label(operation) for operation in row) for row in self.timetable.rows)

    @cached_property
    def keys(self) -> tuple[Key, ...]:
        """What the tones and letters stand for; only what is drawn."""
        works = {operation.work for operation in self.timetable.rows[0]}
        keys = [Key(swatch="gantt-f", says="F forward")]
        if Work.BACKWARD_INPUT not in works:
            keys.append(Key(swatch="gantt-b", says="B backward: both gradients"))
        elif Work.BACKWARD not in works:
            keys.append(Key(swatch="gantt-b", says="B backward: the gradient of the stage’s input"))
        else:
            keys.append(
                Key(
                    swatch="gantt-b",
                    says="B backward: both gradients, or only that of the input where W follows",
                )
            )
        if Work.BACKWARD_WEIGHT in works:
            keys.append(Key(swatch="gantt-w", says="W the gradient of its weights"))
        keys.append(Key(swatch="gantt-idle", says="idle"))
        return tuple(keys)

    @cached_property
    def svg(self) -> str:
        """The picture, safe in a page as it is."""
        played = self.timetable
        scale = self._scale
        width = played.makespan * scale + 2
        height = played.stages * ROW + _AXIS
        shapes: dict[str, list[str]] = {"gantt-f": [], "gantt-b": [], "gantt-w": []}
        labels: list[str] = []
        for stage, row in enumerate(played.rows):
            self._draw_row(row, stage * ROW + 3, scale, shapes, labels if self._is_labelled else None)
        idle = "".join(f"M0 {stage * ROW + 3}h{width - 2:.0f}v{BAR}H0z" for stage in self.stages)
        drawn = f'<path class="gantt-idle" d="{idle}"/>' + "".join(
            f'<path class="{name}" d="{"".join(boxes)}"/>' for name, boxes in shapes.items() if boxes
        )
        size = f'width="{width:.0f}" height="{height}" viewBox="0 0 {width:.0f} {height}"'
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="gantt-svg" role="img" {size}>'
            f"<title>{escape(self.title)}</title><desc>{escape(' '.join(self.sentences))}</desc>{_PATTERNS}{drawn}"
            f'<g class="gantt-label">{"".join(labels)}</g>{self._axis(scale, height)}</svg>'
        )

    def _draw_row(
        self,
        row: Sequence[Operation],
        top: int,
        scale: float,
        shapes: dict[str, list[str]],
        labels: list[str] | None,
    ) -> None:
        baseline = top + BAR // 2 + 4
        chunked = self.timetable.chunks > 1
        pairs = self.timetable.schedule in (Schedule.DUALPIPE, Schedule.DUALPIPE_V)
        forwards, backwards, weights = shapes.values()
        for number, (_, work, chunk, micro_batch, start, end) in enumerate(row):
            y, height, line = top, BAR, baseline
            if pairs and self._is_paired(row, number):  # a forward above the backward beside it
                height = BAR // 2
                y = top if work is Work.FORWARD else top + height
                line = y + 10
            x = round(start * scale)
            wide = round(end * scale) - x
            drawn = (
                forwards if work is Work.FORWARD else weights if work is Work.BACKWARD_WEIGHT else backwards
            )
            drawn.append(f"M{x} {y}h{wide}v{height}h-{wide}z")
            if labels is not None:
                name = f"{_LETTERS[work]}{micro_batch + 1}{chr(97 + chunk) if chunked else ''}"
                if wide >= len(name) * _LETTER:
                    labels.append(f'<text x="{x + wide / 2:g}" y="{line}">{name}</text>')

    def _is_paired(self, row: Sequence[Operation], number: int) -> bool:
        this = row[number]
        neighbours: Iterable[Operation] = row[max(number - 1, 0) : number + 2]
        return any(
            other is not this and other.start == this.start and other.end == this.end for other in neighbours
        )

    def _label(self, operation: Operation) -> str:
        chunk = chr(97 + operation.chunk) if self.timetable.chunks > 1 else ""
        return f"{_LETTERS[operation.work]}{operation.micro_batch + 1}{chunk}"

    @cached_property
    def _is_labelled(self) -> bool:
        """Of very many operations the pattern is what there is to see, and their names take long to send."""
        return sum(len(row) for row in self.timetable.rows) <= _MOST_LABELS

    @cached_property
    def _scale(self) -> float:
        """Pixels a second: the column filled, wider where labels would not fit, narrower where little is drawn."""
        played = self.timetable
        shortest = min((o.end - o.start for o in played.rows[0] if o.end > o.start), default=0.0)
        if played.makespan <= 0 or shortest <= 0:
            return 0.0
        characters = 1 + len(str(played.micro_batches)) + (played.chunks > 1)
        legible = characters * _LETTER + 3 if self._is_labelled else _UNLABELLED
        wanted = max(_WIDTH / played.makespan, legible / shortest)
        return min(wanted, _ROOMIEST / shortest, _WIDEST / played.makespan)

    def _axis(self, scale: float, height: int) -> str:
        makespan = self.timetable.makespan
        if scale <= 0:
            return ""
        step = _round_step(90 / scale)
        ticks = []
        for number in range(int(makespan / step) + 1):
            at = number * step
            x = min(max(at * scale, 0.5), makespan * scale)
            edge = "first" if number == 0 else "last" if (makespan - at) * scale < 24 else "middle"
            ticks.append(
                f'<path d="M{x:.1f} {height - _AXIS}v4"/>'
                f'<text x="{x:.1f}" y="{height - 5}" class="{edge}">{seconds(at)}</text>'
            )
        return f'<g class="gantt-axis">{"".join(ticks)}</g>'


# Referred to by the style sheet, so there is one set a page.
_PATTERNS = (
    # As high as a row, so that the lines pass above and below its label.
    f'<defs><pattern id="gantt-ruled" width="8" height="{ROW}" patternUnits="userSpaceOnUse">'
    f'<rect class="gantt-w-ground" width="8" height="{ROW}"/>'
    '<path class="gantt-w-line" d="M0 5.5h8M0 8.5h8M0 23.5h8M0 26.5h8"/></pattern>'
    '<pattern id="gantt-hatched" width="6" height="6" patternUnits="userSpaceOnUse">'
    '<path class="gantt-idle-line" d="M-1 1l2-2M0 6l6-6M5 7l2-2"/></pattern></defs>'
)


def counted_micro_batches(count: int) -> str:
    """The count with its noun, whose plural is not regular."""
    return "1 micro-batch" if count == 1 else f"{count:,} micro-batches"


def _round_step(least: float) -> float:
    """The smallest of 1, 2, 5, 10 … that is at least this long."""
    power = 1e-12
    while True:
        for nice in _NICE:
            if nice * power >= least:
                return nice * power
        power *= 10
