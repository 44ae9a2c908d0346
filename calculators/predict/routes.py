"""Who sends how much to whom in a collective, by its algorithm: the edges that matrices and tiers are added up from.

Textbook directions: a ring sends to the next rank. (gloo's all-reduce goes the other way round: `gloo.py`.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calculators.predict.arrays import Floats, check_group, whole
from calculators.predict.collectives import Kind, algorithms

Ranks = NDArray[np.intp]
MOST_RANKS = 65_536  # of a list of edges


@dataclass(frozen=True, kw_only=True, eq=False)
class Routes:
    """Edges of one call among `ranks`: from `sender` to `receiver`, `share` of the full size each.

    Where everybody sends the same to everybody, there are no edges, and `to_each` is that share.
    """

    ranks: int
    sender: Ranks
    receiver: Ranks
    share: Floats
    to_each: float = 0.0

    @property
    def matrix(self) -> Floats:
        """The same as (ranks, ranks): row sends to column, as shares of the full size."""
        table = np.full((self.ranks, self.ranks), self.to_each)
        np.fill_diagonal(table, 0.0)
        np.add.at(table, (self.sender, self.receiver), self.share)
        return table


def routes(kind: Kind, ranks: int, *, algorithm: str) -> Routes:
    """The edges of one call of `kind` among `ranks`; for a broadcast from rank 0, for a send from rank 0 to rank 1.

    Raises ValueError for an algorithm that is not known, and for one that a switch carries out: nothing goes from one
    rank to another then.

    >>> routes(Kind.ALL_REDUCE, 4, algorithm="ring").matrix[0].tolist()
    [0.0, 1.5, 0.0, 0.0]
    """
    kind = Kind(kind)
    if algorithm == "in-switch":
        raise ValueError(
            f"algorithm is in-switch, but then ranks send to the switch, not to each other. "
            f"Use one of: {', '.join(name for name in algorithms(kind) if name != 'in-switch')}."
        )
    if algorithm not in _ROUTES[kind]:
        raise ValueError(
            f"algorithm is {algorithm!r}, whose {kind} has no routes known here. "
            f"Use one of: {', '.join(_ROUTES[kind])}."
        )
    check_group(ranks)
    ranks = whole("ranks", ranks, high=MOST_RANKS)
    if ranks == 1:
        return _edges(1, [], [], [])
    return _ROUTES[kind][algorithm](ranks)


def _ring(laps_share: Callable[[int], float]) -> Callable[[int], Routes]:
    def around(n: int) -> Routes:
        sender = np.arange(n)
        return _edges(n, sender, (sender + 1) % n, np.full(n, laps_share(n)))

    return around


def _everybody(share: Callable[[int], float]) -> Callable[[int], Routes]:
    def all_pairs(n: int) -> Routes:
        return Routes(
            ranks=n,
            sender=np.empty(0, dtype=np.intp),
            receiver=np.empty(0, dtype=np.intp),
            share=np.empty(0),
            to_each=share(n),
        )

    return all_pairs


def _partners(share: Callable[[int, int], float]) -> Callable[[int], Routes]:
    """Rank i exchanges with i ± 1, then 2, 4 … (i xor distance): `share` of ranks and distance each time."""

    def doubling(n: int) -> Routes:
        if n & (n - 1):
            raise ValueError(
                f"ranks is {n}, but partners at distances 1, 2, 4 … need a power of two. Use the ring."
            )
        distances = [1 << step for step in range(n.bit_length() - 1)]
        everyone = np.arange(n)
        return _edges(
            n,
            np.tile(everyone, len(distances)),
            np.concatenate([everyone ^ distance for distance in distances]),
            np.concatenate([np.full(n, share(n, distance)) for distance in distances]),
        )

    return doubling


def _double_tree(n: int) -> Routes:
    """Half of the tensor up and down each of two trees, in which every rank but a few is inner once and leaf once.

    As NCCL builds them (src/graph/trees.cc): odd ranks are leaves of the first tree; the second is its mirror image
    where n is even, and shifted by one rank where it is odd.
    """
    parent = _parents(n)
    child = np.flatnonzero(parent >= 0)
    first = [(int(node), int(parent[node])) for node in child]
    second = [
        ((n - 1 - node, n - 1 - above) if n % 2 == 0 else ((node + 1) % n, (above + 1) % n))
        for node, above in first
    ]
    edges = first + second
    both_ways = edges + [(above, node) for node, above in edges]
    sender, receiver = np.array(both_ways).T
    return _edges(n, sender, receiver, np.full(len(both_ways), 0.5))


def _parents(n: int) -> Ranks:
    """Parent of each rank in NCCL's binary tree; −1 for the root, rank 0."""
    parents = np.full(n, -1)
    for rank in range(1, n):
        lowest = rank & -rank
        above = (rank ^ lowest) | (lowest << 1)
        parents[rank] = above if above < n else rank ^ lowest
    return parents


def _line_from_root(n: int) -> Routes:
    sender = np.arange(n - 1)
    return _edges(n, sender, sender + 1, np.ones(n - 1))


def _binomial(n: int) -> Routes:
    pairs = [
        (holder, holder + distance)
        for distance in (1 << step for step in range((n - 1).bit_length()))
        for holder in range(min(distance, n - distance))
    ]
    sender, receiver = np.array(pairs).T
    return _edges(n, sender, receiver, np.ones(len(pairs)))


def _from_root(n: int) -> Routes:
    return _edges(n, np.zeros(n - 1, dtype=np.intp), np.arange(1, n), np.ones(n - 1))


def _edges(n: int, sender: object, receiver: object, share: object) -> Routes:
    return Routes(
        ranks=n,
        sender=np.asarray(sender, dtype=np.intp),
        receiver=np.asarray(receiver, dtype=np.intp),
        share=np.asarray(share, dtype=np.float64),
    )


_ROUTES: dict[Kind, dict[str, Callable[[int], Routes]]] = {
    Kind.ALL_REDUCE: {
        "ring": _ring(lambda n: 2 * (n - 1) / n),
        "tree": _double_tree,
        "recursive-doubling": _partners(lambda n, distance: 1.0),
        "one-shot": _everybody(lambda n: 1.0),
        "halving-doubling": _partners(lambda n, distance: 2 * distance / n),
    },
    Kind.REDUCE_SCATTER: {
        "ring": _ring(lambda n: (n - 1) / n),
        "direct": _everybody(lambda n: 1 / n),
        "halving": _partners(lambda n, distance: distance / n),
        "as-all-reduce": _ring(lambda n: 2 * (n - 1) / n),
    },
    Kind.ALL_GATHER: {
        "ring": _ring(lambda n: (n - 1) / n),
        "direct": _everybody(lambda n: 1 / n),
        "doubling": _partners(lambda n, distance: distance / n),
    },
    Kind.ALL_TO_ALL: {
        "pairwise": _everybody(lambda n: 1 / n),
        "direct": _everybody(lambda n: 1 / n),
        "ring": _ring(lambda n: (n - 1) / 2),
        "as-all-gather": _ring(lambda n: n - 1.0),
    },
    Kind.BROADCAST: {"ring": _line_from_root, "tree": _binomial, "direct": _from_root},
    Kind.SEND: {
        "direct": lambda n: _edges(n, [0], [1], [1.0]),
        "ring": _ring(lambda n: 1.0),
    },
}
