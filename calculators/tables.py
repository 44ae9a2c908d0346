"""Tables of pages, written straight into HTML: one has a hundred cells, and a template for each costs milliseconds."""

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from typing import Any

from django.utils.html import conditional_escape, format_html
from django.utils.safestring import SafeString, mark_safe


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of a table: text or numbers, printed already. `is_chosen` is the state that the page shows."""

    cells: tuple[Any, ...]
    is_chosen: bool = False
    is_total: bool = False
    family: str = ""

    @property
    def classes(self) -> str:
        """The classes of its element, empty for a plain line."""
        family = f"family-{self.family}" if self.family else ""
        said = ("chosen" if self.is_chosen else "", "total" if self.is_total else "", family)
        return " ".join(filter(None, said))


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows under heads; the first column heads its row, the others are numbers unless `texts` says how many are not.

    Cells are escaped unless they are safe already (a badge, a formula).
    """

    caption: str
    heads: tuple[Any, ...]
    rows: tuple[Row, ...]
    texts: int = 1
    name: str = ""

    @property
    def html(self) -> SafeString:
        """The whole table, in a region that scrolls where it is too wide."""
        name = format_html(' id="{}"', self.name) if self.name else ""
        return format_html(
            '<div class="scroll" tabindex="0" role="region" aria-label="{}">'
            '<table class="table"{}><caption>{}</caption>'
            "<thead><tr>{}</tr></thead><tbody>{}</tbody></table></div>",
            self.caption,
            name,
            self.caption,
            _join(self._heads()),
            _join(self._row(row) for row in self.rows),
        )

    def _heads(self) -> Iterator[str]:
        for number, head in enumerate(self.heads):
            kind = "" if number < self.texts else ' class="num"'
            yield f'<th scope="col"{kind}>{_text(head)}</th>'

    def _row(self, row: Row) -> str:
        first, *others = row.cells
        classes = f' class="{_text(said)}"' if (said := row.classes) else ""
        cells = [f'<th scope="row">{_text(first)}</th>']
        for number, cell in enumerate(others, start=1):
            kind = "" if number < self.texts else ' class="num"'
            cells.append(f"<td{kind}>{_text(cell)}</td>")
        return f"<tr{classes}>{''.join(cells)}</tr>"


def _text(value: Any) -> str:
    """As it stands in HTML. Django's own way tests each for a promise, which takes longer than all else here."""
    return escape(value) if type(value) is str else conditional_escape(value)


def _join(parts: Iterator[str]) -> SafeString:
    """Parts that were escaped when they were made."""
    return mark_safe("".join(parts))  # noqa: S308
