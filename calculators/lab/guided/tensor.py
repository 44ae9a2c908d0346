"""What the lessons claim of tensor parallelism."""

from collections.abc import Mapping

from calculators.lab.guided.claims import Figure, Guided, Level, Result, Variant, Verdict, held_if
from calculators.lab.measurements import Quantity
from calculators.lab.spec import Spec

_LAYERS = 4
_DECODE = Spec.parse({"job": "tensor", "layers": _LAYERS, "steps": 10})
_TRAINING = Spec.parse({"job": "tensor", "phase": "training", "layers": _LAYERS, "batch": 2, "steps": 10})


def _all_reduces_of_a_layer(results: Mapping[str, Result]) -> Verdict:
    forward, both = (
        results[name].measured(Quantity.CALLS, rank=0, detail="tp all-reduce")
        / results[name].spec.steps
        / _LAYERS
        for name in ("decode", "training")
    )
    return Verdict(
        outcome=held_if((forward, both - forward) == (2, 2)),
        sentence=f"Each layer made {forward:g} all-reduces forward and {both - forward:g} backward.",
        figures=(
            Figure(
                what="all-reduces of a layer, forward",
                unit="calls",
                predicted=2,
                measured=forward,
                level=Level.HANDED,
            ),
            Figure(
                what="all-reduces of a layer, backward",
                unit="calls",
                predicted=2,
                measured=both - forward,
                level=Level.HANDED,
            ),
        ),
    )


EXPERIMENTS = (
    Guided(
        name="two-all-reduces",
        title="Two all-reduces a layer, and two more on the way back",
        family="tp",
        lesson="tensor-parallelism",
        claim="Tensor parallelism makes two all-reduces for each layer forward, and two backward.",
        about="A layer has two blocks, attention and feed-forward. In each, the first matrix is cut by columns and "
        "the second by rows, so one sum over all ranks ends the block. The way back mirrors it. One run decodes, "
        "the other trains; the difference of their counts is the backward pass.",
        level=Level.HANDED,
        variants=(
            Variant(name="decode", title="Decode, 2 ranks", spec=_DECODE),
            Variant(name="training", title="Training, 2 ranks", spec=_TRAINING),
        ),
        judge=_all_reduces_of_a_layer,
    ),
)
