"""What the lessons claim of pipeline parallelism: bubbles and what shrinks them, and whom requests in flight help."""

import statistics
from collections.abc import Mapping

from calculators.lab.guided.claims import Curve, Figure, Guided, Level, Result, Verdict, held_if
from calculators.lab.guided.variants import variant
from calculators.lab.measurements import Doing, Quantity
from calculators.lab.spec import Spec
from calculators.lab.splits.pipeline import LATENCY, THROUGHPUT
from calculators.predict.schedules import idle_share

# Wide enough that a stage computes far longer than its messages take, on a CPU too.
_TRAINING = {
    "job": "pipeline",
    "phase": "training",
    "layers": 4,
    "hidden_size": 256,
    "ffn_width": 1024,
    "vocab_size": 64,
    "batch": 8,
    "tokens": 64,
    "steps": 10,
}
_DECODE = {
    "job": "pipeline",
    "layers": 8,
    "hidden_size": 512,
    "ffn_width": 2048,
    "vocab_size": 64,
    "batch": 8,
    "steps": 16,
}
_NO_SLOWER = 0.9
"""A latency within this share of another, or above, has not fallen: steps of one run differ by as much."""


def bubble(result: Result) -> float:
    """The share of their time that ranks did not compute, over all of them."""
    seconds = {doing: result.measured(Quantity.SECONDS, detail=doing) for doing in Doing}
    return 1 - seconds[Doing.BUSY] / sum(seconds.values())


def _expected_bubble(spec: Spec) -> float:
    schedule = str(spec.schedule)
    chunks = {"chunks": spec.chunks} if spec.schedule.has_chunks else {}
    share = idle_share(schedule, stages=spec.ranks, micro_batches=spec.microbatches, **chunks)
    return float(share)


def _bubbles(results: Mapping[str, Result]) -> list[Figure]:
    return [
        Figure(
            what=f"time not computing, {result.spec.schedule}, {result.spec.microbatches} micro-batches",
            unit="×",
            predicted=_expected_bubble(result.spec),
            measured=bubble(result),
            level=Level.TIME,
        )
        for result in results.values()
    ]


def _more_microbatches(results: Mapping[str, Result]) -> Verdict:
    figures = _bubbles(results)
    shares = [figure.measured or 0.0 for figure in figures]
    cut = [float(result.spec.microbatches) for result in results.values()]
    return Verdict(
        outcome=held_if(shares == sorted(shares, reverse=True)),
        sentence="Ranks did not compute "
        + ", ".join(f"{share:.0%} of the time with {m:g}" for share, m in zip(shares, cut, strict=True))
        + " micro-batches.",
        figures=tuple(figures),
        curves=(
            Curve(
                name="bubble",
                x_title="micro-batches",
                y_title="share of the time",
                x=tuple(cut),
                predicted=tuple(figure.predicted for figure in figures),
                measured=tuple(shares),
            ),
        ),
    )


def _interleaved(results: Mapping[str, Result]) -> Verdict:
    plain, interleaved = (results[name] for name in ("plain", "interleaved"))
    shares = bubble(plain), bubble(interleaved)
    calls = [r.measured(Quantity.CALLS) / r.spec.steps for r in (plain, interleaved)]
    return Verdict(
        outcome=held_if(shares[1] < shares[0] and calls[1] > calls[0]),
        sentence=f"With two stages a rank the time not computing went from {shares[0]:.0%} to {shares[1]:.0%}, and "
        f"sends of a step from {calls[0]:g} to {calls[1]:g}.",
        figures=(
            *_bubbles(results),
            *(
                Figure(
                    what=f"sends of a step, {result.spec.schedule}",
                    unit="calls",
                    predicted=result.predicted(Quantity.CALLS) / result.spec.steps,
                    measured=number,
                    level=Level.HANDED,
                )
                for result, number in zip((plain, interleaved), calls, strict=True)
            ),
        ),
    )


