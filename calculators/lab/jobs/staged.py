"""What jobs with a pipeline in them share: stages to hold, ways to step through them, and their proof."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from calculators.lab.jobs import transformer
from calculators.lab.jobs.base import RankJob
from calculators.lab.jobs.decoding import Ring
from calculators.lab.jobs.scheduled import Pipeline
from calculators.lab.measurements import Verified
from calculators.lab.spec import Spec
from calculators.lab.splits.stages import Stages


class StagedJob(RankJob):
    """The stages of one rank, and their part of a token, a prompt or a training step.

    `rank` is its number in the whole run, `modules` are the stages that rank `place` of `group` holds, `whole` the
    model that they are compared with, and `rows` the sequences of the batch that this pipeline works on.
    """

    rank: int

    def _hold(
        self,
        spec: Spec,
        whole: transformer.Stack,
        modules: Sequence[transformer.Stack],
        *,
        stages: Stages,
        place: int,
        rows: slice,
        group: Any,
        device: torch.device,
    ) -> None:
        self.spec, self.modules, self.rows = spec, modules, rows
        self.whole: transformer.Stack | None = whole
        self.is_last = stages.rank_of(stages.last) == place
        weights = [weight for module in modules for weight in module.parameters()]
        self.optimizer = torch.optim.SGD(weights, lr=1e-3, foreach=False)
        self.all_tokens = transformer.some_tokens(spec, device=device)
        self.all_targets = transformer.some_tokens(spec, device=device, salt=1)
        # Copies: autograd would keep the whole batch for a view of some rows.
        self.tokens, self.targets = self.all_tokens[rows].clone(), self.all_targets[rows].clone()
        self.ring: Ring | None = None
        if spec.is_decode:
            (stage,) = modules
            self.ring = Ring(spec, stage, self.tokens, place=place, ranks=stages.ranks, group=group)
        else:
            self.pipeline = Pipeline(
                spec, modules, stages, place=place, sequences=len(self.tokens), group=group, device=device
            )

    def step(self) -> None:
        """Decode one token of every request, read the prompts, or take one training step."""
        if self.ring is not None:
            self.ring.step()
        elif self.spec.is_training:
            self._train()
            self.optimizer.step()
        else:
            self.pipeline.forward(self.tokens)

    def verify(self) -> Verified | None:
        """Compare with the unsharded model: logits on the last stage or, in training, loss and all gradients."""
        whole, self.whole = self.whole, None  # nobody needs it again
        if whole is None:
            raise RuntimeError("a job is verified once, before its first step")
        if self.spec.is_training:
            worst: float | None = self._verify_training(whole)
        elif self.ring is not None:
            worst = self.ring.verify(whole)
        else:
            worst = self._verify_prefill(whole)
        if worst is None:
            return None  # only the last stage has logits to compare
        return Verified(rank=self.rank, worst=worst, tolerance=transformer.tolerance(self.spec))

    def series(self) -> Mapping[str, Sequence[float]]:
        """In decode, on the first stage: what a request waits for a token, and what all requests get together."""
        return {} if self.ring is None else self.ring.series(self.spec.steps)

    def _train(self) -> list[Tensor]:
        """Fresh gradients of all micro-batches; their losses on the last stage."""
        self.optimizer.zero_grad()
        losses = self.pipeline.train(self.tokens, self.targets)
        self._combine_gradients()
        return losses

    def _combine_gradients(self) -> None:
        """What comes between the backward pass and the optimizer: nothing where nobody else has these weights."""

    def _difference(self, mine: Tensor, wanted: Tensor) -> float:
        """How far this rank's gradient `mine` is from the unsharded one."""
        return transformer.relative_difference(mine, wanted)

    @torch.no_grad()
    def _verify_prefill(self, whole: transformer.Stack) -> float | None:
        logits = self.pipeline.forward(self.tokens)
        return None if logits is None else transformer.relative_difference(logits, whole(self.tokens))

    def _verify_training(self, whole: transformer.Stack) -> float:
        losses = self._train()
        logits = whole(self.all_tokens)
        transformer.language_loss(logits, self.all_targets).backward()
        differences = [0.0]
        if self.is_last:
            expected = transformer.language_loss(logits[self.rows], self.targets)
            loss = torch.stack([loss.detach() for loss in losses]).mean()
            differences.append(transformer.relative_difference(loss, expected.detach()))
        theirs = dict(whole.named_parameters())
        for module in self.modules:
            for name, mine in module.named_parameters():
                wanted = theirs[name].grad
                if mine.grad is None or wanted is None:
                    raise RuntimeError(f"{name} has no gradient after a training step")
                differences.append(self._difference(mine.grad, wanted))
        self.optimizer.zero_grad()
        return max(differences)
