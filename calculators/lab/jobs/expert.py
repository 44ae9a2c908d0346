"""Expert parallelism: every rank holds some of each layer's experts, and all the rest of the model.

Each rank works on its own share of the batch, as a replica would; only where a token visits experts does it
travel to them, and the answers come home (`mixture`). The choice of experts is drawn from the seed.

In training an expert's gradients are whole where it lives, since every token that visited it came there. The
other weights are on all ranks, each with the gradients of its own tokens, and these are summed.

With one expert the model is dense: every rank has the whole of it, and nothing travels forward.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from calculators.lab.jobs import mixture, transformer
from calculators.lab.jobs.base import RankJob
from calculators.lab.jobs.shared_weights import group_for_weights, sum_gradients
from calculators.lab.limits import VERIFIED_TOKENS
from calculators.lab.measurements import Verified
from calculators.lab.spec import Spec
from calculators.lab.splits.routing import DROPPED, RECEIVED, routing_of

"""What a rank follows: copies of tokens that its experts computed, and copies of its own tokens that found no place."""


class ExpertJob(RankJob):
    """One rank's experts and share of the batch, and its token, prompt or training step."""

    def __init__(self, spec: Spec, *, rank: int, group: Any, device: torch.device) -> None:
        self.spec, self.rank, self.group = spec, rank, group
        self.whole: transformer.Stack | None = whole_model(spec, device=device)
        self.model = self._part(self.whole)
        self.mixtures = mixture.mixtures(self.model)
        self.modules = (self.model,)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3, foreach=False)
        experts = {id(weight) for weight in mixture.expert_weights(self.model)}
        self.everywhere = [weight for weight in self.model.parameters() if id(weight) not in experts]
        self.sums = spec.is_training and spec.ranks > 1
        self.weights_group = group_for_weights(range(spec.ranks)) if self.sums else None
        self.all_tokens = transformer.some_tokens(spec, device=device)
        self.all_targets = transformer.some_tokens(spec, device=device, salt=1)
        self.tokens, self.targets = self._mine(self.all_tokens), self._mine(self.all_targets)
        self._received: list[float] = []
        self._dropped: list[float] = []

    def step(self) -> None:
        """Decode one token of every sequence, read the prompts, or take one training step."""
        before = self._counted()
        if self.spec.is_training:
            self._train()
            self.optimizer.step()
        elif self.spec.is_decode:
            self.tokens = transformer.sample(self._forward())
        else:
            self._forward()
        received, sent = (now - then for now, then in zip(self._counted(), before, strict=True))
        wanted = self.spec.top_k * self.tokens.numel()
        layers = max(1, len(self.mixtures))
        self._received.append(received / layers)
        self._dropped.append(wanted - sent / layers)

    def series(self) -> Mapping[str, Sequence[float]]:
        """What came to its experts and what was dropped of its tokens, in one layer."""
        if not self.mixtures:
            return {}
        measured = slice(-self.spec.steps, None)
        return {RECEIVED: self._received[measured], DROPPED: self._dropped[measured]}

    def verify(self) -> Verified:
        """Compare with the unsharded model: its own sequences' logits, or the loss and every gradient it has."""
        whole, self.whole = self.whole, None  # nobody needs it again
        if whole is None:
            raise RuntimeError("a job is verified once, before its first step")
        if self.spec.is_training:
            worst = self._verify_training(whole)
        else:
            worst = self._verify_forward(whole, times=VERIFIED_TOKENS if self.spec.is_decode else 1)
        return Verified(rank=self.rank, worst=worst, tolerance=transformer.tolerance(self.spec))

    def _part(self, whole: transformer.Stack) -> transformer.Stack:
        """Of the model with all experts what this rank holds."""
        if not self.spec.has_experts:
            return transformer.copy_of(whole, self.spec)
        return mixture.copy_of(whole, self.spec, routing_of(self.spec), rank=self.rank, group=self.group)

    def _mine(self, whole: Tensor) -> Tensor:
        """This rank's sequences, in memory of their own."""
        return whole.chunk(self.spec.ranks)[self.rank].clone()

    def _counted(self) -> tuple[int, int]:
        """Copies received by the experts here, and sent from here, so far."""
        return sum(m.received for m in self.mixtures), sum(m.dispatched for m in self.mixtures)

    @torch.no_grad()
    def _forward(self) -> Tensor:
        return self.model(self.tokens)

    def _train(self) -> Tensor:
        """One pass forward and backward; the loss is this rank's part of the mean over the whole batch."""
        self.optimizer.zero_grad()
        loss = transformer.language_loss(self.model(self.tokens), self.targets) / self.spec.ranks
        loss.backward()
        if self.sums:
            self._sum_gradients()
        return loss.detach()

    def _sum_gradients(self) -> None:
        """Of the weights that other ranks hold as well; an expert's gradients are whole where it lives."""
        sum_gradients(self.everywhere, self.weights_group)

    @torch.no_grad()
    def _verify_forward(self, whole: transformer.Stack, *, times: int) -> float:
        first, everybodys, worst = self.tokens, self.all_tokens, 0.0
        for _ in range(times):
            expected = whole(everybodys)
            worst = max(worst, transformer.relative_difference(self._forward(), self._mine(expected)))
            everybodys = transformer.sample(expected)
            self.tokens = self._mine(everybodys)
        self.tokens = first
        self.model.forget()
        return worst

    def _verify_training(self, whole: transformer.Stack) -> float:
        loss = self._train()
        if self.sums:
            dist.all_reduce(loss, group=self.weights_group)
        expected = transformer.language_loss(whole(self.all_tokens), self.all_targets)
        expected.backward()
        differences = [transformer.relative_difference(loss, expected.detach())]
        theirs = dict(whole.named_parameters())
        for name, mine in self.model.named_parameters():
            wanted = theirs[name].grad
            if mine.grad is None or wanted is None:
                raise RuntimeError(f"{name} has no gradient after a training step")
            differences.append(transformer.relative_difference(mine.grad, wanted))
        self.optimizer.zero_grad()
        return max(differences)


def whole_model(spec: Spec, *, device: torch.device) -> transformer.Stack:
    """The unsharded model with all experts; the same spec gives every rank the same weights."""
    whole = transformer.whole_model(spec, device=device)
    if spec.has_experts:
        mixture.mix(whole, spec, routing_of(spec).on_one_rank())
        whole.to(device)
    return whole
