"""What each family's exchanges take, over the tiers of links that its groups cross, and what of them hides."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from calculators.predict.arrays import Floats, anywhere, everywhere, floats
from calculators.predict.clusters import Cluster
from calculators.predict.compute import attention_width
from calculators.predict.models.parameters import table_parameters
from calculators.predict.placement import size, span, stride
from calculators.predict.timing.layers import Layer
from calculators.predict.timing.steps import Job

SHARE_OF_UNITS = 24 / 108
"""Of a device's multiprocessors, those that run a collective instead of the matrix product beside it: NCCL's 24
channels on eight A100, one each."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Way:
    """An exchange over the tiers that a group crosses: seconds for each byte of the full tensor, and besides."""

    per_byte: Floats
    latency: Floats

    def seconds(self, full_size: Floats) -> Floats:
        """For a tensor of this size [bytes]."""
        return self.per_byte * full_size + self.latency


def ring(job: Job, members: Floats, step: Floats) -> Way:
    """All-gather or reduce-scatter: around the k members inside a block, then each k-th of it between the blocks.

    Inside (k−1)/k of the tensor, outside (n/k−1)/(n/k) of a k-th of it: 1 − 1/k and 1/k − 1/n.
    """
    per_byte = latency = floats(0)
    joined = floats(1)
    for within, speed, seconds in _tiers(job, members, step):
        per_byte = per_byte + (1 / joined - 1 / within) / speed
        latency = latency + (within / joined - 1) * seconds
        joined = within
    return Way(per_byte=per_byte, latency=latency)


def all_to_all(job: Job, members: Floats, step: Floats) -> Way:
    """Each member's equal part straight to it, all sent at once: one latency on each tier that is used."""
    per_byte = latency = floats(0)
    joined = floats(1)
    for within, speed, seconds in _tiers(job, members, step):
        per_byte = per_byte + (within - joined) / (members * speed)
        latency = latency + (within > joined) * seconds
        joined = within
    return Way(per_byte=per_byte, latency=latency)


def outermost(job: Job, axis: str, rounds: ArrayLike, sent_bytes: ArrayLike) -> Floats:
    """Rounds and bytes over the outermost link that groups of `axis` cross."""
    tier = job.cluster.tier_of(span(job.layouts, axis))
    speeds = floats([each.link.bytes_per_second for each in job.cluster.tiers]) * job.speeds.link_share
    latencies = floats([each.link.latency_seconds for each in job.cluster.tiers])
    return floats(rounds) * latencies[tier] + floats(sent_bytes) / speeds[tier]


def exposed(exchange: Floats, hidden_by: Floats) -> Floats:
    """What an exchange beside matrix products costs: the units that it takes from them, and all that outlasts them."""
    return np.maximum(exchange * SHARE_OF_UNITS, exchange - (1 - SHARE_OF_UNITS) * hidden_by)


def hidden_state(job: Job) -> Floats:
    """One all-gather or reduce-scatter of a micro-batch's hidden state; an all-reduce is two."""
    way = ring(job, job.axes["tp"], floats(1))
    return way.seconds(job.rows * (job.shape.hidden_size * job.shape.bytes_per_element))


def tensor(job: Job, layer: Layer, *, repeated: Floats) -> Floats:
    """Of one layer and micro-batch, both passes; `repeated` where recomputation runs the forward pass again.

    Each block all-reduces once forward and once backward. With sequence parallelism both are halves, gather and
    scatter, and the backward pass gathers its saved inputs again (Korthikanti 2022 §4.2.2).
    """
    half = layer.blocks * hidden_state(job)
    sp = job.axes["sp"]
    forward = half * (2 * (1 + repeated)) + results(job) * (2 + repeated)
    if not job.program.overlapped_tensor:
        return forward + half * (2 + sp)
    # Beside the products that make gradients of weights; the inputs' gathering beside those that make theirs.
    whole = exposed(2 * half, layer.products.to_weights)
    sliced = half + exposed(half, layer.products.to_weights) + exposed(half, layer.products.to_inputs)
    return forward + whole + sp * (sliced - whole)


