"""What each way to split leaves on a device: the picture beside an advice, calculated for a model of its kind."""

from functools import lru_cache

from calculators.families import WAYS, Way
from calculators.figures import NO_FILL, Figure, axis, figure
from calculators.predict.memory import serving_memory, training_memory
from calculators.predict.models.catalogue import MODELS
from calculators.predict.shapes import Layouts, ModelShape
from calculators.units import counted, whole_percent
from calculators.workbench import Chart, Row, Table

TOKENS = 8_192
LEAST, MOST = 2, 8


def relief_chart(*, training: bool, sparse: bool, devices: int) -> Chart:
    """Shares of what one device would hold alone, for every way over `devices` (2, 4 or 8: over those all ways go).

    training   model states and activations of a training step; otherwise weights, and keys and values of a sequence
    sparse     a model with experts, Mixtral 8x7B; otherwise a dense one, Llama 3.1 8B
    """
    return _chart(training, sparse, max(LEAST, min(MOST, 1 << (devices.bit_length() - 1))))


@lru_cache  # there are a dozen
def _chart(training: bool, sparse: bool, count: int) -> Chart:
    shape = MODELS["mixtral-8x7b" if sparse else "llama-3.1-8b"].shape
    ways = [way for way in WAYS.values() if sparse or not way.needs_experts]
    alone = _held(shape, Layouts(), training)
    left = [
        [
            part / whole
            for part, whole in zip(
                _held(shape, Layouts.of(way.layout(shape, count)), training), alone, strict=True
            )
        ]
        for way in ways
    ]
    names = ("weights, gradients, optimizer", "activations") if training else ("weights", "keys and values")
    return Chart(
        name="relief",
        figure=figure(
            [_bars(name, part, ways, left) for part, name in enumerate(names)],
            x=axis("") | {"type": "category"},
            y=axis("share of what one device would hold") | {"tickformat": ".0%", "range": [0, 1.05]},
        ),
        caption=(
            f"What each split leaves on each of {counted(count, 'device')}, predicted for {shape.name} and "
            f"{f'{MOST} micro-batches of ' if training else ''}one sequence of {TOKENS:,} tokens. What stays near "
            "100 % is not relieved: look for the split that lowers what does not fit."
        ),
        table=Table(
            caption="The same numbers.",
            heads=("Split", *(name.capitalize() for name in names)),
            rows=tuple(
                Row(cells=(way.name, *(whole_percent(share) for share in shares)), family=way.family)
                for way, shares in zip(ways, left, strict=True)
            ),
        ),
    )


def _held(shape: ModelShape, layouts: Layouts, training: bool) -> tuple[float, float]:
    """What the picture has two bars for [bytes]."""
    if not training:
        memory = serving_memory(shape, layouts, batch=1, context_tokens=TOKENS)
        return memory.weights.item() / _slices(layouts), memory.kv_cache.item()
    # as many micro-batches as keep a pipeline of the most stages full: its first stage holds that many at once
    memory = training_memory(shape, layouts, tokens=TOKENS, micro_batches=MOST)
    return (memory.weights + memory.gradients + memory.optimizer).item(), memory.activations.item()


def _slices(layouts: Layouts) -> float:
    """Parts that replicas cut the weights into: `serving_memory` has them whole on each."""
    return float(layouts.dp) if layouts.zero == 3 else 1.0


def _bars(name: str, part: int, ways: list[Way], left: list[list[float]]) -> Figure:
    colours = [f"var(--{way.family})" for way in ways]
    return {
        "type": "bar",
        "name": name,
        "x": [way.short for way in ways],
        "y": [shares[part] for shares in left],
        "text": [whole_percent(shares[part]) for shares in left],
        "textposition": "none",
        "hovertemplate": "%{x}, " + name + ": %{text}<extra></extra>",
        "marker": {
            "color": NO_FILL,
            "line": {"color": colours, "width": 2},
            "pattern": {
                "shape": ("", "/")[part],
                "fgcolor": colours,
                "bgcolor": NO_FILL,
                "size": 6,
                "solidity": 0.25,
            },
        },
    }
