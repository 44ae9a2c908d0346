"""A figure of measurements on a page: the plot, what it shows, the table of the same numbers, and ways to keep it."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe

from calculators.figures import Figure

SWATCHES = mark_safe(
    '<span class="swatch predicted"></span> predicted; <span class="swatch"></span> measured.'
)
"""The legend of every figure that has both, in the colour of the family that it stands in."""


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """One figure. `name` is one word, its own on the page; `file` is what a picture that is saved is called."""

    name: str
    figure: Figure
    caption: str
    table: SafeString
    family: str
    file: str

    @property
    def html(self) -> SafeString:
        """All of it; static/charts.js draws the figure, and offers it as PNG and SVG."""
        return format_html(
            '<figure class="wide family-{}" data-chart="{}" data-file="{}"><div class="plot" id="{}-plot"></div>'
            '<script id="{}-figure" type="application/json">{}</script><figcaption>{}</figcaption>{}</figure>',
            self.family,
            self.name,
            self.file,
            self.name,
            self.name,
            _json(self.figure),
            self.caption,
            self.table,
        )


def _json(figure: Figure) -> SafeString:
    """As Django's json_script, which takes five times as long for as much text."""
    text = json.dumps(figure).replace("<", "\\u003C").replace(">", "\\u003E").replace("&", "\\u0026")
    return mark_safe(text)  # noqa: S308 no < is left in it


def alike(rows: Mapping[int, tuple[object, ...]]) -> list[tuple[str, tuple[object, ...]]]:
    """Ranks that have the same cells share a row: “rank 0”, “ranks 0 to 3”, “ranks 0, 2”."""
    groups: dict[tuple[object, ...], list[int]] = {}
    for rank, cells in sorted(rows.items()):
        groups.setdefault(cells, []).append(rank)
    return [(ranks_said(ranks), cells) for cells, ranks in groups.items()]


def ranks_said(ranks: Sequence[int]) -> str:
    """Ranks in words."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if len(ranks) > 2 and list(ranks) == list(range(ranks[0], ranks[-1] + 1)):
        return f"ranks {ranks[0]} to {ranks[-1]}"
    return f"ranks {', '.join(map(str, ranks))}"


def joined(parts: Iterable[str]) -> SafeString:
    """Pieces of HTML that were escaped when they were made."""
    return mark_safe("".join(parts))  # noqa: S308
