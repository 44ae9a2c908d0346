"""What the lessons claim of sequence parallelism: TP's bytes forward, less memory, and what it costs backward."""

from collections.abc import Mapping

from calculators.lab.compare import Comparison
from calculators.lab.guided.claims import Figure, Guided, Level, Result, Verdict, held_if
from calculators.lab.guided.levels import algorithm_bytes
from calculators.lab.guided.variants import variant
from calculators.lab.measurements import Quantity
from calculators.lab.splits.memory import SAVED
from calculators.predict.collectives import Kind

_MODEL = {"layers": 2, "batch": 2, "tokens": 64, "steps": 10}
_PREFILL = {"job": "tensor", "phase": "prefill", **_MODEL}
_TRAINING = {"job": "tensor", "phase": "training", **_MODEL}
_SEQUENCE = {"sequence": True}


def _algorithm_bytes(result: Result) -> float:
    """What the textbook's algorithm sends for the calls of the layers; the norms' gradients are control."""
    if result.spec.sequence:
        return algorithm_bytes(result, Kind.ALL_GATHER, Kind.REDUCE_SCATTER, axis="sp")
    return algorithm_bytes(result, Kind.ALL_REDUCE, axis="tp")


def _wire(result: Result) -> tuple[float, float]:
    """Predicted and measured wire bytes of all ranks, the control calls left out of both."""
    wire: list[Comparison] = [c for c in result.comparisons if c.quantity is Quantity.WIRE]
    control = sum(c.prediction.control for c in wire)
    return sum(c.predicted for c in wire) - control, sum(c.measured for c in wire) - control


def _ratios(
    results: Mapping[str, Result], tensor: str, sequence: str, expected: float
) -> tuple[float, list[Figure]]:
    """SP ÷ TP of algorithm bytes, and the same on the wire beside it."""
    ratio = _algorithm_bytes(results[sequence]) / _algorithm_bytes(results[tensor])
    (sp_predicted, sp_measured), (tp_predicted, tp_measured) = (
        _wire(results[sequence]),
        _wire(results[tensor]),
    )
    title = next(iter(results[sequence].spec.families)).upper()
    return ratio, [
        Figure(
            what=f"bytes of the algorithm, {title} ÷ TP",
            unit="×",
            predicted=expected,
            measured=ratio,
            level=Level.ALGORITHM,
        ),
        Figure(
            what=f"bytes on the wire, {title} ÷ TP ({results[sequence].spec.reduce_scatter} reduce-scatter)",
            unit="×",
            predicted=sp_predicted / tp_predicted,
            measured=sp_measured / tp_measured,
            level=Level.WIRE,
            decides=False,
        ),
    ]


def _same_forward(results: Mapping[str, Result]) -> Verdict:
    ratio, figures = _ratios(results, "tensor", "sequence", 1)
    on_wire, more = _ratios(results, "tensor", "all-to-all", 1)
    seen = more[-1].measured or 0.0
    return Verdict(
        outcome=held_if(ratio == on_wire == 1),
        sentence=f"Forward, sequence parallelism's algorithm sends {ratio:g} × tensor parallelism's bytes. On this "
        f"backend's wire it was {figures[-1].measured:.3g} ×, because the backend does a reduce-scatter as an "
        f"all-reduce; with the reduce-scatter made of an all-to-all and a sum it was {seen:.3g} ×.",
        figures=(*figures, *more),
    )


def _backward(results: Mapping[str, Result]) -> Verdict:
    kept, figures = _ratios(results, "tensor", "kept", 1)
    regathered, more = _ratios(results, "tensor", "regathered", 10 / 8)
    _, wire = _ratios(results, "tensor", "all-to-all", 10 / 8)
    return Verdict(
        outcome=held_if(kept == 1 and regathered == 10 / 8),
        sentence=f"Of 8 shares that tensor parallelism sends for a training step, sequence parallelism sends "
        f"{8 * kept:g} when it keeps what it gathered, and {8 * regathered:g} when it gathers again backward. On the "
        f"wire the second was {8 * (more[-1].measured or 0):.3g} : 8 as the backend reduces and scatters, and "
        f"{8 * (wire[-1].measured or 0):.3g} : 8 by all-to-all.",
        figures=(*figures, *more, wire[-1]),
    )


def _saves_activations(results: Mapping[str, Result]) -> Verdict:
    tensor, sequence = (results[name] for name in ("tensor", "regathered"))
    before, after = (r.measured(Quantity.MEMORY, rank=0, detail=SAVED) for r in (tensor, sequence))
    predicted = [r.predicted(Quantity.MEMORY, rank=0, detail=SAVED) for r in (tensor, sequence)]
    return Verdict(
        outcome=held_if(after < before),
        sentence=f"A rank kept {before:,.0f} bytes for its backward pass with tensor parallelism alone, and "
        f"{after:,.0f} with its tokens cut between the blocks: {1 - after / before:.0%} less.",
        figures=tuple(
            Figure(what=f"saved for backward, {title}", unit="B", predicted=p, measured=m, level=Level.MEMORY)
            for title, p, m in zip(("TP", "TP + SP"), predicted, (before, after), strict=True)
        ),
    )


