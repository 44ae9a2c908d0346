"""What the lessons claim of data parallelism: memory stays, replicas must speak to learn, and need not to serve."""

from collections.abc import Mapping

from calculators.lab.guided.claims import Curve, Figure, Guided, Level, Result, Verdict, held_if
from calculators.lab.guided.levels import algorithm_bytes
from calculators.lab.guided.variants import variant
from calculators.lab.measurements import Quantity
from calculators.lab.splits.data import DISTANCE, LOSS, SERVED, lost_at_step
from calculators.lab.splits.memory import GRADIENTS, OPTIMIZER, WEIGHTS
from calculators.predict.collectives import Kind

_MODEL = {"layers": 2, "hidden_size": 128, "ffn_width": 256, "batch": 8, "tokens": 16, "steps": 10}
_TRAINING = {"job": "data", "phase": "training", **_MODEL}
_SERVING = {"job": "data", "phase": "decode", **_MODEL}
_STATES = (WEIGHTS, GRADIENTS, OPTIMIZER)


def states(result: Result, *, predicted: bool = False) -> float:
    """Weights, gradients and optimizer state of rank 0 [B]."""
    read = result.predicted if predicted else result.measured
    return sum(read(Quantity.MEMORY, rank=0, detail=part) for part in _STATES)


def _memory_stays(results: Mapping[str, Result]) -> Verdict:
    held = {name: states(result) for name, result in results.items()}
    return Verdict(
        outcome=held_if(len(set(held.values())) == 1),
        sentence="Weights, gradients and optimizer state of a rank were "
        + ", ".join(f"{held[name]:,.0f} bytes with {results[name].run.world_size}" for name in held)
        + " replicas: each holds all of it.",
        figures=tuple(
            Figure(
                what=f"model states of a rank, {result.run.world_size} replicas",
                unit="B",
                predicted=states(result, predicted=True),
                measured=held[name],
                level=Level.MEMORY,
            )
            for name, result in results.items()
        ),
    )


def _drift(results: Mapping[str, Result]) -> Verdict:
    summed, kept = (results[name].values(DISTANCE, rank=1) for name in ("summed", "kept"))
    sent = results["kept"].measured(Quantity.WIRE)
    steps = tuple(float(step) for step in range(1, len(kept) + 1))
    return Verdict(
        outcome=held_if(max(summed) == 0 and kept[-1] > kept[0] > 0 and sent == 0),
        sentence=f"After {len(kept)} steps without the all-reduce, rank 1's weights were {kept[-1]:.3g} of their size "
        f"away from the replicas' mean; with it, {summed[-1]:g}.",
        figures=(
            Figure(
                what="distance of replicas that sum their gradients",
                unit="×",
                predicted=0,
                measured=max(summed),
                level=Level.RESULT,
            ),
            Figure(
                what="distance of replicas that do not, at the end",
                unit="×",
                measured=kept[-1],
                level=Level.RESULT,
            ),
            Figure(
                what="wire bytes of replicas that do not",
                unit="B",
                predicted=0,
                measured=sent,
                level=Level.WIRE,
            ),
        ),
        curves=(
            Curve(
                name="distance of rank 1 from the replicas' mean, gradients kept",
                x_title="step",
                y_title="share of the weights' size",
                x=steps,
                measured=kept,
            ),
            Curve(
                name="loss of rank 1 on its own share, gradients kept",
                x_title="step",
                y_title="loss",
                x=steps,
                measured=results["kept"].values(LOSS, rank=1),
            ),
        ),
    )


def _one_gradient(results: Mapping[str, Result]) -> Verdict:
    result = results["training"]
    size = result.measured(Quantity.MEMORY, rank=0, detail=GRADIENTS)
    handed = result.measured(Quantity.HANDED, rank=0) / result.spec.steps
    sent = algorithm_bytes(result, Kind.ALL_REDUCE, axis="dp") / result.run.world_size / result.spec.steps
    return Verdict(
        outcome=held_if(handed == size),
        sentence=f"A step handed {handed:,.0f} bytes to all-reduces; the gradients are {size:,.0f} bytes.",
        figures=(
            Figure(
                what="bytes handed over in a step",
                unit="B",
                predicted=size,
                measured=handed,
                level=Level.HANDED,
            ),
            Figure(
                what="bytes that a ring sends for it, each rank",
                unit="B",
                predicted=2 * (result.run.world_size - 1) / result.run.world_size * size,
                measured=sent,
                level=Level.ALGORITHM,
                decides=False,
            ),
            Figure(
                what="wire bytes of rank 0 in a step",
                unit="B",
                predicted=result.predicted(Quantity.WIRE, rank=0) / result.spec.steps,
                measured=result.measured(Quantity.WIRE, rank=0) / result.spec.steps,
                level=Level.WIRE,
                decides=False,
            ),
        ),
    )


