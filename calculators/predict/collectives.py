"""Bytes that one rank sends, and rounds that it waits for, in each collective, by the algorithm that a backend runs.

Sizes follow the nccl-tests convention: `full_size` is the whole logical tensor (an all-gather's output, a
reduce-scatter's input), except in an all-to-all, where it is one rank's send buffer. Which algorithm runs is an
argument everywhere, and a `Backend` names one for each kind of call. Who sends to whom is in `routes.py`; what gloo
really puts on the wire, headers included, in `gloo.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import NoReturn

import numpy as np
from numpy.typing import ArrayLike

from calculators.predict.arrays import (
    Floats,
    anywhere,
    check_broadcast,
    everywhere,
    floats,
    numbers,
    positive,
    products,
    said,
)


class Kind(StrEnum):
    """The kinds of call."""

    ALL_REDUCE = "all-reduce"
    REDUCE_SCATTER = "reduce-scatter"
    ALL_GATHER = "all-gather"
    ALL_TO_ALL = "all-to-all"
    BROADCAST = "broadcast"
    SEND = "send"

    @classmethod
    def _missing_(cls, value: object) -> NoReturn:
        raise ValueError(f"kind is {said(value)}, which is no call known here. Use one of: {', '.join(cls)}.")


@dataclass(frozen=True, kw_only=True)
class Backend:
    """Which algorithm a communication library runs for each kind of call; one it does not know is refused."""

    name: str
    all_reduce: str = "ring"
    reduce_scatter: str = "ring"
    all_gather: str = "ring"
    all_to_all: str = "pairwise"
    broadcast: str = "ring"

    def __post_init__(self) -> None:
        for kind in Kind:
            _algorithm(kind, self.algorithm_of(kind))

    def algorithm_of(self, kind: Kind) -> str:
        """The algorithm for one kind of call. A send goes straight to its receiver on every backend."""
        return "direct" if kind == Kind.SEND else str(getattr(self, kind.name.lower()))


def all_reduce_bytes(full_size: ArrayLike, ranks: ArrayLike, *, algorithm: str = "ring") -> Floats:
    """Bytes one rank sends in an all-reduce of `full_size` [bytes] among `ranks`.

    ring                2·(n−1)/n·S   nccl-tests doc/PERFORMANCE.md
    tree                2·S           an inner node of a double binary tree: half up, all down, half up. Groups of
                                      2 and 3 are too small to have one with two children: S and 1.5·S
    recursive-doubling  log₂(n)·S     every rank sends everything to a partner, n a power of two
    one-shot            (n−1)·S       every rank sends everything to every other
    in-switch           S             the switch adds (NVLS, SHARP): up once, the sum comes down
    halving-doubling    2·(n−1)/n·S   half, a quarter … to partners and back (Rabenseifner), n a power of two

    Raises ValueError for an algorithm it does not know.

    >>> all_reduce_bytes(1_000, [1, 2, 4, 8]).tolist()
    [0.0, 1000.0, 1500.0, 1750.0]
    """
    return sent_bytes(Kind.ALL_REDUCE, full_size, ranks, algorithm=algorithm)


def all_reduce_rounds(ranks: ArrayLike, *, algorithm: str = "ring") -> Floats:
    """Serial message steps in an all-reduce: 2·(n−1) around a ring, 1 when everybody sends to everybody.

    >>> all_reduce_rounds([1, 2, 4]).tolist()
    [0.0, 2.0, 6.0]
    """
    return rounds(Kind.ALL_REDUCE, ranks, algorithm=algorithm)


def reduce_scatter_bytes(full_size: ArrayLike, ranks: ArrayLike, *, algorithm: str = "ring") -> Floats:
    """Bytes one rank sends in a reduce-scatter whose input is `full_size` [bytes]: (n−1)/n·S.

    ring, direct       (n−1)/n·S     around a ring, or each other rank's slice straight to it
    halving            (n−1)/n·S     half, then a quarter … to partners, n a power of two
    as-all-reduce      2·(n−1)/n·S   all-reduce everything and keep a slice: torch on gloo (ProcessGroupGloo.cpp)
    in-switch          S             up once, and the switch returns the slice

    >>> reduce_scatter_bytes(1_000, [1, 2, 4]).tolist()
    [0.0, 500.0, 750.0]
    >>> reduce_scatter_bytes(1_000, [1, 2, 4], algorithm="as-all-reduce").tolist()
    [0.0, 1000.0, 1500.0]
    """
    return sent_bytes(Kind.REDUCE_SCATTER, full_size, ranks, algorithm=algorithm)


def reduce_scatter_rounds(ranks: ArrayLike, *, algorithm: str = "ring") -> Floats:
    """Serial message steps in a reduce-scatter: n−1 around a ring."""
    return rounds(Kind.REDUCE_SCATTER, ranks, algorithm=algorithm)


def all_gather_bytes(full_size: ArrayLike, ranks: ArrayLike, *, algorithm: str = "ring") -> Floats:
    """Bytes one rank sends in an all-gather whose output is `full_size` [bytes]: (n−1)/n·S.

    ring, direct   (n−1)/n·S   around a ring, or the rank's slice straight to every other
    doubling       (n−1)/n·S   a slice, then two, then four … to partners, n a power of two
    in-switch      S/n         the slice goes up once, and the switch copies it to all

    >>> all_gather_bytes(1_000, 4).item()
    750.0
    """
    return sent_bytes(Kind.ALL_GATHER, full_size, ranks, algorithm=algorithm)


def all_gather_rounds(ranks: ArrayLike, *, algorithm: str = "ring") -> Floats:
    """Serial message steps in an all-gather: n−1 around a ring."""
    return rounds(Kind.ALL_GATHER, ranks, algorithm=algorithm)


def all_to_all_bytes(send_buffer: ArrayLike, ranks: ArrayLike, *, algorithm: str = "pairwise") -> Floats:
    """Bytes one rank sends in an all-to-all of equal parts, its `send_buffer` S [bytes] cut into n.

    pairwise, direct   (n−1)/n·S   every part straight to its receiver, one after another or all at once
    ring               (n−1)/2·S   neighbours pass parts on until each has arrived
    as-all-gather      (n−1)·S     everybody gathers everything and keeps a part: torch's DTensor on CPU
                                   (torch/distributed/tensor/_collective_utils.py)

    >>> all_to_all_bytes(1_000, [2, 4]).tolist()
    [500.0, 750.0]
    """
    given = {**products(send_buffer=send_buffer), "ranks": _ranks(ranks)}
    check_broadcast(given)
    return sent_bytes(Kind.ALL_TO_ALL, given["send_buffer"], given["ranks"], algorithm=algorithm)


def all_to_all_rounds(ranks: ArrayLike, *, algorithm: str = "pairwise") -> Floats:
    """Serial message steps in an all-to-all: n−1 pair by pair, 1 when everybody sends to everybody at once."""
    return rounds(Kind.ALL_TO_ALL, ranks, algorithm=algorithm)


def broadcast_bytes(full_size: ArrayLike, ranks: ArrayLike, *, algorithm: str = "ring") -> Floats:
    """Bytes the busiest rank, the root, sends in a broadcast of `full_size` [bytes].

    Around a ring everybody but the last sends S once. In a binomial tree the root sends S to ⌈log₂ n⌉ others, and
    directly to all n−1.

    >>> broadcast_bytes(1_000, [1, 2, 4]).tolist()
    [0.0, 1000.0, 1000.0]
    >>> broadcast_bytes(1_000, [1, 2, 4], algorithm="tree").tolist()
    [0.0, 1000.0, 2000.0]
    """
    return sent_bytes(Kind.BROADCAST, full_size, ranks, algorithm=algorithm)


def broadcast_rounds(ranks: ArrayLike, *, algorithm: str = "ring") -> Floats:
    """Serial message steps until the last rank has it: n−1 around a ring, ⌈log₂ n⌉ down a binomial tree."""
    return rounds(Kind.BROADCAST, ranks, algorithm=algorithm)


def send_bytes(size: ArrayLike) -> Floats:
    """Bytes the sender puts on the wire in one send: the tensor itself [bytes]."""
    return products(size=size)["size"]


def send_rounds() -> Floats:
    """Serial message steps in one send: 1."""
    return floats(1)


def sent_bytes(kind: Kind, full_size: ArrayLike, ranks: ArrayLike, *, algorithm: str) -> Floats:
    """Bytes that the busiest rank sends in one call of any `kind` whose full size is `full_size` [bytes].

    >>> sent_bytes(Kind.ALL_GATHER, 1_000, 4, algorithm=GLOO.algorithm_of(Kind.ALL_GATHER)).item()
    750.0
    """
    full, n = _sized(full_size, ranks)
    return full * _fitting(kind, algorithm, n).sent(n)


def group_bytes(kind: Kind, full_size: ArrayLike, ranks: ArrayLike, *, algorithm: str) -> Floats:
    """Bytes that all ranks of the group send together in one call [bytes].

    In trees and broadcasts ranks are not equally busy, so it is less than n times `sent_bytes`.

    >>> group_bytes(Kind.ALL_REDUCE, 1_000, 8, algorithm="tree").item()
    14000.0
    """
    full, n = _sized(full_size, ranks)
    known = _fitting(kind, algorithm, n)
    return full * (known.group(n) if known.group else n * known.sent(n))


def rounds(kind: Kind, ranks: ArrayLike, *, algorithm: str) -> Floats:
    """Serial message steps in one call of any `kind`; none where a rank is alone."""
    n = _ranks(ranks)
    return _fitting(kind, algorithm, n).rounds(n) * (n > 1)


@dataclass(frozen=True, kw_only=True)
class CallFigures:
    """What one call moves: `sent_bytes`, `group_bytes` and `rounds`."""

    sent_bytes: Floats
    group_bytes: Floats
    rounds: Floats


def call_figures(kind: Kind, full_size: ArrayLike, ranks: ArrayLike, *, algorithm: str) -> CallFigures:
    """All figures of one call of any `kind` whose full size is `full_size` [bytes], its arguments checked once.

    >>> call_figures(Kind.ALL_REDUCE, 1_000, 8, algorithm="tree").group_bytes.item()
    14000.0
    """
    full, n = _sized(full_size, ranks)
    known = _fitting(kind, algorithm, n)
    sent = known.sent(n)
    return CallFigures(
        sent_bytes=full * sent,
        group_bytes=full * (known.group(n) if known.group else n * sent),
        rounds=known.rounds(n) * (n > 1),
    )


def algorithms(kind: Kind) -> tuple[str, ...]:
    """Names of the algorithms known for one kind of call, the textbook's first."""
    return tuple(_ALGORITHMS[Kind(kind)])


