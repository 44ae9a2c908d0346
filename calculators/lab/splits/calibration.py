"""Timed calls over many sizes, from which a link's latency and speed are fitted, and timed pieces of arithmetic.

A step is a sweep: every kind of call at every size once, and each piece of arithmetic, in an order that is drawn anew
for each sweep, so that a machine which slows down does not look like a size that is slow.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from calculators.lab.calls import Call
from calculators.lab.limits import MAX_BYTES
from calculators.lab.measurements import Prediction
from calculators.lab.problems import Problem
from calculators.lab.spec import Spec
from calculators.predict.collectives import Kind

COLLECTIVES = (Kind.ALL_REDUCE, Kind.REDUCE_SCATTER, Kind.ALL_GATHER, Kind.ALL_TO_ALL)
SMALLEST_COLLECTIVE_BYTES = 65_536
SMALLEST_MESSAGE_BYTES = 8
_MESSAGE_STEP = 8  # from one size of a ping-pong to the next
_COLLECTIVE_STEP = 2

# The pieces of arithmetic, by the names of their series.
READING = "reading weights"
MULTIPLYING = "multiplying matrices"
LAYERS = "layers too small to count"
RESUMED = "one such layer after a wait"
ENDS = "embedding and head too small to count"
ARITHMETIC = (READING, MULTIPLYING, LAYERS, RESUMED, ENDS)

WEIGHT_BYTES = 64 * 2**20
"""Of the matrix that is read: more than a rank's share of any cache."""
MATRIX_SIDE = 512
"""Of the two square matrices that are multiplied: 2·side³ operations, and both stay in the cache."""
MULTIPLICATIONS = 2 * MATRIX_SIDE**3
SMALL_LAYERS = 8
"""Layers that are timed together. One alone, after a wait, takes longer: the core has done something else meanwhile."""

_COPIES = 4
"""Tensors of a call's full size that a rank holds at most: handed over, taken, and two to check them."""


@dataclass(frozen=True, kw_only=True)
class Timed:
    """One kind of call at one full size [bytes]; a send is a ping-pong, of which half is one call's time."""

    kind: Kind
    size: int

    @property
    def name(self) -> str:
        """How its series and its median are called: “all-reduce 65536”."""
        return f"{self.kind} {self.size}"


def timed_calls(spec: Spec) -> tuple[Timed, ...]:
    """Every kind of call at every size of a sweep."""
    messages = _sizes(SMALLEST_MESSAGE_BYTES, spec.call_bytes, _MESSAGE_STEP)
    whole = tuple(_sizes(SMALLEST_COLLECTIVE_BYTES, spec.call_bytes, _COLLECTIVE_STEP))
    return (
        *(Timed(kind=Kind.SEND, size=size) for size in messages),
        *(Timed(kind=kind, size=_shared(size, spec)) for kind in COLLECTIVES for size in whole),
    )


def _sizes(first: int, last: int, factor: int) -> Iterator[int]:
    size = first
    while size <= last:
        yield size
        size *= factor


def _shared(size: int, spec: Spec) -> int:
    """The next size of which every rank has an equal share in whole elements."""
    step = spec.ranks * spec.dtype.bytes_per_element
    return -(-size // step) * step


def meeting_bytes(spec: Spec) -> int:
    """Full size of the call that brings ranks together before anything is timed."""
    return spec.ranks * spec.dtype.bytes_per_element


def samples(spec: Spec) -> int:
    """How often each call is timed in a run."""
    return spec.steps * spec.repeats


def contradictions(spec: Spec) -> Iterator[Problem]:
    """Two ranks to time a link between, two sizes to tell latency from speed, and no more than fits."""
    if spec.ranks < 2:
        yield Problem("ranks", "ranks is 1, but a calibration times calls between ranks. Take 2 or more.")
    if spec.call_bytes < _COLLECTIVE_STEP * SMALLEST_COLLECTIVE_BYTES:
        yield Problem(
            "call_bytes",
            f"call_bytes is {spec.call_bytes}, but a calibration times collectives from "
            f"{SMALLEST_COLLECTIVE_BYTES:,} bytes up, at two sizes or more. "
            f"Take {_COLLECTIVE_STEP * SMALLEST_COLLECTIVE_BYTES:,} or more.",
        )
    held = spec.ranks * (_COPIES * spec.call_bytes + WEIGHT_BYTES)
    if held > MAX_BYTES:
        yield Problem(
            "call_bytes",
            f"The tensors of one call would need about {held / 2**30:,.1f} GiB on all ranks together, and the lab "
            f"stops at {MAX_BYTES // 2**30} GiB. Take smaller calls or fewer ranks.",
        )


def calls(spec: Spec) -> Iterator[Call]:
    """Every timed call once a repeat; a ping-pong is a send from the first rank to the last, and one back.

    Before each, and before each piece of arithmetic, the ranks meet, so that none is timed waiting for another.
    """
    if spec.ranks < 2:
        return
    ends = (0, spec.ranks - 1)
    for timed in timed_calls(spec):
        directions = (ends, ends[::-1]) if timed.kind is Kind.SEND else ((0, 0),)
        for source, destination in directions:
            yield Call(
                op=timed.kind,
                payload_bytes=timed.size,
                times=spec.repeats,
                what=f"timed, {timed.size:,} bytes",
                axis=spec.family,
                source=source,
                destination=destination,
            )
    yield Call(
        op=Kind.ALL_REDUCE,
        payload_bytes=meeting_bytes(spec),
        times=spec.repeats * (len(timed_calls(spec)) + len(ARITHMETIC)),
        what="the ranks meet before anything is timed",
        axis=spec.family,
        is_control=True,
    )


def layers_by_rank(spec: Spec) -> tuple[range, ...]:
    """No model is split."""
    return ()


def memory(spec: Spec) -> Iterable[Prediction]:
    """Nothing is predicted of it."""
    return ()