def _serves_alone(results: Mapping[str, Result]) -> Verdict:
    sent, calls = (results["serving"].measured(quantity) for quantity in (Quantity.WIRE, Quantity.CALLS))
    survived = results["survivor"]
    served = survived.values(SERVED, rank=0)
    lost = survived.spec.lost_rank
    return Verdict(
        outcome=held_if(sent == calls == 0 and len(served) == survived.spec.steps),
        sentence=f"Two replicas that serve made {calls:g} calls and sent {sent:g} bytes. When rank {lost} was killed "
        f"after {lost_at_step(survived.spec)} of {survived.spec.steps} tokens, the other served all of its "
        f"{served[-1]:g}, and its results were still right.",
        figures=(
            Figure(
                what="calls between replicas", unit="calls", predicted=0, measured=calls, level=Level.HANDED
            ),
            Figure(
                what="wire bytes between replicas", unit="B", predicted=0, measured=sent, level=Level.WIRE
            ),
            Figure(
                what=f"tokens that rank 0 served although rank {lost} was killed",
                unit="tokens",
                predicted=survived.spec.steps * survived.spec.batch / survived.run.world_size,
                measured=served[-1],
                level=Level.RESULT,
            ),
        ),
    )


EXPERIMENTS = (
    Guided(
        name="dp-memory",
        title="Data parallelism does not shrink the model",
        family="dp",
        lesson="data-parallelism",
        claim="More replicas do not make a rank hold less: weights, gradients and optimizer state stay whole on each.",
        about="A model that does not fit on one device does not fit on a hundred replicas of it. What replicas divide "
        "is the batch.",
        level=Level.MEMORY,
        variants=tuple(
            variant(f"replicas-{ranks}", f"{ranks} replicas", _TRAINING, {"ranks": ranks}) for ranks in (2, 4)
        ),
        judge=_memory_stays,
    ),
    Guided(
        name="replicas-drift",
        title="Replicas that do not speak drift apart",
        family="dp",
        lesson="data-parallelism",
        claim="Without the all-reduce of gradients, replicas become different models.",
        about="Both runs start with the same weights and give each replica its own share of every batch. One sums the "
        "gradients, as PyTorch's DistributedDataParallel does. The other leaves that out, and nothing else.",
        level=Level.RESULT,
        variants=(
            variant("summed", "Gradients summed", _TRAINING),
            variant("kept", "Gradients kept", _TRAINING, {"gradients": "kept"}),
        ),
        judge=_drift,
    ),
    Guided(
        name="dp-one-gradient",
        title="One gradient volume a step",
        family="dp",
        lesson="data-parallelism",
        claim="A data-parallel training step hands over each gradient once, whatever the batch: all-reduces of the "
        "whole gradient's size.",
        about="What is handed over is the size of the model's gradients. What a ring sends for it is 2(n−1)/n of "
        "that, and the wire adds the headers of messages.",
        level=Level.HANDED,
        variants=(variant("training", "2 replicas", _TRAINING),),
        judge=_one_gradient,
    ),
    Guided(
        name="dp-serving",
        title="Replicas that serve send nothing, and outlive each other",
        family="dp",
        lesson="data-parallelism",
        claim="Data-parallel serving sends 0 bytes between replicas, and goes on when one of them is killed.",
        about="Each replica has the whole model and its own requests. In the second run the lab kills rank 1 in the "
        "middle, with the signal that nothing can catch, and then checks what rank 0 gives.",
        level=Level.WIRE,
        variants=(
            variant("serving", "2 replicas", _SERVING),
            variant("survivor", "2 replicas, one killed", _SERVING, {"lost_rank": 1}),
        ),
        judge=_serves_alone,
    ),
)
