"""The split map of a run: its spec's layout, the lab's small model, and what the map leaves out."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Self

from calculators.lab.choices import Attention, Gradients, Job, Order, Qkv, Schedule
from calculators.lab.spec import Spec
from calculators.lab.splits.memory import shape_of
from calculators.maps import Picture, picture
from calculators.predict.shapes import Experts, Layout, ModelShape, Phase

_CONTEXT = {
    Attention.RING: "ring",
    Attention.KEY_VALUE_GATHER: "all-gather",
    Attention.ULYSSES: "ulysses",
}
_ORDERS = {
    Order.TENSOR_INSIDE: ("tp", "pp", "dp", "cp"),
    Order.PIPELINE_INSIDE: ("pp", "tp", "dp", "cp"),
}
"""As `lab.splits.mesh` numbers its ranks, the innermost axis first."""


@dataclass(frozen=True, kw_only=True)
class LayoutMap:
    """The picture of a run's layout, and where its calls differ from those of the picture, a sentence each."""

    picture: Picture
    remarks: tuple[str, ...]

    @classmethod
    def of(cls, spec: Spec) -> Self | None:
        """The map of a run of `spec`; None where no model is split, or not in a way that the map can show."""
        if not spec.has_model or _is_unlike(spec):
            return None
        found = _picture(replace(spec, note="", steps=1, warmup_steps=1, seed=0))
        return cls(picture=found, remarks=tuple(_remarks(spec))) if found.map else None


def layout_of(spec: Spec) -> Layout:
    """How a run splits its model, in the calculators' words."""
    ranks = spec.ranks
    match spec.job:
        case Job.DATA:
            return Layout(dp=ranks)
        case Job.SHARDED:
            return Layout(dp=ranks, zero=spec.zero)
        case Job.TENSOR:
            return Layout(tp=ranks, sp=spec.sequence)
        case Job.PIPELINE:
            return Layout(pp=ranks, vpp=spec.chunks if spec.schedule.has_chunks and spec.is_training else 1)
        case Job.CONTEXT:
            return Layout(cp=ranks)
        case Job.EXPERT:
            return Layout(dp=ranks, ep=ranks if spec.has_experts else 1)
    if spec.ep > 1:
        return Layout(dp=spec.dp * spec.ep, ep=spec.ep if spec.has_experts else 1)
    return Layout(dp=spec.dp, tp=spec.tp, pp=spec.pp)


@lru_cache(maxsize=64)
def _picture(spec: Spec) -> Picture:
    layout = layout_of(spec)
    with_stages = layout.tp * layout.pp > 1
    return picture(
        layout,
        shape=_shape(spec),
        ranks_per_host=max(1, spec.ranks // spec.hosts),
        phase=Phase(spec.phase.value),
        batch=spec.batch // spec.microbatches,
        tokens=spec.tokens,
        micro_batches=spec.microbatches if spec.is_training else 1,
        context=_CONTEXT[spec.attention],
        regather=spec.regather,
        order=_ORDERS[spec.order] if with_stages else ("tp", "cp", "dp", "pp"),
    )


def _shape(spec: Spec) -> ModelShape:
    shape = shape_of(spec)
    if not spec.has_experts:
        return shape
    experts = Experts(routed=spec.experts, per_token=min(spec.top_k, spec.experts), width=spec.ffn_width)
    return replace(shape, experts=experts)


def _is_unlike(spec: Spec) -> bool:
    """Whether what the run does is not what the map would draw."""
    return (
        spec.zigzag  # each rank has two pieces of the sequence
        or spec.schedule is Schedule.ZBV  # the second chunk goes back up
        or spec.gradients is Gradients.KEPT  # replicas that never talk
        or spec.lost_rank >= 0
        or (spec.is_training and spec.qkv is Qkv.SEPARATE and spec.job is Job.TENSOR)  # two all-reduces more
    )


def _remarks(spec: Spec) -> Iterator[str]:
    if spec.has_experts:
        yield "The map takes every expert to be wanted equally often. This run drew which are; its bytes follow that."
    if spec.microbatches > 1 and not spec.is_training:
        yield f"The map follows one of the {spec.microbatches} micro-batches of a step."
    if spec.is_training and spec.job in (Job.DATA, Job.SHARDED, Job.MESH):
        yield "The map counts the formulas’ calls. A program may cut them into buckets: as many bytes in more calls."
