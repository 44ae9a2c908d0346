"""The layouts that are composed, as arrays, with what several axes' calls are made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from calculators.predict.arrays import Floats, floats
from calculators.predict.collectives import Backend, Kind
from calculators.predict.shapes import ModelShape, Phase, Recompute, activation_bytes
from calculators.predict.traffic.composition.shares import Share


@dataclass(frozen=True, kw_only=True, eq=False)
class Case:
    """One call's arguments as arrays, and how a share is made from them."""

    shape: ModelShape
    axes: Mapping[str, Floats]
    more: Mapping[str, Floats]
    widths: Mapping[str, Floats]
    phase: Phase
    backend: Backend
    b: Floats  # sequences of a micro-batch
    s: Floats  # tokens of each on one rank
    m: Floats  # micro-batches

    @property
    def training(self) -> bool:
        return self.phase == Phase.TRAINING

    @cached_property
    def forward(self) -> Floats:
        """Forward passes: full recomputation makes another."""
        return floats(1.0 + self.training * (self.more["recompute"] == Recompute.FULL))

    @cached_property
    def hidden_bytes(self) -> Floats:
        """What one layer hands to the next, on one cp rank [bytes]."""
        return activation_bytes(self.b, self.s, self.shape.hidden_size, self.shape.bytes_per_element)

    @cached_property
    def experts_are_blocks(self) -> Floats:
        """1 where experts are shared by tp's group like any block, else 0: tokens are sent to them."""
        return floats((self.axes["ep"] == 1) & (self.axes["etp"] == self.axes["tp"]))

    @cached_property
    def routed_bytes(self) -> Floats:
        """Copies of one rank's tokens for all their experts, at one byte an element [bytes]."""
        if self.shape.experts is None:
            return floats(0)
        copies = self.shape.experts.per_token * self.shape.hidden_size
        mine = self.b * self.s / self.axes["tp"]
        return mine * floats(copies) / floats(self.axes["cp"] if self.phase == Phase.DECODE else 1)

    def share(
        self,
        axis: str,
        kind: Kind,
        what: str,
        *,
        ranks: Floats,
        calls: Mapping[str, Floats],
        size: Floats | None = None,
        full: Mapping[str, Floats] | None = None,
        algorithm: str | None = None,
        to: int = 0,
    ) -> Share:
        """`calls` of the same `size`, or of `full` bytes together."""
        total = (
            full
            if full is not None
            else {name: each * size for name, each in calls.items() if size is not None}
        )
        return Share(
            axis=axis,
            kind=kind,
            algorithm=algorithm or self.backend.algorithm_of(kind),
            what=what,
            ranks=ranks,
            calls=calls,
            full=total,
            to=to,
        )
