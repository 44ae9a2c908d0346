"""The time of reading prompts, and of writing a token."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from calculators.predict.arrays import amounts, floats
from calculators.predict.clusters import Cluster
from calculators.predict.compute import decode_flops
from calculators.predict.exchanges import exchanges
from calculators.predict.implementations import MEGATRON, Implementation
from calculators.predict.reading import reading
from calculators.predict.shapes import Layouts, ModelShape
from calculators.predict.timing import waits
from calculators.predict.timing.layers import Layer, logits
from calculators.predict.timing.speeds import FITTED, Efficiency
from calculators.predict.timing.steps import Job, StepTime, summed


def prefill(
    shape: ModelShape,
    layouts: Layouts,
    cluster: Cluster,
    *,
    tokens: ArrayLike,
    batch: ArrayLike = 1,
    implementation: Implementation = MEGATRON,
    efficiency: Efficiency = FITTED,
) -> StepTime:
    """Time until a replica has read `batch` prompts of `tokens` tokens each, `micro_batch` of them at a time.

    The forward pass of `training_step`, and the logits of each prompt's last token. Weights are whole on each replica.

    Raises ValueError where a size is below 1 or shapes do not broadcast.

    >>> from calculators.predict.models.catalogue import MODELS
    >>> from calculators.predict.clusters import Cluster, Link, Tier
    >>> from calculators.predict.devices import DEVICES
    >>> from calculators.predict.links import rung
    >>> host = Cluster(device=DEVICES["h100"], tiers=(Tier(devices=8, link=Link.on(rung("nvlink-4"))),))
    >>> prefill(MODELS["llama-3.1-70b"].shape, Layouts(tp=[4, 8]), host, tokens=8192).total.round(2).tolist()
    [0.64, 0.42]
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
    groups = np.ceil(job.batch / job.axes["micro_batch"])
    layer = Layer.of(job)
    tensor = waits.tensor_forward(job, layer)
    context = waits.context_forward(job, layer)
    expert = waits.expert(job, forward=1.0)
    turns = groups * job.depth
    nothing = floats(0)
    return StepTime(
        compute=turns * layer.forward + groups * logits(job, rows=job.axes["micro_batch"]).forward,
        recompute=nothing,
        tensor=turns * tensor,
        context=turns * context,
        expert=turns * expert,
        pipeline=waits.sends(job, groups=groups, passes=1),
        bubble=job.waiting * summed(layer.forward, tensor, context, expert),
        data=nothing,
        optimizer=nothing,
    )


def decode_step(
    shape: ModelShape,
    layouts: Layouts,
    cluster: Cluster,
    *,
    batch: ArrayLike,
    context_tokens: ArrayLike,
    weight_bytes_per_element: ArrayLike | None = None,
    kv_bytes_per_element: ArrayLike = 2,
    efficiency: Efficiency = FITTED,
) -> StepTime:
    """Time in which each of `batch` sequences of one replica gets one more token, `context_tokens` behind it.

    The sequences go round the pipeline in as many groups as it has stages, and a token's way leads through all of them.
    So `compute` is that of all stages in turn: reading weights and cache (`reading`), or arithmetic if that is longer.
    An exchange of so few bytes is one round: one latency of the outermost link that it crosses, and a ring's bytes
    (`exchanges`).

    weight_bytes_per_element  e.g. 0.5 for 4-bit weights; None for the model's own

    Raises ValueError where a size is below 1, a width not above 0, or shapes do not broadcast.

    >>> from calculators.predict.models.catalogue import MODELS
    >>> from calculators.predict.clusters import Cluster, Link, Tier
    >>> from calculators.predict.devices import DEVICES
    >>> from calculators.predict.links import rung
    >>> cable = Link.on(rung("connectx-7-spark"))
    >>> sparks = Cluster(device=DEVICES["dgx-spark"], tiers=(Tier(devices=2, link=cable),))
    >>> step = decode_step(MODELS["llama-3.1-70b"].shape, Layouts(tp=2), sparks, batch=1, context_tokens=1000)
    >>> (1 / step.total).round(1).item()
    2.9
    """
    job = Job.of(shape, layouts, cluster, tokens=1, batch=batch, program=MEGATRON, efficiency=efficiency)
    group = job.batch / np.minimum(job.axes["pp"], job.batch)
    context = amounts(context_tokens=context_tokens)["context_tokens"]
    read = reading(
        shape,
        layouts,
        batch=group,
        context_tokens=context,
        weight_bytes_per_element=weight_bytes_per_element,
        kv_bytes_per_element=kv_bytes_per_element,
    )
    sent = exchanges(shape, layouts, batch=group)
    speeds = job.speeds
    operations = group * decode_flops(shape, context_tokens=context, tp=job.axes["tp"], cp=job.axes["cp"])
    nothing = floats(0)
    return StepTime(
        compute=np.maximum(read.total_bytes / speeds.bytes_per_second, operations / speeds.flops_per_second),
        recompute=nothing,
        tensor=waits.outermost(job, "tp", sent.tensor_rounds, sent.tensor_bytes),
        context=waits.outermost(job, "cp", sent.context_rounds, sent.context_bytes),
        expert=waits.outermost(job, "ep", sent.expert_rounds, sent.expert_bytes)
        + waits.outermost(job, "etp", sent.sliced_rounds, sent.sliced_bytes),
        pipeline=waits.outermost(
            job,
            "pp",
            sent.pipeline_rounds + sent.control_rounds,
            sent.pipeline_bytes + sent.control_bytes,
        ),
        bubble=nothing,
        data=nothing,
        optimizer=nothing,
    )
