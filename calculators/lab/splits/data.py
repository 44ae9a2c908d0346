"""Data parallelism: every rank holds the whole model and its own share of the batch."""

from collections import Counter
from collections.abc import Iterable, Iterator

from calculators.lab.calls import Call
from calculators.lab.measurements import Prediction, Quantity
from calculators.lab.problems import Problem, must_divide
from calculators.lab.spec import Gradients, Spec
from calculators.lab.splits.weights import of_the_model
from calculators.predict.collectives import Kind

# torch/nn/parallel/distributed.py: DDP sums gradients in buckets of at least so many bytes, the first one smaller
# so that something can be sent early.
FIRST_BUCKET_BYTES = 2**20
BUCKET_BYTES = 25 * 2**20
ADAM_MOMENTS = 2
"""Numbers that AdamW remembers of each weight, in the weight's own type."""

# What a replica follows through the measured steps.
DISTANCE = "distance from the replicas' mean, as a share of it"
LOSS = "loss"
SERVED = "tokens served"


def contradictions(spec: Spec) -> Iterator[Problem]:
    """An equal share of the batch for every replica, and survivors where one is lost."""
    yield from equal_shares(spec)
    if spec.lost_rank >= spec.ranks:
        yield Problem(
            "lost_rank",
            f"lost_rank is {spec.lost_rank}, but {spec.ranks} ranks are numbered 0 to {spec.ranks - 1}. "
            "Name one of them, or −1 to lose none.",
        )
    elif spec.lost_rank >= 0 and spec.ranks == 1:
        yield Problem(
            "lost_rank",
            "lost_rank is 0, but it is the only rank, and nobody would serve on. Take 2 ranks or more.",
        )


def equal_shares(spec: Spec) -> Iterator[Problem]:
    """A batch that the ranks cannot share equally."""
    yield from must_divide(
        "batch",
        spec.batch,
        spec.ranks,
        f"A batch of {spec.batch} sequences cannot be dealt to {spec.ranks} replicas evenly. "
        "The mean of their gradients is the whole batch's only when their shares are equal.",
        "ranks",
    )


def calls(spec: Spec) -> Iterator[Call]:
    """One all-reduce for each bucket of gradients in training; replicas that serve never speak."""
    if spec.is_training and spec.gradients is Gradients.SUMMED:
        yield from summed_gradients(spec)


def summed_gradients(spec: Spec) -> Iterator[Call]:
    """The buckets, those of one size as one kind of call."""
    for size, times in Counter(buckets(spec)).items():
        yield Call(
            op=Kind.ALL_REDUCE,
            payload_bytes=size,
            times=times,
            what="gradients of a bucket, summed over all replicas",
            axis="dp",
        )


def buckets(spec: Spec) -> tuple[int, ...]:
    """Bytes of DDP's buckets, in the order in which gradients get ready: from the head to the embedding.

    A bucket takes gradients until it has as many bytes as it should, so it may have more.
    """
    filled: list[int] = []
    current = 0
    for weight in reversed(of_the_model(spec)):
        current += weight.elements * spec.dtype.bytes_per_element
        if current >= (BUCKET_BYTES if filled else FIRST_BUCKET_BYTES):
            filled.append(current)
            current = 0
    return (*filled, current) if current else tuple(filled)


def lost_at_step(spec: Spec) -> int:
    """After how many measured steps `lost_rank` is killed: half of them."""
    return spec.steps // 2


def layers_by_rank(spec: Spec) -> tuple[range, ...]:
    """All of them."""
    return (range(spec.layers),) * spec.ranks


def memory(spec: Spec) -> Iterable[Prediction]:
    """Weights, gradients and AdamW's moments, whole on every rank, whatever their number."""
    if spec.is_training:
        whole = spec.parameters * spec.dtype.bytes_per_element
        for rank in range(spec.ranks):
            yield from held(rank, weights=whole, gradients=whole, optimizer=ADAM_MOMENTS * whole)


def held(rank: int, **parts: int) -> Iterator[Prediction]:
    """One prediction of `rank` for each part of its memory [bytes]."""
    for part, size in parts.items():
        yield Prediction(quantity=Quantity.MEMORY, rank=rank, detail=part, formula=float(size))
