"""What a call asks of the slowest link under it: rounds in which ranks wait for a message, and bytes in one direction.

Between emulated hosts the bytes are those that the link's shaper counts: what sockets carry, and the headers of every
packet. A link that has rested also lets its first bucketful through at once, and that is time nobody waits.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from calculators.lab.calls import Call
from calculators.lab.emulation.network import Network
from calculators.lab.forecast import on_gloo
from calculators.lab.meters.interfaces import HEADER_BYTES, SEGMENT_BYTES
from calculators.lab.spec import ReduceScatter, Spec
from calculators.predict import gloo
from calculators.predict.collectives import GLOO, NCCL_RING, Kind, rounds, sent_bytes


@dataclass(frozen=True, kw_only=True)
class LinkCost:
    """Of one call: serial rounds, and the bytes that the busiest rank or link carries in one direction.

    `beside` are the bytes that travel while a round after the first waits for its message: gloo keeps two segments of a
    ring under way, so latency hides behind the other one, as far as it goes.
    """

    rounds: float
    bytes: float
    beside: float = 0.0

    def exposed_rounds(self, latency_seconds: float, seconds_per_byte: float) -> float:
        """Rounds whose latency nothing hides."""
        hidden = min(1.0, self.beside * seconds_per_byte / latency_seconds)
        return self.rounds - max(0.0, self.rounds - 1) * hidden


def link_cost(spec: Spec, call: Call, *, backend: str) -> LinkCost:
    """What one `call` of `spec` costs; `backend` is gloo or nccl."""
    groups = call.groups_among(spec.ranks)
    library = GLOO if backend == "gloo" else NCCL_RING
    algorithm = library.algorithm_of(call.op)
    largest = max(map(len, groups))
    serial = float(rounds(call.op, largest, algorithm=algorithm))
    if backend != "gloo":
        sent = float(sent_bytes(call.op, call.payload_bytes, largest, algorithm=algorithm))
        return LinkCost(rounds=serial, bytes=sent)
    pairs = gloo.no_bytes(spec.ranks)
    for group in groups:
        pairs += on_gloo(spec, call, group).placed(group, spec.ranks)
    in_two = (
        call.op in (Kind.ALL_REDUCE, Kind.REDUCE_SCATTER) and spec.reduce_scatter is ReduceScatter.BACKEND
    )
    parts = max(1.0, float(messages(pairs).sum(axis=1).max())) if in_two else 1.0
    busiest = _busiest(spec, pairs)
    return LinkCost(rounds=serial, bytes=busiest, beside=busiest / parts if in_two else 0.0)


def bucket_bytes(spec: Spec) -> int:
    """What passes a link of `spec` at once after a rest; 0 where no shaper is."""
    network = Network.of(spec)
    return network.burst_bytes if spec.hosts > 1 and network.is_shaped else 0


def messages(pairs: gloo.PairBytes) -> gloo.Matrix:
    """How many tensors, or parts of them, each rank sent each other: framing is 96 B for each, and 48 B back."""
    ahead, back = gloo.NOTIFY_BYTES + gloo.PREAMBLE_BYTES, gloo.NOTIFY_BYTES
    return np.asarray((ahead * pairs.framing - back * pairs.framing.T) / (ahead**2 - back**2))


def _busiest(spec: Spec, pairs: gloo.PairBytes) -> float:
    """Bytes in one direction of the busiest host's link or, on one host, of what the busiest rank sends."""
    if spec.hosts == 1:
        return float(pairs.sent.max())
    network = Network.of(spec)
    hosts = np.array([network.host_of(rank) for rank in range(spec.ranks)])
    crossing = np.where(hosts[:, None] != hosts[None, :], pairs.total + HEADER_BYTES * _packets(pairs), 0.0)
    directions: Iterable[gloo.Matrix] = (crossing.sum(axis=1), crossing.sum(axis=0))
    return float(max(np.bincount(hosts, weights=each).max() for each in directions))


def _packets(pairs: gloo.PairBytes) -> gloo.Matrix:
    """A packet for each notification and answer, and as many as it takes for each preamble with its tensor.

    Acknowledgements that travel alone are left out: a fiftieth of the bytes at most (docs/calibration.md).
    """
    sent = messages(pairs)
    payload = pairs.payload / np.maximum(sent, 1)
    full = np.ceil((gloo.PREAMBLE_BYTES + payload) / SEGMENT_BYTES)
    return np.asarray(sent * (1 + full) + sent.T)