def tensor_forward(job: Job, layer: Layer) -> Floats:
    """Of one layer and micro-batch, the forward pass alone."""
    return layer.blocks * (2 * hidden_state(job)) + results(job)


def results(job: Job) -> Floats:
    """What a mean layer's experts gave, gathered by a tensor-parallel group whose ranks sent a part of the tokens each.

    Of one pass; backward it is the gradients of what was sent. With sequence parallelism parts are what is wanted.
    """
    if job.shape.experts is None or not anywhere(job.sent_out):
        return floats(0)
    share = job.shape.sparse_layers / job.shape.layers
    return share * job.sent_out * hidden_state(job) * (1 - job.axes["sp"])


def keys_and_values(job: Job) -> Floats:
    """Every rank's keys and values of one layer once to all ranks of its context-parallel group."""
    shape, tp = job.shape, job.axes["tp"]
    if shape.latent is None:
        width = 2 * shape.kv_heads * shape.head_dim / np.minimum(tp, shape.kv_heads)
    else:
        width = attention_width(shape) / tp
    way = ring(job, job.axes["cp"], stride(job.layouts, "cp"))
    return way.seconds(job.rows * job.axes["cp"] * width * shape.bytes_per_element)


def context_forward(job: Job, layer: Layer) -> Floats:
    """Of one layer and micro-batch: gathered before attention, or passed around a ring behind it."""
    once = keys_and_values(job)
    return once if job.program.gathered_context else exposed(once, layer.core_forward)


def context(job: Job, layer: Layer, *, repeated: Floats) -> Floats:
    """Of one layer and micro-batch, both passes: backward travel keys, values and their gradients."""
    forward = context_forward(job, layer) * (1 + repeated)
    twice = 2 * keys_and_values(job)
    return forward + (twice if job.program.gathered_context else exposed(twice, layer.core_backward))


def expert(job: Job, *, forward: Floats | float, backward: Floats | float = 0.0) -> Floats:
    """Exchanges of a mean layer's experts in so many passes forward and backward.

    Dispatch and combine, and with sliced experts a gather of the copies before and a scatter after them. Experts that
    exactly a tensor-parallel group shares are a block like any other: gather and scatter of the hidden state, which
    sequence parallelism gathers once more backward.
    """
    shape, axes = job.shape, job.axes
    if shape.experts is None:
        return floats(0)
    share = shape.sparse_layers / shape.layers
    passes = forward + backward
    slices = ring(job, axes["etp"], floats(1))
    whole = job.rows * (shape.hidden_size * shape.bytes_per_element)
    sent = whole * (shape.experts.per_token / axes["tp"])
    there = all_to_all(job, axes["ep"], stride(job.layouts, "ep"))
    both = job.sent_out * (there.seconds(sent) + slices.seconds(sent * axes["etp"]))
    if everywhere(job.sent_out):
        return both * (2 * share) * passes
    half = (1 - job.sent_out) * slices.seconds(whole)
    return (both + half) * (2 * share) * passes + half * (share * backward) * axes["sp"]


def sends(job: Job, *, groups: Floats, passes: int) -> Floats:
    """Between stages, of `groups` micro-batches that go through the pipeline, once forward and perhaps once back.

    With sequence parallelism each tensor-parallel rank has and sends a part. Without, each sends all of it, or a part
    that the next stage gathers (`Implementation.scattered_sends`). Nothing hides a send while the pipeline fills and
    empties.
    """
    shape, stages, chunks = job.shape, job.axes["pp"], job.axes["vpp"]
    message = job.rows * (shape.hidden_size * shape.bytes_per_element)
    sp, tp = job.axes["sp"], job.axes["tp"]
    if job.program.scattered_sends:
        hop = outermost(job, "pp", 1.0, message / tp) + (1 - sp) * hidden_state(job)
    else:
        hop = outermost(job, "pp", 1.0, message / (1 + sp * (tp - 1)))
    in_the_way = chunks * ((chunks == 1) | (not job.program.overlapped_sends))
    return np.asarray(passes * (groups * in_the_way + (stages - 1)) * (stages > 1) * hop)


