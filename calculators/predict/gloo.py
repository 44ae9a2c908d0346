"""What gloo really writes to its TCP sockets, to the byte: matrices of sender × receiver.

Every gloo message is 48 bytes of notification and 48 bytes of preamble before the payload, and 48 bytes back
from the receiver when it is ready (gloo/transport/tcp/pair.h). The receiver answers whether it came first or
second, so the count does not depend on timing. The algorithms are those of gloo as torch 2.13 calls it; a
test reads the kernel's counters of real ranks and finds these matrices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calculators.predict.arrays import Floats, check_group, said, whole

Matrix = NDArray[np.float64]

NOTIFY_BYTES = 48  # gloo tcp/pair.h: an operation header is six 8-byte numbers
PREAMBLE_BYTES = 48  # the same header again, in front of the payload
MAX_SEGMENT_BYTES = 1024 * 1024  # gloo/allreduce.h: kMaxSegmentSize
MOST_RANKS = 1_024  # of a matrix of pairs, 8 MiB each


@dataclass(frozen=True, kw_only=True, eq=False)
class PairBytes:
    """Bytes written from each rank (row) to each other (column): the tensors, and the headers around them.

    Both are (ranks, ranks) float64 arrays [bytes]. Results add up (`+`) and repeat (`* calls`).
    """

    payload: Matrix
    framing: Matrix

    @property
    def total(self) -> Matrix:
        """Everything the sockets carry, (ranks, ranks) [bytes]."""
        return self.payload + self.framing

    @property
    def ranks(self) -> int:
        """How many ranks the matrices are for."""
        return int(self.payload.shape[0])

    @property
    def sent(self) -> Floats:
        """All bytes that each rank writes, (ranks,) [bytes]."""
        return np.asarray(self.total.sum(axis=1))

    def placed(self, members: list[int] | tuple[int, ...], world_size: int) -> PairBytes:
        """The same bytes as seen in a world of `world_size` ranks, where rank i of the group is `members[i]`.

        >>> send(8, 2, source=0, destination=1).placed([1, 3], 4).payload[1, 3].item()
        8.0
        """
        if len(members) != self.ranks:
            raise ValueError(
                f"members names {len(members)} ranks, but these bytes are of {self.ranks}. Name as many."
            )
        if len(set(members)) != len(members) or not all(0 <= rank < world_size for rank in members):
            raise ValueError(
                f"members is {list(members)}, but in a world of {world_size} ranks each is one of 0 to "
                f"{world_size - 1}, named once."
            )
        where = np.ix_(members, members)
        payload, framing = _nothing(world_size), _nothing(world_size)
        payload[where], framing[where] = self.payload, self.framing
        return PairBytes(payload=payload, framing=framing)

    def __add__(self, other: PairBytes) -> PairBytes:
        if self.ranks != other.ranks:
            raise ValueError(
                f"The bytes of {self.ranks} ranks and of {other.ranks} do not add up. Use one world for both."
            )
        return PairBytes(payload=self.payload + other.payload, framing=self.framing + other.framing)

    def __mul__(self, calls: int) -> PairBytes:
        return PairBytes(payload=self.payload * calls, framing=self.framing * calls)

    __rmul__ = __mul__

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PairBytes):
            return NotImplemented
        return np.array_equal(self.payload, other.payload) and np.array_equal(self.framing, other.framing)


def no_bytes(ranks: int) -> PairBytes:
    """Nothing from anybody to anybody: where a sum over calls begins."""
    n = _world(ranks)
    return PairBytes(payload=_nothing(n), framing=_nothing(n))


def all_reduce(payload_bytes: int, ranks: int, *, bytes_per_element: int) -> PairBytes:
    """A ring all-reduce of a tensor of `payload_bytes` [bytes] on every rank (gloo/allreduce.cc, ring).

    The tensor is cut into at least two segments per rank, of at most 1 MiB. Each rank passes segments to the
    rank before it, first to reduce and then to gather. Where the tensor does not divide evenly the last ones
    are short or empty, and an empty one is not sent at all, so the ranks' totals differ a little.

    >>> pairs = all_reduce(8_192, 4, bytes_per_element=4)
    >>> pairs.payload[1].tolist(), pairs.framing[1].tolist()
    ([12288.0, 0.0, 0.0, 0.0], [1152.0, 0.0, 576.0, 0.0])
    """
    size, element = _whole("payload_bytes", payload_bytes), _element(payload_bytes, bytes_per_element)
    n = _world(ranks)
    result = no_bytes(n)
    if n == 1 or size == 0:
        return result
    per_message = element * max(1, MAX_SEGMENT_BYTES // element)
    segments = _round_up(max(_divide_up(size, per_message), 2 * n), n)
    segment = _round_up(_divide_up(size, segments), element)
    lengths = np.clip(size - segment * np.arange(segments), 0, segment).reshape(
        n, -1
    )  # (owner, its segments)
    chunk_bytes, chunk_messages = lengths.sum(axis=1), (lengths > 0).sum(axis=1)
    for rank in range(n):
        receiver = (rank - 1) % n
        # Reducing, a rank passes on every chunk but its own; gathering, every chunk but its receiver's.
        for kept in (rank, receiver):
            passed_bytes = chunk_bytes.sum() - chunk_bytes[kept]
            passed_messages = chunk_messages.sum() - chunk_messages[kept]
            _write(result, rank, receiver, int(passed_bytes), messages=int(passed_messages))
    return result


def send(payload_bytes: int, ranks: int, *, source: int, destination: int) -> PairBytes:
    """One send of `payload_bytes` [bytes] from `source` to `destination`, among `ranks`.

    >>> send(8_192, 2, source=0, destination=1).total.tolist()
    [[0.0, 8288.0], [48.0, 0.0]]
    """
    size, n = _whole("payload_bytes", payload_bytes), _world(ranks)
    source, destination = _member("source", source, n), _member("destination", destination, n)
    if source == destination:
        raise ValueError(
            f"source and destination are both {source}, but a rank sends to another. Change one."
        )
    result = no_bytes(n)
    _write(result, source, destination, size)
    return result


def broadcast(payload_bytes: int, ranks: int, *, root: int = 0) -> PairBytes:
    """A broadcast of `payload_bytes` [bytes] from `root` down a binomial tree (gloo/broadcast.cc).

    Seen from the root, in step i every rank that has the tensor sends it 2^i ranks further.

    >>> broadcast(1_000, 4).payload.tolist()[0]
    [0.0, 1000.0, 1000.0, 0.0]
    """
    size, n = _whole("payload_bytes", payload_bytes), _world(ranks)
    root = _member("root", root, n)
    result = no_bytes(n)
    distance = 1
    while distance < n:
        for holder in range(min(distance, n - distance)):
            _write(result, (root + holder) % n, (root + holder + distance) % n, size)
        distance *= 2
    return result


def all_gather(shard_bytes: int, ranks: int) -> PairBytes:
    """A ring all-gather where every rank brings `shard_bytes` [bytes] (gloo/allgather.cc).

    Each of the n−1 shards that a rank passes on to the rank after it goes as two messages, even when it is so
    small that one of them is empty.

    >>> all_gather(1_000, 4).total[0].tolist()
    [0.0, 3576.0, 0.0, 288.0]
    """
    size, n = _whole("shard_bytes", shard_bytes), _world(ranks)
    result = no_bytes(n)
    if n > 1 and size > 0:
        for rank in range(n):
            _write(result, rank, (rank + 1) % n, (n - 1) * size, messages=2 * (n - 1))
    return result


def all_to_all(send_buffer_bytes: int, ranks: int) -> PairBytes:
    """An all-to-all of equal parts: every rank sends 1/n of `send_buffer_bytes` [bytes] to each other.

    Source: gloo/alltoall.cc.

    >>> all_to_all(1_000, 2).total[0].tolist()
    [0.0, 644.0]
    """
    size, n = _whole("send_buffer_bytes", send_buffer_bytes), _world(ranks)
    if size % n:
        below, above = size // n * n, _round_up(size, n)
        raise ValueError(
            f"send_buffer_bytes is {size}, which {n} ranks cannot share equally. "
            f"Nearest that work: {below} or {above}."
        )
    result = no_bytes(n)
    for sender in range(n):
        for receiver in range(n):
            if sender != receiver:
                _write(result, sender, receiver, size // n)
    return result


def all_to_all_v(parts_bytes: Sequence[Sequence[int]]) -> PairBytes:
    """An all-to-all of unequal parts: rank i sends `parts_bytes[i][j]` [bytes] to rank j.

    Every part is one message, an empty one too: its headers travel alone. A rank's part for itself is copied
    in memory. Source: gloo/alltoallv.cc.

    >>> all_to_all_v([[7, 100], [0, 7]]).total.tolist()
    [[0.0, 244.0], [144.0, 0.0]]
    """
    if not isinstance(parts_bytes, Sequence) or not all(isinstance(row, Sequence) for row in parts_bytes):
        raise ValueError(
            f"parts_bytes is {said(parts_bytes)}, but it is a table: for each rank what it sends to each. Give rows."
        )
    n = _world(len(parts_bytes))
    result = no_bytes(n)
    for sender, row in enumerate(parts_bytes):
        if len(row) != n:
            raise ValueError(
                f"parts_bytes gives rank {sender} {len(row)} parts, but each of {n} ranks gets one of every "
                f"rank's. Give {n} in each row, 0 where nothing is sent."
            )
        for receiver, part in enumerate(row):
            size = _whole(f"parts_bytes[{sender}][{receiver}]", part)
            if sender != receiver:
                _write(result, sender, receiver, size)
    return result


def reduce_scatter(full_bytes: int, ranks: int, *, bytes_per_element: int) -> PairBytes:
    """A reduce-scatter of `full_bytes` [bytes]: torch all-reduces the whole, so twice the textbook.

    ProcessGroupGloo has no reduce-scatter of its own (torch/csrc/distributed/c10d/ProcessGroupGloo.cpp).

    >>> reduce_scatter(8_192, 4, bytes_per_element=4) == all_reduce(8_192, 4, bytes_per_element=4)
    True
    """
    _whole("full_bytes", full_bytes)
    return all_reduce(full_bytes, ranks, bytes_per_element=bytes_per_element)


def barrier(ranks: int) -> PairBytes:
    """A barrier: ⌈log₂ n⌉ empty messages from each rank, 1, 2, 4 … ranks further (gloo/barrier.cc).

    >>> barrier(2).framing.tolist()
    [[0.0, 144.0], [144.0, 0.0]]
    """
    n = _world(ranks)
    result = no_bytes(n)
    distance = 1
    while distance < n:
        for rank in range(n):
            _write(result, rank, (rank + distance) % n, 0)
        distance *= 2
    return result


def _write(pairs: PairBytes, sender: int, receiver: int, payload: int, *, messages: int = 1) -> None:
    pairs.payload[sender, receiver] += payload
    pairs.framing[sender, receiver] += messages * (NOTIFY_BYTES + PREAMBLE_BYTES)
    pairs.framing[receiver, sender] += messages * NOTIFY_BYTES


def _nothing(ranks: int) -> Matrix:
    return np.zeros((ranks, ranks))


def _divide_up(value: int, step: int) -> int:
    return -(-value // step)


def _round_up(value: int, step: int) -> int:
    return _divide_up(value, step) * step


def _whole(name: str, value: int) -> int:
    try:
        return whole(name, value, low=0)
    except ValueError:
        raise ValueError(
            f"{name} is {said(value)}, but a tensor has a whole number of bytes. Use 0 or more."
        ) from None


def _element(payload_bytes: int, bytes_per_element: int) -> int:
    if whole("bytes_per_element", bytes_per_element, low=0) < 1 or payload_bytes % bytes_per_element:
        raise ValueError(
            f"payload_bytes is {payload_bytes} and bytes_per_element {bytes_per_element}, but a tensor "
            "holds whole elements. Make the first a multiple of the second."
        )
    return int(bytes_per_element)


def _world(ranks: int) -> int:
    check_group(ranks)
    return whole("ranks", ranks, high=MOST_RANKS)


def _member(name: str, rank: int, ranks: int) -> int:
    try:
        return whole(name, rank, low=0, high=ranks - 1)
    except ValueError:
        raise ValueError(
            f"{name} is {said(rank)}, but {ranks} ranks are numbered 0 to {ranks - 1}."
        ) from None