def transfer_seconds(
    sent_bytes: ArrayLike, rounds: ArrayLike, *, bytes_per_second: ArrayLike, latency_seconds: ArrayLike
) -> Floats:
    """Seconds for a transfer: rounds × latency of a round + bytes ÷ one-direction bandwidth (the α–β model).

    A small message is all latency, a large one all bandwidth. Both weigh the same at rounds × latency × speed
    bytes.

    >>> transfer_seconds(1_000_000, 1, bytes_per_second=1e9, latency_seconds=50e-6).item()
    0.00105
    """
    speed = numbers(bytes_per_second=bytes_per_second)["bytes_per_second"]
    if anywhere(speed <= 0):
        wrong = speed[speed <= 0].flat[0]
        raise ValueError(
            f"bytes_per_second is {wrong:g}, but nothing arrives over such a link. Use more than 0."
        )
    given = {
        **products(sent_bytes=sent_bytes, rounds=rounds, latency_seconds=latency_seconds),
        **positive(bytes_per_second=speed),
    }
    check_broadcast(given)
    return given["rounds"] * given["latency_seconds"] + given["sent_bytes"] / given["bytes_per_second"]


@dataclass(frozen=True, kw_only=True)
class _Algorithm:
    """As multiples of the full size: what the busiest rank sends, what all send; and the message steps."""

    sent: Callable[[Floats], Floats]
    rounds: Callable[[Floats], Floats]
    group: Callable[[Floats], Floats] | None = None  # n × sent where all ranks are equally busy
    power_of_two: str = ""  # what needs one, as a sentence says it


