"""Expert parallelism: every rank holds some experts and a share of the batch; tokens go to experts and come back."""

from collections.abc import Iterable, Iterator

from calculators.lab.calls import Call
from calculators.lab.measurements import Prediction
from calculators.lab.problems import Problem, must_divide
from calculators.lab.spec import Spec
from calculators.lab.splits import memory as held
from calculators.lab.splits.routing import Routing, routing_of
from calculators.predict.collectives import Kind

INDEX_BYTES = 8
"""torch keeps the place of a row by int64."""
GATE_BYTES = 4
"""The router's softmax is in float32 in every element type."""


def contradictions(spec: Spec) -> Iterator[Problem]:
    """Equally many experts and sequences on every rank, and no more experts a token than there are."""
    yield from whole_experts(spec, spec.ranks)
    yield from must_divide(
        "batch",
        spec.batch,
        spec.ranks,
        f"A batch of {spec.batch} sequences cannot be dealt to {spec.ranks} ranks evenly. "
        "Around the experts each rank works on its own sequences, as many as the others.",
        "ranks",
    )


def whole_experts(spec: Spec, ranks: int) -> Iterator[Problem]:
    """Experts that `ranks` cannot share, or too few for a token; one alone is a dense block on every rank."""
    if spec.experts > 1:
        yield from must_divide(
            "experts",
            spec.experts,
            ranks,
            f"{spec.experts} experts cannot be dealt to {ranks} ranks evenly. "
            "Every rank holds the same number of experts (rule R11).",
            "ranks",
        )
    if spec.top_k > spec.experts:
        yield Problem(
            "top_k",
            f"top_k is {spec.top_k}, but a layer has only {_counted(spec.experts)}, and those of one token are "
            f"distinct. Take {_up_to(spec.experts)}, or more experts.",
        )


def _counted(experts: int) -> str:
    return f"{experts} experts" if experts > 1 else "1 expert"


def _up_to(number: int) -> str:
    return f"{number} or less" if number > 1 else "1"


def calls(spec: Spec) -> Iterator[Call]:
    """Dispatch and combine of each layer and, in training, of their gradients; then the sum of the other weights'."""
    if spec.ranks == 1:
        return
    if spec.has_experts:
        yield from exchanges(spec, routing_of(spec))
    if spec.is_training:
        yield Call(
            op=Kind.ALL_REDUCE,
            payload_bytes=(spec.parameters - spec.layers * expert_parameters(spec))
            * spec.dtype.bytes_per_element,
            times=1,
            what="gradients of the weights that every rank has, summed over all ranks",
            axis="dp",
        )


def exchanges(spec: Spec, routing: Routing, group: tuple[int, ...] = ()) -> Iterator[Call]:
    """The calls of the ranks of `group` (empty: all) that share the tokens and experts of `routing`.

    A gradient goes the way of its tensor backwards: those of the answers as the copies went, and those of the
    copies as the answers came.
    """
    there = tuple(tuple(count * spec.row_bytes for count in row) for row in routing.counts())
    back = tuple(zip(*there, strict=True))
    trains = spec.is_training
    for parts, what in (
        (
            there,
            "dispatch: copies of tokens to their experts" + ", and backward the answers' gradients" * trains,
        ),
        (back, "combine: answers back to their tokens" + ", and backward the copies' gradients" * trains),
    ):
        yield Call(
            op=Kind.ALL_TO_ALL,
            payload_bytes=max(map(sum, parts)),
            times=spec.layers * (2 if trains else 1),
            what=what,
            axis="ep",
            parts=parts,
            groups=(group,) if group else (),
        )


def expert_parameters(spec: Spec) -> int:
    """Weights of all experts of a layer."""
    return spec.experts * 2 * spec.hidden_size * spec.ffn_width if spec.has_experts else 0


def layers_by_rank(spec: Spec) -> tuple[range, ...]:
    """Something of each: all but other ranks' experts."""
    return (range(spec.layers),) * spec.ranks


def memory(spec: Spec) -> Iterable[Prediction]:
    """Its share of the experts and all other weights; saved for backward follows the copies that its experts get."""
    if not spec.is_training:
        return
    elsewhere = spec.layers * expert_parameters(spec) * (spec.ranks - 1) // spec.ranks
    tokens = spec.batch // spec.ranks * spec.tokens
    for rank in range(spec.ranks):
        kept = held.stack(spec, layers=spec.layers, tokens=tokens)
        if spec.has_experts:
            kept += beyond_a_dense_block(spec, routing_of(spec), rank) * spec.layers
        yield from held.predictions(spec, rank, parameters=spec.parameters - elsewhere, kept=kept)


def beyond_a_dense_block(spec: Spec, routing: Routing, rank: int) -> held.Kept:
    """What a mixture saves more than a dense block of the same tokens does.

    Experts keep their inputs and both sides of the GELU of the copies they get, and the gates the answers that they
    weigh. Besides, there are the router's softmax, the gates, and the places of the copies among the tokens.
    """
    element, width = spec.dtype.bytes_per_element, 2 * spec.ffn_width
    tokens = len(routing.chosen) // routing.ranks
    sent, received = len(routing.copies_of(rank).tokens), routing.received(rank)
    inside = received * (spec.hidden_size + width) - tokens * width
    return held.Kept(
        formula=float((inside + sent * spec.hidden_size) * element),
        excess=float(
            tokens * routing.experts * GATE_BYTES + sent * element + 2 * INDEX_BYTES * (sent + received)
        ),
    )
