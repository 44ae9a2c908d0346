"""What data parallelism moves: gradients, and the weights of replicas that are kept in slices."""

from __future__ import annotations

from dataclasses import replace

from numpy.typing import ArrayLike

from calculators.predict.arrays import (
    amounts,
    anywhere,
    check_broadcast,
    counts,
    floats,
    positive,
)
from calculators.predict.collectives import TEXTBOOK, Backend, Kind
from calculators.predict.shapes import Phase
from calculators.predict.traffic.figures import (
    Factors,
    Row,
    Traffic,
    number,
    summed,
)

STAGES = ("ddp", "zero-1", "zero-2", "zero-3", "hsdp")
SLICED = ("zero-3", "hsdp")
"""Stages that keep the weights in slices."""


def data_parallel(
    *,
    parameters: ArrayLike,
    ranks: ArrayLike,
    stage: str = "ddp",
    phase: Phase = Phase.TRAINING,
    micro_batches: ArrayLike = 1,
    replica_groups: ArrayLike = 1,
    gradient_bytes_per_element: ArrayLike = 2,
    weight_bytes_per_element: ArrayLike = 2,
    units: ArrayLike = 1,
    reshard_after_forward: bool = True,
    reduce_each_micro_batch: bool = False,
    tied_parameters: ArrayLike = 0,
    backend: Backend = TEXTBOOK,
) -> Traffic:
    """Traffic of `ranks` replicas of a model's shard of `parameters` [parameters] in one training step.

    stage        "ddp"     one all-reduce of the gradients, after the last micro-batch
                 "zero-1", "zero-2"   a reduce-scatter of the gradients, and an all-gather of the weights that each rank
                           has updated its slice of (Megatron-LM's distributed optimizer is zero-1)
                 "zero-3"  weights live in slices (FSDP): every micro-batch gathers them for the forward pass, again for
                           the backward pass, and reduce-scatters the gradients. 1.5 times "ddp" with one micro-batch
                 "hsdp"    zero-3 inside groups of `ranks`, and an all-reduce of the slices' gradients across
                           `replica_groups` of them
    micro_batches            accumulated in a step
    units                    buckets or layers that one round of these calls is cut into
    reshard_after_forward    False keeps the gathered weights for the backward pass (zero-3, hsdp)
    reduce_each_micro_batch  zero-2 that keeps no whole gradients: a reduce-scatter for each micro-batch
    tied_parameters          of an embedding that the first and last stage both hold: they sum its gradients
    gradient_bytes_per_element, weight_bytes_per_element   2 and 2 in the ZeRO paper, 4 and 2 in Megatron-LM

    In serving plain replicas never speak; weights in slices are gathered once a forward pass.
    Source: Rajbhandari 2020 (arXiv 1910.02054) §7. Raises ValueError where a size cannot be, or a stage is unknown.

    >>> moved = [data_parallel(parameters=1_000, ranks=4, stage=stage).wire_bytes.item() for stage in STAGES[:4]]
    >>> moved
    [3000.0, 3000.0, 3000.0, 4500.0]
    """
    if stage not in STAGES:
        raise ValueError(f"stage is {stage!r}, which is not known here. Use one of: {', '.join(STAGES)}.")
    given = {
        **counts(
            parameters=parameters,
            ranks=ranks,
            micro_batches=micro_batches,
            replica_groups=replica_groups,
            units=units,
        ),
        **positive(
            gradient_bytes_per_element=gradient_bytes_per_element,
            weight_bytes_per_element=weight_bytes_per_element,
        ),
        **amounts(tied_parameters=tied_parameters),
    }
    check_broadcast(given)
    phase = Phase(phase)
    training = phase == Phase.TRAINING
    weights: Factors = {r"\Psi": given["parameters"], "w": given["weight_bytes_per_element"]}
    gradients: Factors = {r"\Psi": given["parameters"], "g": given["gradient_bytes_per_element"]}
    micro: Factors = {"m": given["micro_batches"]} if training else {}

    def row(kind: Kind, what: str, tensor: Factors, *, times: Factors | None = None) -> Row:
        return Row(
            kind=kind,
            what=what,
            times=times or {},
            tensor=tensor,
            letter="d",
            ranks=given["ranks"],
            pieces={"u": given["units"]} if anywhere(given["units"] > 1) else {},
        )

    rows: list[Row] = []
    if stage in SLICED:
        passes = number(1 + (training and reshard_after_forward))
        rows.append(row(Kind.ALL_GATHER, "weights for the passes", weights, times={**passes, **micro}))
    if training and stage == "ddp":
        rows.append(row(Kind.ALL_REDUCE, "gradients", gradients))
    elif training:
        often = stage in SLICED or (stage == "zero-2" and reduce_each_micro_batch)
        rows.append(row(Kind.REDUCE_SCATTER, "gradients", gradients, times=micro if often else {}))
    if training and stage in ("zero-1", "zero-2"):
        rows.append(row(Kind.ALL_GATHER, "updated weights", weights))
    if training and stage == "hsdp":
        slices: Factors = {r"\frac{\Psi}{d}": (given["parameters"], given["ranks"]), "g": gradients["g"]}
        across = row(Kind.ALL_REDUCE, "gradients of the slices, across the groups", slices)
        rows.append(replace(across, letter="r", ranks=given["replica_groups"]))
    if training and anywhere(given["tied_parameters"] > 0):
        tied: Factors = {"U": given["tied_parameters"], "g": gradients["g"]}
        ends = row(Kind.ALL_REDUCE, "embedding, of the first and the last stage", tied)
        rows.append(
            replace(ends, letter="2", ranks=floats(2), pieces=number(1.0 * (given["tied_parameters"] > 0)))
        )
    return summed("data", phase, rows, given=given, backend=backend)
