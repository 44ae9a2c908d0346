"""Pipeline parallelism: every rank is a stage of consecutive layers; hidden states cross each boundary."""

from collections.abc import Iterable, Iterator

from calculators.lab.calls import Call
from calculators.lab.measurements import Prediction
from calculators.lab.problems import Problem, must_divide
from calculators.lab.spec import Spec
from calculators.predict.collectives import Kind
from calculators.predict.traffic import TOKEN_ID_BYTES


def contradictions(spec: Spec) -> Iterator[Problem]:
    """Stages of equal depth (rule R4), micro-batches of equal size, and as many as the schedule needs."""
    yield from must_divide(
        "layers",
        spec.layers,
        spec.ranks,
        f"{spec.layers} layers cannot be dealt to {spec.ranks} stages evenly. "
        "Each rank is one stage of the same number of layers here (rule R4).",
        "ranks",
    )
    given = f"microbatches is {spec.microbatches}, but"
    if not spec.is_training and spec.microbatches != 1:
        yield Problem(
            "microbatches", f"{given} a decode step passes one token of the whole batch. Leave it at 1."
        )
        return
    yield from must_divide(
        "batch",
        spec.batch,
        spec.microbatches,
        f"A batch of {spec.batch} sequences cannot be cut into {spec.microbatches} equal micro-batches. "
        "Every micro-batch holds the same number of sequences.",
        "micro-batches",
    )
    if spec.is_training and spec.schedule == "1f1b" and spec.microbatches < spec.ranks:
        yield Problem(
            "microbatches",
            f"{given} the 1F1B schedule needs at least one for each of the {spec.ranks} stages. "
            f"Take {spec.ranks} or more, or the GPipe schedule.",
        )


def calls(spec: Spec) -> Iterator[Call]:
    """A send at each boundary and micro-batch, its gradient back in training, token ids home in decode."""
    for stage in range(spec.ranks - 1):
        yield _crossing(spec, "hidden state", stage, stage + 1)
        if spec.is_training:
            yield _crossing(spec, "gradient of the hidden state", stage + 1, stage)
    if spec.is_decode and spec.ranks > 1:
        yield Call(
            op=Kind.SEND,
            payload_bytes=TOKEN_ID_BYTES * spec.batch,
            times=1,
            what=f"sampled token ids, stage {spec.ranks - 1} to 0",
            axis="pp",
            source=spec.ranks - 1,
            destination=0,
            is_control=True,
        )


def _crossing(spec: Spec, what: str, source: int, destination: int) -> Call:
    """What crosses one boundary in one direction, once a micro-batch."""
    return Call(
        op=Kind.SEND,
        payload_bytes=spec.activation_bytes,
        times=spec.microbatches,
        what=f"{what}, stage {source} to {destination}",
        axis="pp",
        source=source,
        destination=destination,
    )


def layers_by_rank(spec: Spec) -> tuple[range, ...]:
    """Whole layers, a stage of them on each rank."""
    depth = spec.layers // spec.ranks
    return tuple(range(rank * depth, (rank + 1) * depth) for rank in range(spec.ranks))


def memory(spec: Spec) -> Iterable[Prediction]:
    """Nothing is predicted yet."""
    return ()
