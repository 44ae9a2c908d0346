"""Many layouts in, the traffic of every axis out."""

from __future__ import annotations

from numpy.typing import ArrayLike

from calculators.predict.arrays import (
    amounts,
    anywhere,
    check_broadcast,
    counts,
    floats,
    positive,
)
from calculators.predict.collectives import TEXTBOOK, Backend
from calculators.predict.schedules import sends_per_pass
from calculators.predict.shapes import Layout, Layouts, ModelShape, Phase
from calculators.predict.traffic.composition.case import Case
from calculators.predict.traffic.composition.context import context_shares
from calculators.predict.traffic.composition.data import data_shares
from calculators.predict.traffic.composition.experts import expert_shares, expert_tensor_shares
from calculators.predict.traffic.composition.pipeline import pipeline_shares
from calculators.predict.traffic.composition.stages import Has, busiest_candidates
from calculators.predict.traffic.composition.tensor import tensor_shares
from calculators.predict.traffic.composition.totals import Composition
from calculators.predict.traffic.context import check_context
from calculators.predict.traffic.pipeline import TOKEN_ID_BYTES


def composed(
    shape: ModelShape,
    layouts: Layouts | Layout,
    *,
    phase: Phase,
    tokens: ArrayLike = 1,
    batch: ArrayLike = 1,
    micro_batches: ArrayLike | None = None,
    regather: bool = True,
    context: str = "ring",
    context_backward: str = "megatron",
    blocks_per_layer: int = 2,
    dispatch_bytes_per_element: float | None = None,
    combine_bytes_per_element: float | None = None,
    gradient_bytes_per_element: float = 2,
    weight_bytes_per_element: float | None = None,
    reshard_after_forward: bool = True,
    tensors_per_boundary: int = 1,
    scatter_gather: bool = False,
    vocabulary: bool = False,
    backend: Backend = TEXTBOOK,
) -> Composition:
    """The traffic of every axis of one layout, or of many at once.

    tokens           length of each sequence; decode has one of each in flight whatever is given
    batch            sequences: of a step over all replicas in training, of one replica in serving
    micro_batches    of a step; None for batch/(dp·micro_batch)
    regather         sequence parallelism keeps slices and gathers them again backward (Megatron-LM)
    context, context_backward      kind and backward pass of `context_parallel`
    dispatch_bytes_per_element …   widths on the way; None for the model's own. Gradients 2 as in the ZeRO paper;
                     `timing` waits for those of its program (`Implementation.gradient_bytes`, 4 in Megatron-LM)
    scatter_gather   without sequence parallelism, each tensor-parallel rank sends 1/tp of what crosses a boundary, and
                     the next stage gathers it (Narayanan 2021 §4.1; `Implementation.scattered_sends` in `timing`);
                     else every rank sends all of it, as in Megatron Core
    vocabulary       count the embedding, logits and loss, too, as `tensor_parallel` does with vocab_size

    Raises ValueError where a size is below 1, a name is not known, or arrays do not broadcast. Whether a layout is
    legal is for `rules`.

    >>> from calculators.predict.models.catalogue import MODELS
    >>> moved = composed(MODELS["lesson"].shape, Layouts(tp=[2, 1], pp=[1, 2]), phase=Phase.DECODE)
    >>> moved.wire_bytes.tolist(), moved.exchanges.tolist()
    ([1048576.0, 8192.0], [128.0, 2.0])
    """
    if isinstance(layouts, Layout):
        layouts = Layouts.of(layouts)
    check_context(context, context_backward)
    own = shape.bytes_per_element
    axes = counts(
        dp=layouts.dp,
        tp=layouts.tp,
        pp=layouts.pp,
        cp=layouts.cp,
        ep=layouts.ep,
        etp=layouts.etp,
        vpp=layouts.vpp,
        micro_batch=layouts.micro_batch,
        tokens=tokens,
        batch=batch,
        blocks_per_layer=blocks_per_layer,
        tensors_per_boundary=tensors_per_boundary,
        micro_batches=1 if micro_batches is None else micro_batches,
    )
    more = amounts(zero=layouts.zero, recompute=layouts.recompute, sp=floats(layouts.sp))
    check_broadcast({**axes, **more})
    widths = positive(
        dispatch_bytes_per_element=dispatch_bytes_per_element or own,
        combine_bytes_per_element=combine_bytes_per_element or own,
        gradient_bytes_per_element=gradient_bytes_per_element,
        weight_bytes_per_element=weight_bytes_per_element or own,
    )
    phase = Phase(phase)
    training = phase == Phase.TRAINING
    b = axes["micro_batch"] if training else axes["batch"]
    if not training:
        m = floats(1)
    elif micro_batches is None:
        m = axes["batch"] / (axes["dp"] * b)
    else:
        m = axes["micro_batches"]
    case = Case(
        shape=shape,
        axes=axes,
        more=more,
        widths=widths,
        phase=phase,
        backend=backend,
        b=b,
        s=floats(1) if phase == Phase.DECODE else axes["tokens"] / axes["cp"],
        m=m,
    )
    shares = (
        *tensor_shares(case, regather=regather, blocks=blocks_per_layer, vocabulary=vocabulary),
        *context_shares(case, context, context_backward),
        *pipeline_shares(case, tensors_per_boundary, scatter_gather=scatter_gather),
        *expert_shares(case),
        *expert_tensor_shares(case, regather=regather),
        *data_shares(case, reshard=reshard_after_forward),
    )
    p, v = axes["pp"], axes["vpp"]
    hops = sends_per_pass(p, v)
    returned = floats(phase == Phase.DECODE) * (p > 1)
    return Composition(
        shape=shape,
        layouts=layouts,
        phase=phase,
        shares=tuple(share for share in shares if anywhere(share.ranks > 1)),
        control_calls=returned,
        control_bytes=returned * TOKEN_ID_BYTES * b,
        _stages=busiest_candidates(shape, layouts),
        _all=Has(
            dense=floats(shape.dense_layers),
            sparse=floats(shape.sparse_layers),
            first=floats(1),
            last=floats(1),
            stage=p,
            forward=hops,
            backward=hops,
        ),
    )
