"""Expert and data parallelism together: groups that each hold all experts, and replicas of every expert."""

from collections.abc import Iterable, Iterator

from calculators.lab.calls import Call
from calculators.lab.measurements import Prediction
from calculators.lab.problems import Problem, must_divide
from calculators.lab.spec import Spec
from calculators.lab.splits import expert
from calculators.lab.splits import memory as held
from calculators.lab.splits.routing import routing_of
from calculators.predict.collectives import Kind


def contradictions(spec: Spec) -> Iterator[Problem]:
    """As many ranks as groups have places, no third family, and equal shares of experts and of the batch."""
    if spec.tp > 1 or spec.pp > 1:
        yield Problem(
            "ep",
            f"ep is {spec.ep}, but tp is {spec.tp} and pp is {spec.pp}. The lab composes experts with replicas (dp) "
            "only: set tp and pp to 1, or ep to 1.",
        )
    elif spec.ep * spec.dp != spec.ranks:
        yield Problem(
            "ranks",
            f"ranks is {spec.ranks}, but ep × dp is {spec.ep} × {spec.dp} = {spec.ep * spec.dp}. "
            "Every rank has one place in the mesh: make the two equal.",
        )
    if spec.experts == 1:
        yield Problem(
            "experts",
            f"experts is 1, but ep is {spec.ep}: one expert is a dense block, and nothing can be dealt out. "
            f"Take {spec.ep} experts or more, or the data job.",
        )
    if spec.microbatches != 1:
        yield Problem(
            "microbatches",
            f"microbatches is {spec.microbatches}, but around experts a step takes the batch whole. Leave it at 1.",
        )
    yield from expert.whole_experts(spec, spec.ep)
    yield from must_divide(
        "batch",
        spec.batch,
        spec.ranks,
        f"A batch of {spec.batch} sequences cannot be dealt to {spec.ranks} ranks evenly. "
        "Around the experts each rank works on its own sequences, as many as the others.",
        "ranks",
    )


def groups_of(spec: Spec) -> tuple[tuple[int, ...], ...]:
    """The ranks that share one set of all experts; neighbours."""
    return tuple(tuple(range(first, first + spec.ep)) for first in range(0, spec.ranks, spec.ep))


def calls(spec: Spec) -> Iterator[Call]:
    """Exchanges within each group; in training the sums of gradients, over all ranks and over experts' replicas."""
    for number, group in enumerate(groups_of(spec)):
        yield from expert.exchanges(spec, routing_of(spec).among(number, spec.dp), group)
    if not spec.is_training:
        return
    element = spec.dtype.bytes_per_element
    experts = spec.layers * expert.expert_parameters(spec)
    yield Call(
        op=Kind.ALL_REDUCE,
        payload_bytes=(spec.parameters - experts) * element,
        times=1,
        what="gradients of the weights that every rank has, summed over all ranks",
        axis="dp",
    )
    if spec.dp > 1:
        yield Call(
            op=Kind.ALL_REDUCE,
            payload_bytes=experts // spec.ep * element,
            times=1,
            what="gradients of a rank's experts, summed over their replicas",
            axis="dp",
            groups=tuple(zip(*groups_of(spec), strict=True)),
        )


def memory(spec: Spec) -> Iterable[Prediction]:
    """Its share of the experts and all other weights; what is saved for backward follows the copies that it gets."""
    elsewhere = spec.layers * expert.expert_parameters(spec) * (spec.ep - 1) // spec.ep
    tokens = spec.batch // spec.ranks * spec.tokens
    for number, group in enumerate(groups_of(spec)):
        routing = routing_of(spec).among(number, spec.dp)
        for place, rank in enumerate(group):
            kept = held.stack(spec, layers=spec.layers, tokens=tokens)
            kept += expert.beyond_a_dense_block(spec, routing, place) * spec.layers
            yield from held.predictions(spec, rank, parameters=spec.parameters - elsewhere, kept=kept)
