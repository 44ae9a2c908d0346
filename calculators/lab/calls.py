"""The calls that one step of a job makes: what goes to whom, how often, and how many bytes."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from calculators.lab.spec import Job, Qkv, Spec
from calculators.predict.traffic import TOKEN_ID_BYTES


class Op(StrEnum):
    """The kinds of call that jobs make."""

    ALL_REDUCE = "all-reduce"
    SEND = "send"


@dataclass(frozen=True, kw_only=True)
class Call:
    """One kind of call, made `times` times a step with `payload_bytes` each.

    Every rank enters an all-reduce; a send goes from `source` to `destination`. `is_control` marks what the
    job needs besides its formula.
    """

    op: Op
    payload_bytes: int
    times: int
    what: str
    source: int = 0
    destination: int = 0
    is_control: bool = False

    def is_made_by(self, rank: int) -> bool:
        """Whether `rank` hands this call a tensor: all do in an all-reduce, the sender alone in a send."""
        return self.op is Op.ALL_REDUCE or rank == self.source

    @property
    def step_bytes(self) -> int:
        """Bytes that a rank which makes this call hands over in one step."""
        return self.times * self.payload_bytes


def calls_of(spec: Spec) -> tuple[Call, ...]:
    """The calls of one step, textbook ones first (`docs/lab.md` derives each)."""
    return tuple(_tensor(spec) if spec.job is Job.TENSOR else _pipeline(spec))


def _tensor(spec: Spec) -> Iterator[Call]:
    yield Call(
        op=Op.ALL_REDUCE,
        payload_bytes=spec.activation_bytes,
        times=spec.layers * _all_reduces_per_layer(spec),
        what="hidden state, summed over all ranks after attention and after feed-forward",
    )


def _all_reduces_per_layer(spec: Spec) -> int:
    """2 forward; training adds 2 backward, or 4 when q, k and v each reduce the gradient of their input."""
    if not spec.is_training:
        return 2
    return 4 if spec.qkv is Qkv.FUSED else 6


def _pipeline(spec: Spec) -> Iterator[Call]:
    for stage in range(spec.ranks - 1):
        yield _crossing(spec, "hidden state", stage, stage + 1)
        if spec.is_training:
            yield _crossing(spec, "gradient of the hidden state", stage + 1, stage)
    if not spec.is_training:
        yield Call(
            op=Op.SEND,
            payload_bytes=TOKEN_ID_BYTES * spec.batch,
            times=1,
            what=f"sampled token ids, stage {spec.ranks - 1} to 0",
            source=spec.ranks - 1,
            destination=0,
            is_control=True,
        )


def _crossing(spec: Spec, what: str, source: int, destination: int) -> Call:
    """What crosses one boundary in one direction, once a micro-batch."""
    return Call(
        op=Op.SEND,
        payload_bytes=spec.activation_bytes,
        times=spec.microbatches,
        what=f"{what}, stage {source} to {destination}",
        source=source,
        destination=destination,
    )
