"""How much of the model each stage has, and which stages may be the busiest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from calculators.predict.arrays import Floats, floats
from calculators.predict.shapes import Layouts, ModelShape
from calculators.predict.stages import fullest_stages, layers_at


@dataclass(frozen=True, kw_only=True, eq=False)
class Has:
    """How much of the model a stage has, or all stages together: arrays that broadcast against the layouts.

    dense, sparse      layers
    first, last        1 on that stage
    stage              1, or the number of stages
    forward, backward  sends of a micro-batch to the next stage, and back
    """

    dense: Floats
    sparse: Floats
    first: Floats
    last: Floats
    stage: Floats
    forward: Floats
    backward: Floats

    def of(self, amount: Mapping[str, Floats]) -> Floats:
        """The sum of what there is of each, times its amount; "layer" is a layer of either kind."""
        total = floats(0.0)
        for name, each in amount.items():
            total = total + each * (self.dense + self.sparse if name == "layer" else getattr(self, name))
        return total


def stage_has(shape: ModelShape, layouts: Layouts, stage: Floats) -> Has:
    """What one stage has, or each of several, of arguments that were checked."""
    p, v = floats(layouts.pp), floats(layouts.vpp)
    dense, sparse = layers_at(shape, stage, pp=p, vpp=v)
    first, last, several = floats(stage == 0), floats(stage == p - 1), p > 1
    return Has(
        dense=dense,
        sparse=sparse,
        first=first,
        last=last,
        stage=floats(1),
        forward=(v - last) * several,
        backward=(v - first) * several,
    )


def busiest_candidates(shape: ModelShape, layouts: Layouts) -> tuple[Has, ...]:
    """Stages among which the busiest one always is: at either end, next to an end, and where experts begin."""
    p = floats(layouts.pp)
    last = p - 1
    fullest = fullest_stages(shape, pp=p, vpp=layouts.vpp)
    stages = [*fullest, np.minimum(1, last), np.maximum(last - 1, 0)]
    if p.ndim == 0:
        stages = [floats(stage) for stage in sorted({floats(stage).item() for stage in stages})]
    return tuple(stage_has(shape, layouts, stage) for stage in stages)
