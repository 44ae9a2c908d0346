"""What gloo should have put on the wire for the calls that were seen: formula, gloo's algorithm, gloo's headers."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from calculators.lab.foreign.records import BARRIER, GATHER, RECEIVE, SCATTER, Called, Group, Record
from calculators.predict import gloo
from calculators.predict.collectives import TEXTBOOK, Kind, sent_bytes
from calculators.predict.gloo import Matrix, PairBytes


@dataclass(frozen=True, kw_only=True, eq=False)
class Expected:
    """Predicted bytes from each rank (row) to each other (column), by part; and what is not in them, in words."""

    formula: Matrix
    backend: Matrix
    framing: Matrix
    left_out: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class GroupCalls:
    """One group, and what each of its ranks (in the order of `ranks`) called on it."""

    group: Group
    calls: tuple[tuple[Called, ...], ...]

    @property
    def size(self) -> int:
        return len(self.group.ranks)

    def of_all(self) -> list[Called]:
        """The calls of every rank."""
        return [call for calls in self.calls for call in calls]


def by_group(records: Sequence[Record]) -> list[GroupCalls]:
    """The groups of all records, each with the calls of its ranks."""
    groups: dict[tuple[int, str, tuple[int, ...]], Group] = {}
    for record in records:
        for group in record.groups:
            groups.setdefault((group.world, group.name, group.ranks), group)
    found = []
    for (world, name, ranks), group in groups.items():
        calls = []
        for rank in ranks:
            members = [
                record
                for record in records
                if record.rank == rank
                and any((one.world, one.name, one.ranks) == (world, name, ranks) for one in record.groups)
            ]
            of_rank = (call for record in members for call in record.calls)
            calls.append(tuple(call for call in of_rank if (call.world, call.group) == (world, name)))
        found.append(GroupCalls(group=group, calls=tuple(calls)))
    return sorted(found, key=lambda one: (one.group.world, -one.size, one.group.ranks, one.group.name))


def expect(groups: Sequence[GroupCalls], world_size: int) -> Expected:
    """The sum over all groups, in a world of `world_size` ranks."""
    formula, backend, framing = np.zeros((3, world_size, world_size))
    left_out: dict[str, None] = {}
    for one in groups:
        for text, pairs in _of_group(one):
            if isinstance(pairs, str):
                left_out[f"{text}: {pairs}"] = None
                continue
            where = np.ix_(one.group.ranks, one.group.ranks)
            textbook, whole = pairs
            formula[where] += textbook
            backend[where] += whole.payload - textbook
            framing[where] += whole.framing
    return Expected(formula=formula, backend=backend, framing=framing, left_out=tuple(left_out))


_Pairs = tuple[Matrix, PairBytes]
_Line = tuple[str, str, tuple[int, ...], int, int | None]


def _of_group(one: GroupCalls) -> Iterator[tuple[str, _Pairs | str]]:
    """For each call that is predicted the textbook's bytes and gloo's; for each that is not the reason."""
    n = one.size
    foreign = {call.device for call in one.of_all()} - {
        device for device, backend in one.group.backends.items() if backend == "gloo"
    }
    for device in sorted(foreign):
        backend = one.group.backends.get(device, "an unknown backend")
        yield (
            f"calls on {device} tensors",
            f"{backend} moves them, and only gloo's bytes are predicted; NVLink, PCIe and InfiniBand have no "
            "TCP counters",
        )
    gloo_calls = [[call for call in calls if call.device not in foreign] for calls in one.calls]
    parts, exchanges = np.zeros((n, n), dtype=int), [0] * n
    for index, calls in enumerate(gloo_calls):
        for call in calls:
            if call.kind == Kind.SEND and call.peer is not None and call.peer != index:
                for size in call.sizes:
                    pairs = gloo.send(size, n, source=index, destination=call.peer) * call.times
                    yield "send", (pairs.payload, pairs)
            elif call.kind == SCATTER and call.peer == index:  # its tensors are its root's alone
                for other in range(n):
                    if other != index:
                        pairs = gloo.send(call.sizes[other], n, source=index, destination=other) * call.times
                        yield "scatter", (pairs.payload, pairs)
            elif call.kind == Kind.ALL_TO_ALL:
                exchanges[index] += call.times
                parts[index] += call.parts if call.parts is not None else call.handed_bytes // n
    if any(exchanges):
        yield from _exchanges(parts, exchanges)
    for line, times, wanted in _entered_by_all(gloo_calls):
        if wanted != times:
            yield (
                f"{wanted - times} of {wanted} {line.kind} calls",
                "not every rank of the group is known to have entered them",
            )
        moved = _collective(line, n)
        if isinstance(moved, str):
            yield f"{line.kind} ({line.function})", moved
        elif times:
            yield line.kind, (moved[0] * times, moved[1] * times)


def _exchanges(parts: Matrix, exchanges: list[int]) -> Iterator[tuple[str, _Pairs | str]]:
    """All all-to-alls of a group at once: their parts add up, and each is one message to every other rank."""
    n = len(exchanges)
    if len(set(exchanges)) > 1:
        yield (
            "all-to-all",
            f"ranks made {min(exchanges)} to {max(exchanges)} calls, and the parts of some are unknown",
        )
    empty = gloo.all_to_all_v(np.zeros((n, n), dtype=int).tolist())
    whole = gloo.all_to_all_v(parts.tolist())
    headers = empty.framing * min(exchanges)
    yield "all-to-all", (whole.payload, PairBytes(payload=whole.payload, framing=headers))


def _entered_by_all(calls: Sequence[Sequence[Called]]) -> Iterator[tuple[Called, int, int]]:
    """Each collective once: how often all ranks are known to have made it, and how often the busiest did."""
    counts: dict[_Line, list[int]] = {}
    lines: dict[_Line, Called] = {}
    for index, mine in enumerate(calls):
        for call in mine:
            if call.kind in (Kind.SEND, Kind.ALL_TO_ALL, RECEIVE, SCATTER):
                continue
            key = (call.kind, call.function, call.sizes, call.element_bytes, call.peer)
            counts.setdefault(key, [0] * len(calls))[index] += call.times
            lines[key] = call
    for key, times in counts.items():
        yield lines[key], min(times), max(times)


def _collective(call: Called, n: int) -> _Pairs | str:
    size, element = sum(call.sizes), call.element_bytes
    root = call.peer or 0
    match call.kind:
        case Kind.ALL_REDUCE:
            return _beside_textbook(call.kind, size, gloo.all_reduce(size, n, bytes_per_element=element))
        case Kind.REDUCE_SCATTER:
            pairs = gloo.no_bytes(n)
            for each in call.sizes:
                pairs += gloo.reduce_scatter(each, n, bytes_per_element=element)
            return _beside_textbook(call.kind, size, pairs)
        case Kind.ALL_GATHER:
            return _beside_textbook(call.kind, size * n, gloo.all_gather(size, n))
        case Kind.BROADCAST:
            pairs = gloo.broadcast(size, n, root=root)
            return pairs.payload, pairs
        case _ if call.kind == GATHER:
            pairs = gloo.no_bytes(n)
            for other in set(range(n)) - {root}:
                pairs += gloo.send(size, n, source=other, destination=root)
            return pairs.payload, pairs
        case _ if call.function == BARRIER:
            pairs = gloo.barrier(n)
            return pairs.payload, pairs
        case _:
            return "how gloo moves it is not calculated here, so its bytes are among the unexplained"


def _beside_textbook(kind: str, full_size: int, pairs: PairBytes) -> _Pairs:
    """The textbook's bytes lie where gloo's tensors do: a rank's row has one neighbour, or all alike."""
    op = Kind(kind)
    sent = float(sent_bytes(op, full_size, pairs.ranks, algorithm=TEXTBOOK.algorithm_of(op)))
    where = pairs.payload > 0
    return np.where(where, sent / np.maximum(1, where.sum(axis=1, keepdims=True)), 0.0), pairs
