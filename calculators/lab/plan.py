"""From a spec to a plan: which rank does what, which calls a step makes, and what they should move."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from calculators.lab.devices import Placement
from calculators.lab.measurements import Prediction, Quantity
from calculators.lab.spec import Job, Qkv, Spec
from calculators.predict import collectives, gloo

TOKEN_ID_BYTES = 8
"""A sampled token travels back as one int64."""


class Op(StrEnum):
    """The calls that jobs make."""

    ALL_REDUCE = "all-reduce"
    SEND = "send"


@dataclass(frozen=True, kw_only=True)
class Call:
    """One kind of call, made `times` times a step with `payload_bytes` each.

    An all-reduce is entered by every rank; a send goes from `source` to `destination`. `is_control` marks
    what the job needs besides its formula.
    """

    op: Op
    payload_bytes: int
    times: int
    what: str
    source: int = 0
    destination: int = 0
    is_control: bool = False

    def members(self, world_size: int) -> list[int]:
        """The ranks that hand this call a tensor: all, or the sender alone."""
        return list(range(world_size)) if self.op is Op.ALL_REDUCE else [self.source]

    def formula_bytes(self, rank: int, world_size: int) -> float:
        """What the textbook has `rank` send in one call (ring all-reduce, or the sender's send) [bytes]."""
        if rank not in self.members(world_size):
            return 0.0
        if self.op is Op.ALL_REDUCE:
            return float(collectives.all_reduce_bytes(self.payload_bytes, world_size))
        return float(collectives.send_bytes(self.payload_bytes))

    def on_gloo(self, world_size: int, *, bytes_per_element: int) -> gloo.PairBytes:
        """What gloo writes for one call, sender × receiver [bytes]."""
        if self.op is Op.ALL_REDUCE:
            return gloo.all_reduce(self.payload_bytes, world_size, bytes_per_element=bytes_per_element)
        return gloo.send(self.payload_bytes, world_size, source=self.source, destination=self.destination)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A run, decided: where its ranks compute, what a step calls, and every prediction made before it."""

    spec: Spec
    placement: Placement
    calls: tuple[Call, ...]
    predictions: tuple[Prediction, ...]

    @property
    def world_size(self) -> int:
        return self.spec.ranks

    @property
    def calls_per_step(self) -> int:
        """Calls of one step by the formula, over all ranks; control is not counted."""
        return sum(call.times for call in self.calls if not call.is_control)

    @property
    def layers_by_rank(self) -> tuple[range, ...]:
        """The layers that each rank holds, whole (a stage) or a slice of each (tensor)."""
        spec = self.spec
        if spec.job is Job.TENSOR:
            return (range(spec.layers),) * spec.ranks
        depth = spec.layers // spec.ranks
        return tuple(range(rank * depth, (rank + 1) * depth) for rank in range(spec.ranks))


def make_plan(spec: Spec, placement: Placement) -> Plan:
    """The plan of `spec` on the devices and backend of `placement`; pure, nothing is started."""
    calls = tuple(_calls(spec))
    return Plan(
        spec=spec,
        placement=placement,
        calls=calls,
        predictions=tuple(_predictions(spec, calls, on_gloo=placement.backend == "gloo")),
    )


def _calls(spec: Spec) -> Iterator[Call]:
    """The calls of one step; `formulas.md` §2 in the words of this lab's jobs."""
    if spec.job is Job.TENSOR:
        yield Call(
            op=Op.ALL_REDUCE,
            payload_bytes=spec.activation_bytes,
            times=spec.layers * _all_reduces_per_layer(spec),
            what="hidden state of all ranks, summed after attention and after feed-forward",
        )
        return
    for stage in range(spec.ranks - 1):
        yield Call(
            op=Op.SEND,
            payload_bytes=spec.activation_bytes,
            times=spec.microbatches,
            what=f"hidden state, stage {stage} to {stage + 1}",
            source=stage,
            destination=stage + 1,
        )
        if spec.is_training:
            yield Call(
                op=Op.SEND,
                payload_bytes=spec.activation_bytes,
                times=spec.microbatches,
                what=f"gradient of the hidden state, stage {stage + 1} to {stage}",
                source=stage + 1,
                destination=stage,
            )
    if not spec.is_training:
        yield Call(
            op=Op.SEND,
            payload_bytes=TOKEN_ID_BYTES * spec.batch,
            times=1,
            what="sampled token ids, last stage to first",
            source=spec.ranks - 1,
            destination=0,
            is_control=True,
        )


def _all_reduces_per_layer(spec: Spec) -> int:
    """2 forward; training adds 2 backward, or 4 when q, k and v each reduce the gradient of their input."""
    if not spec.is_training:
        return 2
    return 4 if spec.qkv is Qkv.FUSED else 6


def _predictions(spec: Spec, calls: tuple[Call, ...], *, on_gloo: bool) -> Iterator[Prediction]:
    """Every quantity over all measured steps: per rank, then per ordered pair of ranks."""
    ranks, steps = range(spec.ranks), spec.steps
    for rank in ranks:
        mine = [call for call in calls if rank in call.members(spec.ranks)]
        for quantity, weight in (
            (Quantity.CALLS, lambda call: call.times),
            (Quantity.HANDED, lambda call: call.times * call.payload_bytes),
        ):
            yield Prediction(
                quantity=quantity,
                rank=rank,
                formula=float(steps * sum(weight(c) for c in mine if not c.is_control)),
                control=float(steps * sum(weight(c) for c in mine if c.is_control)),
            )
    if not on_gloo:
        return  # what another backend writes is not known to the byte, so nothing is claimed
    # Of each call: the textbook's bytes, gloo's tensors beyond them, gloo's headers; a control call whole.
    n = spec.ranks
    formula, payload, framing, control = (np.zeros((n, n)) for _ in range(4))
    for call in calls:
        pairs = call.on_gloo(n, bytes_per_element=spec.dtype.bytes_per_element) * (call.times * steps)
        if call.is_control:
            control += pairs.total
            continue
        payload += pairs.payload
        framing += pairs.framing
        sent = pairs.payload.sum(axis=1, keepdims=True)
        share = np.divide(pairs.payload, sent, out=np.zeros_like(sent + pairs.payload), where=sent > 0)
        textbook = [call.formula_bytes(rank, n) * call.times * steps for rank in ranks]
        formula += share * np.array(textbook)[:, None]
    excess = payload - formula
    for rank in ranks:
        yield Prediction(
            quantity=Quantity.WIRE,
            rank=rank,
            formula=float(formula[rank].sum()),
            backend_excess=float(excess[rank].sum()),
            framing=float(framing[rank].sum()),
            control=float(control[rank].sum()),
        )
    for rank in ranks:
        yield Prediction(quantity=Quantity.IDLE, rank=rank, formula=0.0)
    for rank in ranks:
        for peer in ranks:
            if rank != peer:
                yield Prediction(
                    quantity=Quantity.PAIR,
                    rank=rank,
                    peer=peer,
                    formula=float(formula[rank, peer]),
                    backend_excess=float(excess[rank, peer]),
                    framing=float(framing[rank, peer]),
                    control=float(control[rank, peer]),
                )
