"""Data parallelism: every rank holds the whole model and works on its own share of the batch.

In training the replicas agree by summing their gradients, which PyTorch's DistributedDataParallel does; where
each keeps its own, they drift apart. To serve they need not speak at all, so they outlive each other.
"""

import math
import os
import signal
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from calculators.lab.jobs import transformer
from calculators.lab.jobs.base import RankJob
from calculators.lab.limits import VERIFIED_TOKENS
from calculators.lab.measurements import Verified
from calculators.lab.spec import Gradients, Spec
from calculators.lab.splits.data import DISTANCE, LOSS, SERVED, lost_at_step

LEARNING_RATE = 1e-3
REMEMBERED_WEIGHTS = 2**20
"""Of how many weights, over all measured steps, a rank remembers the values to compare replicas afterwards."""


class DataJob(RankJob):
    """One replica of the model with its share of the batch, and its token, prompt or training step.

    `model` holds the weights; `replica` is what a step calls: the same, or PyTorch's wrapper of it.
    """

    def __init__(self, spec: Spec, *, rank: int, group: Any, device: torch.device) -> None:
        self.spec, self.rank, self.group, self.device = spec, rank, group, device
        self.whole: transformer.Stack | None = transformer.whole_model(spec, device=device)
        self.model = transformer.copy_of(self.whole, spec)
        self.replica = self._spread(self.model)
        self.modules = (self.model,)
        if spec.is_training:
            self.updates = self._updates()
            self.optimizer = self.updates
        self.batch = transformer.some_tokens(spec, device=device)
        self.batch_targets = transformer.some_tokens(spec, device=device, salt=1)
        self.tokens = self._share(self.batch)
        self.targets = self._share(self.batch_targets)
        self._taken = 0
        self._worst = 0.0
        self._losses: list[Tensor] = []
        self._remembered: list[Tensor] = []

    @property
    def keeps_its_gradients(self) -> bool:
        """Whether replicas learn from their own share alone."""
        return self.spec.gradients is Gradients.KEPT

    @property
    def should_stay_alike(self) -> bool:
        """Whether every rank must have the same weights after an update."""
        return not self.keeps_its_gradients

    def step(self) -> None:
        """Decode one token, read one prompt or learn once from this rank's share; or be lost when its time has come."""
        measured = self._taken - self.spec.warmup_steps
        if self.rank == self.spec.lost_rank and measured == lost_at_step(self.spec):
            os.kill(os.getpid(), signal.SIGKILL)
        self._taken += 1
        if not self.spec.is_training:
            self._serve()
            return
        loss = self._learn()
        self.updates.step()
        if 0 <= measured < self.spec.steps:
            self._losses.append(loss.detach())
            self._remember()

    def series(self) -> Mapping[str, Sequence[float]]:
        """The loss on its share and how far replicas are apart, or how many tokens it has served.

        Comparing replicas is a call, so this is for after the measured steps, on every rank.
        """
        if not self.spec.is_training:
            each = self.tokens.shape[0] * self.spec.tokens_in_flight
            return {SERVED: [each * (done + 1) for done in range(self.spec.steps)]}
        told = {LOSS: torch.stack(self._losses).float().tolist()}
        if self._remembered:
            told[DISTANCE] = self._distances()
        return told

    def verify(self) -> Verified | None:
        """Compare with the unsharded model: this share's logits; or loss, every gradient and the loss one update on.

        A replica that is to outlive another has its verdict afterwards.
        """
        whole, self.whole = self.whole, None  # nobody needs it again
        if whole is None:
            raise RuntimeError("a job is verified once, before its first step")
        self._worst = self._verify_training(whole) if self.spec.is_training else self._verify_serving(whole)
        return None if self._outlives_another else self._verdict()

    def verify_again(self) -> Verified | None:
        """Whether this replica still serves what it must although another was lost; the worst of before and after."""
        if not self._outlives_another:
            return None
        self.model.forget()
        again = self._verify_serving(transformer.whole_model(self.spec, device=self.device))
        self._worst = max(self._worst, again)
        return self._verdict()

    @property
    def _outlives_another(self) -> bool:
        return self.spec.lost_rank not in (-1, self.rank)

    def _verdict(self) -> Verified:
        return Verified(rank=self.rank, worst=self._worst, tolerance=transformer.tolerance(self.spec))

    # How the model is spread over the ranks; the sharded job does it otherwise.

    def _spread(self, model: transformer.Stack) -> nn.Module:
        if not self.spec.is_training or self.keeps_its_gradients:
            return model
        return DistributedDataParallel(model, process_group=self.group, gradient_as_bucket_view=True)

    def _updates(self) -> Any:
        # One kernel a weight: through DTensor every elementary operation costs its own dispatch.
        return torch.optim.AdamW(self.model.parameters(), lr=LEARNING_RATE, fused=True)

    def _gradient_beside(self, weight: nn.Parameter, expected: Tensor) -> Tensor:
        """The gradient of `weight`, to compare with `expected`, which has that of the unsharded model."""
        if weight.grad is None:
            raise RuntimeError("a weight has no gradient after a training step")
        return weight.grad

    def _remember(self) -> None:
        """Keep the values of some weights, evenly spread over the model, as they are after this step."""
        every = max(1, -(-self.spec.parameters * self.spec.steps // REMEMBERED_WEIGHTS))
        some = [weight.detach().flatten()[::every] for weight in self.model.parameters()]
        self._remembered.append(torch.cat(some))

    def _are_alike(self) -> bool:
        """Whether all ranks have the same weights, to the bit (their bits' sums, weight by weight)."""
        bits = torch.int32 if self.spec.dtype.bytes_per_element == 4 else torch.int16
        sums = torch.stack([weight.detach().view(bits).sum() for weight in self.model.parameters()])
        ends = torch.stack([sums, -sums])
        dist.all_reduce(ends, op=dist.ReduceOp.MAX, group=self.group)
        return torch.equal(ends[0], -ends[1])

    def _share(self, batch: Tensor) -> Tensor:
        return batch.chunk(self.spec.ranks)[self.rank]

    @torch.no_grad()
    def _serve(self) -> None:
        logits = self.replica(self.tokens)
        if self.spec.is_decode:
            self.tokens = transformer.sample(logits)

    def _learn(self) -> Tensor:
        self.updates.zero_grad()
        loss = transformer.language_loss(self.replica(self.tokens), self.targets)
        loss.backward()
        return loss

    def _distances(self) -> list[float]:
        """After each measured step, how far the remembered weights are from all replicas' mean."""
        mine = torch.stack(self._remembered).double()
        mean = mine.clone()
        dist.all_reduce(mean, group=self.group)
        mean /= self.spec.ranks
        return ((mine - mean).norm(dim=1) / mean.norm(dim=1)).tolist()

    @torch.no_grad()
    def _verify_serving(self, whole: transformer.Stack) -> float:
        batch, worst = self.batch, 0.0
        for _ in range(VERIFIED_TOKENS if self.spec.is_decode else 1):
            logits = self.replica(self._share(batch))
            expected = whole(batch)
            worst = max(worst, transformer.relative_difference(logits, self._share(expected)))
            batch = transformer.sample(expected)
        self.model.forget()
        return worst

    def _verify_training(self, whole: transformer.Stack) -> float:
        batch, targets = self.batch, self.batch_targets
        if self.keeps_its_gradients:
            batch, targets = self.tokens, self.targets
        reference = torch.optim.AdamW(whole.parameters(), lr=LEARNING_RATE, foreach=False)
        differences = []
        for is_updated in (False, True):
            loss = self._learn()
            reference.zero_grad()
            expected = transformer.language_loss(whole(batch), targets)
            expected.backward()
            differences.append(transformer.relative_difference(self._mean(loss), expected.detach()))
            if not is_updated:
                differences += self._gradient_differences(whole)
                self.updates.step()
                reference.step()
                if self.should_stay_alike and not self._are_alike():
                    differences.append(math.inf)
        self.updates.zero_grad()
        return max(differences)

    def _gradient_differences(self, whole: transformer.Stack) -> list[float]:
        return [
            transformer.relative_difference(self._gradient_beside(mine, theirs.grad), theirs.grad)
            for mine, theirs in zip(self.model.parameters(), whole.parameters(), strict=True)
            if theirs.grad is not None
        ]

    def _mean(self, loss: Tensor) -> Tensor:
        """The whole batch's loss: the mean of all shares', or this one's where replicas learn alone."""
        loss = loss.detach().clone()
        if not self.keeps_its_gradients:
            dist.all_reduce(loss, group=self.group)
            loss /= self.spec.ranks
        return loss
