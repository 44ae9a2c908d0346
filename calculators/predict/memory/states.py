"""Weights, gradients and optimizer state: bytes of each for a parameter, and the parameters that one rank holds.

An optimizer is data: how many bytes each of its parts takes for one parameter. What a rank holds of the model follows
from tp, pp, ep and etp; what it keeps of that, from the ZeRO stage.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from calculators.predict.arrays import (
    Floats,
    amounts,
    anywhere,
    check_broadcast,
    counts,
    floats,
    whole,
)
from calculators.predict.models.parameters import (
    expert_parameters,
    feed_forward_parameters,
    norm_parameters,
    router_parameters,
    shared_expert_parameters,
    table_parameters,
)
from calculators.predict.shapes import Layouts, ModelShape, check_zero
from calculators.predict.stages import layers_of_stage


@dataclass(frozen=True, kw_only=True)
class Optimizer:
    """Bytes for each parameter: its weight, its gradient, and what the optimizer remembers of it.

    state       the parts of the optimizer's state, each with its bytes
    exchanged_gradient_bytes  of a gradient on its way between replicas
    leaves_out  what others count and this does not, as a sentence; empty where nothing is
    """

    key: str
    name: str
    weight_bytes: float
    gradient_bytes: float
    exchanged_gradient_bytes: float
    state: tuple[tuple[str, float], ...]
    source: str
    leaves_out: str = ""

    @cached_property
    def state_bytes(self) -> float:
        """Of the optimizer's state, for each parameter."""
        return sum(size for _, size in self.state)

    @property
    def bytes_per_parameter(self) -> float:
        """All together."""
        return self.weight_bytes + self.gradient_bytes + self.state_bytes


_ADAM = (("master weight in fp32", 4.0), ("momentum in fp32", 4.0), ("variance in fp32", 4.0))

MIXED_ADAM = Optimizer(
    key="mixed-adam",
    name="Adam, mixed precision (16 B)",
    weight_bytes=2,
    gradient_bytes=2,
    exchanged_gradient_bytes=2,
    state=_ADAM,
    source="ZeRO, arXiv 1910.02054 §3.1: 2 + 2 + K, K = 12",
)
MEGATRON_ADAM = Optimizer(
    key="megatron-adam",
    name="Adam, gradients in fp32 (18 B)",
    weight_bytes=2,
    gradient_bytes=4,
    exchanged_gradient_bytes=4,
    state=_ADAM,
    source="Megatron-LM theoretical_memory_usage.py: 18 bytes a parameter, 6 + 12/dp with the distributed optimizer",
)
ACCUMULATING_ADAM = Optimizer(
    key="accumulating-adam",
    name="Adam, gradients in bf16 and fp32 (20 B)",
    weight_bytes=2,
    gradient_bytes=6,
    exchanged_gradient_bytes=4,  # the 32-bit sums
    state=_ADAM,
    source="Ultra-Scale Playbook (Hugging Face): 16 bytes a parameter and 4 for accumulating gradients in fp32",
)
BRIDGE_ADAM = Optimizer(
    key="bridge-adam",
    name="Adam, all in 16 bits (8 B)",
    weight_bytes=2,
    gradient_bytes=2,
    exchanged_gradient_bytes=2,
    state=(("momentum in bf16", 2.0), ("variance in bf16", 2.0)),
    source="Megatron Bridge, page on parallelism: 140 + 140 + 280 GB for 70 billion parameters",
    leaves_out="It has no fp32 master weights, and its momentum and variance are in 16 bits. Mixed precision with "
    "them takes 16 bytes.",
)
PLAIN_ADAM = Optimizer(
    key="plain-adam",
    name="Adam, all in fp32 (16 B)",
    weight_bytes=4,
    gradient_bytes=4,
    exchanged_gradient_bytes=4,
    state=(("momentum in fp32", 4.0), ("variance in fp32", 4.0)),
    source="torch.optim.Adam on fp32 parameters: two moments of the parameter's own type",
)
OPTIMIZERS = {
    optimizer.key: optimizer
    for optimizer in (MIXED_ADAM, MEGATRON_ADAM, ACCUMULATING_ADAM, BRIDGE_ADAM, PLAIN_ADAM)
}


def optimizer(key: str) -> Optimizer:
    """The optimizer with this key. Raises ValueError that names them all."""
    if key not in OPTIMIZERS:
        raise ValueError(
            f"optimizer is {key!r}, which is not known here. Use one of: {', '.join(OPTIMIZERS)}."
        )
    return OPTIMIZERS[key]


@dataclass(frozen=True, kw_only=True, eq=False)
class ModelStates:
    """What one rank keeps of its parameters, as arrays [bytes]."""

    weights: Floats
    gradients: Floats
    optimizer: Floats

    @property
    def total(self) -> Floats:
        """All three."""
        return self.weights + self.gradients + self.optimizer