def _requests_in_flight(results: Mapping[str, Result]) -> Verdict:
    latency, throughput = (
        [statistics.median(result.values(name, rank=0)) for result in results.values()]
        for name in (LATENCY, THROUGHPUT)
    )
    requests = [float(result.spec.microbatches) for result in results.values()]
    stages = next(iter(results.values())).run.world_size
    # One request alone passes every stage in turn, so a stage takes latency ÷ stages; more than that share the stages.
    stage = latency[0] / stages
    expected = [min(number, stages) / (stages * stage) for number in requests]
    return Verdict(
        outcome=held_if(throughput[-1] > throughput[0] and min(latency[1:]) >= _NO_SLOWER * latency[0]),
        sentence=f"From 1 request in flight to {requests[-1]:g}, tokens per second went from {throughput[0]:.3g} to "
        f"{throughput[-1]:.3g}, and one request's time for a token from {1e3 * latency[0]:.3g} ms to "
        f"{1e3 * latency[-1]:.3g} ms.",
        figures=tuple(
            Figure(
                what=f"{what}, {number:g} in flight",
                unit=unit,
                predicted=predicted,
                measured=measured,
                level=Level.TIME,
            )
            for what, unit, predictions, values in (
                ("tokens per second of all requests", "1/s", expected, throughput),
                ("one request's time for a token", "s", [max(n, stages) * stage for n in requests], latency),
            )
            for number, predicted, measured in zip(requests, predictions, values, strict=True)
        ),
        curves=tuple(
            Curve(
                name=name,
                x_title="requests in flight",
                y_title=unit,
                x=tuple(requests),
                predicted=tuple(predictions),
                measured=tuple(values),
            )
            for name, unit, predictions, values in (
                ("throughput", "tokens per second", expected, throughput),
                ("latency", "seconds for a token", [max(n, stages) * stage for n in requests], latency),
            )
        ),
    )


EXPERIMENTS = (
    Guided(
        name="bubble",
        title="The bubble, and more micro-batches",
        family="pp",
        lesson="pipeline-parallelism",
        claim="More micro-batches make a pipeline's bubble smaller: (p−1)/(m+p−1) of the time.",
        about="A stage has nothing to do until the first micro-batch reaches it, and again while the last ones leave. "
        "The timeline of each run shows when its ranks computed. Stages are not quite equal (the last one has the "
        "loss), so a little more than the formula's share is waited.",
        level=Level.TIME,
        variants=tuple(
            variant(f"m-{m}", f"{m} micro-batches", _TRAINING, {"schedule": "gpipe", "microbatches": m})
            for m in (1, 2, 8)
        ),
        judge=_more_microbatches,
        needs=(),
    ),
    Guided(
        name="interleaving",
        title="Several stages a rank",
        family="pp",
        lesson="pipeline-parallelism",
        claim="Interleaving, with several stages on each rank, makes the bubble smaller and the number of sends "
        "larger.",
        about="Both runs train the same layers with as many micro-batches. In the second each rank holds two shorter "
        "stages, so a micro-batch reaches the last rank sooner, and crosses between ranks more often.",
        level=Level.TIME,
        variants=(
            variant("plain", "1F1B, one stage a rank", _TRAINING, {"microbatches": 2}),
            variant(
                "interleaved",
                "Interleaved 1F1B, two stages a rank",
                _TRAINING,
                {"microbatches": 2, "schedule": "interleaved", "chunks": 2},
            ),
        ),
        judge=_interleaved,
        needs=(),
    ),
    Guided(
        name="pp-requests",
        title="Requests in flight help everybody, and nobody",
        family="pp",
        lesson="pipeline-parallelism",
        claim="With more requests in flight a pipeline serves more tokens per second, but no request gets its token "
        "sooner.",
        about="One request alone keeps one stage busy at a time. More of them fill the stages, up to as many as there "
        "are; beyond that they queue. A token still passes every stage in turn.",
        level=Level.TIME,
        variants=tuple(
            variant(
                f"requests-{n}",
                f"{n} in flight" if n > 1 else "1 alone",
                _DECODE,
                {"batch": n, "microbatches": n},
            )
            for n in (1, 2, 4, 8)
        ),
        judge=_requests_in_flight,
        needs=(),
    ),
)
