"""Who sent to whom on the wire: predicted, measured and what is left, on one scale, ranks of a host together."""

from collections.abc import Sequence
from dataclasses import dataclass

from django.utils.html import format_html
from django.utils.safestring import SafeString

from calculators.lab.compare import Comparison, matrix
from calculators.lab.emulation.network import Network
from calculators.lab.measurements import Quantity
from calculators.lab.spec import Spec
from calculators.runs.charts import joined
from calculators.units import plain, signed

_CAPTIONS = {
    "predicted": "Predicted, bytes from row to column",
    "measured": "Measured, bytes from row to column",
    "unexplained": "Unexplained, measured − predicted",
}


@dataclass(frozen=True, kw_only=True)
class Matrices:
    """The pairs of one run."""

    spec: Spec
    pairs: tuple[Comparison, ...]

    @classmethod
    def of(cls, spec: Spec, comparisons: Sequence[Comparison]) -> "Matrices | None":
        """Those of a run; None where no meter told peers apart."""
        pairs = tuple(c for c in comparisons if c.quantity is Quantity.PAIR and not c.detail)
        return cls(spec=spec, pairs=pairs) if pairs else None

    @property
    def is_all_explained(self) -> bool:
        """Whether nothing at all is left between any two."""
        return all(c.unexplained == 0 for c in self.pairs)

    @property
    def left_sentence(self) -> str:
        """What is left, said; empty where a matrix of its own says it."""
        return "Unexplained: 0 B between every two ranks." if self.is_all_explained else ""

    @property
    def html(self) -> SafeString:
        """The matrices beside each other. The last is left out where it would hold zeros."""
        size = self.spec.ranks
        predicted, measured = (matrix(self.pairs, world_size=size, measured=m) for m in (False, True))
        most = max((max(c.predicted, c.measured) for c in self.pairs), default=0)
        shown = [self._table("predicted", predicted, most), self._table("measured", measured, most)]
        if not self.is_all_explained:
            left = [
                [m - p for p, m in zip(*rows, strict=True)] for rows in zip(predicted, measured, strict=True)
            ]
            worst = max(abs(value) for row in left for value in row)
            shown.append(self._table("unexplained", left, worst))
        return format_html('<div class="wide sides matrices">{}</div>', joined(shown))

    def _table(self, what: str, values: Sequence[Sequence[float]], most: float) -> str:
        caption = _CAPTIONS[what]
        hollow = {
            "predicted": '<span class="swatch predicted"></span> ',
            "measured": '<span class="swatch"></span> ',
        }
        ranks, per_host = range(len(values)), Network.of(self.spec).ranks_per_host
        hosts = self.spec.hosts if self.spec.hosts > 1 else 0
        above = "".join(
            f'<th scope="colgroup" class="host{_apart(host)}" colspan="{per_host}">host {host}</th>'
            for host in range(hosts)
        )
        corner = "<td></td>" if hosts else ""
        heads = "".join(f'<th scope="col" class="num{self._edge(rank)}">to {rank}</th>' for rank in ranks)
        rows = []
        for sender in ranks:
            host = (
                f'<th scope="rowgroup" class="host" rowspan="{per_host}">host {sender // per_host}</th>'
                if hosts and sender % per_host == 0
                else ""
            )
            below = ' class="below"' if host and sender else ""
            cells = "".join(
                self._cell(what, values[sender][to], most, is_self=sender == to, edge=self._edge(to))
                for to in ranks
            )
            rows.append(f'<tr{below}>{host}<th scope="row">{sender}</th>{cells}</tr>')
        group = f"<tr>{corner}<td></td>{above}</tr>" if hosts else ""
        return (
            f'<div class="scroll" tabindex="0" role="region" aria-label="{caption}">'
            f'<table class="table matrix {what} family-{self.spec.family}" id="matrix-{what}">'
            f"<caption>{hollow.get(what, '')}{caption}.</caption>"
            f"<thead>{group}<tr>{corner}<td></td>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
        )

    def _cell(self, what: str, value: float, most: float, *, is_self: bool, edge: str) -> str:
        if is_self:
            return f'<td class="num self{edge}" aria-label="itself">·</td>'
        said = signed(value) if what == "unexplained" else plain(value)
        return f'<td class="num heat-{_level(abs(value), most)}{edge}">{said}</td>'

    def _edge(self, rank: int) -> str:
        """The mark of the first rank of a host other than the first: a line stands before it."""
        per_host = Network.of(self.spec).ranks_per_host
        return " apart" if self.spec.hosts > 1 and rank and rank % per_host == 0 else ""


def _apart(host: int) -> str:
    return " apart" if host else ""


def _level(value: float, most: float) -> int:
    """Shade 0 to 5, by the share of the largest."""
    return 0 if value <= 0 or most <= 0 else 1 + min(4, int(5 * value / most))
