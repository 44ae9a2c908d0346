"""Who sends how much to whom, drawn as hollow cells: a table where numbers can be read, a picture where they cannot.

Each cell has the colour of the axis that sends most there, and one of five shades: a shade holds values up to eight
times those of the next fainter one, because axes differ by orders of magnitude.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe

from calculators.pages.layout.words import AXIS_FAMILIES
from calculators.predict.arrays import Floats, floats
from calculators.units import plain

MOST_IN_A_TABLE = 16
MOST_IN_A_PICTURE = 64
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_STEP, _SIZE = 10, 8  # of a cell, with and without the gap to the next
_MARGIN = 44
_WIDEST, _LARGEST = 704, 1.6  # on the page: its width in pixels, and how many pixels each unit has at most


@dataclass(frozen=True, kw_only=True)
class Kind:
    """Pairs that send the same: how many, how much each [bytes], mostly on which axis, and one of them."""

    pairs: int
    each_bytes: float
    axis: str
    sender: int
    receiver: int


@dataclass(frozen=True, kw_only=True, eq=False)
class HeatMap:
    """Matrices of bytes, row to column, one for each axis on which anything moves."""

    matrices: Mapping[str, Floats]

    @cached_property
    def total(self) -> Floats:
        """All axes together."""
        return floats(sum(self.matrices.values()))

    @cached_property
    def leading(self) -> np.ndarray[tuple[int, ...], np.dtype[np.intp]]:
        """Index of the axis that sends most, for each cell."""
        return np.argmax(np.stack(list(self.matrices.values())), axis=0)

    @property
    def axes(self) -> tuple[str, ...]:
        return tuple(self.matrices)

    @property
    def unit(self) -> str:
        """The unit of the table's numbers."""
        return _UNITS[self._power]

    @property
    def _power(self) -> int:
        """The power of 1024 in which the largest cell has a digit before the point."""
        most = float(self.total.max())
        return max(0, min(len(_UNITS) - 1, int(math.log(most, 1024)))) if most >= 1 else 0

    def table(self, *, says: str, name: str) -> SafeString:
        """The numbers in cells, to be read where there are few."""
        total, leading, levels = self.total.tolist(), self.leading.tolist(), self.levels.tolist()
        families = [AXIS_FAMILIES[axis] for axis in self.axes]
        size = 1024.0**self._power
        said = {value: plain(float(f"{value / size:.3g}")) for row in total for value in row}

        def cell(sender: int, receiver: int) -> str:
            value, level = total[sender][receiver], levels[sender][receiver]
            if sender == receiver and not value:
                return '<td class="num self" aria-label="itself">·</td>'
            family = families[leading[sender][receiver]]
            return f'<td class="num heat-{level} family-{family}">{said[value]}</td>'

        ranks = range(len(total))
        heads = "".join(f'<th scope="col" class="num">to {rank}</th>' for rank in ranks)
        rows = "".join(
            f'<tr><th scope="row">{sender}</th>{"".join(cell(sender, receiver) for receiver in ranks)}</tr>'
            for sender in ranks
        )
        return format_html(
            '<div class="scroll" tabindex="0" role="region" aria-label="{}">'
            '<table class="table matrix predicted" id="{}"><caption>{}.</caption>'
            "<thead><tr><td></td>{}</tr></thead><tbody>{}</tbody></table></div>",
            says,
            name,
            says,
            mark_safe(heads),  # noqa: S308
            mark_safe(rows),  # noqa: S308
        )

    @cached_property
    def levels(self) -> np.ndarray[tuple[int, ...], np.dtype[np.intp]]:
        """The shade of each cell: 5 for the most, one less for each factor of eight, 0 for nothing."""
        total = self.total
        most = total.max()
        with np.errstate(divide="ignore"):
            fainter = np.floor(np.log2(most / np.where(total > 0, total, most)) / 3)
        return np.where(total > 0, np.maximum(5 - fainter, 1), 0).astype(np.intp)

    def svg(self, *, what: str, every: int) -> SafeString:
        """The picture, with a line before each `every`-th of `what`, a rank or a host."""
        count = len(self.total)
        side = count * _STEP
        across = [f"M{at * _STEP + 1}" for at in range(count)]
        down = [f" {at * _STEP + 1}h{_SIZE}v{_SIZE}h-{_SIZE}z" for at in range(count)]
        looks = np.where(self.levels > 0, 6 * self.leading + self.levels, 0)
        paths = []
        for look in np.unique(looks[looks > 0]).tolist():
            index, level = divmod(look, 6)
            rows, columns = np.nonzero(looks == look)
            cells = zip(columns.tolist(), rows.tolist(), strict=True)
            drawn = "".join([across[column] + down[row] for column, row in cells])
            family = AXIS_FAMILIES[self.axes[index]]
            paths.append(f'<path class="heat-cell heat-{level} family-{family}" d="{drawn}"/>')
        every = every if 1 < every < count else max(1, count // 8)
        starts = range(0, count, every)
        lines = "".join(f"M{at * _STEP} 0V{side}M0 {at * _STEP}H{side}" for at in starts[1:])
        labels = "".join(
            f'<text class="across" x="{at * _STEP + 1}" y="-6">{at}</text>'
            f'<text class="down" x="-6" y="{at * _STEP + 9}">{at}</text>'
            for at in starts
        )
        return format_html(
            '<svg class="heat" width="{}" viewBox="-{} -{} {} {}" role="img" aria-label="{}">'
            '<rect class="heat-frame" width="{}" height="{}"/>{}<path class="heat-line" d="{}"/>{}'
            '<text class="heat-axis" x="0" y="-22">to {}</text>'
            '<text class="heat-axis turned" x="-{}" y="-30">from {}</text></svg>',
            min(_WIDEST, round(_LARGEST * (side + _MARGIN))),
            _MARGIN,
            _MARGIN,
            side + _MARGIN + 6,
            side + _MARGIN + 6,
            f"What each of {count} {what}s sends to each other; the table below says it in numbers.",
            side,
            side,
            mark_safe("".join(paths)),  # noqa: S308
            lines,
            mark_safe(labels),  # noqa: S308
            what,
            side,
            what,
        )

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """Pairs gathered by what they send and on which axis mostly, the busiest first."""
        total = self.total
        senders, receivers = np.nonzero(total)
        values, axes = total[senders, receivers], self.leading[senders, receivers]
        rounded = np.round(np.log10(values), 3) * 100 + axes * 1e6  # alike to three digits, on one axis
        _, first, counts = np.unique(rounded, return_index=True, return_counts=True)
        found = [
            Kind(
                pairs=int(pairs),
                each_bytes=float(values[at]),
                axis=self.axes[axes[at]],
                sender=int(senders[at]),
                receiver=int(receivers[at]),
            )
            for at, pairs in zip(first.tolist(), counts.tolist(), strict=True)
        ]
        return tuple(sorted(found, key=lambda kind: -kind.each_bytes))