def model_states(
    parameters: ArrayLike,
    *,
    optimizer: Optimizer = MIXED_ADAM,
    zero: ArrayLike = 0,
    replicas: ArrayLike = 1,
) -> ModelStates:
    """Bytes that each of `replicas` ranks keeps for the same `parameters`.

    ZeRO stage 1 cuts the optimizer's state by the replicas, 2 the gradients too, 3 the weights too (FSDP). With Ψ
    parameters in mixed precision: 16Ψ, 4Ψ + 12Ψ/n, 2Ψ + 14Ψ/n, 16Ψ/n (arXiv 1910.02054, figure 1).

    Raises ValueError for negative parameters, replicas below 1 and stages other than 0 to 3.

    >>> states = model_states(7.5e9, zero=[0, 1, 2, 3], replicas=64)
    >>> (states.total / 1e9).round(1).tolist()
    [120.0, 31.4, 16.6, 1.9]
    """
    given = amounts(parameters=parameters) | counts(replicas=replicas)
    stage = check_zero(zero)
    check_broadcast({**given, "zero": stage})
    count = given["parameters"]
    shares = _Shares.of(stage, given["replicas"])
    return ModelStates(
        weights=optimizer.weight_bytes * count * shares.weights,
        gradients=optimizer.gradient_bytes * count * shares.gradients,
        optimizer=optimizer.state_bytes * count * shares.optimizer,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class RankParameters:
    """Parameters of the model that one rank of a stage answers for before ZeRO cuts them.

    Routed experts are apart, for they have replicas of their own: `replicas` share the rest, `expert_replicas` these.
    """

    rest: Floats
    experts: Floats
    replicas: Floats
    expert_replicas: Floats

    @property
    def total(self) -> Floats:
        """All of them."""
        return self.rest + self.experts

    def states(self, *, optimizer: Optimizer, zero: Floats) -> ModelStates:
        """What the rank keeps of them [bytes]."""
        if not anywhere(self.experts):
            return self._of(self.rest, self.replicas, optimizer, zero)
        rest = self._of(self.rest, self.replicas, optimizer, zero)
        experts = self._of(self.experts, self.expert_replicas, optimizer, zero)
        return ModelStates(
            weights=rest.weights + experts.weights,
            gradients=rest.gradients + experts.gradients,
            optimizer=rest.optimizer + experts.optimizer,
        )

    @staticmethod
    def _of(count: Floats, replicas: Floats, optimizer: Optimizer, zero: Floats) -> ModelStates:
        shares = _Shares.of(zero, replicas)
        return ModelStates(
            weights=optimizer.weight_bytes * count * shares.weights,
            gradients=optimizer.gradient_bytes * count * shares.gradients,
            optimizer=optimizer.state_bytes * count * shares.optimizer,
        )


def rank_parameters(
    shape: ModelShape, layouts: Layouts, *, stage: ArrayLike, layers: tuple[Floats, Floats] | None = None
) -> RankParameters:
    """What a rank of `stage` (from 0) answers for.

    Tensor parallelism cuts the projections, the feed-forward matrices, the embedding and the output matrix; norms, the
    router, learned positions and the compressing matrices of latent attention are whole on each of its ranks, and key
    and value heads are repeated where there are fewer than ranks (Megatron-LM). Experts are cut by ep and etp, whose
    replicas are the expert_dp of the layouts; everything else is replicated dp·cp times. A tied output matrix is a
    second copy where the last stage is not the first.

    layers  of the stage, where `layers_of_stage` has been asked for them already

    >>> from calculators.predict.models.catalogue import MODELS
    >>> shape = MODELS["llama-3.1-70b"].shape
    >>> rank_parameters(shape, Layouts(tp=[1, 8]), stage=0).total.tolist()
    [70553706496.0, 8820367360.0]
    """
    i, p, t = amounts(stage=stage)["stage"], floats(layouts.pp), floats(layouts.tp)
    h = shape.hidden_size
    dense, sparse = layers_of_stage(shape, i, pp=p, vpp=layouts.vpp) if layers is None else layers
    attention = attention_of_rank(shape, t) + norm_parameters(shape)
    rest = (dense + sparse) * attention
    if shape.dense_layers:
        rest = rest + dense * (feed_forward_parameters(shape) / t)
    experts: Floats = floats(0)
    if shape.experts:
        experts = sparse * _routed_of_rank(shape, layouts)
        rest = rest + sparse * _beside_experts(shape, t)
    is_first, is_last = i == 0, i == p - 1
    table = table_parameters(shape) / t
    needs_output = is_last & (p > 1) if shape.tied_embeddings else is_last
    rest = rest + is_first * (table + shape.positions * h) + needs_output * table + is_last * h
    return RankParameters(
        rest=rest,
        experts=experts,
        replicas=floats(layouts.dp) * floats(layouts.cp),
        expert_replicas=np.maximum(layouts.expert_dp, 1) if shape.experts else floats(1),
    )


def largest_unit(shape: ModelShape, layouts: Layouts) -> Floats:
    """Parameters of the largest piece that a rank gathers whole under ZeRO-3: one layer, or the embedding."""
    t = floats(layouts.tp)
    attention = attention_of_rank(shape, t) + norm_parameters(shape)
    unit = table_parameters(shape) / t
    if shape.dense_layers:
        unit = np.maximum(unit, attention + feed_forward_parameters(shape) / t)
    if shape.experts:
        unit = np.maximum(unit, attention + _routed_of_rank(shape, layouts) + _beside_experts(shape, t))
    return floats(unit)


def attention_of_rank(shape: ModelShape, tp: ArrayLike) -> Floats:
    """Parameters of one layer's attention on each of `tp` ranks.

    >>> from calculators.predict.models.catalogue import MODELS
    >>> attention_of_rank(MODELS["llama-3.1-70b"].shape, [1, 8, 16]).tolist()
    [150994944.0, 18874368.0, 10485760.0]
    """
    t, h, heads, width = counts(tp=tp)["tp"], shape.hidden_size, shape.attention_heads, shape.head_dim
    if shape.latent is None:
        return 2 * h * width * heads / t + 2 * h * width * shape.kv_heads / np.minimum(t, shape.kv_heads)
    latent = shape.latent
    query_width = heads * (width + latent.rope_dim)
    from_query = latent.query_rank if latent.query_rank else h
    whole = h * latent.query_rank + h * (latent.kv_rank + latent.rope_dim)
    cut = from_query * query_width + latent.kv_rank * heads * (width + latent.value_dim)
    return whole + (cut + heads * latent.value_dim * h) / t


def _routed_of_rank(shape: ModelShape, layouts: Layouts) -> Floats:
    """Routed experts of one sparse layer on one rank: E/ep of them, an etp-th of each."""
    experts = shape.experts.routed * expert_parameters(shape) if shape.experts else 0
    return experts / (floats(layouts.ep) * floats(layouts.etp))


def _beside_experts(shape: ModelShape, t: Floats) -> Floats:
    return shared_expert_parameters(shape) / t + router_parameters(shape)


@dataclass(frozen=True, kw_only=True)
class DeepSpeedEstimate:
    """What DeepSpeed's own estimators say of model states [bytes]: for each GPU, and for the host's memory."""

    gpu: float
    host: float


def deepspeed_zero2(
    parameters: float, *, gpus: int, offload_optimizer: bool, buffer_factor: float = 1.5
) -> DeepSpeedEstimate:
    """DeepSpeed's estimate for ZeRO-2 on one host: 4P + 16P/N, or 2P with the optimizer in the host's memory.

    Source: deepspeed/runtime/zero/stage_1_and_2.py, estimate_zero2_model_states_mem_needs. Its 4P are weights and
    gradients whole, although stage 2 cuts gradients: compare `model_states(..., zero=2)`.
    """
    amounts(parameters=parameters, buffer_factor=buffer_factor)
    whole("gpus", gpus)
    if offload_optimizer:
        return DeepSpeedEstimate(gpu=2 * parameters, host=parameters * max(4 * gpus, 16) * buffer_factor)
    return DeepSpeedEstimate(
        gpu=4 * parameters + 16 * parameters / gpus, host=parameters * 4 * gpus * buffer_factor
    )


def deepspeed_zero3(
    parameters: float,
    *,
    largest_layer: float,
    gpus: int,
    offload_optimizer: bool,
    offload_weights: bool = False,
    zero_init: bool = True,
    buffer_factor: float = 1.5,
) -> DeepSpeedEstimate:
    """DeepSpeed's estimate for ZeRO-3 on one host: 4 bytes of the largest layer and 18P/N, less what is in the host.

    Source: deepspeed/runtime/zero/stage3.py, estimate_zero3_model_states_mem_needs. `zero_init` builds the model cut
    from the start; otherwise every process first builds it whole in the host's memory.
    """
    amounts(parameters=parameters, largest_layer=largest_layer, buffer_factor=buffer_factor)
    whole("gpus", gpus)
    working = 4 * largest_layer
    if offload_optimizer:
        gpu = working if offload_weights else working + 2 * parameters / gpus
        host = parameters * (18 if offload_weights else 16) * buffer_factor
        every = parameters * max(4 * gpus, 18 if offload_weights else 16) * buffer_factor
        return DeepSpeedEstimate(gpu=gpu, host=host if zero_init else every)
    built = largest_layer if zero_init else parameters
    return DeepSpeedEstimate(
        gpu=working + 18 * parameters / gpus,
        host=built * 4 * gpus * buffer_factor,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Shares:
    """The share of each kind of state that one of the replicas keeps."""

    weights: Floats
    gradients: Floats
    optimizer: Floats

    @classmethod
    def of(cls, zero: Floats, replicas: Floats) -> _Shares:
        one = 1 / replicas
        return cls(
            weights=np.where(zero >= 3, one, 1.0),
            gradients=np.where(zero >= 2, one, 1.0),
            optimizer=np.where(zero >= 1, one, 1.0),
        )
