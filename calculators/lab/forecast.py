"""What a run's meters should read, computed before it starts, in the parts that pages name."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from calculators.lab.calls import Call
from calculators.lab.measurements import Prediction, Quantity
from calculators.lab.spec import ReduceScatter, Spec
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
        yield from _by_name(spec, rank, mine)


def _by_name(spec: Spec, rank: int, mine: list[Call]) -> Iterator[Prediction]:
    """The same again for each kind of call and the group it is made in."""
    for name in dict.fromkeys(call.name for call in mine):
        alike = [call for call in mine if call.name == name]
        counted = {
            Quantity.CALLS: [(call, call.times) for call in alike],
            Quantity.HANDED: [(call, call.step_bytes(rank, spec.ranks)) for call in alike],
        }
        for quantity, each in counted.items():
            textbook, control = (
                sum(number for call, number in each if call.is_control is is_control)
                for is_control in (False, True)
            )
            yield Prediction(
                quantity=quantity,
                rank=rank,
                detail=name,
                formula=float(spec.steps * textbook),
                control=float(spec.steps * control),
            )


def wire_on_gloo(spec: Spec, calls: Iterable[Call]) -> Iterator[Prediction]:
    """Wire bytes over all measured steps as gloo moves them: of each rank, idle, and of each ordered pair."""
    parts = _Parts.nothing(spec.ranks)
    for call in calls:
        for group in call.groups_among(spec.ranks):
            among = _of_one_call(spec, call, group)
            parts = parts.plus(among.placed(group, spec.ranks), times=call.times * spec.steps)
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

    def placed(self, group: tuple[int, ...], ranks: int) -> "_Parts":
        """The same between the ranks of `group`, in a run of `ranks`."""
        if group == tuple(range(ranks)):
            return self
        placed = _Parts.nothing(ranks)
        for whole, part in zip(placed, self, strict=True):
            whole[np.ix_(group, group)] = part
        return placed

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


def _of_one_call(spec: Spec, call: Call, group: tuple[int, ...]) -> _Parts:
    """Among the ranks of `group`: the textbook's bytes, gloo's tensors beyond them, its headers; or all as control."""
    pairs = on_gloo(spec, call, group)
    nothing = np.zeros_like(pairs.payload)
    if call.is_control:
        return _Parts(nothing, nothing, nothing, pairs.total)
    formula = pairs.payload  # a send, and an uneven all-to-all, move their parts and nothing else
    if call.is_collective and not call.parts:
        sent = sent_bytes(call.op, call.payload_bytes, len(group), algorithm=TEXTBOOK.algorithm_of(call.op))
        # The textbook's bytes lie where gloo's tensors do: all to one neighbour, or the same to every rank.
        where = pairs.payload > 0
        formula = np.where(where, sent / np.maximum(1, where.sum(axis=1, keepdims=True)), 0.0)
    return _Parts(formula, pairs.payload - formula, pairs.framing, nothing)


def on_gloo(spec: Spec, call: Call, group: tuple[int, ...]) -> gloo.PairBytes:
    """What gloo moves for one call between the ranks of one group."""
    size, n, element = call.payload_bytes, len(group), spec.dtype.bytes_per_element
    match call.op:
        case Kind.ALL_REDUCE:
            return gloo.all_reduce(size, n, bytes_per_element=element)
        case Kind.REDUCE_SCATTER if spec.reduce_scatter is ReduceScatter.ALL_TO_ALL:
            return gloo.all_to_all(size, n)
        case Kind.REDUCE_SCATTER:
            return gloo.reduce_scatter(size, n, bytes_per_element=element)
        case Kind.ALL_GATHER:
            return gloo.all_gather(size // n, n)
        case Kind.ALL_TO_ALL:
            return gloo.all_to_all_v(call.parts) if call.parts else gloo.all_to_all(size, n)
        case Kind.BROADCAST:
            return gloo.broadcast(size, n, root=group.index(call.source))
        case Kind.SEND:
            return gloo.send(size, n, source=call.source, destination=call.destination)
