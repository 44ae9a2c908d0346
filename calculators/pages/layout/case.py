"""One composed layout at work, and all that is calculated of it.

Every figure is that of `calculators.predict`, with the arguments that the planner gives it, so that a layout has the
same numbers on every page.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from calculators.pages.layout.moved import Moved, Part
from calculators.pages.layout.words import AXIS_NAMES, describe
from calculators.predict.arrays import Floats, floats
from calculators.predict.clusters import Cluster
from calculators.predict.collectives import TEXTBOOK, Backend
from calculators.predict.implementations import MEGATRON
from calculators.predict.memory import MIXED_ADAM, Memory, Optimizer, serving_memory, training_memory
from calculators.predict.rules import Case as RulesCase
from calculators.predict.rules import Violation, violations
from calculators.predict.rules.table import Kind as RuleKind
from calculators.predict.shapes import Layout, Layouts, ModelShape, Phase, Recompute
from calculators.predict.timing import StepTime, decode_step, prefill, training_step
from calculators.predict.traffic import Composition, composed


@dataclass(frozen=True, kw_only=True)
class LayoutCase:
    """A model in one layout on a cluster, and what it is to do.

    tokens       length of a sequence; in decode, of the context that each has by then
    batch        sequences: of a step in training, else in flight on the whole cluster
    reserve      memory of a device that nothing here accounts for [bytes]
    uneven_stages  whether stages may differ by a layer

    Sequence parallelism is off in decode; ZeRO, chunks, micro-batches and recomputation belong to training. What the
    layout says of them then is for the caller to leave out.
    """

    shape: ModelShape
    cluster: Cluster
    layout: Layout
    phase: Phase
    tokens: int
    batch: int
    micro_batch: int = 1
    recompute: Recompute = Recompute.NONE
    optimizer: Optimizer = MIXED_ADAM
    reserve: float = 0.0
    uneven_stages: bool = False
    backend: Backend = TEXTBOOK

    @property
    def is_training(self) -> bool:
        return self.phase is Phase.TRAINING

    @cached_property
    def layouts(self) -> Layouts:
        """The same for the functions that take many. A prompt is read in one pass with all others of its replica."""
        at_once = self.sequences_of_a_replica if self.phase is Phase.PREFILL else self.micro_batch
        return Layouts.of(self.layout, micro_batch=at_once, recompute=self.recompute)

    @property
    def sequences_of_a_replica(self) -> int:
        """Sequences of the replica that has most."""
        return -(-self.batch // self.layout.dp)

    @property
    def micro_batches(self) -> float:
        """Of one replica in a step of training."""
        return self.batch / (self.layout.dp * self.micro_batch)

    @property
    def makes_whole_replicas(self) -> bool:
        """Whether the devices do; otherwise dp is what fits and the rest is idle."""
        return self.layout.world_size == self.cluster.devices

    @property
    def gradient_bytes(self) -> float:
        """Of each gradient on its way between replicas."""
        return self.optimizer.exchanged_gradient_bytes

    @cached_property
    def rules(self) -> tuple[Violation, ...]:
        """Everything that the rules say against it, advice and notes included."""
        return violations(
            RulesCase(
                shape=self.shape,
                layouts=self.layouts
                if self.phase is not Phase.PREFILL
                else Layouts.of(self.layout, micro_batch=self.micro_batch, recompute=self.recompute),
                phase=self.phase,
                tokens=None if self.phase is Phase.DECODE else self.tokens,
                batch=self.batch if self.is_training and self.makes_whole_replicas else None,
                devices=self.cluster.devices,
                devices_per_host=self.cluster.devices_per_host,
                uneven_stages=self.uneven_stages,
            )
        )

    @cached_property
    def broken(self) -> tuple[Violation, ...]:
        """The rules that it breaks: where there are any, its figures mean nothing."""
        return tuple(each for each in self.rules if each.kind is RuleKind.REFUSED)

    @property
    def remarks(self) -> tuple[Violation, ...]:
        """What is allowed and yet worth saying."""
        return tuple(each for each in self.rules if each.kind is not RuleKind.REFUSED)

    @cached_property
    def asked(self) -> dict[str, Any]:
        """The arguments of `composed`, but for the model."""
        more: dict[str, Any] = {} if self.backend is TEXTBOOK else {"backend": self.backend}
        if self.is_training and self.gradient_bytes != 2:  # what `composed` takes unasked
            more["gradient_bytes_per_element"] = self.gradient_bytes
        return {
            "layouts": self.layouts,
            "phase": self.phase,
            "tokens": self.tokens,
            "batch": self.batch if self.is_training else self.sequences_of_a_replica,
            **more,
        }

    @cached_property
    def composition(self) -> Composition:
        """What every axis moves for each token, prompt or step."""
        return composed(self.shape, **self.asked)

    @cached_property
    def axes(self) -> dict[str, Moved]:
        """Axis → its traffic, of those on which anything moves."""
        stages = np.arange(self.layout.pp)
        has = self.composition.on_stage(stages)
        on_each = np.zeros(self.layout.pp)  # what all stages have alike is a number
        found: dict[str, list[Part]] = {}
        for share in self.composition.shares:
            calls = float((has.of(share.calls) + on_each).sum())
            if share.ranks <= 1 or not calls:
                continue
            part = Part(share=share, calls=calls, full=has.of(share.full) + on_each)
            found.setdefault(share.axis, []).append(part)
        return {axis: Moved(parts=tuple(found[axis])) for axis in AXIS_NAMES if axis in found}

    @cached_property
    def memory(self) -> Memory:
        """What the fullest device holds."""
        if self.is_training:
            return training_memory(
                self.shape,
                self.layouts,
                tokens=self.tokens,
                micro_batches=self.micro_batches,
                optimizer=self.optimizer,
            )
        return serving_memory(
            self.shape, self.layouts, batch=self.sequences_of_a_replica, context_tokens=self.tokens
        )

    @cached_property
    def time(self) -> StepTime:
        """What a step, a token or the prompts wait for."""
        if self.is_training:
            program = replace(MEGATRON, gradient_bytes=self.gradient_bytes)  # as the planner does
            return training_step(
                self.shape,
                self.layouts,
                self.cluster,
                tokens=self.tokens,
                batch=self.batch,
                implementation=program,
            )
        if self.phase is Phase.DECODE:
            return decode_step(
                self.shape,
                self.layouts,
                self.cluster,
                batch=self.sequences_of_a_replica,
                context_tokens=self.tokens,
            )
        return prefill(
            self.shape, self.layouts, self.cluster, tokens=self.tokens, batch=self.sequences_of_a_replica
        )

    @cached_property
    def seconds(self) -> float:
        """Of one step, one token of every sequence, or all prompts."""
        return float(self.time.total)

    @property
    def tokens_per_second(self) -> float:
        """Of the whole cluster."""
        return self.batch * (1 if self.phase is Phase.DECODE else self.tokens) / self.seconds

    @property
    def memory_bytes(self) -> float:
        """On the fullest device."""
        return float(self.memory.total)

    @property
    def limit_bytes(self) -> float:
        """Of a device, without the reserve."""
        return self.cluster.device.memory_bytes - self.reserve

    @property
    def fits(self) -> bool:
        return self.memory_bytes <= self.limit_bytes

    @cached_property
    def sent_by_stage(self) -> Floats:
        """Bytes that the busiest rank of each stage sends on all axes together, (stages,)."""
        return floats(sum((moved.sent for moved in self.axes.values()), np.zeros(self.layout.pp)))

    @property
    def sent_bytes(self) -> float:
        """Bytes that the busiest rank sends on all axes together: `composition.wire_bytes`."""
        return float(self.sent_by_stage.max())

    @property
    def handed_bytes(self) -> float:
        """Bytes of the tensors that the busiest rank puts into its calls: `composition.handed_bytes`."""
        return float(sum((moved.handed for moved in self.axes.values()), np.zeros(self.layout.pp)).max())

    @property
    def says(self) -> str:
        """The layout in a few words."""
        sizes = {name: float(value) for name, value in vars(self.layout).items()}
        more = {"micro_batch": float(self.micro_batch), "recompute": float(self.recompute)}
        return describe(sizes | more | {"micro_batches": self.micro_batches if self.is_training else 1.0})
