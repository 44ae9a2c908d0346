"""The calls of one family alone: no model computes, the ranks only hand each other tensors of random numbers.

Every call is checked before anything is measured. The numbers are small whole ones, so that their sums are exact in
every element type and each result has one right answer, to the bit.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from calculators.lab.jobs.base import RankJob
from calculators.lab.measurements import Verified
from calculators.lab.spec import Pattern, Spec
from calculators.lab.splits.exchange import routed_rows

LARGEST_NUMBER = 8
"""16 ranks' sum stays within 128, and bfloat16 holds every whole number up to 256."""

Results = Callable[[], Iterator[Tensor]]
"""Makes calls one after another and gives the result of each before it makes the next."""


class ExchangeJob(RankJob):
    """One rank's part in the calls of `spec.pattern`."""

    def __init__(self, spec: Spec, *, rank: int, group: Any, device: torch.device) -> None:
        self.spec, self.rank, self.group, self.device = spec, rank, group, device
        self.given = self._numbers_of(rank)
        self.result, self.spare = torch.empty_like(self.given), torch.empty_like(self.given)
        if spec.pattern is Pattern.EXPERTS:
            self.routed = routed_rows(spec)
            self.sent, self.taken = list(self.routed[rank]), [row[rank] for row in self.routed]
            self.at_the_expert = self.given.new_empty(sum(self.taken), spec.hidden_size)
        all_gather = (self._all_gather, self._gathered)
        reduce_scatter = (self._reduce_scatter, self._scattered)
        # Each pattern's calls in the order of a step, and beside each what it must give.
        self.exchanges: tuple[tuple[Results, Results], ...] = {
            Pattern.GRADIENTS: ((self._all_reduce, self._summed),),
            Pattern.ZERO_1: (reduce_scatter, all_gather),
            Pattern.ZERO_2: (reduce_scatter, all_gather),
            Pattern.ZERO_3: (all_gather, all_gather, reduce_scatter),
            Pattern.RING: ((self._pass_around, self._passed_around),),
            Pattern.KEY_VALUE_GATHER: (all_gather,),
            Pattern.ULYSSES: ((self._all_to_all, self._swapped),) * 4,
            Pattern.EXPERTS: ((self._dispatch_and_combine, self._there_and_back),),
        }[spec.pattern]

    def step(self) -> None:
        """Make the pattern's calls, `repeats` times."""
        for _ in range(self.spec.repeats):
            for calls, _ in self.exchanges:
                for _ in calls():
                    pass

    def verify(self) -> Verified:
        """Make each call once and compare what it gives with what the ranks' numbers say that it must give."""
        differences = [
            _largest_difference(got, wanted)
            for calls, musts in self.exchanges
            for got, wanted in zip(calls(), musts(), strict=True)
        ]
        return Verified(rank=self.rank, worst=max(differences), tolerance=0.0)

    def _all_reduce(self) -> Iterator[Tensor]:
        self.result.copy_(self.given)  # summed in place: without this, sums would grow from step to step
        dist.all_reduce(self.result, group=self.group)
        yield self.result

    def _summed(self) -> Iterator[Tensor]:
        yield self._sum()

    def _reduce_scatter(self) -> Iterator[Tensor]:
        slice_of_sum = self._slice(self.result, self.rank)
        dist.reduce_scatter_single(slice_of_sum, self.given, group=self.group)
        yield slice_of_sum

    def _scattered(self) -> Iterator[Tensor]:
        yield self._slice(self._sum(), self.rank)

    def _all_gather(self) -> Iterator[Tensor]:
        dist.all_gather_single(self.result, self._slice(self.given, self.rank), group=self.group)
        yield self.result

    def _gathered(self) -> Iterator[Tensor]:
        yield torch.cat([self._slice(self._numbers_of(rank), rank) for rank in range(self.spec.ranks)])

    def _all_to_all(self) -> Iterator[Tensor]:
        dist.all_to_all_single(self.result, self.given, group=self.group)
        yield self.result

    def _swapped(self) -> Iterator[Tensor]:
        yield torch.cat([self._slice(self._numbers_of(rank), self.rank) for rank in range(self.spec.ranks)])

    def _pass_around(self) -> Iterator[Tensor]:
        """Hand the block held to the next rank and take the one before's, until every block has been here."""
        n, block, incoming = self.spec.ranks, self.given, self.result
        for _ in range(n - 1):
            hop = [
                dist.P2POp(dist.isend, block, group=self.group, group_peer=(self.rank + 1) % n),
                dist.P2POp(dist.irecv, incoming, group=self.group, group_peer=(self.rank - 1) % n),
            ]
            for work in dist.batch_isend_irecv(hop):
                work.wait()
            yield incoming
            block, incoming = incoming, self.spare if block is self.given else block

    def _passed_around(self) -> Iterator[Tensor]:
        for hops in range(1, self.spec.ranks):
            yield self._numbers_of((self.rank - hops) % self.spec.ranks)

    def _dispatch_and_combine(self) -> Iterator[Tensor]:
        """Rows to the ranks of their experts, which give each back as it came, since no expert computes."""
        rows, back = self._rows(self.given), self._rows(self.result)
        dist.all_to_all_single(self.at_the_expert, rows, self.taken, self.sent, group=self.group)
        yield self.at_the_expert
        dist.all_to_all_single(back, self.at_the_expert, self.sent, self.taken, group=self.group)
        yield back

    def _there_and_back(self) -> Iterator[Tensor]:
        of_each = (
            self._rows(self._numbers_of(rank)).split(list(row)) for rank, row in enumerate(self.routed)
        )
        yield torch.cat([parts[self.rank] for parts in of_each])
        yield self._rows(self.given)

    def _sum(self) -> Tensor:
        total = torch.zeros_like(self.given)
        for rank in range(self.spec.ranks):
            total += self._numbers_of(rank)
        return total

    def _numbers_of(self, rank: int) -> Tensor:
        """What `rank` hands to its calls: the same numbers whoever draws them."""
        generator = torch.Generator().manual_seed(self.spec.seed + (rank << 32))
        elements = self.spec.call_bytes // self.spec.dtype.bytes_per_element
        low, high = -LARGEST_NUMBER, LARGEST_NUMBER + 1
        drawn = torch.randint(low, high, (elements,), generator=generator, dtype=torch.int8)
        return drawn.to(device=self.device, dtype=getattr(torch, self.spec.dtype.value))

    def _slice(self, whole: Tensor, rank: int) -> Tensor:
        """One of the equal parts of `whole`."""
        return whole.chunk(self.spec.ranks)[rank]

    def _rows(self, whole: Tensor) -> Tensor:
        return whole.view(-1, self.spec.hidden_size)


def _largest_difference(got: Tensor, wanted: Tensor) -> float:
    if got.shape != wanted.shape:
        return float("inf")
    return float((got.float() - wanted.float()).abs().max()) if got.numel() else 0.0
