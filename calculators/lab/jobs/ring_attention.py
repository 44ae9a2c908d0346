"""Attention whose keys and values lie on several ranks, each with its share of every sequence.

A ring hands blocks of keys and values from rank to rank until each has been everywhere; a gather brings all blocks to
all ranks at once. Either way a rank meets one block at a time and merges what each gives (`blockwise`), so it keeps
for the backward pass what attention on one device keeps of the same tokens: queries, keys, values, output, and
the logs of the softmax sums. Backward, keys and values come by again.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
import torch.distributed as dist
from torch import Tensor

from calculators.lab.jobs import blockwise

KEYS_AND_VALUES, GRADIENTS = 0, 1
"""Tags of the two kinds of message that are under way between the same two ranks."""

GradientOf = Callable[[int, Tensor], Tensor]
"""The gradient of the block of a rank, as far as this rank's queries go."""


class Meeting(NamedTuple):
    """Which of a rank's queries meet which keys of a block; `is_causal`: each those up to its own."""

    queries: slice
    keys: slice
    is_causal: bool


@dataclass(frozen=True, kw_only=True)
class Share:
    """The tokens of each sequence that `rank` of `ranks` holds: one run of them, or with `zigzag` two.

    Late tokens look back at more keys than early ones. In a zigzag each rank has the r-th piece of 2·ranks and
    the r-th from the end, and all have the same work.
    """

    rank: int
    ranks: int
    tokens: int
    zigzag: bool = False

    def positions(self) -> Tensor:
        """Where in the sequence its tokens are, in order."""
        if not self.zigzag:
            return torch.arange(self.tokens).chunk(self.ranks)[self.rank]
        pieces = torch.arange(self.tokens).chunk(2 * self.ranks)
        return torch.cat((pieces[self.rank], pieces[-1 - self.rank]))

    def meetings(self, source: int) -> Iterator[Meeting]:
        """Where its queries meet the block of `source` at all; no block needs more than one."""
        held = self.tokens // self.ranks
        everything, early, late = slice(0, held), slice(0, held // 2), slice(held // 2, held)
        if source == self.rank:
            yield Meeting(everything, everything, is_causal=True)
        elif source < self.rank:
            yield Meeting(everything, early if self.zigzag else everything, is_causal=False)
        elif self.zigzag:
            yield Meeting(late, everything, is_causal=False)


class Blocks(Protocol):
    """A way for blocks of keys and values, (2, B, A, T, D) each, to get to where the queries are."""

    def pass_by(self, mine: Tensor) -> Iterator[tuple[int, Tensor]]:
        """The block of every rank, with the rank's number, this rank's `mine` first."""

    def gradients(self, mine: Tensor, of: GradientOf) -> Tensor:
        """The gradient of `mine`, summed over what every rank's queries say of it."""


class Ring:
    """Blocks go from each rank to the next, ranks − 1 times, while the rank works on the one before."""

    def __init__(self, rank: int, ranks: int, group: Any) -> None:
        self.rank, self.ranks, self.group = rank, ranks, group

    def pass_by(self, mine: Tensor) -> Iterator[tuple[int, Tensor]]:
        """Each block goes on to the next rank before this one works on it."""
        block = mine
        for hop in range(self.ranks):
            arriving = self._send_on(block, KEYS_AND_VALUES) if hop < self.ranks - 1 else None
            yield (self.rank - hop) % self.ranks, block
            if arriving is not None:
                block = arriving.wait()

    def gradients(self, mine: Tensor, of: GradientOf) -> Tensor:
        """A block's gradient follows the block one hop behind, each rank adds to it, and the last hop brings it home.

        What a rank's own queries say stays there, so gradients make ranks − 1 hops, as keys and values do.
        """
        blocks = self.pass_by(mine)
        at_home = of(*next(blocks))
        arriving = None
        for source, block in blocks:
            gradient = of(source, block)
            if arriving is not None:
                gradient += arriving.wait()
            arriving = self._send_on(gradient, GRADIENTS)
        return at_home if arriving is None else at_home + arriving.wait()

    def _send_on(self, sent: Tensor, tag: int) -> "_Arriving":
        taken = torch.empty_like(sent)
        after, before = (self.rank + 1) % self.ranks, (self.rank - 1) % self.ranks
        works = dist.batch_isend_irecv(
            [
                dist.P2POp(dist.isend, sent, group=self.group, group_peer=after, tag=tag),
                dist.P2POp(dist.irecv, taken, group=self.group, group_peer=before, tag=tag),
            ]
        )
        return _Arriving(sent, taken, works)


@dataclass(frozen=True)
class _Arriving:
    """A tensor on its way here, and the one sent on for it, which must stay as it is until then."""

    sent: Tensor
    taken: Tensor
    works: list[Any]

    def wait(self) -> Tensor:
        for work in self.works:
            work.wait()
        return self.taken


class Gather:
    """All blocks come to all ranks in one all-gather, forward and again backward; gradients are reduce-scattered."""

    def __init__(self, rank: int, ranks: int, group: Any) -> None:
        self.rank, self.ranks, self.group = rank, ranks, group

    def pass_by(self, mine: Tensor) -> Iterator[tuple[int, Tensor]]:
        blocks = self._gathered(mine)
        yield self.rank, mine
        yield from ((source, block) for source, block in enumerate(blocks) if source != self.rank)

    def gradients(self, mine: Tensor, of: GradientOf) -> Tensor:
        given = torch.cat([of(source, block) for source, block in enumerate(self._gathered(mine))])
        if self.ranks == 1:
            return given
        summed = torch.empty_like(mine)
        dist.reduce_scatter_single(summed, given, group=self.group)
        return summed

    def _gathered(self, mine: Tensor) -> Tensor:
        if self.ranks == 1:
            return mine[None]
        blocks = mine.new_empty(self.ranks * mine.size(0), *mine.shape[1:])
        dist.all_gather_single(blocks, mine, group=self.group)
        return blocks.unflatten(0, (self.ranks, -1))


class BlockAttention(torch.autograd.Function):
    """Attention of a rank's queries to all tokens, whose keys and values `blocks` brings by."""

    @staticmethod
    def forward(
        context: Any, q_BATD: Tensor, k_BATD: Tensor, v_BATD: Tensor, share: Share, blocks: Blocks
    ) -> Tensor:
        """The answers, laid out with each token's heads together, as the matrix after attention reads them."""
        mixed_BATD = _zeros_by_token(q_BATD)
        log_sum_BAT = torch.full(q_BATD.shape[:-1], -torch.inf, dtype=torch.float32, device=q_BATD.device)
        for source, (k_block, v_block) in blocks.pass_by(torch.stack((k_BATD, v_BATD))):
            for queries, keys, is_causal in share.meetings(source):
                found = blockwise.attend(
                    q_BATD[:, :, queries], k_block[:, :, keys], v_block[:, :, keys], is_causal=is_causal
                )
                blockwise.merge(mixed_BATD[:, :, queries], log_sum_BAT[:, :, queries], *found)
        out_BATD = mixed_BATD.to(q_BATD.dtype)
        context.save_for_backward(q_BATD, k_BATD, v_BATD, out_BATD, log_sum_BAT)
        context.share, context.blocks = share, blocks
        return out_BATD

    @staticmethod
    def backward(context: Any, *of_outputs: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of this rank's queries, keys and values."""
        q_BATD, k_BATD, v_BATD, out_BATD, log_sum_BAT = context.saved_tensors
        out_gradient_BATD = of_outputs[0].float()
        shift_BAT = (out_gradient_BATD * out_BATD.float()).sum(dim=-1)
        q_gradient_BATD = torch.zeros_like(q_BATD, dtype=torch.float32)

        def gradient_of(source: int, block: Tensor) -> Tensor:
            gradient = torch.zeros_like(block)
            for queries, keys, is_causal in context.share.meetings(source):
                of_queries, of_keys, of_values = blockwise.gradients(
                    q_BATD[:, :, queries],
                    *block[:, :, :, keys],
                    is_causal=is_causal,
                    log_sum_BAT=log_sum_BAT[:, :, queries],
                    out_gradient_BATD=out_gradient_BATD[:, :, queries],
                    shift_BAT=shift_BAT[:, :, queries],
                )
                q_gradient_BATD[:, :, queries] += of_queries
                gradient[0, :, :, keys] = of_keys
                gradient[1, :, :, keys] = of_values
            return gradient

        k_gradient, v_gradient = context.blocks.gradients(torch.stack((k_BATD, v_BATD)), gradient_of)
        return q_gradient_BATD.to(q_BATD.dtype), k_gradient, v_gradient, None, None


def _zeros_by_token(like_BATD: Tensor) -> Tensor:
    """Float32 zeros of the same shape that lie in memory token by token."""
    batch, heads, tokens, width = like_BATD.shape
    return torch.zeros(batch, tokens, heads, width, dtype=torch.float32, device=like_BATD.device).transpose(
        1, 2
    )
