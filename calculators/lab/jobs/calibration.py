"""Times the calls between ranks over many sizes, and what a rank computes by itself.

Every call is checked first. The numbers are small whole ones, so their sums are exact in every element type and each
result has one right answer, to the bit. Arithmetic is timed on all ranks in the same sweep, since they share cores
and memory: what one of them reaches alone would promise too much.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from calculators.lab.jobs import transformer
from calculators.lab.jobs.base import RankJob
from calculators.lab.measurements import Verified
from calculators.lab.spec import Job, Phase, Spec
from calculators.lab.splits.calibration import (
    ENDS,
    LAYERS,
    MATRIX_SIDE,
    MULTIPLYING,
    READING,
    RESUMED,
    SMALL_LAYERS,
    WEIGHT_BYTES,
    Timed,
    meeting_bytes,
    samples,
    timed_calls,
)
from calculators.predict.collectives import Kind

_LARGEST_NUMBER = 8
"""16 ranks' sum stays within 128, and bfloat16 holds every whole number up to 256."""
_SMALL = 8
"""Elements of a hidden state whose arithmetic takes no time beside the calls from Python that ask for it."""


class CalibrationJob(RankJob):
    """One rank's part of the sweeps."""

    def __init__(self, spec: Spec, *, rank: int, group: Any, device: torch.device) -> None:
        self.spec, self.rank, self.group, self.device = spec, rank, group, device
        self.dtype: torch.dtype = getattr(torch, spec.dtype.value)
        self.timed = timed_calls(spec)
        largest = max(timed.size for timed in self.timed)
        self.given = self._numbers_of(rank, largest)
        self.result = torch.empty_like(self.given)
        self.meeting = torch.zeros_like(self._elements(self.given, meeting_bytes(spec)))
        self.arithmetic = _arithmetic(spec, self.dtype, device)
        self.seconds: dict[str, list[float]] = {timed.name: [] for timed in self.timed}
        self.seconds |= {name: [] for name in self.arithmetic}
        self.order = np.random.default_rng(spec.seed)  # the same on every rank

    def verify(self) -> Verified:
        """Make each call once and compare what it gives with what the ranks' numbers say that it must give."""
        differences = []
        for timed in self.timed:
            self._call(timed)
            got, wanted = self._result(timed), self._wanted(timed)
            differences.append(float((got.float() - wanted.float()).abs().max()))
        return Verified(rank=self.rank, worst=max(differences), tolerance=0.0)

    def step(self) -> None:
        """Time every call and every piece of arithmetic once, `repeats` times over."""
        pieces: list[Timed | str] = [*self.timed, *self.arithmetic]
        for _ in range(self.spec.repeats):
            for piece in (pieces[number] for number in self.order.permutation(len(pieces))):
                dist.all_reduce(self.meeting, group=self.group)
                if isinstance(piece, Timed):
                    self.seconds[piece.name].append(self._call(piece))
                else:
                    self.seconds[piece].append(self._clocked(self.arithmetic[piece]))

    def series(self) -> Mapping[str, Sequence[float]]:
        """Seconds of each call and piece, the measured ones; of a ping-pong half, on the rank that began it."""
        mine = {
            name: seconds[-samples(self.spec) :]
            for name, seconds in self.seconds.items()
            if self.rank == 0 or not name.startswith(Kind.SEND)
        }
        return {name: seconds for name, seconds in mine.items() if seconds}

    def _call(self, timed: Timed) -> float:
        """Seconds of one call; what it gives is left in `result`."""
        given = self._elements(self.given, timed.size)
        result = self._elements(self.result, timed.size)
        match timed.kind:
            case Kind.SEND:
                return self._clocked(lambda: self._ping_pong(given, result)) / 2
            case Kind.ALL_REDUCE:
                result.copy_(given)  # summed in place
                return self._clocked(lambda: dist.all_reduce(result, group=self.group))
            case Kind.REDUCE_SCATTER:
                mine = self._slice(result, self.rank)
                return self._clocked(lambda: dist.reduce_scatter_single(mine, given, group=self.group))
            case Kind.ALL_GATHER:
                mine = self._slice(given, self.rank)
                return self._clocked(lambda: dist.all_gather_single(result, mine, group=self.group))
            case _:
                return self._clocked(lambda: dist.all_to_all_single(result, given, group=self.group))

    def _clocked(self, work: Callable[[], Any]) -> float:
        self._finish()
        started = time.perf_counter()
        work()
        self._finish()
        return time.perf_counter() - started

    def _finish(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def _ping_pong(self, given: Tensor, result: Tensor) -> None:
        """From the first rank to the last and back; the ranks between have no part in it."""
        last = self.spec.ranks - 1
        if self.rank == 0:
            dist.send(given, group=self.group, group_dst=last)
            dist.recv(result, group=self.group, group_src=last)
        elif self.rank == last:
            dist.recv(result, group=self.group, group_src=0)
            dist.send(result, group=self.group, group_dst=0)

    def _result(self, timed: Timed) -> Tensor:
        result = self._elements(self.result, timed.size)
        return self._slice(result, self.rank) if timed.kind is Kind.REDUCE_SCATTER else result

    def _wanted(self, timed: Timed) -> Tensor:
        """What the call must have given."""
        everybody = [self._numbers_of(rank, timed.size) for rank in range(self.spec.ranks)]
        match timed.kind:
            case Kind.SEND:
                has_part = self.rank in (0, self.spec.ranks - 1)
                return everybody[0] if has_part else self._elements(self.result, timed.size)
            case Kind.ALL_REDUCE:
                return torch.stack(everybody).sum(dim=0)
            case Kind.REDUCE_SCATTER:
                return self._slice(torch.stack(everybody).sum(dim=0), self.rank)
            case Kind.ALL_GATHER:
                return torch.cat([self._slice(numbers, rank) for rank, numbers in enumerate(everybody)])
            case _:
                return torch.cat([self._slice(numbers, self.rank) for numbers in everybody])

    def _numbers_of(self, rank: int, size: int) -> Tensor:
        """The first `size` bytes of what `rank` hands to its calls: the same numbers whoever draws them."""
        generator = torch.Generator().manual_seed(self.spec.seed + (rank << 32))
        low, high = -_LARGEST_NUMBER, _LARGEST_NUMBER + 1
        elements = size // self.spec.dtype.bytes_per_element
        drawn = torch.rand(elements, generator=generator) * (high - low) + low
        return drawn.floor().to(device=self.device, dtype=self.dtype)

    def _elements(self, whole: Tensor, size: int) -> Tensor:
        return whole[: size // self.spec.dtype.bytes_per_element]

    def _slice(self, whole: Tensor, rank: int) -> Tensor:
        """One of the equal parts of `whole`."""
        return whole.chunk(self.spec.ranks)[rank]


def _arithmetic(spec: Spec, dtype: torch.dtype, device: torch.device) -> dict[str, Callable[[], Any]]:
    """What each rank computes by itself, by name."""
    weights = torch.ones(WEIGHT_BYTES // spec.row_bytes, spec.hidden_size, dtype=dtype, device=device)
    vector = torch.ones(spec.hidden_size, dtype=dtype, device=device)
    square = torch.ones(MATRIX_SIDE, MATRIX_SIDE, dtype=dtype, device=device)
    small = replace(
        spec,
        job=Job.TENSOR,
        phase=Phase.DECODE,
        layers=SMALL_LAYERS,
        hidden_size=_SMALL,
        attention_heads=1,
        ffn_width=_SMALL,
        vocab_size=_SMALL,
        batch=1,
    )
    model = transformer.whole_model(small, device=device)
    bare = transformer.whole_model(replace(small, layers=0), device=device)
    ids = transformer.some_tokens(small, device=device)
    hidden = torch.ones(1, 1, _SMALL, dtype=dtype, device=device)

    layers = list(model.layers.values())

    def through(some: Sequence[Any]) -> None:
        x = hidden
        for layer in some:
            x = layer(x, 0)

    def without_gradients(work: Callable[[], Any]) -> Callable[[], Any]:
        return torch.no_grad()(work)

    return {
        READING: without_gradients(lambda: torch.mv(weights, vector)),
        MULTIPLYING: without_gradients(lambda: square @ square),
        LAYERS: without_gradients(lambda: through(layers)),
        RESUMED: without_gradients(lambda: through(layers[:1])),
        ENDS: without_gradients(lambda: transformer.sample(bare(ids))),
    }
