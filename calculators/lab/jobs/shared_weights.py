"""What ranks that hold the same weights and saw different tokens do after a backward pass: sum their gradients."""

from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn


def sum_gradients(weights: Iterable[nn.Parameter], group: Any) -> None:
    """Add up each weight's gradient over the ranks of `group`, in one all-reduce of all of them end to end."""
    gradients = [weight.grad for weight in weights if weight.grad is not None]
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    dist.all_reduce(flat, group=group)
    sizes = [gradient.numel() for gradient in gradients]
    for gradient, summed in zip(gradients, flat.split(sizes), strict=True):
        gradient.copy_(summed.view_as(gradient))


def group_for_weights(ranks: Iterable[int]) -> Any:
    """A group of its own for that call, counted as data parallelism's; every rank of the run must make it."""
    group = dist.new_group(list(ranks))
    group.axis = "dp"
    return group
