"""What each device of a layout must hold, and whether that fits: the fullest rank, in training and in serving.

Counted: weights, gradients, optimizer state, activations, the cache of keys and values, and what comes and goes beside
them (`working`). Not counted: the runtime's context, buffers of a communication library, fragments between allocations.
Leave a reserve for those.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calculators.predict.arrays import (
    Floats,
    anywhere,
    check_broadcast,
    counts,
    everywhere,
    floats,
    numbers,
    positive,
)
from calculators.predict.devices import Device
from calculators.predict.memory.activations import (
    KeptTensor,
    beside_the_matrices,
    bytes_per_token,
    first_stage_bytes_per_token,
    last_stage_bytes_per_token,
)
from calculators.predict.memory.kv_cache import cache_of_rank, check_dcp
from calculators.predict.memory.states import (
    MIXED_ADAM,
    Optimizer,
    largest_unit,
    rank_parameters,
)
from calculators.predict.schedules import Schedule, parameter_copies
from calculators.predict.shapes import Layouts, ModelShape, Recompute, check_recompute, check_zero
from calculators.predict.stages import fullest_stages, in_flight, layers_at

RESERVE = 0.1
"""Share of a device's memory left for what is not counted here: vLLM's gpu_memory_utilization is 0.9 by default."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Memory:
    """What the fullest rank holds, as arrays [bytes]. Each keeps the shape of what it depends on.

    working  what comes and goes: under ZeRO-3 the weights and the gradient of one layer, gathered whole; with full
             recomputation the tensors of the layer that is being computed again
    """

    weights: Floats
    gradients: Floats
    optimizer: Floats
    activations: Floats
    kv_cache: Floats
    working: Floats = field(default_factory=lambda: floats(0))

    @property
    def total(self) -> Floats:
        """All parts together."""
        # the three states first, for they tend to be small arrays
        states = self.weights + self.gradients + self.optimizer
        return states + self.kv_cache + (self.activations + self.working)


PARTS = tuple(part.name for part in fields(Memory))
"""The names of the parts, in the order in which they are shown."""


def training_memory(
    shape: ModelShape,
    layouts: Layouts,
    *,
    tokens: ArrayLike,
    micro_batches: ArrayLike,
    optimizer: Optimizer = MIXED_ADAM,
    schedule: Schedule | str | None = None,
    dropout: bool | None = None,
    also_kept: tuple[KeptTensor, ...] = (),
) -> Memory:
    """What the fullest rank holds at the fullest moment of a training step.

    Weights, gradients and optimizer: `model_states` of the parameters of its stage. Activations: `layer_activations`
    of its layers times the micro-batches in flight there, the embedding's dropout mask, the last norm and the logits.
    Every stage that could be fullest is tried (`stages.fullest_stages`): the first has the embedding and the most
    micro-batches in flight, the last the logits, the first with experts only the most parameters.

    tokens         length of a sequence, before cp cuts it [tokens]
    micro_batches  of one replica in one step
    schedule       None for 1F1B, interleaved where vpp is above 1
    dropout        whether masks are kept; None for what the family does (`activations`)
    also_kept      tensors that a framework's kernels keep beside those of `activations.kept_tensors`, in every layer

    Raises ValueError for sizes below 1 and unknown stages of ZeRO or modes of recomputation.

    >>> from calculators.predict.models.catalogue import MODELS
    >>> shape = MODELS["llama-3.1-70b"].shape
    >>> layouts = Layouts(dp=16, tp=8, pp=4, sp=True, zero=[0, 1], recompute=int(Recompute.SELECTIVE))
    >>> memory = training_memory(shape, layouts, tokens=8192, micro_batches=16)
    >>> (memory.total / 2**30).round(1).tolist()
    [54.8, 31.0]
    """
    given = _checked(layouts) | positive(micro_batches=micro_batches) | counts(tokens=tokens)
    zero, recompute, sp = check_zero(layouts.zero), check_recompute(layouts.recompute), floats(layouts.sp)
    check_broadcast({**given, "zero": zero, "recompute": recompute, "sp": sp})
    p, t, v, m = given["pp"], given["tp"], given["vpp"], given["micro_batches"]
    tokens_here = given["micro_batch"] * (given["tokens"] / given["cp"])
    beside = beside_the_matrices(t, sp)
    copies = 1 if schedule is None else parameter_copies(schedule)

    def layer(sparse: bool, mode: Floats) -> Floats:
        return bytes_per_token(
            shape,
            keys=given["tokens"],
            tp=t,
            sp=sp,
            etp=given["etp"],
            recompute=mode,
            sparse=sparse,
            dropout=dropout,
            also_kept=also_kept,
        )

    kinds = [sparse for sparse, has in ((False, shape.dense_layers), (True, shape.sparse_layers)) if has]
    kept = {sparse: layer(sparse, recompute) for sparse in kinds}
    # what does not depend on the stage
    selective = floats(int(Recompute.SELECTIVE))
    again = (recompute == Recompute.FULL) * np.maximum.reduce([layer(sparse, selective) for sparse in kinds])
    gathered = (zero >= 3) & (given["dp"] * given["cp"] > 1)
    whole = (optimizer.weight_bytes + optimizer.gradient_bytes) * largest_unit(shape, layouts)
    last_flying = m if schedule == Schedule.GPIPE else floats(1)

    def of_stage(stage: Floats) -> Memory:
        of_either_kind = layers_at(shape, stage, pp=p, vpp=v)
        layers = dict(zip((False, True), of_either_kind, strict=True))
        held = rank_parameters(shape, layouts, stage=stage, layers=of_either_kind)
        states = held.states(optimizer=optimizer, zero=zero)
        flying = in_flight(stage, pp=p, micro_batches=m, vpp=v, schedule=schedule)
        body = sum((layers[sparse] * kept[sparse] for sparse in kinds), start=floats(0))
        body = body + (stage == 0) * first_stage_bytes_per_token(shape, beside=beside, dropout=dropout)
        output = (stage == p - 1) * last_stage_bytes_per_token(shape, tp=t, beside=beside)
        return Memory(
            weights=states.weights * copies,
            gradients=states.gradients * copies,
            optimizer=states.optimizer * copies,
            activations=body * (flying * tokens_here) + output * (last_flying * tokens_here),
            kv_cache=floats(0),
        )

    fullest = _fullest([of_stage(stage) for stage in fullest_stages(shape, pp=p, vpp=v)])
    return replace(fullest, working=gathered * whole + again * tokens_here)


