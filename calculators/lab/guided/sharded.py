"""What the lessons claim of sharded data parallelism: what each stage stops copying, and what it sends for it."""

from collections.abc import Mapping

from calculators.lab.guided.claims import Figure, Guided, Level, Result, Verdict, held_if
from calculators.lab.guided.levels import algorithm_bytes
from calculators.lab.guided.variants import variant
from calculators.lab.measurements import Quantity
from calculators.lab.splits.memory import GRADIENTS, OPTIMIZER, WEIGHTS
from calculators.predict.collectives import Kind

_MODEL = {
    "phase": "training",
    "layers": 2,
    "hidden_size": 128,
    "ffn_width": 256,
    "batch": 4,
    "tokens": 16,
    "steps": 10,
}
_SHARDED = {"job": "sharded", **_MODEL}
_CUT_FROM = {WEIGHTS: 3, GRADIENTS: 2, OPTIMIZER: 1}
_PADDING = 0.05
"""Rows that do not divide are padded, so a slice may be this much more than an n-th."""


def _held(result: Result, part: str) -> float:
    return result.measured(Quantity.MEMORY, rank=0, detail=part)


def _sent(result: Result) -> float:
    """Bytes of the algorithm in a step, all ranks; a broadcast's whole tensor leaves its root n − 1 times."""
    return algorithm_bytes(
        result, Kind.ALL_REDUCE, Kind.ALL_GATHER, Kind.REDUCE_SCATTER, axis="dp"
    ) / result.spec.steps + _broadcast(result)


def _broadcast(result: Result) -> float:
    """Every rank counts a broadcast's tensor; one of them is its root."""
    seen = sum(
        m.value
        for m in result.measurements
        if (m.quantity, m.detail) == (Quantity.HANDED, f"dp {Kind.BROADCAST}")
    )
    ranks = result.run.world_size
    return seen / ranks * (ranks - 1) / result.spec.steps


def _stages_divide(results: Mapping[str, Result]) -> Verdict:
    plain, ranks = results["plain"], results["plain"].run.world_size
    as_claimed, figures = True, []
    for stage in (1, 2, 3):
        result = results[f"zero-{stage}"]
        for part, first in _CUT_FROM.items():
            if stage == 2 and part == WEIGHTS:
                continue  # FSDP2 keeps slices between steps in both stages; 2 differs while a step runs
            share = _held(result, part) / _held(plain, part)
            wanted = 1 / ranks if stage >= first else 1.0
            as_claimed = as_claimed and abs(share / wanted - 1) <= _PADDING
            figures.append(
                Figure(
                    what=f"ZeRO-{stage}: {part} of rank 0, as a share of plain data parallelism's",
                    unit="×",
                    predicted=wanted,
                    measured=share,
                    level=Level.MEMORY,
                )
            )
    third = results["zero-3"]
    held = [sum(_held(result, part) for part in _CUT_FROM) for result in (plain, third)]
    return Verdict(
        outcome=held_if(as_claimed),
        sentence=f"On {ranks} ranks, stage 1 cut the optimizer state, stage 2 the gradients too, stage 3 the weights "
        f"too: {held[0]:,.0f} bytes of a rank became {held[1]:,.0f}.",
        figures=tuple(figures),
    )


def _stage_three_sends_half_more(results: Mapping[str, Result]) -> Verdict:
    plain, second, third = (_sent(results[name]) for name in ("plain", "zero-2", "zero-3"))
    wire = {
        name: results[name].measured(Quantity.WIRE) / results["plain"].measured(Quantity.WIRE)
        for name in results
    }
    return Verdict(
        outcome=held_if(abs(second / plain - 1) <= _PADDING and abs(third / plain - 1.5) <= 1.5 * _PADDING),
        sentence=f"Beside plain data parallelism's bytes, stage 2's algorithm sent {second / plain:.3g} × and stage "
        f"3's {third / plain:.3g} ×. On the wire stage 3 was {wire['zero-3']:.3g} × as this backend reduces "
        f"and scatters, and {wire['all-to-all']:.3g} × by all-to-all.",
        figures=(
            Figure(
                what="bytes of the algorithm, ZeRO-2 ÷ plain",
                unit="×",
                predicted=1,
                measured=second / plain,
                level=Level.ALGORITHM,
            ),
            Figure(
                what="bytes of the algorithm, ZeRO-3 ÷ plain",
                unit="×",
                predicted=1.5,
                measured=third / plain,
                level=Level.ALGORITHM,
            ),
            *(
                Figure(
                    what=f"bytes on the wire, {title} ÷ plain",
                    unit="×",
                    predicted=results[name].predicted(Quantity.WIRE)
                    / results["plain"].predicted(Quantity.WIRE),
                    measured=wire[name],
                    level=Level.WIRE,
                    decides=False,
                )
                for name, title in (
                    ("zero-2", "ZeRO-2"),
                    ("zero-3", "ZeRO-3"),
                    ("all-to-all", "ZeRO-3, reduce-scatter by all-to-all"),
                )
            ),
        ),
    )


_PLAIN = variant("plain", "Plain data parallelism", {"job": "data", **_MODEL})
_STAGES = tuple(variant(f"zero-{stage}", f"ZeRO-{stage}", _SHARDED, {"zero": stage}) for stage in (1, 2, 3))

EXPERIMENTS = (
    Guided(
        name="zero-stages",
        title="What each ZeRO stage stops copying",
        family="dp",
        lesson="sharded-data-parallelism",
        claim="ZeRO-1 divides the optimizer state among the replicas, ZeRO-2 the gradients too, ZeRO-3 the weights "
        "too.",
        about="Plain replicas hold three copies of everything that training needs, each on every rank. A stage cuts "
        "one more of them into slices. Stage 1 here is PyTorch's ZeroRedundancyOptimizer, stages 2 and 3 are FSDP2.",
        level=Level.MEMORY,
        variants=(_PLAIN, *_STAGES),
        judge=_stages_divide,
    ),
    Guided(
        name="zero-traffic",
        title="Stage 3 sends half as much again",
        family="dp",
        lesson="sharded-data-parallelism",
        claim="ZeRO-2 sends what plain data parallelism does; ZeRO-3 sends 1.5 times that.",
        about="An all-reduce is a reduce-scatter and an all-gather, so up to stage 2 nothing is added. Stage 3 "
        "gathers the weights again for the backward pass. The claim is about the algorithm: gloo's reduce-scatter "
        "is a whole all-reduce, so on its wire FSDP sends twice plain data parallelism's bytes.",
        level=Level.ALGORITHM,
        variants=(
            _PLAIN,
            *_STAGES[1:],
            variant("all-to-all", "ZeRO-3 by all-to-all", _SHARDED, {"reduce_scatter": "all-to-all"}),
        ),
        judge=_stage_three_sends_half_more,
    ),
)
