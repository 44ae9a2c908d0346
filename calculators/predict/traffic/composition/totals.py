"""What composed layouts move: of each axis, of the busiest rank, and of all ranks together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from calculators.predict.arrays import Floats, amounts, floats
from calculators.predict.shapes import Layouts, ModelShape, Phase
from calculators.predict.stages import check_stage
from calculators.predict.traffic.composition.shares import FAMILIES, Share
from calculators.predict.traffic.composition.stages import Has, stage_has
from calculators.predict.traffic.figures import Calls, Traffic


@dataclass(frozen=True, kw_only=True, eq=False)
class Composition:
    """What composed layouts move per token, prompt or step: a `Traffic` of every axis, and the totals.

    Of each axis, `calls` and `rounds` are those of all stages together, `handed_bytes` and `wire_bytes` of the busiest
    rank, `group_wire_bytes` of one group of each stage together. Arrays keep the shapes of the axes they depend on.
    """

    shape: ModelShape
    layouts: Layouts
    phase: Phase
    shares: tuple[Share, ...]
    control_bytes: Floats
    control_calls: Floats
    _stages: tuple[Has, ...] = field(repr=False)
    _all: Has = field(repr=False)

    @property
    def unit(self) -> str:
        """What the figures are counted for: token, prompt or step."""
        return self.phase.unit

    @cached_property
    def axes(self) -> dict[str, Traffic]:
        """Axis (tp, cp, pp, ep, etp, dp, edp) → its traffic. `dp` is gradients over dp·cp ranks."""
        return {axis: self._traffic(axis) for axis in FAMILIES}

    @cached_property
    def wire_bytes(self) -> Floats:
        """Bytes that the busiest rank sends on all axes together [bytes]."""
        return self._busiest("sent", self.shares)

    @cached_property
    def handed_bytes(self) -> Floats:
        """Bytes of the tensors that the busiest rank puts into its calls [bytes]."""
        return self._busiest("handed", self.shares)

    @cached_property
    def world_wire_bytes(self) -> Floats:
        """Bytes that all ranks send together [bytes]."""
        return _sum(self.world_wire_bytes_of(axis) for axis in FAMILIES)

    def world_wire_bytes_of(self, axis: str) -> Floats:
        """Bytes that all ranks send together on one axis [bytes]."""
        on_stage = floats(self.layouts.tp) * floats(self.layouts.cp) * floats(self.layouts.dp)
        return _sum(
            share.of_group * self._all.of(share.full) * (on_stage / (1 if axis == "pp" else share.ranks))
            for share in self.shares
            if share.axis == axis
        )

    @property
    def exchanges(self) -> Floats:
        """Calls of all axes and stages for one token, prompt or step, and the token's return."""
        return (
            _sum(self._all.of(share.calls) * (share.ranks > 1) for share in self.shares) + self.control_calls
        )

    def on_stage(self, stage: ArrayLike) -> Has:
        """What one stage has of the model."""
        given = amounts(stage=stage)["stage"]
        check_stage(given, floats(self.layouts.pp))
        return stage_has(self.shape, self.layouts, given)

    def _busiest(self, which: str, shares: tuple[Share, ...]) -> Floats:
        most = floats(0.0)
        for stage in self._stages:
            most = np.maximum(most, _sum(getattr(share, which) * stage.of(share.full) for share in shares))
        return most

    def _traffic(self, axis: str) -> Traffic:
        shares = tuple(share for share in self.shares if share.axis == axis)
        parts = tuple(self._calls(share) for share in shares)
        largest = floats(0.0)
        for part in parts:
            largest = np.maximum(largest, part.bytes_per_call)
        pipeline = axis == "pp"
        return Traffic(
            phase=self.phase,
            family=FAMILIES[axis],
            calls=_sum(part.calls for part in parts),
            bytes_per_call=largest,
            rounds=_sum(part.rounds for part in parts),
            handed_bytes=self._busiest("handed", shares),
            wire_bytes=self._busiest("sent", shares),
            group_wire_bytes=_sum(part.group_wire_bytes for part in parts),
            control_calls=self.control_calls if pipeline else floats(0.0),
            control_bytes=self.control_bytes if pipeline else floats(0.0),
            parts=parts,
        )

    def _calls(self, share: Share) -> Calls:
        calls, full = self._all.of(share.calls) * (share.ranks > 1), self._all.of(share.full)
        return Calls(
            kind=share.kind,
            algorithm=share.algorithm,
            what=share.what,
            ranks=share.ranks,
            calls=calls,
            full_bytes=full * (share.ranks > 1),
            rounds=calls * share.rounds,
            handed_bytes=self._busiest("handed", (share,)),
            wire_bytes=self._busiest("sent", (share,)),
            group_wire_bytes=full * share.of_group,
        )


def _sum(values: Iterable[Floats]) -> Floats:
    total = floats(0.0)
    for value in values:
        total = total + value
    return total
