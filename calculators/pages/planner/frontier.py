"""The chart of layouts that no other beats in both memory and speed."""

import numpy as np

from calculators.figures import Figure, axis, figure, level
from calculators.layout_fields import GIB
from calculators.pages.planner.form import PlannerForm
from calculators.pages.planner.found import in_words, link
from calculators.pages.planner.numbers import rate
from calculators.predict.planner import Evaluated, Plan
from calculators.units import counted, iec_bytes
from calculators.workbench import Chart, Row, Table

MOST_MARKS = 20
LEAST_APART = 0.01
"""Marks of the frontier that are nearer to each other than this share of the picture are drawn as one."""
MOST_BEYOND = 4
"""It ends at this many times the memory that is there."""


def frontier_chart(form: PlannerForm, found: Plan) -> Chart:
    """The layouts that no other beats in both memory and speed."""
    edge, left_out = thinned(found)
    limit = found.task.limit_bytes
    says = [in_words(edge, row) for row in range(len(edge))]
    memory = (edge["memory_bytes"] / GIB).tolist()
    marks: Figure = {
        "type": "scatter",
        "mode": "lines+markers",
        "name": "no layout beats it in both, predicted",
        "x": memory,
        "y": edge["tokens_per_second"].tolist(),
        "text": says,
        "hovertemplate": "%{text}<br>%{x:.1f} GiB, %{y:,.0f} tokens a second<extra></extra>",
        "line": {"color": "var(--accent)", "width": 1.5, "dash": "dot", "shape": "hv"},
        "marker": {"symbol": "circle-open", "size": 9, "color": "var(--accent)", "line": {"width": 2}},
    }
    across = level(0, f"{limit / GIB:.0f} GiB are there")
    line = across["shapes"][0] | {
        "xref": "x",
        "yref": "paper",
        "x0": limit / GIB,
        "x1": limit / GIB,
        "y0": 0,
        "y1": 1,
    }
    word = across["annotations"][0] | {
        "xref": "x",
        "yref": "paper",
        "x": limit / GIB,
        "y": 0,
        "xanchor": "left",
    }
    return Chart(
        name="frontier",
        figure=figure(
            [marks],
            x=axis("GiB on the fullest device") | {"rangemode": "tozero"},
            y=axis("tokens a second") | {"rangemode": "tozero"},
            shapes=[line],
            annotations=[word],
        ),
        caption=(
            "More memory buys speed: each mark is a layout that none beats in both. Left of the line they fit; right "
            "of it is what a larger device would allow."
            + (
                f" {counted(left_out, 'mark')} that hardly differ, or need far more memory than there is, are left out."
                if left_out
                else ""
            )
        ),
        table=Table(
            name="frontier",
            caption="The same layouts.",
            heads=("Layout", "Memory", "Tokens a second", "Fits"),
            rows=tuple(
                Row(
                    cells=(
                        link(form, edge, row),
                        iec_bytes(edge["memory_bytes"][row]),
                        rate(edge["tokens_per_second"][row]),
                        "yes" if edge["memory_bytes"][row] <= limit else "no",
                    )
                )
                for row in range(len(edge))
            ),
        ),
    )


def thinned(found: Plan) -> tuple[Evaluated, int]:
    """The frontier without marks that lie on one another or far beyond the limit, and how many were left out.

    The quickest that fits always stays, and both ends of the rest.
    """
    limit = max(found.task.limit_bytes, 1.0)
    whole = found.frontier["memory_bytes"]
    edge = found.frontier.rows(np.flatnonzero(whole <= MOST_BEYOND * max(limit, whole.min())))
    up = edge["tokens_per_second"] / edge["tokens_per_second"].max()
    across = edge["memory_bytes"] / max(limit, edge["memory_bytes"].min())
    always = {0, len(edge) - 1, int(np.count_nonzero(edge["memory_bytes"] <= limit)) - 1}
    apart, kept = LEAST_APART, list(range(len(edge)))
    while len(kept) > MOST_MARKS:
        kept = [0]
        for row in range(1, len(edge)):
            distance = abs(up[row] - up[kept[-1]]) + abs(across[row] - across[kept[-1]])
            if row in always or distance >= apart:
                kept.append(row)
        apart *= 1.5
    return edge.rows(np.array(kept)), len(whole) - len(kept)
