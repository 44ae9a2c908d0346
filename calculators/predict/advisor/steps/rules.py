"""Sizes that do not go together, and what to use instead."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import gcd

from calculators.predict.advisor.advice import Finding as F
from calculators.predict.advisor.advice import Outcome
from calculators.predict.advisor.advice import Remedy as R
from calculators.predict.advisor.advice import Technique as T
from calculators.predict.advisor.facts import Facts
from calculators.predict.advisor.steps.broken import broken_rules
from calculators.predict.advisor.steps.sizes import either, tensor_sizes
from calculators.predict.advisor.steps.step import Against, Said
from calculators.predict.rules import Violation
from calculators.predict.rules import tool as tool_of


def are_kept(facts: Facts) -> Said | None:
    """Whether the sizes that are given go together; else the nearest that do."""
    if not set(facts.known) & {"tp", "pp", "vpp", "cp", "ep", "sp", "micro_batches"}:
        return None
    found = broken_rules(facts)
    if not found:
        return Said(answer="Yes, as far as they are given")
    first = found[0]
    cure = _CURES.get(first.rule, _another_size)
    outcome = replace(
        cure(facts, first), finding=F.RULE, rules=found, sources=(first.source, f"rule {first.rule}")
    )
    numbers = " and ".join(dict.fromkeys(each.rule for each in found))
    return Said(answer=f"No, they break {numbers}", outcome=outcome)


def sequence_goes_further(facts: Facts) -> Said | None:
    """Whether more ranks can share a sequence: an all-to-all goes as far as the heads do."""
    if (
        facts.exchange != "all-to-all"
        or (facts.cp or 1) == 1
        or not (facts.attention_heads and facts.kv_heads)
    ):
        return None
    most = gcd(facts.attention_heads, facts.kv_heads) // (facts.tp or 1)
    if (facts.cp or 1) < most or facts.one_fits is not False:
        return Said(answer=f"Yes, up to {max(most, 1)} ways")
    return Said(answer=f"No: {most} is as far as the heads go", outcome=_ring(facts))


def _heads(facts: Facts, found: Violation) -> Outcome:
    """Heads do not divide: a tensor-parallel size that divides them, and stages for the devices that are left."""
    heads = facts.attention_heads or facts.kv_heads or 1
    devices = facts.devices or facts.tp or 1
    newer = (
        facts.tool == "megatron-0.15"
        and found.rule == "R2"
        and not broken_rules(replace(facts, tool="megatron"))
    )
    if newer:
        return Outcome(
            technique=T.TENSOR,
            says=f"Take a newer release, which repeats key-value heads, or use TP {either(found.nearest)}.",
            why=f"{tool_of('megatron-0.15').name} wants the key-value heads to be a multiple of TP; later "
            f"releases also allow TP to be a multiple of them: {found.sentence}",
            axes={"tp": facts.tp or 1},
            against={
                R.ANY_SIZE: f"That {facts.kv_heads} and {facts.tp} divide one way round is not enough for "
                "this release.",
                R.CHANGE_THE_MODEL: "Fewer query heads make another model; the rule is about key-value heads.",
            },
        )
    fine = [size for size in tensor_sizes(facts) if devices % size == 0 and size <= devices]
    inner = max(fine, default=1)
    outer = devices // inner
    alone = either(tuple(size for size in found.nearest if size <= devices))
    why = (
        f"{found.given}, {found.why}. Stages need no heads to divide, so they use the devices that TP cannot."
    )
    against: Against = {
        R.HUNT_A_BUG: "The refusal is arithmetic, the same on every driver and library.",
        R.ANY_SIZE: f"One device fewer helps only where it divides too: {heads} heads go {alone} ways, not "
        f"{(facts.tp or 2) - 1}."
        if (facts.tp or 2) - 1 not in found.nearest
        else f"Only sizes that divide the heads work; the nearest is {alone}.",
        T.TENSOR: f"{found.given}, {found.why}; TP {alone} leaves devices over.",
        T.EXPERT: "The heads of attention are what does not divide, and experts are no part of attention.",
        T.DATA: "The model is split because one device does not hold it, so replicas of a device each cannot be.",
    }
    if outer == 1:
        return Outcome(
            technique=T.TENSOR, says=f"Use TP {alone}.", why=why, axes={"tp": inner}, against=against
        )
    if inner == 1:
        return Outcome(
            technique=T.PIPELINE,
            says=f"Use PP {outer} on all {devices}, with uneven stages where needed, or TP {alone} on some "
            "of them.",
            why=why,
            axes={"pp": outer},
            against=against,
        )
    return Outcome(
        technique=T.COMPOSITION,
        families=(T.TENSOR, T.PIPELINE),
        says=f"Use TP {alone}, or TP {inner} × PP {outer} on all {devices} with several requests in flight.",
        why=why,
        axes={"tp": inner, "pp": outer},
        against=against,
    )


def _slices(facts: Facts, found: Violation) -> Outcome:
    if facts.expert_width is None:
        return _another_size(facts, found)
    width = facts.expert_width // (facts.tp or 1)
    return Outcome(
        technique=T.EXPERT,
        says=f"Keep experts whole with expert parallelism, or lower TP to {either(found.nearest)}.",
        why=f"Tensor parallelism cuts each expert to {width} columns, less than whole blocks of "
        f"{facts.quantisation_block}. Expert parallelism places whole ones instead.",
        axes={"ep": facts.tp or 1},
        against={
            R.MORE_TENSOR: "More ranks cut each expert thinner still.",
            R.MORE_MEMORY: "The slice fits; it is its width that the blocks do not fill.",
            T.TENSOR: "It is tensor parallelism inside the experts that cuts them below a block.",
        },
    )


def _stages(facts: Facts, found: Violation) -> Outcome:
    return Outcome(
        technique=T.PIPELINE,
        says=f"Use {found.axis} {either(found.nearest)}, or give the stages a layout of their own.",
        why=f"{found.given}, {found.why}. Current releases refuse this; older ones trained fewer layers, silently.",
        axes={found.axis: found.nearest[0]} if found.nearest else {},
        against={
            R.HUNT_A_BUG: "The checkpoint is as it was written: the layers that are missing were never built.",
        },
    )


def _fill(facts: Facts, found: Violation) -> Outcome:
    return Outcome(
        technique=T.PIPELINE,
        says=f"Use {either(found.nearest)} micro-batches, or fewer stages.",
        why=f"{found.given}, {found.why}. Below that some stages never have work, and some schedules cannot start.",
        axes={"micro_batches": found.nearest[-1]} if found.nearest else {},
        against={
            R.HUNT_A_BUG: "A longer timeout waits longer for a message that the schedule never sends.",
        },
    )


def _share_tokens(facts: Facts, found: Violation) -> Outcome:
    return Outcome(
        technique=T.SEQUENCE,
        says="Switch sequence parallelism on.",
        why=f"Without it {found.why.removeprefix('but ')}, so most of what travels is repeated.",
        against={
            R.NO_EXPERTS: "The experts are well placed; it is the tokens that are repeated.",
            T.TENSOR: "TP is fine, and TP 1 would give up what it holds; its ranks only have to share the tokens.",
        },
    )


def _pad_or_ring(facts: Facts, found: Violation) -> Outcome:
    if found.axis == "tokens":
        return Outcome(
            technique=T.CONTEXT,
            says=f"Pad each sequence to {found.nearest[-1]:,} tokens."
            if found.nearest
            else "Pad each sequence.",
            why=f"{found.given}, {found.why}. Some releases do not check, and give wrong output.",
            against={
                R.HUNT_A_BUG: "Lengths that divide come out right in the same precision, so precision is not it.",
                R.ANY_SIZE: "Only lengths that all ranks share equally come out right.",
            },
        )
    return _ring(facts)


def _ring(facts: Facts) -> Outcome:
    heads, kv_heads = facts.attention_heads, facts.kv_heads
    return Outcome(
        technique=T.CONTEXT,
        says=f"Bring keys and values together by a ring, or repeat the key-value heads (up to {heads} ways).",
        why=f"An all-to-all swaps tokens for heads, so {kv_heads or heads} key-value heads are as far as it "
        "goes; a ring does not touch heads.",
        finding=F.RULE,
        against={
            R.ANY_SIZE: f"Sizes of an all-to-all must divide {heads} query and {kv_heads} key-value heads.",
            T.SEQUENCE: "It trims activations beside tensor parallelism; the sequence is too long in every layer.",
        },
        sources=("Transformer Engine context_parallel.py", "rule R10"),
    )


def _experts_share(facts: Facts, found: Violation) -> Outcome:
    more = (
        f"Add {either(found.nearest)} redundant experts, or switch the load balancer off"
        if found.axis == "redundant_experts"
        else f"Use EP {either(found.nearest)}"
    )
    return Outcome(
        technique=T.EXPERT,
        says=f"{more}.",
        why=f"{found.given}, {found.why}. What must divide are the places for experts, copies included.",
        axes={found.axis: found.nearest[-1]} if found.nearest else {},
        against={
            R.CHANGE_THE_MODEL: "How many experts a token visits has no part in how many a rank holds.",
            R.NO_EXPERTS: f"{facts.ep} ranks can hold a mixture of experts; only equal shares need a few "
            "more copies.",
        },
    )


def _another_size(facts: Facts, found: Violation) -> Outcome:
    return Outcome(
        technique=T.NONE_OF_THESE,
        says=found.remedy,
        why=f"{found.given}, {found.why}.",
        against={R.HUNT_A_BUG: "The refusal is arithmetic, the same on every machine."},
    )


_CURES: Mapping[str, Callable[[Facts, Violation], Outcome]] = {
    "R1": _heads,
    "R2": _heads,
    "R3": _slices,
    "R4": _stages,
    "R5": _stages,
    "R6": _fill,
    "R8": _share_tokens,
    "R9": _pad_or_ring,
    "R10": _pad_or_ring,
    "R11": _experts_share,
}
