"""A mixture of experts whose experts live on several ranks: tokens go to them, and answers come home.

Tensor names end in their shape: B sequences, T tokens of each, N all of them, C copies, E experts, H hidden.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed._functional_collectives import all_to_all_single, wait_tensor

from calculators.lab.jobs.transformer import FeedForward, Stack
from calculators.lab.spec import Spec
from calculators.lab.splits.routing import Routing


class MixtureOfExperts(nn.Module):
    """A feed-forward block of which a token visits some experts: those of `rank` are here, the others over `group`.

    `routing` says which: the choice is given, not made here, so that what moves is known before. How much an answer
    counts, the gate, is the router's: a softmax over all experts, which learns.

    How many copies go where follows from `routing`, which every rank knows. Where the router chooses, ranks first
    tell each other the counts, in a small all-to-all that is not needed here.
    """

    def __init__(self, spec: Spec, routing: Routing, *, rank: int = 0, group: Any = None) -> None:
        super().__init__()
        self.router = nn.Linear(spec.hidden_size, routing.experts, bias=False)
        self.experts = nn.ModuleDict({str(number): FeedForward(spec) for number in routing.experts_of(rank)})
        self.group, self.ranks = group, routing.ranks
        self.dispatched, self.received = 0, 0
        """Copies that left for experts so far, and that came to those here, the rank's own tokens' among both."""
        counts = routing.counts()
        self.sent, self.taken = list(counts[rank]), [row[rank] for row in counts]
        copies, arrivals = routing.copies_of(rank), routing.arrivals_at(rank)
        self.loads = list(arrivals.loads)
        for name, places in {
            "token_of_C": copies.tokens,
            "expert_of_C": copies.experts,
            "by_expert_C": arrivals.by_expert,
            "by_source_C": arrivals.by_expert.argsort(),
        }.items():
            self.register_buffer(name, torch.from_numpy(places), persistent=False)

    def forward(self, x_BTH: Tensor) -> Tensor:
        """Each token's answers, weighted by its gates; a token whose copies were all dropped gets zeros."""
        x_NH = x_BTH.flatten(0, 1)
        gates_NE = self.router(x_NH).float().softmax(dim=-1).to(x_NH.dtype)
        gates_C = gates_NE[self.token_of_C, self.expert_of_C]
        copies_CH = x_NH[self.token_of_C]
        arrived_CH = self._exchange(copies_CH, self.taken, self.sent)
        self.dispatched += len(copies_CH)
        self.received += len(arrived_CH)
        answers_CH = self._exchange(self._answers(arrived_CH), self.sent, self.taken)
        weighed_CH = answers_CH * gates_C[:, None]
        # Unlike index_add it does not keep what it adds for the backward pass.
        mixed_NH = torch.zeros_like(x_NH).scatter_add(
            0, self.token_of_C[:, None].expand_as(weighed_CH), weighed_CH
        )
        return mixed_NH.view_as(x_BTH)

    def _answers(self, arrived_CH: Tensor) -> Tensor:
        """What the experts here make of the copies that arrived, in the order in which these arrived."""
        for_each = arrived_CH[self.by_expert_C].split(self.loads)
        answers = [expert(rows_CH) for expert, rows_CH in zip(self.experts.values(), for_each, strict=True)]
        return torch.cat(answers)[self.by_source_C]

    def _exchange(self, rows_CH: Tensor, taken: Sequence[int], sent: Sequence[int]) -> Tensor:
        """Rows to their ranks, and in the backward pass their gradients back."""
        if self.ranks == 1:
            return rows_CH
        return wait_tensor(all_to_all_single(rows_CH, list(taken), list(sent), self.group))


def mix(stack: Stack, spec: Spec, routing: Routing, *, rank: int = 0, group: Any = None) -> None:
    """Put a mixture of experts in the place of each layer's feed-forward block."""
    weight = next(stack.parameters())
    for layer in stack.layers.values():
        with weight.device:
            mixture = MixtureOfExperts(spec, routing, rank=rank, group=group)
        layer.feed_forward = mixture.to(dtype=weight.dtype)


def copy_of(whole: Stack, spec: Spec, routing: Routing, *, rank: int, group: Any) -> Stack:
    """The rank's part of a model that has all experts: everything else, and those that live there."""
    with torch.device("meta"):
        mine = Stack(spec)
    mix(mine, spec, routing, rank=rank, group=group)
    mine.load_state_dict(
        {name: value.clone() for name, value in whole.state_dict().items() if name in mine.state_dict()},
        assign=True,
    )
    return mine.to(next(whole.parameters()).device)


def mixtures(stack: Stack) -> list[MixtureOfExperts]:
    """The mixtures of its layers, in order."""
    return [module for module in stack.modules() if isinstance(module, MixtureOfExperts)]


def expert_weights(stack: Stack) -> list[nn.Parameter]:
    """The weights that only some ranks have."""
    return [weight for mixture in mixtures(stack) for weight in mixture.experts.parameters()]
