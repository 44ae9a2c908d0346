"""What the lessons claim of tensor parallelism."""

from collections.abc import Mapping

from calculators.lab.guided.claims import Figure, Guided, Level, Result, Variant, Verdict, held_if
from calculators.lab.measurements import Quantity
from calculators.lab.spec import Spec

_LAYERS = 4
_SMALL = {"layers": _LAYERS, "steps": 10}
_TRAINING = {"job": "tensor", "phase": "training", "batch": 2, **_SMALL}
_DEEP = {
    "layers": 64,
    "hidden_size": 64,
    "attention_heads": 4,
    "ffn_width": 128,
    "vocab_size": 64,
    "steps": 10,
}


def _calls_of_a_layer(result: Result) -> float:
    counted = result.measured(Quantity.CALLS, rank=0, detail="tp all-reduce")
    return counted / result.spec.steps / result.spec.layers


def _all_reduces_of_a_layer(results: Mapping[str, Result]) -> Verdict:
    forward = _calls_of_a_layer(results["decode"])
    backward = _calls_of_a_layer(results["training"]) - forward
    return Verdict(
        outcome=held_if((forward, backward) == (2, 2)),
        sentence=f"Each layer made {forward:g} all-reduces forward and {backward:g} backward.",
        figures=tuple(
            Figure(
                what=f"all-reduces of a layer, {way}",
                unit="calls",
                predicted=2,
                measured=measured,
                level=Level.HANDED,
            )
            for way, measured in (("forward", forward), ("backward", backward))
        ),
    )


def _one_hundred_and_twenty_eight_to_one(results: Mapping[str, Result]) -> Verdict:
    tensor, pipeline = (
        results[name].measured(quantity, rank=0, detail=detail) / results[name].spec.steps
        for name, quantity, detail in (
            ("tensor", Quantity.CALLS, "tp all-reduce"),
            ("pipeline", Quantity.CALLS, "pp send"),
        )
    )
    handed = {
        name: results[name].measured(Quantity.HANDED, rank=0) / results[name].spec.steps for name in results
    }
    return Verdict(
        outcome=held_if((tensor, pipeline) == (128, 1)),
        sentence=f"For one token, each rank made {tensor:g} all-reduces when the layers were cut, and the first stage "
        f"made {pipeline:g} send when the stack was: {handed['tensor']:,.0f} bytes handed over against "
        f"{handed['pipeline']:,.0f}.",
        figures=(
            Figure(
                what="calls for a token, TP",
                unit="calls",
                predicted=128,
                measured=tensor,
                level=Level.HANDED,
            ),
            Figure(
                what="calls for a token, PP, first stage",
                unit="calls",
                predicted=1,
                measured=pipeline,
                level=Level.HANDED,
            ),
            *(
                Figure(
                    what=f"wire bytes of rank 0 for a token, {title}",
                    unit="B",
                    predicted=results[name].predicted(Quantity.WIRE, rank=0) / results[name].spec.steps,
                    measured=results[name].measured(Quantity.WIRE, rank=0) / results[name].spec.steps,
                    level=Level.WIRE,
                    decides=False,
                )
                for name, title in (("tensor", "TP"), ("pipeline", "PP"))
            ),
        ),
    )


def _unfused(results: Mapping[str, Result]) -> Verdict:
    fused, separate = (_calls_of_a_layer(results[name]) for name in ("fused", "separate"))
    bytes_ratio, wire_ratio = (
        results["separate"].measured(quantity, rank=0) / results["fused"].measured(quantity, rank=0)
        for quantity in (Quantity.HANDED, Quantity.WIRE)
    )
    return Verdict(
        outcome=held_if((fused, separate) == (4, 6)),
        sentence=f"A layer's training step made {fused:g} all-reduces with one matrix for queries, keys and values, "
        f"and {separate:g} with three: {bytes_ratio:g} × the bytes.",
        figures=(
            Figure(
                what="all-reduces of a layer, one matrix",
                unit="calls",
                predicted=4,
                measured=fused,
                level=Level.HANDED,
            ),
            Figure(
                what="all-reduces of a layer, three matrices",
                unit="calls",
                predicted=6,
                measured=separate,
                level=Level.HANDED,
            ),
            Figure(
                what="wire bytes, three matrices ÷ one",
                unit="×",
                predicted=1.5,
                measured=wire_ratio,
                level=Level.WIRE,
                decides=False,
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
            Variant(name="decode", title="Decode, 2 ranks", spec=Spec.parse({"job": "tensor", **_SMALL})),
            Variant(name="training", title="Training, 2 ranks", spec=Spec.parse(_TRAINING)),
        ),
        judge=_all_reduces_of_a_layer,
    ),
    Guided(
        name="128-to-1",
        title="128 exchanges for a token against one",
        family="tp",
        lesson="tp-or-pp",
        claim="With 64 layers on two devices, one token takes 128 all-reduces when every layer is cut, and one send "
        "when the stack is.",
        about="The same 64 layers decode the same tokens twice: once with every layer cut in two, once with the first "
        "32 layers on one rank and the rest on the other. What differs is how often the two must speak for each "
        "token, and on a slow link that is what a reader waits for.",
        level=Level.HANDED,
        variants=(
            Variant(
                name="tensor", title="64 layers, each cut in two", spec=Spec.parse({"job": "tensor", **_DEEP})
            ),
            Variant(
                name="pipeline",
                title="64 layers, 32 on each rank",
                spec=Spec.parse({"job": "pipeline", **_DEEP}),
            ),
        ),
        judge=_one_hundred_and_twenty_eight_to_one,
    ),
    Guided(
        name="unfused-qkv",
        title="Three matrices where one would do",
        family="tp",
        lesson="tensor-parallelism",
        claim="Separate query, key and value projections all-reduce their input's gradient three times, so a training "
        "step moves half as much again.",
        about="Each column-cut matrix sums the gradient of its input over all ranks. When queries, keys and values "
        "come from one fused matrix there is one such sum; when they come from three there are three. The textbook's "
        "four all-reduces a layer silently assume the first.",
        level=Level.HANDED,
        variants=(
            Variant(name="fused", title="One matrix", spec=Spec.parse(_TRAINING)),
            Variant(
                name="separate",
                title="Three matrices",
                spec=Spec.parse({**_TRAINING, "qkv": "separate"}),
            ),
        ),
        judge=_unfused,
    ),
)