def _nothing_alone(results: Mapping[str, Result]) -> Verdict:
    without, alone = results["without"], results["alone"]
    calls, sent = (alone.measured(quantity) for quantity in (Quantity.CALLS, Quantity.WIRE))
    kept = [r.measured(Quantity.MEMORY, rank=0, detail=SAVED) for r in (without, alone)]
    return Verdict(
        outcome=held_if(calls == sent == 0 and kept[0] == kept[1]),
        sentence=f"With one tensor-parallel rank, turning sequence parallelism on made {calls:g} calls, sent {sent:g} "
        f"bytes, and left what is saved for backward at {kept[1]:,.0f} bytes, {kept[1] - kept[0]:+,.0f} from without.",
        figures=(
            Figure(what="calls", unit="calls", predicted=0, measured=calls, level=Level.HANDED),
            Figure(what="wire bytes", unit="B", predicted=0, measured=sent, level=Level.WIRE),
            Figure(
                what="saved for backward, with SP − without",
                unit="B",
                predicted=0,
                measured=kept[1] - kept[0],
                level=Level.MEMORY,
            ),
        ),
    )


EXPERIMENTS = (
    Guided(
        name="sp-same-forward",
        title="Sequence parallelism moves the same bytes forward",
        family="sp",
        lesson="sp-or-cp",
        claim="Forward, sequence parallelism sends as many bytes as tensor parallelism: an all-reduce is a "
        "reduce-scatter and an all-gather.",
        about="The claim is about the algorithm, and is judged on its bytes. A backend may move more: gloo does a "
        "reduce-scatter as a whole all-reduce, so its wire shows half as much again. The third run makes its "
        "reduce-scatter of an all-to-all and a local sum, and the claim is seen on the wire as well.",
        level=Level.ALGORITHM,
        variants=(
            variant("tensor", "TP, 2 ranks", _PREFILL),
            variant("sequence", "TP + SP, 2 ranks", _PREFILL, _SEQUENCE),
            variant(
                "all-to-all",
                "TP + SP, reduce-scatter by all-to-all",
                _PREFILL,
                _SEQUENCE,
                {"reduce_scatter": "all-to-all"},
            ),
        ),
        judge=_same_forward,
    ),
    Guided(
        name="sp-backward",
        title="Sequence parallelism backward: 8 or 10",
        family="sp",
        lesson="sp-or-cp",
        claim="In training, sequence parallelism sends 8 shares where tensor parallelism sends 8 if it keeps what it "
        "gathered, and 10 if it gathers its input again.",
        about="The backward pass mirrors the forward one, so nothing is added by itself. But keeping the gathered "
        "input gives up the memory that was to be saved. Megatron-LM keeps the cut input and gathers it again for the "
        "weights' gradients: two more all-gathers a layer. Ask what an implementation does before you quote a number.",
        level=Level.ALGORITHM,
        variants=(
            variant("tensor", "TP, 2 ranks", _TRAINING),
            variant("kept", "TP + SP, gathered input kept", _TRAINING, _SEQUENCE),
            variant("regathered", "TP + SP, gathered again", _TRAINING, _SEQUENCE, {"regather": True}),
            variant(
                "all-to-all",
                "TP + SP, gathered again, reduce-scatter by all-to-all",
                _TRAINING,
                _SEQUENCE,
                {"regather": True, "reduce_scatter": "all-to-all"},
            ),
        ),
        judge=_backward,
    ),
    Guided(
        name="sp-saves-activations",
        title="What sequence parallelism saves",
        family="sp",
        lesson="sp-or-cp",
        claim="Beside tensor parallelism, sequence parallelism saves activation memory: what lies between the blocks "
        "is cut by tokens.",
        about="Tensor parallelism cuts the matrices and what is inside the blocks. The norms' inputs and the blocks' "
        "inputs stay whole on every rank. Sequence parallelism cuts those, too.",
        level=Level.MEMORY,
        variants=(
            variant("tensor", "TP, 2 ranks", _TRAINING),
            variant("regathered", "TP + SP, gathered again", _TRAINING, _SEQUENCE, {"regather": True}),
        ),
        judge=_saves_activations,
    ),
    Guided(
        name="sp-alone",
        title="Sequence parallelism with one tensor-parallel rank does nothing",
        family="sp",
        lesson="sp-or-cp",
        claim="At TP = 1 sequence parallelism does nothing: it sends nothing and saves nothing.",
        about="It cuts what tensor parallelism leaves whole, over the ranks of the tensor-parallel group. With one "
        "rank in that group there is nobody to share with. A long sequence on one device asks for context "
        "parallelism.",
        level=Level.WIRE,
        variants=(
            variant("without", "1 rank", _TRAINING, {"ranks": 1}),
            variant("alone", "1 rank, SP on", _TRAINING, _SEQUENCE, {"ranks": 1}),
        ),
        judge=_nothing_alone,
    ),
)
