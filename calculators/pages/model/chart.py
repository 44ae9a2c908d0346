"""The chart of the page *Model*: where the parameters are, and which of them a token uses."""

from itertools import count

from calculators.figures import Figure, axis, figure, predicted_bar
from calculators.pages.model.counts import UNITS, people
from calculators.predict.models.parameters import Parts
from calculators.predict.shapes import ModelShape
from calculators.units import plain
from calculators.workbench import Chart, Row, Table

_PARTS = {
    "embedding": "Embedding",
    "attention": "Attention",
    "feed_forward": "Feed-forward",
    "experts": "Experts",
    "shared_experts": "Shared experts",
    "router": "Routers",
    "norms": "Norms",
    "output": "Output matrix",
}


def parts_chart(shape: ModelShape, parts: Parts) -> Chart:
    """The parameters of each part, and the same as a table."""
    names = [(name, label) for name, label in _PARTS.items() if getattr(parts, name)]
    held = [getattr(parts, name) for name, _ in names]
    used = [_used(shape, name, count) for (name, _), count in zip(names, held, strict=True)]
    labels = [label for _, label in names]
    sideways = {"orientation": "h", "hovertemplate": "%{y}: %{text}<extra></extra>"}
    bars = [predicted_bar("held", held, labels, colour="accent", says=[people(n) for n in held], **sideways)]
    heads = ["Part", "Parameters", "Share"]
    rows = [
        [label, plain(count), _share(count, parts.total)] for label, count in zip(labels, held, strict=True)
    ]
    rows.append(["All", plain(parts.total), "100\N{NO-BREAK SPACE}%"])
    if shape.experts:
        bars.append(
            predicted_bar(
                "used by one token",
                used,
                labels,
                colour="ep",
                says=[people(n) for n in used],
                pattern="/",
                **sideways,
            )
        )
        heads.append("One token uses")
        for row, count in zip(rows, [*used, sum(used)], strict=True):
            row.append(plain(count))
    return Chart(
        name="parts",
        figure=figure(
            bars,
            x=_ticks(max(held)),
            y=axis("") | {"autorange": "reversed", "showgrid": False},
            height=110 + 42 * len(names),
            barmode="group",
            bargap=0.3,
        ),
        caption=_caption(shape, parts),
        table=Table(
            name="parts",
            caption="The same numbers, over all layers.",
            heads=tuple(heads),
            rows=tuple(Row(cells=tuple(row), is_total=row[0] == "All") for row in rows),
        ),
    )


def _used(shape: ModelShape, part: str, count: int) -> int:
    if part != "experts" or shape.experts is None:
        return count
    return count // shape.experts.routed * shape.experts.per_token


def _share(count: float, total: float) -> str:
    share = count / total
    return (
        "< 0.1\N{NO-BREAK SPACE}%"
        if 0 < share < 0.001
        else f"{share:.1%}".replace("%", "\N{NO-BREAK SPACE}%")
    )


def _ticks(top: int) -> Figure:
    """An axis from 0 in the unit that people say the largest count in; “B” would be taken for bytes."""
    unit, name = next((each for each in UNITS if top >= 4 * each[0]), (1, ""))
    steps = (nice * 10**power for power in count() for nice in (1, 2, 5))
    step = next(step for step in steps if 4.5 * step * unit >= top)
    ticks = [step * i for i in range(int(top / unit / step) + 2)]
    return axis(f"{name} parameters".strip()) | {
        "tickvals": [tick * unit for tick in ticks],
        "ticktext": [plain(tick) for tick in ticks],
        "range": [0, top * 1.06],
    }


def _caption(shape: ModelShape, parts: Parts) -> str:
    counts = {label: getattr(parts, name) for name, label in _PARTS.items()}
    largest = max(counts, key=lambda label: counts[label])
    said = f"{largest}: {_share(counts[largest], parts.total)} of all parameters."
    if shape.experts is None:
        return f"Where the parameters are. {said}"
    return f"Where the parameters are, and how many of them one token uses. {said}"
