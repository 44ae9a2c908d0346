"""Bytes that one rank sends, and rounds that it waits for, in each collective: the textbook algorithms.

Sizes follow the nccl-tests convention: `full_size` is the whole logical tensor (an all-gather's output, a
reduce-scatter's input), except in an all-to-all, where it is one rank's send buffer. What gloo really puts
on the wire is in `gloo.py`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from calculators.predict.arrays import Floats, floats


def all_reduce_bytes(full_size: ArrayLike, ranks: ArrayLike, *, algorithm: str = "ring") -> Floats:
    """Bytes one rank sends in an all-reduce of `full_size` [bytes] among `ranks`.

    ring                2·(n−1)/n·S   nccl-tests doc/PERFORMANCE.md
    tree                2·S           an inner node of a double binary tree: half up, all down, half up
    recursive-doubling  log₂(n)·S     every rank sends everything to a partner, n a power of two
    one-shot            (n−1)·S       every rank sends everything to every other
    in-switch           S             the switch adds (NVLS, SHARP): up once, the sum comes down

    Raises ValueError for an algorithm it does not know.

    >>> all_reduce_bytes(1_000, [1, 2, 4, 8]).tolist()
    [0.0, 1000.0, 1500.0, 1750.0]
    """
    size, n = floats(full_size), _ranks(ranks)
    return size * _factor(n, algorithm)


def all_reduce_rounds(ranks: ArrayLike, *, algorithm: str = "ring") -> Floats:
    """Serial message steps in an all-reduce: 2·(n−1) around a ring, 1 when everybody sends to everybody.

    >>> all_reduce_rounds([1, 2, 4]).tolist()
    [0.0, 2.0, 6.0]
    """
    n = _ranks(ranks)
    _check_algorithm(algorithm)
    return _ROUNDS[algorithm](n) * (n > 1)


def reduce_scatter_bytes(full_size: ArrayLike, ranks: ArrayLike) -> Floats:
    """Bytes one rank sends in a ring reduce-scatter whose input is `full_size` [bytes]: (n−1)/n·S.

    >>> reduce_scatter_bytes(1_000, [1, 2, 4]).tolist()
    [0.0, 500.0, 750.0]
    """
    n = _ranks(ranks)
    return floats(full_size) * (n - 1) / n


def reduce_scatter_rounds(ranks: ArrayLike) -> Floats:
    """Serial message steps in a ring reduce-scatter: n−1."""
    return _ranks(ranks) - 1


def all_gather_bytes(full_size: ArrayLike, ranks: ArrayLike) -> Floats:
    """Bytes one rank sends in a ring all-gather whose output is `full_size` [bytes]: (n−1)/n·S.

    >>> all_gather_bytes(1_000, 4).item()
    750.0
    """
    return reduce_scatter_bytes(full_size, ranks)


def all_gather_rounds(ranks: ArrayLike) -> Floats:
    """Serial message steps in a ring all-gather: n−1."""
    return _ranks(ranks) - 1


def all_to_all_bytes(send_buffer: ArrayLike, ranks: ArrayLike) -> Floats:
    """Bytes one rank sends in an all-to-all of equal parts: all but its own part of its send buffer [bytes].

    >>> all_to_all_bytes(1_000, [2, 4]).tolist()
    [500.0, 750.0]
    """
    return reduce_scatter_bytes(send_buffer, ranks)


def all_to_all_rounds(ranks: ArrayLike) -> Floats:
    """Serial message steps in a pairwise all-to-all: n−1."""
    return _ranks(ranks) - 1


def broadcast_bytes(full_size: ArrayLike, ranks: ArrayLike, *, algorithm: str = "ring") -> Floats:
    """Bytes the busiest rank, the root, sends in a broadcast of `full_size` [bytes].

    Around a ring everybody but the last sends S once. In a binomial tree the root sends S to ⌈log₂ n⌉ others.

    >>> broadcast_bytes(1_000, [1, 2, 4]).tolist()
    [0.0, 1000.0, 1000.0]
    >>> broadcast_bytes(1_000, [1, 2, 4], algorithm="tree").tolist()
    [0.0, 1000.0, 2000.0]
    """
    n = _ranks(ranks)
    _check_broadcast(algorithm)
    return floats(full_size) * ((n > 1) if algorithm == "ring" else np.ceil(np.log2(n)))


def broadcast_rounds(ranks: ArrayLike, *, algorithm: str = "ring") -> Floats:
    """Serial message steps until the last rank has it: n−1 around a ring, ⌈log₂ n⌉ down a binomial tree."""
    n = _ranks(ranks)
    _check_broadcast(algorithm)
    return n - 1 if algorithm == "ring" else np.ceil(np.log2(n))


def send_bytes(size: ArrayLike) -> Floats:
    """Bytes the sender puts on the wire in one send: the tensor itself [bytes]."""
    return floats(size)


def send_rounds() -> Floats:
    """Serial message steps in one send: 1."""
    return floats(1)


def transfer_seconds(
    sent_bytes: ArrayLike, rounds: ArrayLike, *, bytes_per_second: ArrayLike, latency_seconds: ArrayLike
) -> Floats:
    """Seconds for a transfer: rounds × latency + bytes ÷ one-direction bandwidth (the α–β model).

    A small message is all latency, a large one all bandwidth. Both weigh the same at rounds × latency × speed
    bytes.

    >>> transfer_seconds(1_000_000, 1, bytes_per_second=1e9, latency_seconds=50e-6).item()
    0.00105
    """
    speed = floats(bytes_per_second)
    if np.any(speed <= 0):
        given = speed[speed <= 0].flat[0]
        raise ValueError(
            f"bytes_per_second is {given:g}, but nothing arrives over such a link. Use more than 0."
        )
    return floats(rounds) * floats(latency_seconds) + floats(sent_bytes) / speed


_FACTORS: dict[str, Callable[[Floats], Floats]] = {
    "ring": lambda n: 2 * (n - 1) / n,
    "tree": lambda n: floats(2) * (n > 1),
    "recursive-doubling": lambda n: np.log2(n),
    "one-shot": lambda n: n - 1,
    "in-switch": lambda n: floats(1) * (n > 1),
}
_ROUNDS: dict[str, Callable[[Floats], Floats]] = {
    "ring": lambda n: 2 * (n - 1),
    "tree": lambda n: 2 * np.ceil(np.log2(n)),
    "recursive-doubling": lambda n: np.ceil(np.log2(n)),
    "one-shot": lambda n: floats(1),
    "in-switch": lambda n: floats(2),
}
ALL_REDUCE_ALGORITHMS = tuple(_FACTORS)


def _factor(n: Floats, algorithm: str) -> Floats:
    _check_algorithm(algorithm)
    if algorithm == "recursive-doubling" and np.any(np.log2(n) % 1):
        odd = n[np.log2(n) % 1 > 0].flat[0]
        raise ValueError(f"ranks is {odd:g}, but recursive doubling needs a power of two. Use the ring.")
    return _FACTORS[algorithm](n)


def _check_algorithm(algorithm: str) -> None:
    if algorithm not in _FACTORS:
        known = ", ".join(_FACTORS)
        raise ValueError(
            f"algorithm is {algorithm!r}, which is not an all-reduce known here. Use one of: {known}."
        )


def _check_broadcast(algorithm: str) -> None:
    if algorithm not in ("ring", "tree"):
        raise ValueError(
            f"algorithm is {algorithm!r}, which is not a broadcast known here. Use ring or tree."
        )


def _ranks(ranks: ArrayLike) -> Floats:
    n = floats(ranks)
    if np.any(n < 1):
        raise ValueError(f"ranks is {n[n < 1].flat[0]:g}, but a group has at least 1 rank.")
    return n
