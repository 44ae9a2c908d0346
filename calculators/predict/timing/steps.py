"""The time of a step by what takes it, and what all of its parts are calculated from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property, reduce
from operator import add

import numpy as np
from numpy.typing import ArrayLike

from calculators.predict.arrays import Floats, amounts, counts, floats
from calculators.predict.clusters import Cluster
from calculators.predict.implementations import Implementation
from calculators.predict.memory.states import attention_of_rank
from calculators.predict.models.parameters import (
    expert_parameters,
    feed_forward_parameters,
    norm_parameters,
    router_parameters,
    shared_expert_parameters,
    table_parameters,
)
from calculators.predict.shapes import Layouts, ModelShape
from calculators.predict.timing.speeds import Efficiency, Speeds


@dataclass(frozen=True, kw_only=True, eq=False)
class StepTime:
    """What a step waits for on the slowest stage, as arrays [s]. What hides behind other work is in none of them.

    compute    arithmetic and the element-wise operations between, forward and backward
    recompute  the same again, for activations that were not kept
    tensor     exchanges of tensor-parallel groups, repeated ones included
    context    exchanges of keys and values; in decode, of what each rank's part of the cache gave
    expert     dispatch and combine, and the exchanges inside sliced experts
    pipeline   sends between stages; in decode, the token ids' way back as well
    bubble     waiting for the first micro-batch to arrive and for the last gradient to return
    data       exchanges of gradients, also between the two ends that hold a tied embedding, and of sharded weights
    optimizer  updating the weights
    """

    compute: Floats
    recompute: Floats
    tensor: Floats
    context: Floats
    expert: Floats
    pipeline: Floats
    bubble: Floats
    data: Floats
    optimizer: Floats

    @property
    def total(self) -> Floats:
        """All of it, for every layout."""
        return summed(*(getattr(self, part.name) for part in fields(self)))


@dataclass(frozen=True, kw_only=True, eq=False)
class Job:
    """One step of some layouts, validated.

    axes   sizes of the layouts by name, each with the shape that it was given in
    rows   tokens of a micro-batch on one rank: micro_batch·tokens/cp
    """

    shape: ModelShape
    cluster: Cluster
    layouts: Layouts
    axes: Mapping[str, Floats]
    tokens: Floats
    batch: Floats
    rows: Floats
    speeds: Speeds
    program: Implementation

    @classmethod
    def of(
        cls,
        shape: ModelShape,
        layouts: Layouts,
        cluster: Cluster,
        *,
        tokens: ArrayLike,
        batch: ArrayLike,
        program: Implementation,
        efficiency: Efficiency,
    ) -> Job:
        """Raises ValueError where a size is below 1 or shapes do not broadcast."""
        sizes = ("dp", "tp", "pp", "cp", "ep", "etp", "vpp", "micro_batch")
        given = counts(tokens=tokens, batch=batch, **{axis: getattr(layouts, axis) for axis in sizes})
        switches = amounts(sp=layouts.sp, zero=layouts.zero, recompute=layouts.recompute)
        axes = {**{axis: given[axis] for axis in sizes}, **switches}
        return cls(
            shape=shape,
            cluster=cluster,
            layouts=layouts,
            axes=axes,
            tokens=given["tokens"],
            batch=given["batch"],
            rows=axes["micro_batch"] * given["tokens"] / axes["cp"],
            speeds=Speeds.of(cluster.device, efficiency),
            program=program,
        )

    @cached_property
    def sent_out(self) -> Floats:
        """1 where tokens are sent to their experts, 0 where exactly a tensor-parallel group shares every expert."""
        return floats((self.axes["ep"] > 1) | (self.axes["etp"] != self.axes["tp"]))

    @cached_property
    def held(self) -> tuple[Floats, Floats]:
        """Parameters of one device of the first stage, all of its layers being mean ones: common ones, and experts'.

        What `model_states.rank_parameters` says of stage 0 where all layers are alike. A last stage has one norm more,
        and no learned positions.
        """
        shape, axes = self.shape, self.axes
        dense, sparse = shape.dense_layers / shape.layers, shape.sparse_layers / shape.layers
        cut = dense * feed_forward_parameters(shape) + sparse * shared_expert_parameters(shape)
        whole = norm_parameters(shape) + sparse * router_parameters(shape)
        alone = axes["pp"] == 1  # then it is the last one, too
        tables = 1 + alone * (not shape.tied_embeddings)
        ends = tables * table_parameters(shape) / axes["tp"] + (shape.positions + alone) * shape.hidden_size
        layer = attention_of_rank(shape, axes["tp"]) + cut / axes["tp"] + whole
        common = self.depth * layer + ends
        if shape.experts is None:
            return common, floats(0)
        routed = sparse * shape.experts.routed * expert_parameters(shape)
        return common, self.depth * routed / (axes["ep"] * axes["etp"])

    @property
    def depth(self) -> Floats:
        """Layers of the deepest stage."""
        return np.ceil(self.shape.layers / self.axes["pp"])

    @property
    def waiting(self) -> Floats:
        """Layers whose turn a stage waits for while the pipeline fills and empties: (p−1)/v other stages' layers."""
        stages = self.axes["pp"]
        return (stages - 1) / self.axes["vpp"] * (self.shape.layers / stages)


def summed(*parts: Floats) -> Floats:
    """The sum, small arrays first: then few of the additions are as large as the result."""
    return np.asarray(reduce(add, sorted(parts, key=np.size)))