def data(job: Job, layer: Layer, *, micro_batches: Floats) -> Floats:
    """Gradients and sharded weights of a step, as far as nothing hides them: at least one layer's.

    A chunk's last backward pass is p micro-batches before the next chunk's: so long have its gradients to travel.
    """
    axes, program, depth = job.axes, job.program, job.depth
    stage, chunks = axes["zero"], axes["vpp"]
    common, experts = job.held
    replicas = ring(job, axes["dp"] * axes["cp"], stride(job.layouts, "cp"))
    each_byte, latency = replicas.per_byte * common, replicas.latency
    if job.shape.experts is not None:
        copies = ring(job, np.maximum(size(job.layouts, "edp"), 1), stride(job.layouts, "edp"))
        each_byte = each_byte + copies.per_byte * experts
        latency = latency + copies.latency
    gradients = each_byte * program.gradient_bytes + latency * depth
    weights = each_byte * job.shape.bytes_per_element + latency * depth
    backward = gradients * (1 + (stage == 0)) + weights * (stage == 3)
    forward = weights * (stage > 0)
    repeats = 1 + (stage == 3) * (micro_batches - 1)
    if not program.overlapped_data:
        return np.asarray(repeats * (forward + backward))
    window = depth * (1 + (chunks - 1) * axes["pp"]) / chunks
    left_forward = exposed(forward, window * layer.products.forward)
    left_backward = exposed(backward, window * layer.products.backward)
    left = np.maximum(forward / depth, left_forward) + np.maximum(backward / depth, left_backward)
    return np.asarray(repeats * left)


def tied_embedding(job: Job) -> Floats:
    """Gradients of an embedding that is the output matrix, added up by the first and the last stage: one all-reduce."""
    shape, several = job.shape, job.axes["pp"] > 1
    if not shape.tied_embeddings or not anywhere(several):
        return floats(0)
    gradients = table_parameters(shape) * job.program.gradient_bytes / job.axes["tp"]
    return several * outermost(job, "pp", 2.0, gradients)


def update(job: Job) -> Floats:
    """The optimizer's work on a stage's weights; from ZeRO stage 1 on every replica updates its slice."""
    sharded = job.axes["zero"] > 0
    common, experts = job.held
    weights = common / (1 + sharded * (job.axes["dp"] * job.axes["cp"] - 1))
    if job.shape.experts is not None:
        weights = weights + experts / (1 + sharded * (np.maximum(size(job.layouts, "edp"), 1) - 1))
    return weights * (job.program.optimizer_bytes / job.speeds.bytes_per_second)


def _tiers(job: Job, members: Floats, step: Floats) -> list[tuple[Floats, float, float]]:
    """For each tier: members of a group that it joins, its bandwidth [bytes/s] and its latency [s]."""
    cluster: Cluster = job.cluster
    found: list[tuple[Floats, float, float]] = []
    joined = floats(1)
    for tier in cluster.tiers:
        last = tier is cluster.tiers[-1]
        within = members if last else np.maximum(_within(tier.devices, members, step), joined)
        speed = job.speeds.link_share * tier.link.bytes_per_second
        found.append((within, speed, tier.link.latency_seconds))
        joined = within
    return found


def _within(block: int, members: Floats, step: Floats) -> Floats:
    """Members of a group that share a block of so many devices; 1 where groups lie unevenly across its border."""
    reach = members * step
    inside = block % reach == 0
    evenly = (block % step == 0) & (reach % block == 0)
    return np.where(inside, members, np.where(evenly, block / step, 1.0))
