"""Sequence parallelism: what tensor-parallel ranks exchange when each holds its own tokens between the blocks.

A block needs all tokens, so they are all-gathered before its first matrix; its partial sums are reduce-scattered,
which sums them and leaves each rank its tokens. Each is the other's way back. An all-reduce is the two after one
another, so forward the same bytes move as without it.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import functional as F


def columns(tokens_BTH: Tensor, weight: Tensor, group: Any) -> Tensor:
    """All ranks' tokens times the columns of this rank; the gathered tokens are kept for the backward pass."""
    return F.linear(_Gather.apply(tokens_BTH, group), weight)


def columns_gathering_again(tokens_BTH: Tensor, weight: Tensor, group: Any) -> Tensor:
    """The same, keeping this rank's tokens only: the backward pass gathers the others' once more (Megatron-LM)."""
    return _GatheredColumns.apply(tokens_BTH, weight, group)


def rows(x: Tensor, weight: Tensor, group: Any) -> Tensor:
    """This rank's tokens of the sum over all ranks of `x` times the rows of each."""
    return _Scatter.apply(F.linear(x, weight), group)


def own_tokens(ids_BT: Tensor, group: Any) -> Tensor:
    """The tokens that this rank holds between the blocks, in memory of their own."""
    return ids_BT.chunk(group.size(), dim=1)[group.rank()].clone()


def _gathered(shard: Tensor, group: Any) -> Tensor:
    ranks = shard.new_empty(group.size(), *shard.shape)
    dist.all_gather_single(ranks.flatten(0, 1), shard.contiguous(), group=group)
    return ranks.movedim(0, 1).flatten(1, 2)


def _scattered(partial: Tensor, group: Any) -> Tensor:
    ranks = partial.unflatten(1, (group.size(), -1)).movedim(1, 0).contiguous()
    shard = torch.empty_like(ranks[0])
    dist.reduce_scatter_single(shard, ranks.flatten(0, 1), group=group)
    return shard


class _Gather(torch.autograd.Function):
    """All tokens from each rank's; back, the summed gradient of this rank's tokens."""

    @staticmethod
    def forward(ctx: Any, shard: Tensor, group: Any) -> Tensor:
        ctx.group = group
        return _gathered(shard, group)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return _scattered(gradients[0], ctx.group), None


class _Scatter(torch.autograd.Function):
    """The summed tokens of this rank from each rank's partial sums; back, the gradient of all tokens."""

    @staticmethod
    def forward(ctx: Any, partial: Tensor, group: Any) -> Tensor:
        ctx.group = group
        return _scattered(partial, group)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return _gathered(gradients[0], ctx.group), None


class _GatheredColumns(torch.autograd.Function):
    """Gather and multiply in one, so that nothing gathered is kept between forward and backward."""

    @staticmethod
    def forward(ctx: Any, shard: Tensor, weight: Tensor, group: Any) -> Tensor:
        ctx.group = group
        ctx.save_for_backward(shard, weight)
        return F.linear(_gathered(shard, group), weight)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        shard, weight = ctx.saved_tensors
        (gradient,) = gradients
        everything = _gathered(shard, ctx.group)
        of_weight = gradient.flatten(0, 1).t() @ everything.flatten(0, 1)
        return _scattered(gradient @ weight, ctx.group), of_weight, None
