"""Each axis of a layout in the words of its own family.

A family's function says what one rank of one stage does; the composition says the same of all stages. A family speaks
for an axis only where both come to the same bytes: some compositions have calls that no family alone makes.
"""

import math
from collections.abc import Callable
from typing import Any

from calculators.pages.layout.case import LayoutCase
from calculators.predict.memory.states import rank_parameters
from calculators.predict.shapes import Phase, Recompute
from calculators.predict.stages import layers_of_stage
from calculators.predict.traffic import (
    Traffic,
    context_parallel,
    data_parallel,
    expert_parallel,
    pipeline_parallel,
    tensor_parallel,
)

STAGES = {0: "ddp", 1: "zero-1", 2: "zero-2", 3: "zero-3"}
"""ZeRO stage → what `data_parallel` calls it."""


def of_a_rank(case: LayoutCase, axis: str) -> Traffic | None:
    """The traffic of one rank of the stage that is busiest on this axis, by the family's own function.

    None where no family alone makes these calls.
    """
    if axis not in _FAMILIES:
        return None
    moved = case.axes[axis]
    try:
        found = _FAMILIES[axis](case, moved.busiest_stage)
    except ValueError:  # sizes that a family refuses and a composition does not need
        return None
    return found if math.isclose(found.wire_bytes.item(), moved.sent_bytes, rel_tol=1e-9) else None


def _in_flight(case: LayoutCase) -> dict[str, Any]:
    """What one rank has in flight."""
    tokens = case.tokens / (1 if case.phase is Phase.DECODE else case.layout.cp)
    return {
        "phase": case.phase,
        "batch": case.micro_batch if case.is_training else case.sequences_of_a_replica,
        "tokens": tokens,
        "micro_batches": case.micro_batches if case.is_training else 1,
        "bytes_per_element": case.shape.bytes_per_element,
    }


def _layers(case: LayoutCase, stage: int) -> tuple[float, float]:
    dense, sparse = layers_of_stage(case.shape, stage, pp=case.layout.pp, vpp=case.layout.vpp)
    return dense.item(), sparse.item()


def _again(case: LayoutCase) -> dict[str, Any]:
    return {"full_recompute": case.is_training and case.recompute is Recompute.FULL, "backend": case.backend}


def _tensor(case: LayoutCase, stage: int) -> Traffic:
    # Where tokens are sent to their experts, a sparse layer's own block is not this group's; a shared expert is.
    one_block = case.shape.experts is not None and not case.shape.experts.shared_width
    return tensor_parallel(
        hidden_size=case.shape.hidden_size,
        layers=sum(_layers(case, stage)),
        ranks=case.layout.tp,
        sequence_parallel="regather" if case.layout.sp else "off",
        blocks_per_layer=1 if one_block else 2,
        **_in_flight(case),
        **_again(case),
    )


def _context(case: LayoutCase, stage: int) -> Traffic:
    shape, tp = case.shape, case.layout.tp
    latent = shape.latent
    heads = shape.attention_heads / tp
    return context_parallel(
        attention_heads=heads,
        kv_heads=heads if latent else max(shape.kv_heads / tp, 1),
        head_dim=shape.head_dim + (latent.rope_dim if latent else 0),
        value_dim=latent.value_dim if latent else shape.head_dim,
        layers=sum(_layers(case, stage)),
        ranks=case.layout.cp,
        **_in_flight(case) | {"tokens": case.tokens},
        **_again(case),
    )


def _pipeline(case: LayoutCase, stage: int) -> Traffic:
    return pipeline_parallel(
        hidden_size=case.shape.hidden_size,
        stages=case.layout.pp,
        chunks=case.layout.vpp,
        tensor_ranks=case.layout.tp if case.layout.sp else 1,
        **_in_flight(case),
    )


def _experts(case: LayoutCase, stage: int) -> Traffic:
    experts = case.shape.experts
    if experts is None:
        raise ValueError(f"{case.shape.name} is dense: it has no experts to share out.")
    given = _in_flight(case)
    decode = case.phase is Phase.DECODE
    on_a_rank = given["batch"] * (1 / case.layout.cp if decode else given["tokens"]) / case.layout.tp
    return expert_parallel(
        hidden_size=case.shape.hidden_size,
        layers=_layers(case, stage)[1],
        tokens=on_a_rank,
        experts=experts.routed,
        experts_per_token=experts.per_token,
        ranks=case.layout.ep,
        phase=case.phase,
        micro_batches=given["micro_batches"],
        dispatch_bytes_per_element=case.shape.bytes_per_element,
        combine_bytes_per_element=case.shape.bytes_per_element,
        **_again(case),
    )


def _replicas(case: LayoutCase, held: float, ranks: float) -> Traffic:
    return data_parallel(
        parameters=held,
        ranks=ranks,
        stage=STAGES[case.layout.zero],
        phase=case.phase,
        micro_batches=case.micro_batches if case.is_training else 1,
        gradient_bytes_per_element=case.gradient_bytes,
        weight_bytes_per_element=case.shape.bytes_per_element,
        backend=case.backend,
    )


def _data(case: LayoutCase, stage: int) -> Traffic:
    held = rank_parameters(case.shape, case.layouts, stage=stage)
    return _replicas(case, held.rest.item(), held.replicas.item())


def _expert_data(case: LayoutCase, stage: int) -> Traffic:
    held = rank_parameters(case.shape, case.layouts, stage=stage)
    return _replicas(case, held.experts.item(), held.expert_replicas.item())


_FAMILIES: dict[str, Callable[[LayoutCase, int], Traffic]] = {
    "tp": _tensor,
    "cp": _context,
    "pp": _pipeline,
    "ep": _experts,
    "dp": _data,
    "edp": _expert_data,
}