def serving_memory(
    shape: ModelShape,
    layouts: Layouts,
    *,
    batch: ArrayLike,
    context_tokens: ArrayLike,
    kv_bytes_per_element: ArrayLike = 2,
    weight_bytes_per_element: ArrayLike | None = None,
    dcp: ArrayLike = 1,
) -> Memory:
    """What the fullest rank holds while it serves `batch` sequences of one replica, each of `context_tokens`.

    Weights of its stage, the cache of keys and values (`kv_cache_bytes`), and as activations the two widest tensors of
    one layer and the logits, for one token of each sequence. A prompt that is read in one piece needs more of those.

    weight_bytes_per_element  None for the width in which the model was released

    Raises ValueError for sizes below 1 and widths that are not above 0.

    >>> from calculators.predict.models.catalogue import MODELS
    >>> memory = serving_memory(MODELS["llama-3.1-70b"].shape, Layouts(tp=[4, 8]), batch=32, context_tokens=8192)
    >>> (memory.weights / 1e9).round(1).tolist(), (memory.kv_cache / 2**30).tolist()
    ([35.3, 17.6], [20.0, 10.0])
    """
    width = shape.bytes_per_element if weight_bytes_per_element is None else weight_bytes_per_element
    given = _checked(layouts) | counts(batch=batch, context_tokens=context_tokens, dcp=dcp)
    widths = positive(kv_bytes_per_element=kv_bytes_per_element, weight_bytes_per_element=width)
    check_broadcast({**given, **widths})
    check_dcp(shape, tp=given["tp"], dcp=given["dcp"])
    p, t = given["pp"], given["tp"]
    widest = max(shape.hidden_size, shape.ffn_width, shape.attention_heads * shape.head_dim)
    one_token = shape.bytes_per_element * (shape.hidden_size + widest / t)

    def of_stage(stage: Floats) -> Memory:
        held = rank_parameters(shape, layouts, stage=stage)
        logits = (stage == p - 1) * last_stage_bytes_per_token(shape, tp=t, beside=floats(1))
        return Memory(
            weights=widths["weight_bytes_per_element"] * held.total,
            gradients=floats(0),
            optimizer=floats(0),
            activations=given["batch"] * (one_token + logits),
            kv_cache=cache_of_rank(
                shape, stage=stage, given={**given, "bytes_per_element": widths["kv_bytes_per_element"]}
            ),
        )

    return _fullest([of_stage(stage) for stage in fullest_stages(shape, pp=p, vpp=given["vpp"])])


def fits(memory: Memory, device: Device, *, reserve: ArrayLike = RESERVE) -> NDArray[np.bool_]:
    """Whether it fits on `device` of whose memory the share `reserve` is left free.

    >>> from calculators.predict.devices import DEVICES
    >>> from calculators.predict.models.catalogue import MODELS
    >>> memory = serving_memory(MODELS["llama-3.1-70b"].shape, Layouts(tp=[1, 2, 4]), batch=1, context_tokens=8192)
    >>> fits(memory, DEVICES["h100"]).tolist()
    [False, True, True]
    """
    return np.asarray(memory.total <= room(device, reserve=reserve))


def room(device: Device, *, reserve: ArrayLike = RESERVE) -> Floats:
    """Memory of `device` that a layout may fill [bytes]. Raises ValueError for shares outside 0 to 1."""
    share = numbers(reserve=reserve)["reserve"]
    fine = (share >= 0) & (share < 1)
    if not everywhere(fine):
        raise ValueError(
            f"reserve is {share[~fine].flat[0]:g}, but it is the share of a device's memory that stays free: "
            "use 0 or more, below 1."
        )
    return (1 - share) * device.memory_bytes


def _checked(layouts: Layouts) -> dict[str, Floats]:
    axes = ("dp", "tp", "pp", "cp", "ep", "etp", "vpp", "micro_batch")
    return counts(**{axis: getattr(layouts, axis) for axis in axes})


def _fullest(stages: list[Memory]) -> Memory:
    """For each layout the stage whose parts sum to most."""
    fullest, most = stages[0], stages[0].total
    for other in stages[1:]:
        total = other.total
        more = total > most
        if anywhere(more):
            most = np.maximum(most, total)
            fullest = Memory(
                **{part: _chosen(more, getattr(other, part), getattr(fullest, part)) for part in PARTS}
            )
    return fullest


def _chosen(more: NDArray[np.bool_], ours: Floats, theirs: Floats) -> Floats:
    return (
        theirs
        if ours is theirs or (ours.ndim == theirs.ndim == 0 and ours == theirs)
        else np.where(more, ours, theirs)
    )
