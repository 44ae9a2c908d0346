"""What a run's meters should read, computed before it starts, in the parts that pages name."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from calculators.lab.calls import Call
from calculators.lab.measurements import Prediction, Quantity
from calculators.lab.spec import Spec
from calculators.predict import gloo
from calculators.predict.collectives import TEXTBOOK, Kind, sent_bytes
from calculators.predict.gloo import Matrix


def handed(spec: Spec, calls: Iterable[Call]) -> Iterator[Prediction]:
    """Calls and handed bytes of each rank over all measured steps; they hold on any backend."""
    for rank in range(spec.ranks):
        mine = [call for call in calls if call.is_made_by(rank)]
        textbook, control = ([c for c in mine if c.is_control is control] for control in (False, True))
        yield Prediction(
            quantity=Quantity.CALLS,
            rank=rank,
            formula=float(spec.steps * sum(call.times for call in textbook)),
            control=float(spec.steps * sum(call.times for call in control)),
        )
        yield Prediction(
            quantity=Quantity.HANDED,
            rank=rank,
            formula=float(spec.steps * sum(call.step_bytes(rank, spec.ranks) for call in textbook)),
            control=float(spec.steps * sum(call.step_bytes(rank, spec.ranks) for call in control)),
        )


def wire_on_gloo(spec: Spec, calls: Iterable[Call]) -> Iterator[Prediction]:
    """Wire bytes over all measured steps as gloo moves them: of each rank, idle, and of each ordered pair."""
    parts = _Parts.nothing(spec.ranks)
    for call in calls:
        parts = parts.plus(_of_one_call(spec, call), times=call.times * spec.steps)
    ranks = range(spec.ranks)
    yield from (parts.prediction(Quantity.WIRE, rank) for rank in ranks)
    yield from (Prediction(quantity=Quantity.IDLE, rank=rank, formula=0.0) for rank in ranks)
    yield from (
        parts.prediction(Quantity.PAIR, rank, peer) for rank in ranks for peer in ranks if rank != peer
    )


class _Parts(NamedTuple):
    """The named parts of wire bytes, each a matrix of sender × receiver."""

    formula: Matrix
    backend_excess: Matrix
    framing: Matrix
    control: Matrix

    @classmethod
    def nothing(cls, ranks: int) -> "_Parts":
        return cls(*np.zeros((4, ranks, ranks)))

    def plus(self, other: "_Parts", *, times: int) -> "_Parts":
        return _Parts(*(mine + times * theirs for mine, theirs in zip(self, other, strict=True)))

    def prediction(self, quantity: Quantity, rank: int, peer: int | None = None) -> Prediction:
        """One rank's row, or one cell of it."""
        formula, excess, framing, control = (
            float(part[rank].sum() if peer is None else part[rank, peer]) for part in self
        )
        return Prediction(
            quantity=quantity,
            rank=rank,
            peer=peer,
            formula=formula,
            backend_excess=excess,
            framing=framing,
            control=control,
        )


def _of_one_call(spec: Spec, call: Call) -> _Parts:
    """The textbook's bytes, gloo's tensors beyond them, gloo's headers; or all of it as control."""
    pairs = _on_gloo(spec, call)
    nothing = np.zeros_like(pairs.payload)
    if call.is_control:
        return _Parts(nothing, nothing, nothing, pairs.total)
    formula = pairs.payload  # a send, and an uneven all-to-all, move their parts and nothing else
    if call.is_collective and not call.parts:
        sent = sent_bytes(call.op, call.payload_bytes, spec.ranks, algorithm=TEXTBOOK.algorithm_of(call.op))
        # The textbook's bytes lie where gloo's tensors do: all to one neighbour, or the same to every rank.
        where = pairs.payload > 0
        formula = np.where(where, sent / np.maximum(1, where.sum(axis=1, keepdims=True)), 0.0)
    return _Parts(formula, pairs.payload - formula, pairs.framing, nothing)


def _on_gloo(spec: Spec, call: Call) -> gloo.PairBytes:
    size, n, element = call.payload_bytes, spec.ranks, spec.dtype.bytes_per_element
    match call.op:
        case Kind.ALL_REDUCE:
            return gloo.all_reduce(size, n, bytes_per_element=element)
        case Kind.REDUCE_SCATTER:
            return gloo.reduce_scatter(size, n, bytes_per_element=element)
        case Kind.ALL_GATHER:
            return gloo.all_gather(size // n, n)
        case Kind.ALL_TO_ALL:
            return gloo.all_to_all_v(call.parts) if call.parts else gloo.all_to_all(size, n)
        case Kind.SEND:
            return gloo.send(size, n, source=call.source, destination=call.destination)
        case _:
            raise ValueError(f"No job makes a {call.op}, so how gloo moves one is not said here.")
