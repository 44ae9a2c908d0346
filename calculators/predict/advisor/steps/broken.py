"""Which rules the numbers break, as far as they are given."""

from __future__ import annotations

from functools import lru_cache

from calculators.predict.advisor.facts import Facts
from calculators.predict.rules import Case, Kind, Violation, violations
from calculators.predict.shapes import Experts, Layouts, ModelShape, Phase


def broken_rules(facts: Facts) -> tuple[Violation, ...]:
    """The rules that the numbers given break. What is not given breaks none."""
    told = {name: getattr(facts, name) for name in _TOLD}
    if facts.wording == "practice" and facts.phase == "serving" and facts.tool is None:
        told["tool"] = "vllm"
    return _broken(Facts(**told))


_TOLD = (
    *("phase", "moe", "dp", "tp", "sp", "pp", "vpp", "cp", "ep", "exchange", "micro_batches", "tokens"),
    *("attention_heads", "kv_heads", "layers", "ffn_width", "experts", "expert_width"),
    *("quantisation_block", "redundant_experts", "tool"),
)


@lru_cache(maxsize=1024)
def _broken(facts: Facts) -> tuple[Violation, ...]:
    """The same for facts that nothing but the rules asks for, so that a question about others costs nothing again."""
    unset = 2**6 * 720_720  # divides by every size that a layout has, so that no rule speaks of it
    experts = (
        Experts(routed=facts.experts, per_token=1, width=facts.expert_width or unset)
        if facts.experts and facts.moe is not False
        else None
    )
    shape = ModelShape(
        name="the model",
        hidden_size=1,
        layers=facts.layers or unset,
        attention_heads=facts.attention_heads or unset,
        kv_heads=facts.kv_heads or unset,
        head_dim=1,
        ffn_width=facts.ffn_width or unset,
        vocab_size=unset,
        bytes_per_element=2,
        source="facts",
        experts=experts,
    )
    phase = Phase.DECODE if facts.phase == "serving" else Phase.TRAINING
    tool = facts.tool or "megatron"
    ep = facts.ep or 1
    sliced = tool == "vllm" and experts is not None and ep == 1
    layouts = Layouts(
        # Enough replicas for the experts that were asked for, where nobody says how many there are.
        dp=facts.dp or (ep if experts or ep > 1 else 1),
        tp=facts.tp or 1,
        pp=facts.pp or 1,
        cp=facts.cp or 1,
        ep=ep,
        etp=(facts.tp or 1) * (facts.dp or 1) if sliced else 1,
        vpp=facts.vpp or 1,
        sp=bool(facts.sp),
    )
    case = Case(
        shape=shape,
        layouts=layouts,
        phase=phase,
        tool=tool,
        tokens=facts.tokens,
        given_micro_batches=facts.micro_batches,
        quantisation_block=facts.quantisation_block,
        exchange=facts.exchange or "ring",  # type: ignore[arg-type]
        redundant_experts=facts.redundant_experts,
    )
    known = {
        name
        for name in ("attention_heads", "kv_heads", "layers", "ffn_width", "expert_width")
        if getattr(facts, name)
    }
    known |= {"experts"} if facts.experts else set()
    # A layout is known in parts here, so what counts devices (R12 to R14) is left to those who know all of it.
    # Sequence parallelism without tensor parallelism and experts in a dense model are turned down as what they are.
    silent = {"R12", "R13", "R14"}
    return tuple(
        found
        for found in violations(case)
        if found.kind is Kind.REFUSED
        and found.rule not in silent
        and set(found.reads) <= known
        and not (found.rule == "R7" and found.axis == "sp")
        and not (found.rule == "R11" and experts is None)
    )
