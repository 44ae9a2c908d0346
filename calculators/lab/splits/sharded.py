"""Sharded data parallelism (ZeRO, FSDP): replicas that each keep a slice of the model states.

Stage 1 is PyTorch's ZeroRedundancyOptimizer beside DDP: gradients are summed whole, each rank updates some of the
weights and broadcasts them. Stages 2 and 3 are FSDP2: every layer is a unit, and the ends of the model are one more.
"""

from collections.abc import Iterable, Iterator

from calculators.lab.calls import Call
from calculators.lab.measurements import Prediction
from calculators.lab.problems import Problem
from calculators.lab.spec import Spec
from calculators.lab.splits import data
from calculators.lab.splits.weights import (
    Weight,
    after_the_layers,
    before_the_layers,
    of_a_layer,
    of_the_model,
)
from calculators.predict.collectives import Kind

PLACEHOLDER_BYTES = 4
"""What ZeroRedundancyOptimizer broadcasts of a rank that updates nothing: one float32."""


def contradictions(spec: Spec) -> Iterator[Problem]:
    """An equal share of the batch for every rank."""
    yield from data.equal_shares(spec)


def calls(spec: Spec) -> Iterator[Call]:
    """Stage 1: all-reduces and broadcasts. Stage 2: each unit gathered once, its gradients reduce-scattered.
    Stage 3: gathered again for the backward pass. Only stage 3 gathers to serve.
    """
    if spec.zero == 1:
        if spec.is_training:
            yield from data.summed_gradients(spec)
            yield from _updated_weights(spec)
    elif spec.ranks > 1 and (spec.is_training or spec.zero == 3):  # alone, FSDP2 calls nobody
        yield from _unit(spec, "the embedding, the last norm and the head", 1, _ends(spec))
        yield from _unit(spec, "a layer", spec.layers, of_a_layer(spec))


def _updated_weights(spec: Spec) -> Iterator[Call]:
    for rank, weights in enumerate(updated_by(spec)):
        size = sum(weight.elements for weight in weights) * spec.dtype.bytes_per_element
        yield Call(
            op=Kind.BROADCAST,
            payload_bytes=size or PLACEHOLDER_BYTES,
            times=1,
            what=f"weights that rank {rank} has updated",
            axis="dp",
            source=rank,
        )


def _unit(spec: Spec, name: str, units: int, weights: tuple[Weight, ...]) -> Iterator[Call]:
    """Calls for `units` units that hold `weights` each, all of a unit's in one flat, padded buffer."""
    size = sum(weight.padded_elements(spec.ranks) for weight in weights) * spec.dtype.bytes_per_element
    twice = spec.is_training and spec.zero == 3
    yield Call(
        op=Kind.ALL_GATHER,
        payload_bytes=size,
        times=units * (2 if twice else 1),
        what=f"weights of {name} from their slices" + (", forward and again backward" if twice else ""),
        axis="dp",
    )
    if spec.is_training:
        yield Call(
            op=Kind.REDUCE_SCATTER,
            payload_bytes=size,
            times=units,
            what=f"gradients of {name}, a summed slice to each rank",
            axis="dp",
        )


def _ends(spec: Spec) -> tuple[Weight, ...]:
    return (*before_the_layers(spec), *after_the_layers(spec))


def updated_by(spec: Spec) -> tuple[tuple[Weight, ...], ...]:
    """The weights that each rank updates in stage 1: the largest first, each to the rank with least so far.

    Source: ZeroRedundancyOptimizer._partition_parameters.
    """
    dealt: list[list[Weight]] = [[] for _ in range(spec.ranks)]
    counts = [0] * spec.ranks
    for weight in sorted(of_the_model(spec), key=lambda weight: weight.elements, reverse=True):
        least = counts.index(min(counts))
        dealt[least].append(weight)
        counts[least] += weight.elements
    return tuple(map(tuple, dealt))


def layers_by_rank(spec: Spec) -> tuple[range, ...]:
    """A slice of every layer, or all of them."""
    return (range(spec.layers),) * spec.ranks


def memory(spec: Spec) -> Iterable[Prediction]:
    """What each rank holds after a step: stage 1 cuts the optimizer's state alone, FSDP2 all three.

    Slices of weights and gradients are padded to the largest rank's, the moments are not.
    """
    if not spec.is_training:
        return
    element, ranks, weights = spec.dtype.bytes_per_element, spec.ranks, of_the_model(spec)
    whole = spec.parameters * element
    slice_bytes = sum(weight.padded_elements(ranks) for weight in weights) // ranks * element
    for rank in range(ranks):
        if spec.zero == 1:
            own = sum(weight.elements for weight in updated_by(spec)[rank]) * element
            yield from data.held(rank, weights=whole, gradients=whole, optimizer=data.ADAM_MOMENTS * own)
        else:
            own = sum(weight.rows_of(rank, ranks) * weight.row for weight in weights) * element
            yield from data.held(
                rank, weights=slice_bytes, gradients=slice_bytes, optimizer=data.ADAM_MOMENTS * own
            )
