"""Which algorithm a backend ran for each kind of call, recognised by the bytes that went from whom to whom.

For every algorithm that might have been, the matrix of a run is calculated with it in place of the one predicted; the
one whose matrix is the measured one was run. Nothing is fitted, and what no algorithm explains stays unexplained.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from calculators.lab.calls import Call
from calculators.lab.compare import Comparison
from calculators.lab.measurements import Quantity
from calculators.lab.spec import Spec
from calculators.predict import gloo
from calculators.predict.collectives import TEXTBOOK, Kind, sent_bytes
from calculators.predict.gloo import Matrix

SAME_SHARE = 0.01
"""Matrices that differ by no more than this share of all bytes are the same."""

Candidate = Callable[[Call, int, int], Matrix]
"""Bytes of one call's tensors from each rank of a group to each other: the call, ranks, place of its root."""


@dataclass(frozen=True, kw_only=True)
class Recognised:
    """How one kind of call was made: `algorithms` that explain the measured matrix (none: nothing known here does).

    `factor` is what its tensors took on the wire, in the textbook's bytes for it; nan where these are none.
    """

    kind: Kind
    algorithms: tuple[str, ...]
    factor: float

    @property
    def sentence(self) -> str:
        """What was recognised, with the measured factor."""
        how = " or ".join(self.algorithms) or "as nothing that is known here"
        return f"{str(self.kind).capitalize()}: {how}; {self.factor:.3g} × the textbook's bytes, as measured."


def recognise(spec: Spec, calls: Sequence[Call], comparisons: Iterable[Comparison]) -> list[Recognised]:
    """Each kind of collective in `calls` of a step, by the pairs in `comparisons` (none: nothing is recognised)."""
    pairs = [c for c in comparisons if c.quantity is Quantity.PAIR and c.peer is not None]
    if not pairs:
        return []
    measured, predicted, around = (np.zeros((spec.ranks, spec.ranks)) for _ in range(3))
    for c in pairs:
        measured[c.rank, c.peer or 0] = c.measured
        predicted[c.rank, c.peer or 0] = c.predicted
        around[c.rank, c.peer or 0] = c.prediction.framing + c.prediction.control
    kinds = dict.fromkeys(
        call.op for call in calls if call.op in _CANDIDATES and not call.parts and not call.is_control
    )
    return [_recognised(spec, kind, calls, measured, predicted, around) for kind in kinds]


def _recognised(
    spec: Spec, kind: Kind, calls: Sequence[Call], measured: Matrix, predicted: Matrix, around: Matrix
) -> Recognised:
    alike = [call for call in calls if call.op is kind and not call.parts and not call.is_control]
    assumed = _assumed(spec, kind)
    others = predicted - around - _all_of(spec, alike, assumed)
    tensors = measured - around - others
    found = [
        name
        for name, candidates in _CANDIDATES[kind].items()
        if any(
            np.abs(tensors - _all_of(spec, alike, candidate)).sum() <= SAME_SHARE * max(measured.sum(), 1.0)
            for candidate in candidates
        )
    ]
    formula = spec.steps * sum(
        call.times
        * float(sent_bytes(kind, call.payload_bytes, len(group), algorithm=TEXTBOOK.algorithm_of(kind)))
        * len(group)
        for call in alike
        for group in call.groups_among(spec.ranks)
    )
    if kind is Kind.BROADCAST:  # the textbook's is each rank but the last passing the tensor on
        formula = spec.steps * sum(
            call.times * call.payload_bytes * (len(group) - 1)
            for call in alike
            for group in call.groups_among(spec.ranks)
        )
    factor = float(tensors.sum() / formula) if formula else float("nan")
    return Recognised(kind=kind, algorithms=tuple(found), factor=factor)


def _all_of(spec: Spec, calls: Iterable[Call], candidate: Candidate) -> Matrix:
    """What `candidate` moves for all of these calls in all measured steps, in the world's matrix."""
    whole = np.zeros((spec.ranks, spec.ranks))
    for call in calls:
        for group in call.groups_among(spec.ranks):
            root = group.index(call.source) if call.source in group else 0
            whole[np.ix_(group, group)] += spec.steps * call.times * candidate(call, len(group), root)
    return whole


def _assumed(spec: Spec, kind: Kind) -> Candidate:
    """What the forecast took for granted of gloo, with the element that its segments are cut by."""
    element = spec.dtype.bytes_per_element
    if kind is Kind.ALL_REDUCE:
        return lambda call, n, root: gloo.all_reduce(call.payload_bytes, n, bytes_per_element=element).payload
    if kind is Kind.REDUCE_SCATTER and spec.reduce_scatter == "backend":
        return lambda call, n, root: (
            gloo.reduce_scatter(call.payload_bytes, n, bytes_per_element=element).payload
        )
    return {
        Kind.REDUCE_SCATTER: _to_each,
        Kind.ALL_GATHER: _around,
        Kind.ALL_TO_ALL: _to_each,
        Kind.BROADCAST: _tree,
    }[kind]


def _around(call: Call, n: int, root: int) -> Matrix:
    """A ring: (n−1)/n of the whole from each rank to the next."""
    moved = np.zeros((n, n))
    if n > 1:
        for rank in range(n):
            moved[rank, (rank + 1) % n] = call.payload_bytes * (n - 1) / n
    return moved


def _back_around(call: Call, n: int, root: int) -> Matrix:
    """The same ring the other way round."""
    return _around(call, n, root).T


def _twice(candidate: Candidate) -> Candidate:
    return lambda call, n, root: 2 * candidate(call, n, root)


def _to_each(call: Call, n: int, root: int) -> Matrix:
    """An n-th of the whole from each rank to each other."""
    return call.payload_bytes / n * (np.ones((n, n)) - np.eye(n))


def _whole_to_each(call: Call, n: int, root: int) -> Matrix:
    """The whole tensor from each rank to each other."""
    return call.payload_bytes * (np.ones((n, n)) - np.eye(n))


def _tree(call: Call, n: int, root: int) -> Matrix:
    return gloo.broadcast(call.payload_bytes, n, root=root).payload


def _chain(call: Call, n: int, root: int) -> Matrix:
    """The whole tensor from the root to the next rank, and on to the last."""
    moved = np.zeros((n, n))
    for step in range(n - 1):
        moved[(root + step) % n, (root + step + 1) % n] = call.payload_bytes
    return moved


def _star(call: Call, n: int, root: int) -> Matrix:
    """The whole tensor from the root to each other rank."""
    moved = np.zeros((n, n))
    moved[root] = call.payload_bytes
    moved[root, root] = 0
    return moved


_RING: tuple[Candidate, ...] = (_around, _back_around)
_RING_TWICE = tuple(map(_twice, _RING))

_CANDIDATES: dict[Kind, dict[str, tuple[Candidate, ...]]] = {
    Kind.ALL_REDUCE: {"as a ring": _RING_TWICE, "as everyone's tensor to everyone": (_whole_to_each,)},
    Kind.REDUCE_SCATTER: {
        "as a ring": _RING,
        "as an all-to-all and a sum": (_to_each,),
        "as an all-reduce of the whole tensor": _RING_TWICE,
    },
    Kind.ALL_GATHER: {"as a ring": _RING, "as everyone's part to everyone": (_to_each,)},
    Kind.ALL_TO_ALL: {"as everyone's part to everyone": (_to_each,)},
    Kind.BROADCAST: {
        "down a binomial tree": (_tree,),
        "along a chain": (_chain,),
        "as a star from its root": (_star,),
    },
}