def _one(n: Floats) -> Floats:
    return floats(1) * (n > 1)


def _share(n: Floats) -> Floats:
    return (n - 1) / n


def _around(n: Floats) -> Floats:
    return n - 1


def _doublings(n: Floats) -> Floats:
    return np.ceil(np.log2(n))


_ALGORITHMS: dict[Kind, dict[str, _Algorithm]] = {
    Kind.ALL_REDUCE: {
        "ring": _Algorithm(sent=lambda n: 2 * (n - 1) / n, rounds=lambda n: 2 * (n - 1)),
        "tree": _Algorithm(
            sent=lambda n: _one(n) * np.minimum(n, 4) / 2,
            group=lambda n: 2 * (n - 1),
            rounds=lambda n: 2 * _doublings(n),
        ),
        "recursive-doubling": _Algorithm(sent=np.log2, rounds=_doublings, power_of_two="recursive doubling"),
        "one-shot": _Algorithm(sent=_around, rounds=_one),
        "in-switch": _Algorithm(sent=_one, rounds=lambda n: 2 * _one(n)),
        "halving-doubling": _Algorithm(
            sent=lambda n: 2 * (n - 1) / n,
            rounds=lambda n: 2 * _doublings(n),
            power_of_two="halving-doubling",
        ),
    },
    Kind.REDUCE_SCATTER: {
        "ring": _Algorithm(sent=_share, rounds=_around),
        "direct": _Algorithm(sent=_share, rounds=_one),
        "halving": _Algorithm(sent=_share, rounds=_doublings, power_of_two="recursive halving"),
        "as-all-reduce": _Algorithm(sent=lambda n: 2 * (n - 1) / n, rounds=lambda n: 2 * (n - 1)),
        "in-switch": _Algorithm(sent=_one, rounds=_one),
    },
    Kind.ALL_GATHER: {
        "ring": _Algorithm(sent=_share, rounds=_around),
        "direct": _Algorithm(sent=_share, rounds=_one),
        "doubling": _Algorithm(sent=_share, rounds=_doublings, power_of_two="recursive doubling"),
        "in-switch": _Algorithm(sent=lambda n: _one(n) / n, rounds=_one),
    },
    Kind.ALL_TO_ALL: {
        "pairwise": _Algorithm(sent=_share, rounds=_around),
        "direct": _Algorithm(sent=_share, rounds=_one),
        "ring": _Algorithm(sent=lambda n: (n - 1) / 2, rounds=_around),
        "as-all-gather": _Algorithm(sent=_around, rounds=_around),
    },
    Kind.BROADCAST: {
        "ring": _Algorithm(sent=_one, group=_around, rounds=_around),
        "tree": _Algorithm(sent=_doublings, group=_around, rounds=_doublings),
        "direct": _Algorithm(sent=_around, group=_around, rounds=_one),
    },
    # Among n ranks of a line each sends to the next; around a ring the last one to the first as well.
    Kind.SEND: {
        "direct": _Algorithm(sent=_one, group=_one, rounds=_one),
        "ring": _Algorithm(sent=_one, rounds=_one),
    },
}
ALL_REDUCE_ALGORITHMS = algorithms(Kind.ALL_REDUCE)


