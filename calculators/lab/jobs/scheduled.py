"""Prefill and training through the stages of a pipeline, in the order of one of PyTorch's own schedules.

`torch.distributed.pipelining` cuts the batch into micro-batches, sends hidden states and gradients, and decides what
each rank does next. Forward alone, a schedule's backward actions do nothing.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
    ScheduleLoopedBFS,
    ScheduleZBVZeroBubble,
)
from torch.distributed.pipelining.schedules import _ComputationType

from calculators.lab.jobs import transformer
from calculators.lab.spec import Schedule, Spec
from calculators.lab.splits.stages import Stages

_ONE_STAGE = {Schedule.GPIPE: ScheduleGPipe, Schedule.ONE_F_ONE_B: Schedule1F1B}
_CHUNKED = {
    Schedule.INTERLEAVED: ScheduleInterleaved1F1B,
    Schedule.LOOPED_BFS: ScheduleLoopedBFS,
    Schedule.INTERLEAVED_ZERO_BUBBLE: ScheduleInterleavedZeroBubble,
    Schedule.ZBV: ScheduleZBVZeroBubble,
}
_BACKWARD = (
    _ComputationType.FULL_BACKWARD,
    _ComputationType.BACKWARD_INPUT,
    _ComputationType.BACKWARD_WEIGHT,
)


class Pipeline:
    """The stages that rank `place` of `group` holds, as `modules` in the order of `stages`, and their schedule.

    A step takes `sequences` sequences, all of them whether or not this rank has an end of the model.
    """

    def __init__(
        self,
        spec: Spec,
        modules: Sequence[transformer.Stack],
        stages: Stages,
        *,
        place: int,
        sequences: int,
        group: Any,
        device: torch.device,
    ) -> None:
        self.has_first, self.has_last = stages.rank_of(0) == place, stages.rank_of(stages.last) == place
        shapes = _Shapes(spec, sequences // spec.microbatches)
        held = [
            PipelineStage(
                module,
                number,
                stages.number,
                device,
                # Stated shapes spare the schedule a trial run of each stage.
                input_args=shapes.ids() if number == 0 else shapes.hidden(),
                output_args=shapes.logits() if number == stages.last else shapes.hidden(),
                group=group,
            )
            for number, module in zip(stages.on(place), modules, strict=True)
        ]
        loss = transformer.language_loss if spec.is_training else None
        self._schedule: Any
        if spec.schedule.has_chunks:
            self._schedule = _CHUNKED[spec.schedule](held, spec.microbatches, loss_fn=loss)
            if loss is None:
                for kind in _BACKWARD:
                    self._schedule.register_custom_function(kind, _no_backward)
        else:  # forward alone, 1F1B does what GPipe does
            kind_of = _ONE_STAGE[spec.schedule if spec.is_training else Schedule.GPIPE]
            self._schedule = kind_of(held[0], spec.microbatches, loss_fn=loss)

    @torch.no_grad()
    def forward(self, tokens: Tensor) -> Tensor | None:
        """Logits (B, T, V) of all micro-batches, on the rank that holds the last stage."""
        logits: Tensor | None = self._schedule.step(*self._given(tokens))
        return logits

    def train(self, tokens: Tensor, targets: Tensor) -> list[Tensor]:
        """All micro-batches forward and backward; their losses on the rank that holds the last stage."""
        losses: list[Tensor] = []
        last = {"target": targets, "losses": losses} if self.has_last else {}
        self._schedule.step(*self._given(tokens), **last, return_outputs=False)
        return losses

    def _given(self, tokens: Tensor) -> tuple[Tensor, ...]:
        return (tokens,) if self.has_first else ()


def _no_backward(action: Any, context: Any) -> None:
    """Forward alone: forget that the schedule looked for a gradient, of which there is none."""
    context.schedule_ref.bwd_recv_ops.pop((action.stage_index, action.microbatch_index), None)


class _Shapes:
    """What enters and leaves stages, one micro-batch of it, as tensors without contents."""

    def __init__(self, spec: Spec, sequences: int) -> None:
        self._spec, self._shape = spec, (sequences, spec.tokens_in_flight)

    def ids(self) -> Tensor:
        return torch.empty(*self._shape, dtype=torch.int64, device="meta")

    def hidden(self) -> Tensor:
        return self._floats(self._spec.hidden_size).requires_grad_(self._spec.is_training)

    def logits(self) -> Tensor:
        return self._floats(self._spec.vocab_size)

    def _floats(self, width: int) -> Tensor:
        return torch.empty(*self._shape, width, dtype=getattr(torch, self._spec.dtype.value), device="meta")
