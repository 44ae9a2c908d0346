"""What one layer, and the logits, take on one device: matrix products, attention, and the operations between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from calculators.predict.arrays import Floats, floats
from calculators.predict.compute import (
    Matmul,
    attended_tokens,
    attention_matmuls,
    attention_width,
    feed_forward_matmuls,
)
from calculators.predict.shapes import ModelShape
from calculators.predict.timing.speeds import Speeds
from calculators.predict.timing.steps import Job

ELEMENT = 2.0
"""Bytes of what matrix products read and write: 16-bit arithmetic, whose peak a device's `flops_per_second` is."""

FLOPS_PER_EXPONENTIAL = 256
"""Operations of the matrix units in the time of one exponential: 989e12 ÷ 3.9e12 on an H100 (FlashAttention-3, arXiv
2407.08608 §2.3). A fused attention kernel takes one for each score."""

PERMUTED_BYTES = 8.0
"""Of a token's hidden state [bytes an element]: into the experts' order and back, read and written each time."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Products:
    """Seconds of some matrix products with weights: forward, and backward to their inputs and to their weights."""

    forward: Floats
    to_inputs: Floats
    to_weights: Floats

    @property
    def backward(self) -> Floats:
        """Both."""
        return self.to_inputs + self.to_weights

    def plus(self, other: Products, *, share: float = 1.0) -> Products:
        """These, and a `share` of others: a mean over layers of two kinds."""
        return Products(
            forward=self.forward + share * other.forward,
            to_inputs=self.to_inputs + share * other.to_inputs,
            to_weights=self.to_weights + share * other.to_weights,
        )


def products(
    matmuls: Sequence[Matmul], speeds: Speeds, *, rows: Floats, ways: Floats, experts: Floats | float = 1.0
) -> Products:
    """Time of `rows` tokens through these matrices, cut `ways` ways; `experts` have such matrices and share the rows.

    A device works on a square of outputs at once. Each step along the inner side fetches a row and a column of it, no
    weight less than once; when the products end, half of a square is idle on average. Gradients of weights have all
    rows as their inner side.
    """
    parts = [_product(each, speeds, rows=rows, ways=ways, experts=experts) for each in matmuls]
    return reduce(Products.plus, parts)


@dataclass(frozen=True, kw_only=True, eq=False)
class Layer:
    """Seconds of one layer, the mean of those with and without experts, for one micro-batch on one device.

    products        with weights, which are part of forward and backward
    core_forward, core_backward   attention itself, which is another part
    attention_again what selective recomputation repeats
    blocks          of a layer that end in an exchange of the tensor-parallel group; routed experts are not among them
    """

    forward: Floats
    backward: Floats
    products: Products
    core_forward: Floats
    core_backward: Floats
    attention_again: Floats
    blocks: Floats

    @classmethod
    def of(cls, job: Job) -> Layer:
        """That of the job's model, layouts and program."""
        shape, speeds, program = job.shape, job.speeds, job.program
        tp, rows = job.axes["tp"], job.rows
        found = products(attention_matmuls(shape), speeds, rows=rows, ways=tp)
        # Element-wise work that tensor parallelism shares, in elements of a token: projections, inner widths, routing.
        inner = routed = 0.0
        blocks = floats(1)
        if shape.dense_layers:
            share = shape.dense_layers / shape.layers
            ordinary = products(feed_forward_matmuls(shape, shape.ffn_width), speeds, rows=rows, ways=tp)
            found = found.plus(ordinary, share=share)
            inner += share * shape.ffn_width
            blocks = blocks + share
        if shape.experts is not None:
            share, experts = shape.sparse_layers / shape.layers, shape.experts
            # Each rank of a tensor-parallel group hands on its part of the tokens, each of them to several experts.
            copies = rows * experts.per_token / tp * job.axes["etp"]
            chosen = products(
                feed_forward_matmuls(shape, experts.width),
                speeds,
                rows=copies,
                ways=job.axes["etp"],
                experts=experts.routed / job.axes["ep"],
            )
            found = found.plus(chosen, share=share)
            inner += share * experts.per_token * experts.width
            routed = share * experts.per_token * shape.hidden_size * PERMUTED_BYTES
            if experts.shared_width:
                shared = products(
                    feed_forward_matmuls(shape, experts.shared_width), speeds, rows=rows, ways=tp
                )
                found = found.plus(shared, share=share)
                inner += share * experts.shared_width
                blocks = blocks + share * job.sent_out  # else it adds to what the experts' block sums up
        core_forward, core_backward, again = _attention(job)
        each = 1 / speeds.bytes_per_second
        shared_bytes = [
            program.projected[way] * _projected_width(shape) + program.inner[way] * inner + routed
            for way in (0, 1)
        ]
        beside = rows / (1 + job.axes["sp"] * (tp - 1)) * (shape.hidden_size * each)
        cut = rows / tp * each
        return cls(
            forward=found.forward + core_forward + shared_bytes[0] * cut + program.beside[0] * beside,
            backward=found.backward + core_backward + shared_bytes[1] * cut + program.beside[1] * beside,
            products=found,
            core_forward=core_forward,
            core_backward=core_backward,
            attention_again=again,
            blocks=blocks,
        )