def _fitting(kind: Kind, algorithm: str, n: Floats) -> _Algorithm:
    known = _algorithm(kind, algorithm)
    if known.power_of_two and anywhere(np.log2(n) % 1):
        odd = n[np.log2(n) % 1 > 0].flat[0]
        raise ValueError(f"ranks is {odd:g}, but {known.power_of_two} needs a power of two. Use the ring.")
    return known


def _algorithm(kind: Kind, algorithm: str) -> _Algorithm:
    if algorithm not in _ALGORITHMS[Kind(kind)]:
        known, article = _ALGORITHMS[kind], "an" if kind[0] == "a" else "a"
        raise ValueError(
            f"algorithm is {algorithm!r}, which is not {article} {kind} known here. Use one of: {', '.join(known)}."
        )
    return _ALGORITHMS[kind][algorithm]


def _ranks(ranks: ArrayLike) -> Floats:
    n = numbers(ranks=ranks)["ranks"]
    fine = n >= 1  # not-a-number is not
    if not everywhere(fine):
        raise ValueError(f"ranks is {n[~fine].flat[0]:g}, but a group has at least 1 rank.")
    return products(ranks=n)["ranks"]  # of two axes together, they are a product


def _sized(full_size: ArrayLike, ranks: ArrayLike) -> tuple[Floats, Floats]:
    given = {**products(full_size=full_size), "ranks": _ranks(ranks)}
    check_broadcast(given)
    return given["full_size"], given["ranks"]


TEXTBOOK = Backend(name="textbook")
GLOO = Backend(
    name="gloo", reduce_scatter="as-all-reduce", broadcast="tree"
)  # as torch 2.13 calls it: gloo.py
NCCL_RING = Backend(name="NCCL, ring", all_to_all="direct")  # NCCL_ALGO=Ring; all-to-all is grouped sends
NCCL_TREE = Backend(name="NCCL, tree", all_reduce="tree", all_to_all="direct")  # only all-reduce has trees
NVLS = Backend(  # NVLink SHARP: the switch adds and copies (NCCL_ALGO=NVLS)
    name="NVLS",
    all_reduce="in-switch",
    reduce_scatter="in-switch",
    all_gather="in-switch",
    all_to_all="direct",
)
BACKENDS = {backend.name: backend for backend in (TEXTBOOK, GLOO, NCCL_RING, NCCL_TREE, NVLS)}
