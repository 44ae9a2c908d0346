"""Pipeline parallelism: every rank is a stage of consecutive layers; hidden states are sent at each boundary.

Decoding is autoregressive: the last stage samples, and the token ids go back to stage 0 before the next token
can start. Training cuts the batch into micro-batches and runs one of PyTorch's own schedules
(`torch.distributed.pipelining`).
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

from calculators.lab.jobs import transformer
from calculators.lab.jobs.base import RankJob
from calculators.lab.limits import VERIFIED_TOKENS
from calculators.lab.measurements import Verified
from calculators.lab.spec import Schedule, Spec

_SCHEDULES = {Schedule.GPIPE: ScheduleGPipe, Schedule.ONE_F_ONE_B: Schedule1F1B}


class PipelineJob(RankJob):
    """One stage of the model, and its decode or training step."""

    def __init__(self, spec: Spec, *, rank: int, group: Any, device: torch.device) -> None:
        self.spec, self.rank, self.group, self.device = spec, rank, group, device
        self.is_first, self.is_last = rank == 0, rank == spec.ranks - 1
        depth = spec.layers // spec.ranks
        self.whole: transformer.Stack | None = transformer.whole_model(spec, device=device)
        self.module = transformer.copy_of(self.whole, spec, range(rank * depth, (rank + 1) * depth))
        self.modules = (self.module,)
        self.optimizer = torch.optim.SGD(self.module.parameters(), lr=1e-3)
        self.tokens = transformer.some_tokens(spec, device=device)
        self.targets = transformer.some_tokens(spec, device=device, salt=1)
        stage = PipelineStage(
            self.module,
            rank,
            spec.ranks,
            device,
            # Stated shapes spare the schedule a trial run, which would fill the decode cache.
            input_args=_hidden_or(_ids(spec), spec, is_end=self.is_first),
            output_args=_hidden_or(_logits(spec), spec, is_end=self.is_last),
            group=group,
        )
        if spec.is_training:
            kind = _SCHEDULES[spec.schedule]
            self.schedule = kind(stage, spec.microbatches, loss_fn=transformer.language_loss)
        else:
            self.schedule = ScheduleGPipe(stage, 1)

    def step(self) -> None:
        """Decode one token of every sequence, or take one training step."""
        if self.spec.is_training:
            self._train()
            self.optimizer.step()
        else:
            self._return_tokens(self._decode())

    def verify(self) -> Verified | None:
        """Compare with the unsharded model: the last stage's logits of two tokens, or all gradients."""
        whole, self.whole = self.whole, None  # nobody needs it again
        if whole is None:
            raise RuntimeError("a job is verified once, before its first step")
        worst = self._verify_training(whole) if self.spec.is_training else self._verify_decode(whole)
        if not self.is_last and not self.spec.is_training:
            return None  # only the last stage has logits to compare
        return Verified(rank=self.rank, worst=worst, tolerance=transformer.tolerance(self.spec))

    @torch.no_grad()
    def _decode(self) -> Tensor | None:
        """Logits (B, 1, V) on the last stage."""
        return self.schedule.step(self.tokens) if self.is_first else self.schedule.step()

    def _return_tokens(self, logits: Tensor | None) -> None:
        """The last stage samples; stage 0 gets the ids, which are its next input."""
        if logits is not None and self.is_last:
            dist.send(transformer.sample(logits), group=self.group, group_dst=0)
        elif self.is_first:
            dist.recv(self.tokens, group=self.group, group_src=self.spec.ranks - 1)

    def _train(self) -> list[Tensor]:
        """One pass of all micro-batches, forward and backward; their losses on the last stage."""
        self.optimizer.zero_grad()
        losses: list[Tensor] = []
        given = (self.tokens,) if self.is_first else ()
        if self.is_last:
            self.schedule.step(*given, target=self.targets, losses=losses)
        else:
            self.schedule.step(*given)
        return losses

    @torch.no_grad()
    def _verify_decode(self, whole: transformer.Stack) -> float:
        first, tokens, worst = self.tokens.clone(), self.tokens.clone(), 0.0
        for _ in range(VERIFIED_TOKENS):
            logits = self._decode()
            expected = whole(tokens)
            if logits is not None and self.is_last:
                worst = max(worst, transformer.relative_difference(logits, expected))
            self._return_tokens(logits)
            tokens = transformer.sample(expected)
            self.tokens.copy_(tokens)
        self.tokens = first
        self.module.forget()
        return worst

    def _verify_training(self, whole: transformer.Stack) -> float:
        losses = self._train()
        expected = transformer.language_loss(whole(self.tokens), self.targets)
        expected.backward()
        differences = [0.0]
        if self.is_last:
            loss = torch.stack([loss.detach() for loss in losses]).mean()
            differences.append(transformer.relative_difference(loss, expected.detach()))
        theirs = dict(whole.named_parameters())
        for name, mine in self.module.named_parameters():
            wanted = theirs[name].grad
            if mine.grad is None or wanted is None:
                raise RuntimeError(f"{name} has no gradient after a training step")
            differences.append(transformer.relative_difference(mine.grad, wanted))
        self.optimizer.zero_grad()
        return max(differences)


def _ids(spec: Spec) -> Tensor:
    """The shape of what stage 0 reads, one micro-batch of it."""
    return torch.empty(
        spec.batch // spec.microbatches, spec.tokens_in_flight, dtype=torch.int64, device="meta"
    )


def _logits(spec: Spec) -> Tensor:
    """The shape of what the last stage gives."""
    return _floats(spec, spec.vocab_size)


def _hidden_or(end: Tensor, spec: Spec, *, is_end: bool) -> Tensor:
    """The hidden state that crosses a boundary, or `end` where there is no boundary."""
    return end if is_end else _floats(spec, spec.hidden_size).requires_grad_(spec.is_training)


def _floats(spec: Spec, width: int) -> Tensor:
    sequences = spec.batch // spec.microbatches
    kind = getattr(torch, spec.dtype.value)
    return torch.empty(sequences, spec.tokens_in_flight, width, dtype=kind, device="meta")