def logits(job: Job, *, rows: Floats) -> Products:
    """The product with the output matrix."""
    output = Matmul(inner=job.shape.hidden_size, outer=job.shape.vocab_size, cut="outer")
    return products((output,), job.speeds, rows=rows, ways=job.axes["tp"])


def logits_and_loss(job: Job) -> Floats:
    """Of one micro-batch, forward and backward."""
    found = logits(job, rows=job.rows)
    moved = job.rows / job.axes["tp"] * (job.program.logit_bytes * job.shape.vocab_size)
    return found.forward + found.backward + moved / job.speeds.bytes_per_second


def _attention(job: Job) -> tuple[Floats, Floats, Floats]:
    """Attention itself: forward, backward, and what selective recomputation repeats (nothing, where it is fused)."""
    shape, speeds, program = job.shape, job.speeds, job.program
    width, heads = attention_width(shape), shape.attention_heads
    if program.fused_attention:
        looks = job.rows * attended_tokens(shape, tokens=job.tokens) / job.axes["tp"]
        each = 1 / speeds.flops_per_second + ELEMENT / (speeds.outputs**0.5 * speeds.bytes_per_second)
        multiplied = looks * (2 * width * each)
        exponentials = looks * (heads * FLOPS_PER_EXPONENTIAL / speeds.flops_per_second)
        # Backward has five products to forward's two: it computes the scores once more.
        return multiplied + exponentials, 2.5 * multiplied + exponentials, floats(0)
    looks = job.rows * job.tokens / job.axes["tp"]
    busy = looks * (width / speeds.flops_per_second)
    scores = looks * (heads / speeds.bytes_per_second)
    # The product that makes scores computes and then writes; those that use them read while they compute.
    made, used = busy + ELEMENT * scores, np.maximum(busy, ELEMENT * scores)
    forward = made + used + program.scores[0] * scores
    return forward, made + 3 * used + program.scores[1] * scores, forward


def _product(
    matmul: Matmul, speeds: Speeds, *, rows: Floats, ways: Floats, experts: Floats | float
) -> Products:
    inner = matmul.inner / ways if matmul.cut == "inner" else floats(matmul.inner)
    outer = matmul.outer / ways if matmul.cut == "outer" else floats(matmul.outer)
    weights = inner * outer
    work = rows * (2 * weights)
    busy = work / speeds.flops_per_second
    operands = np.maximum(work * (ELEMENT / speeds.outputs**0.5), ELEMENT * experts * weights)
    each_way = busy + operands / speeds.bytes_per_second
    idle = (
        speeds.outputs / speeds.flops_per_second
    )  # half of the outputs, two operations for each inner element
    written = rows * (ELEMENT / speeds.bytes_per_second)
    return Products(
        forward=each_way + np.minimum(idle * inner, busy) + written * outer,
        to_inputs=each_way + np.minimum(idle * outer, busy) + written * inner,
        to_weights=each_way + np.minimum(idle * rows, busy),
    )


def _projected_width(shape: ModelShape) -> int:
    """Elements of a token's queries, keys and values."""
    if shape.latent is None:
        return (shape.attention_heads + 2 * shape.kv_heads) * shape.head_dim
    key = shape.head_dim + shape.latent.rope_dim
    return shape.attention_heads * (2 * key + shape.latent.value_dim)
