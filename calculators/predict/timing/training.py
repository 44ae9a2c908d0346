"""The time of a training step."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from calculators.predict.arrays import Floats
from calculators.predict.clusters import Cluster
from calculators.predict.implementations import MEGATRON, Implementation
from calculators.predict.shapes import Layouts, ModelShape, Recompute
from calculators.predict.timing import waits
from calculators.predict.timing.layers import Layer, logits_and_loss
from calculators.predict.timing.speeds import FITTED, Efficiency
from calculators.predict.timing.steps import Job, StepTime, summed


def training_step(
    shape: ModelShape,
    layouts: Layouts,
    cluster: Cluster,
    *,
    tokens: ArrayLike,
    batch: ArrayLike,
    implementation: Implementation = MEGATRON,
    efficiency: Efficiency = FITTED,
) -> StepTime:
    """Time of one training step of `batch` sequences of `tokens` tokens, by 1F1B or interleaved.

    tokens, batch   length of a sequence, and sequences of all replicas together: batch ÷ (dp·micro_batch) micro-batches
    implementation  what the program hides, fuses and moves besides

    Of each micro-batch the deepest stage takes layers × (forward + backward + recomputation + exchanges), and the last
    stage the logits besides. The bubble is (p−1)/v of that without logits (Narayanan 2021 §2.2). Gradients of all but
    one layer travel behind the last backward passes, those of an embedding that both ends of a pipeline hold after
    them. With ZeRO 1 and 2 the updated weights are gathered behind the next forward pass; with 3 before every pass of
    every micro-batch, which also reduces its gradients.

    Raises ValueError where a size is below 1 or shapes do not broadcast.

    >>> from calculators.predict.models.catalogue import MODELS
    >>> from calculators.predict.clusters import Link, two_tiers
    >>> from calculators.predict.devices import DEVICES
    >>> from calculators.predict.links import rung
    >>> hosts = two_tiers(
    ...     DEVICES["h100"],
    ...     devices=1024,
    ...     devices_per_host=8,
    ...     inside=Link.on(rung("nvlink-4")),
    ...     between=Link.on(rung("infiniband-ndr")),
    ... )
    >>> two = Layouts(dp=[128, 32], tp=8, pp=[1, 4], sp=True, zero=1)
    >>> step = training_step(MODELS["llama-3.1-70b"].shape, two, hosts, tokens=8192, batch=1024)
    >>> step.total.round(1).tolist(), step.bubble.round(1).tolist()
    ([8.9, 9.2], [0.0, 0.7])
    """
    job = Job.of(
        shape,
        layouts,
        cluster,
        tokens=tokens,
        batch=batch,
        program=implementation,
        efficiency=efficiency,
    )
    micro_batches = job.batch / (job.axes["dp"] * job.axes["micro_batch"])
    layer = Layer.of(job)
    full = np.asarray(job.axes["recompute"] == Recompute.FULL, dtype=np.float64)
    selective = job.axes["recompute"] == Recompute.SELECTIVE

    compute = layer.forward + layer.backward
    recompute = full * layer.forward + selective * layer.attention_again
    tensor = waits.tensor(job, layer, repeated=full)
    context = waits.context(job, layer, repeated=full)
    expert = waits.expert(job, forward=1 + full, backward=1.0)
    turns = micro_batches * job.depth
    return StepTime(
        compute=turns * compute + micro_batches * (_end(job, layer) + _accumulated(job)),
        recompute=turns * recompute,
        tensor=turns * tensor,
        context=turns * context,
        expert=turns * expert,
        pipeline=waits.sends(job, groups=micro_batches, passes=2),
        bubble=job.waiting * summed(compute, recompute, tensor, context, expert),
        data=waits.data(job, layer, micro_batches=micro_batches) + waits.tied_embedding(job),
        optimizer=waits.update(job),
    )


def _end(job: Job, layer: Layer) -> Floats:
    """What the last stage takes longer with its logits. Where layers do not divide it has one layer less."""
    uneven = job.depth * job.axes["pp"] > job.shape.layers
    one_less = uneven * (layer.products.forward + layer.products.backward)
    return np.maximum(logits_and_loss(job) - one_less, 0)


def _accumulated(job: Job) -> Floats:
    """Adding a micro-batch's gradients to those before it."""
    common, experts = job.held
    return (common + experts) * (job.program.accumulate_bytes / job.speeds.bytes_per_second)
