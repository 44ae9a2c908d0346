"""Joins the sockets of all ranks by their addresses: who sent how much to whom."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from calculators.lab.foreign.records import Record, Socket
from calculators.predict.gloo import Matrix

OPENING_BYTES = 8
"""gloo's first bytes on a new connection, from the end that opens it: which of its pairs this is (gloo/tcp)."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Wires:
    """What the ranks' sockets carried from each rank (row) to each other (column) [bytes]."""

    between_ranks: Matrix
    opening: Matrix
    """Of them, what opening the connections took, by the number of connections."""
    store: Matrix
    """Between ranks, on connections of the rendezvous store that one of them serves; not in `between_ranks`."""
    elsewhere: tuple[int, ...]
    """Of each rank, to and from ends that belong to no rank: a launcher's store, file systems, anything else."""
    connections: int


def join(records: Sequence[Record]) -> Wires:
    """One matrix from the records of ranks 0 to n − 1.

    Of each connection both ends were read, at different moments; what one sent is at least what the other got, so the
    larger of the two numbers is nearer to the end.
    """
    size = max((record.rank for record in records), default=-1) + 1
    size = max(size, *(record.world_size for record in records))
    between, opening, store = np.zeros((3, size, size))
    elsewhere, connections = [0] * size, 0
    ends: dict[tuple[tuple[str, int], tuple[str, int]], tuple[Record, Socket]] = {
        (end.local, end.remote): (record, end) for record in records for end in record.sockets
    }
    for record in records:
        for end in record.sockets:
            other, theirs = ends.get((end.remote, end.local), (None, None))
            if other is None or theirs is None:
                elsewhere[record.rank] += end.sent + end.received
            elif other.rank != record.rank:
                ports = {*record.store_ports, *other.store_ports}
                is_store = bool(ports & {end.local[1], end.remote[1]})
                carried = max(end.sent, theirs.received)
                (store if is_store else between)[record.rank, other.rank] += carried
                if not is_store and end.opened_here:
                    connections += 1
                    opening[record.rank, other.rank] += OPENING_BYTES
    return Wires(
        between_ranks=between,
        opening=opening,
        store=store,
        elsewhere=tuple(elsewhere),
        connections=connections,
    )
