"""What the lessons claim of one conversation: cutting each layer makes tokens come sooner, cutting the stack not."""

import statistics
from collections.abc import Mapping

from calculators.lab.guided.claims import Figure, Guided, Level, Result, Verdict, held_if
from calculators.lab.guided.statistics import ratio_of_medians
from calculators.lab.guided.variants import variant
from calculators.lab.measurements import Doing, Quantity

# Weights of some 900 MB, far beyond any cache: a token takes as long as reading them does, and four all-reduces of
# 12 KiB are little beside that.
_MODEL = {
    "layers": 2,
    "hidden_size": 3072,
    "ffn_width": 12288,
    "vocab_size": 64,
    "batch": 1,
    "steps": 20,
}
_NO_FASTER = 1.1
"""A speed-up within this is none: both stages read as many bytes as one rank did, one after the other."""


def _one_conversation(results: Mapping[str, Result]) -> Verdict:
    times = {name: result.seconds_of_steps() for name, result in results.items()}
    tensor, pipeline = (ratio_of_medians(times["alone"], times[name]) for name in ("tensor", "pipeline"))
    # Two replicas at once show what each of two ranks reads a second while the other reads, too.
    whole = results["alone"].spec.parameters * results["alone"].spec.dtype.bytes_per_element
    bandwidth = whole / statistics.median(times["replicas"])
    expected = statistics.median(times["alone"]) / (whole / 2 / bandwidth)
    seconds = {doing: results["tensor"].measured(Quantity.SECONDS, detail=doing) for doing in Doing}
    return Verdict(
        outcome=held_if(tensor.low > 1 and pipeline.value < _NO_FASTER),
        sentence=f"One conversation's tokens came {tensor.value:.2f} × as fast with each layer cut in two (95 % of "
        f"such runs between {tensor.low:.2f} and {tensor.high:.2f}), and {pipeline.value:.2f} × with the stack cut "
        f"in two ({pipeline.low:.2f} to {pipeline.high:.2f}). Each of two ranks reads {bandwidth / 1e9:.3g} GB/s.",
        figures=(
            Figure(
                what="speed-up of one conversation, TP on 2 ranks, from their memory bandwidth",
                unit="×",
                predicted=expected,
                measured=tensor.value,
                level=Level.TIME,
            ),
            Figure(
                what="the same, least of the 95 % interval",
                unit="×",
                measured=tensor.low,
                level=Level.TIME,
            ),
            Figure(
                what="share of its time that TP waited in all-reduces, which the prediction leaves out",
                unit="×",
                measured=1 - seconds[Doing.BUSY] / sum(seconds.values()),
                level=Level.TIME,
                decides=False,
            ),
            Figure(
                what="speed-up of one conversation, PP on 2 ranks",
                unit="×",
                predicted=1,
                measured=pipeline.value,
                level=Level.TIME,
            ),
        ),
    )


EXPERIMENTS = (
    Guided(
        name="one-conversation",
        title="One conversation on two devices",
        family="tp",
        lesson="tp-or-pp",
        claim="For one conversation on two devices, tensor parallelism makes tokens come sooner; a pipeline does not.",
        about="Decoding one token reads every weight once. Cut in every layer, two ranks read half each at the same "
        "time. Cut in the middle of the stack, the second reads while the first has nothing to do. What two ranks can "
        "read at once is measured by two replicas that serve side by side.",
        level=Level.TIME,
        variants=(
            variant("alone", "1 rank", {"job": "tensor", "ranks": 1, **_MODEL}),
            variant("tensor", "TP, 2 ranks", {"job": "tensor", **_MODEL}),
            variant("pipeline", "PP, 2 ranks", {"job": "pipeline", **_MODEL}),
            variant("replicas", "2 replicas side by side", {"job": "data", **_MODEL, "batch": 2}),
        ),
        judge=_one_conversation,
        needs=(),
    ),
)
