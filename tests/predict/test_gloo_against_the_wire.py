"""The byte counts of `predict.gloo` against what the kernel counts on the sockets of real ranks."""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
import pytest

from calculators.predict import gloo

torch = pytest.importorskip("torch", reason="needs torch: pip install 'sixfold[lab]'")

from tests.predict.wire import Call, watch  # noqa: E402

REPEATS = 3
MIB = 1024 * 1024
SIZES = [
    (8_192, torch.bfloat16),
    (1_000, torch.float32),
    (1_001, torch.uint8),
    (4, torch.float32),
    (12, torch.float32),
    (3 * MIB + 20, torch.float32),
    (4 * MIB, torch.float32),
    (9 * MIB + 2, torch.bfloat16),
]

pytestmark = [
    pytest.mark.distributed,
    pytest.mark.skipif(sys.platform != "linux", reason="TCP_INFO counts bytes on Linux only"),
]


def calls(ranks: int) -> list[Call]:
    last = ranks - 1
    reductions = [Call(name="all_reduce", size=size, dtype=dtype) for size, dtype in SIZES]
    sends = [Call(name="send", size=size, dtype=dtype, root=last) for size, dtype in SIZES[:3]]
    broadcasts = [
        Call(name="broadcast", size=size, dtype=dtype, root=root)
        for size, dtype in SIZES[:3]
        for root in (0, last)
    ]
    gathers = [Call(name="all_gather", size=size) for size in (8_192, 1_001, 1, 3 * MIB)]
    exchanges = [Call(name="all_to_all", size=size * ranks) for size in (4_096, 333, 3 * MIB)]
    uneven = [Call(name="all_to_all_v", size=0, parts=parts(ranks, of)) for of in (skewed, lopsided, nothing)]
    scatters = [
        Call(name="reduce_scatter", size=size * ranks, dtype=torch.float32)
        for size in (4_096, 1_004, 3 * MIB)
    ]
    idle = [Call(name="barrier", size=0), Call(name="nothing", size=0)]
    return reductions + sends + broadcasts + gathers + exchanges + uneven + scatters + idle


def parts(ranks: int, size: Callable[[int, int], int]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(size(sender, receiver) for receiver in range(ranks)) for sender in range(ranks))


def skewed(sender: int, receiver: int) -> int:
    return 1_000 * (sender + 1) // (receiver + 1)


def lopsided(sender: int, receiver: int) -> int:
    """Everything to rank 0: every other part is empty."""
    return 4_096 if receiver == 0 else 0


def nothing(sender: int, receiver: int) -> int:
    return 0


def predicted(call: Call, ranks: int) -> gloo.PairBytes:
    match call.name:
        case "all_reduce":
            return gloo.all_reduce(call.size, ranks, bytes_per_element=call.dtype.itemsize)
        case "reduce_scatter":
            return gloo.reduce_scatter(call.size, ranks, bytes_per_element=call.dtype.itemsize)
        case "send":
            return gloo.send(call.size, ranks, source=call.root, destination=(call.root + 1) % ranks)
        case "broadcast":
            return gloo.broadcast(call.size, ranks, root=call.root)
        case "all_gather":
            return gloo.all_gather(call.size, ranks)
        case "all_to_all":
            return gloo.all_to_all(call.size, ranks)
        case "all_to_all_v":
            return gloo.all_to_all_v(call.parts)
        case "barrier":
            return gloo.barrier(ranks)
        case _:
            return gloo.no_bytes(ranks)


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_real_ranks_send_exactly_the_predicted_bytes_to_each_other(ranks, tmp_path):
    watched = watch(calls(ranks), ranks, repeats=REPEATS, folder=tmp_path)

    off = {
        (seen.call.name, seen.call.size, str(seen.call.dtype), seen.call.parts): (
            seen.sent / REPEATS - expected
        ).tolist()
        for seen in watched
        if not np.array_equal(seen.sent / REPEATS, expected := predicted(seen.call, ranks).total)
    }

    assert off == {}
