"""The procedure: questions in a fixed order, each answered from the facts, until one of them decides.

What was measured is looked at first, because a cure for what is wrong is worth more than another split. Then the
lessons' order: does it fit, and if not, which piece does not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from math import gcd

from calculators.predict.advisor.advice import Finding, Outcome, Remedy, Technique
from calculators.predict.advisor.facts import FAR, LONG_TOKENS, OVERFLOWS, Facts
from calculators.predict.links import LADDER, RUNGS
from calculators.predict.rules import Case, Kind, Violation, violations
from calculators.predict.rules import tool as tool_of
from calculators.predict.shapes import Experts, Layouts, ModelShape, Phase

T, F, R = Technique, Finding, Remedy
Against = dict[Technique | Remedy, str]

NEAR_CEILING = 0.6  # decode rarely reaches more than 60 to 90 % of the memory's peak
LINK_IDLE = 0.1  # below a tenth of its bandwidth a link is not what is waited for
MOSTLY_BUSY = 0.7  # a well-filled pipeline idles less than that: (p − 1)/(m + p − 1) is 0.27 for p 4 and m 8
HOT = 1.5  # an expert-parallel exchange is as slow as its busiest rank

BRIDGE = "Megatron-Bridge docs/parallelisms.md"
VLLM_SCALING = "vLLM docs/serving/parallelism_scaling.md"
MOE_README = "Megatron-LM core/transformer/moe/README.md"
ZERO = "ZeRO (arXiv:1910.02054)"


@dataclass(frozen=True, kw_only=True)
class Said:
    """What the facts answer to one question, and the outcome where that decides."""

    answer: str
    outcome: Outcome | None = None


@dataclass(frozen=True, kw_only=True)
class Step:
    """One question of the procedure. `look` gives None where the facts say nothing about it."""

    asks: str
    look: Callable[[Facts], Said | None]


# 1. The numbers, and what was measured.


def _rules(facts: Facts) -> Said | None:
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
            says=f"Take a newer release, which repeats key-value heads, or use TP {_either(found.nearest)}.",
            why=f"{tool_of('megatron-0.15').name} wants the key-value heads to be a multiple of TP; later releases "
            f"also allow TP to be a multiple of them: {found.sentence}",
            axes={"tp": facts.tp or 1},
            against={
                R.ANY_SIZE: f"That {facts.kv_heads} and {facts.tp} divide one way round is not enough for "
                "this release.",
                R.CHANGE_THE_MODEL: "Fewer query heads make another model; the rule is about key-value heads.",
            },
        )
    fine = [size for size in _tensor_sizes(facts) if devices % size == 0 and size <= devices]
    inner = max(fine, default=1)
    outer = devices // inner
    alone = _either(tuple(size for size in found.nearest if size <= devices))
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
            says=f"Use PP {outer} on all {devices}, with uneven stages where needed, or TP {alone} on "
            "some of them.",
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
        says=f"Keep experts whole with expert parallelism, or lower TP to {_either(found.nearest)}.",
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
        says=f"Use {found.axis} {_either(found.nearest)}, or give the stages a layout of their own.",
        why=f"{found.given}, {found.why}. Current releases refuse this; older ones trained fewer layers, silently.",
        axes={found.axis: found.nearest[0]} if found.nearest else {},
        against={
            R.HUNT_A_BUG: "The checkpoint is as it was written: the layers that are missing were never built.",
        },
    )


def _fill(facts: Facts, found: Violation) -> Outcome:
    return Outcome(
        technique=T.PIPELINE,
        says=f"Use {_either(found.nearest)} micro-batches, or fewer stages.",
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
        why=f"An all-to-all swaps tokens for heads, so {kv_heads or heads} key-value heads are as far as it goes; "
        "a ring does not touch heads.",
        finding=F.RULE,
        against={
            R.ANY_SIZE: f"Sizes of an all-to-all must divide {heads} query and {kv_heads} key-value heads.",
            T.SEQUENCE: "It trims activations beside tensor parallelism; the sequence is too long in every layer.",
        },
        sources=("Transformer Engine context_parallel.py", "rule R10"),
    )


def _experts_share(facts: Facts, found: Violation) -> Outcome:
    more = (
        f"Add {_either(found.nearest)} redundant experts, or switch the load balancer off"
        if found.axis == "redundant_experts"
        else f"Use EP {_either(found.nearest)}"
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


def _head_cap(facts: Facts) -> Said | None:
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


def _hot_experts(facts: Facts) -> Said | None:
    if facts.hottest_over_mean is None:
        return None
    if facts.hottest_over_mean < HOT:
        return Said(answer=f"Yes, the busiest has {facts.hottest_over_mean:g} times the mean")
    return Said(
        answer=f"No, the busiest has {facts.hottest_over_mean:g} times the mean",
        outcome=Outcome(
            technique=T.NONE_OF_THESE,
            finding=F.HOT_EXPERT,
            families=in_use(facts) or (T.EXPERT,),
            says="Balance the experts: move or copy the busy ones, and train the router to spread tokens.",
            why="An exchange among experts ends when its busiest rank has everything, so the mean says "
            "nothing about "
            "its time, and neither does the sum over a host.",
            against={
                R.FASTER_LINK: "Average bandwidth is not what is short: one rank waits while the others’ "
                "links idle.",
                R.MORE_DEVICES: "More ranks leave the busy expert on one of them.",
                T.TENSOR: "Cutting every expert would move every token to every rank.",
            },
            sources=("deepseek-ai/EPLB", MOE_README),
        ),
    )


def _at_ceiling(facts: Facts) -> Said | None:
    if facts.share_of_memory_ceiling is None:
        return None
    share = facts.share_of_memory_ceiling
    if share < NEAR_CEILING:
        return Said(answer=f"No, {share:.0%} of it")
    return Said(
        answer=f"Yes, {share:.0%} of it",
        outcome=Outcome(
            technique=T.NONE_OF_THESE,
            finding=F.MEMORY_BANDWIDTH,
            families=in_use(facts),
            says="Read fewer bytes for a token: quantise the weights, or take a mixture of experts.",
            why="Each token reads all active weights from memory once. The devices already read nearly as fast as "
            "their memory allows, whatever joins them.",
            against={
                R.FASTER_LINK: "Another cable or network setting cannot make memory read faster.",
                R.HUNT_A_BUG: "Nothing is broken: this is the speed of the memory.",
                R.LARGER_BATCH: "It serves more users for the same reads, and gives this one no faster answer.",
            },
            sources=("decode ceiling: memory bandwidth ÷ bytes read for a token",),
        ),
    )


def _right_rung(facts: Facts) -> Said | None:
    """An exchange that takes far longer than its link ever does went by another one."""
    took, link = facts.seconds_per_exchange, facts.link_between or facts.link_inside
    if took is None or link not in RUNGS:
        return None
    least, most = RUNGS[link].latency_seconds
    if took <= 3 * most:
        return Said(answer=f"About: {took * 1e3:.3g} ms each")
    like = [rung.name for rung in LADDER if rung.latency_seconds[0] <= took <= rung.latency_seconds[1]]
    looks = f", as long as on {' or '.join(like)}" if like else ""
    return Said(
        answer=f"No: {took * 1e3:.3g} ms each, where {RUNGS[link].name} takes {least * 1e3:.3g} to "
        f"{most * 1e3:.3g}",
        outcome=Outcome(
            technique=T.NONE_OF_THESE,
            finding=F.WRONG_RUNG,
            families=in_use(facts),
            says=f"Bind the run to the addresses of {RUNGS[link].name}: its messages take another link.",
            why=f"One exchange takes {took * 1e3:.3g} ms{looks}. No split helps while its messages land there.",
            against={
                T.TENSOR: "It exchanges far more often, over the same wrong link.",
                R.MORE_DEVICES: "Every further stage adds one more send over the wrong link.",
                R.FASTER_LINK: "A fast link is there, and unused.",
            },
            sources=("exo issue 2295", "the interconnect ladder"),
        ),
    )


def _gathered(facts: Facts) -> Said | None:
    if facts.zero != 3 or facts.slower_with_more_hosts is None:
        return None
    if not facts.slower_with_more_hosts:
        return Said(answer="No")
    return Said(
        answer="Yes",
        outcome=Outcome(
            technique=T.SHARDED_DATA,
            finding=F.GATHERED_OVER_SLOW_LINK,
            says="Shard inside each host and replicate across hosts (HSDP, or ZeRO++ with hpZ).",
            why="Full sharding gathers every layer’s weights twice a step from all hosts. Sharded inside "
            "a host, only "
            "gradients cross, once a step.",
            against={
                R.FASTER_LINK: "Faster cards help a little; not sending weights between hosts at all helps more.",
                T.TENSOR: "Between hosts its all-reduces would wait for the same link, in every layer, "
                "for activations.",
                R.MORE_DEVICES: "Every further host made it slower.",
            },
            sources=("DeepSpeed issues 6889 and 7019", "ZeRO++ (arXiv:2306.10209)"),
        ),
    )


def _memory_falls(facts: Facts) -> Said | None:
    if facts.memory_falls_with_devices is None:
        return None
    if facts.memory_falls_with_devices:
        return Said(answer="Yes")
    training = facts.phase != "serving"
    long = (facts.tokens or 0) >= LONG_TOKENS
    families = (T.SHARDED_DATA, T.CONTEXT) if training and long else (T.SHARDED_DATA,)
    return Said(
        answer="No, it stays the same",
        outcome=Outcome(
            technique=T.SHARDED_DATA,
            families=families,
            finding=F.REPLICATED,
            says="Shard the model states (ZeRO or FSDP)"
            + (", and cut the sequence if activations are still too many." if long else "."),
            why="Replicas hold the same, however many there are: weights, gradients, optimizer state, and the "
            "activations of a whole sequence each.",
            against={
                R.MORE_DEVICES: "Each further device is one more replica with all of it.",
                T.DATA: "That is what there is: a replica on every device.",
            },
            sources=(ZERO, "DeepSpeedExamples issue 817"),
        ),
    )


def _latency_bound(facts: Facts) -> Said | None:
    if facts.link_busy is None or (facts.tp or 1) == 1:
        return None
    if facts.link_busy > LINK_IDLE:
        return Said(answer=f"Yes, {facts.link_busy:.0%} of it")
    return Said(
        answer=f"No, {facts.link_busy:.1%} of it",
        outcome=Outcome(
            technique=T.PIPELINE if facts.one_fits is not True else T.DO_NOT_SPLIT,
            finding=F.LATENCY,
            says="Exchange less often: hand over between stages instead of in every layer, or take a link "
            "that answers "
            "sooner.",
            why="Two small all-reduces a layer each wait for an answer. The link carries next to nothing "
            "meanwhile, so "
            "its bandwidth is not what is short.",
            against={
                R.FASTER_LINK: "More bandwidth shortens transfers that already take next to no time; the "
                "waits remain.",
                R.MORE_TENSOR: "More ranks wait for more answers.",
                T.TENSOR: "It is tensor parallelism over a link that answers slowly that makes the waits.",
            },
            sources=("distributed-llama issue 58", VLLM_SCALING),
        ),
    )


def _link_matters(facts: Facts) -> Said | None:
    if facts.faster_link_helped is None:
        return None
    if facts.faster_link_helped:
        return Said(answer="Yes")
    return Said(
        answer="No",
        outcome=Outcome(
            technique=T.NONE_OF_THESE,
            finding=F.LINK_NOT_THE_LIMIT,
            families=in_use(facts),
            says="Keep the split and look elsewhere: keep more requests in flight, and see whether the "
            "devices compute.",
            why="A boundary between stages hands over one activation for a token, which fills no link. "
            "What is waited for "
            "is work: a stage without a request, or its computation.",
            against={
                R.FASTER_LINK: "Twice the speed changed nothing.",
                T.TENSOR: "Between hosts it would exchange in every layer, and make the link matter.",
            },
            sources=("vLLM issue 6610",),
        ),
    )


def _busy(facts: Facts) -> Said | None:
    if facts.device_busy is None:
        return None
    share = facts.device_busy
    stages = facts.pp or facts.devices or 2
    if stages == 1:
        return None
    one_at_a_time = share <= 1.3 / stages
    if not (one_at_a_time or ((facts.pp or 1) > 1 and share < MOSTLY_BUSY)):
        return Said(answer=f"Yes, {share:.0%} of the time")
    answer = f"No, each computes {share:.0%} of the time"
    if facts.phase == "training":
        return Said(answer=answer, outcome=_one_at_a_time(facts))
    return Said(answer=answer, outcome=_bubble(facts))


def _one_at_a_time(facts: Facts) -> Outcome:
    why = (
        "Layers were dealt out over the devices and run one after another: it is a pipeline with one "
        "micro-batch, where "
        "one device works and the others hold their layers."
    )
    against: Against = {
        R.HUNT_A_BUG: "A data loader that is too slow leaves all devices idle together, not all but one.",
        R.MORE_DEVICES: "Only one works at a time, however many there are.",
    }
    sources = ("trl issue 2256", "transformers issue 30122")
    if facts.one_fits:
        return Outcome(
            technique=T.DATA,
            finding=F.ONE_AT_A_TIME,
            says="Give each device a replica of its own.",
            why=f"{why} The model fits on one, so nothing has to be dealt out.",
            against=against,
            sources=sources,
        )
    return Outcome(
        technique=T.PIPELINE,
        finding=F.ONE_AT_A_TIME,
        families=(T.PIPELINE, T.TENSOR),
        says="Use a real pipeline with several micro-batches, or tensor parallelism on a fast link.",
        why=why,
        against=against,
        sources=sources,
    )


def _filled(facts: Facts) -> Said | None:
    """Whether each stage has something to do; only where somebody wants throughput."""
    flying = facts.requests if facts.phase != "training" else facts.micro_batches
    if flying is None or (facts.pp or 1) == 1 or facts.wanted in ("latency", "capacity"):
        return None
    word = "requests" if facts.phase != "training" else "micro-batches"
    if flying >= (facts.pp or 1):
        return Said(answer=f"Yes, {flying} {word} for {facts.pp} stages")
    return Said(answer=f"No, {flying} for {facts.pp} stages", outcome=_bubble(facts))


def _bubble(facts: Facts) -> Outcome:
    return Outcome(
        technique=T.NONE_OF_THESE,
        finding=F.BUBBLE,
        families=in_use(facts) or (T.PIPELINE,),
        says="Keep at least as many requests in flight as there are stages, or use fewer stages.",
        why="A stage works only while a request is in it. With few in flight the others wait, and a "
        "request passes all of "
        "them in turn.",
        against={
            R.FASTER_LINK: "A boundary hands over one activation for a token; the wait is for work, not for bytes.",
            R.MORE_DEVICES: "More stages need more requests in flight to fill them.",
            T.TENSOR: "Between hosts its all-reduces in every layer would wait for the slower link."
            if (facts.hosts or 2) > 1
            else "It needs no requests in flight, and pays an exchange in every layer for that.",
        },
        sources=("vLLM issue 9176", "llama.cpp issue 15463"),
    )


def _split_faster(facts: Facts) -> Said | None:
    if facts.speed_over_alone is None:
        return None
    times = facts.speed_over_alone
    if times > 1.05:
        return Said(answer=f"Yes, {times:.2g} times as fast")
    piped = (facts.pp or 1) > 1
    why = (
        "A request passes the stages in turn, so their times add up. Stages give room for a larger model, "
        "and throughput "
        "with many requests in flight; never a faster answer."
        if piped
        else "The devices exchange twice a layer, and for a model this size they wait longer than they save."
    )
    against: Against = {
        R.HUNT_A_BUG: "Nothing is broken: waiting for each other costs what the split saves.",
        R.MORE_DEVICES: "More devices wait for each other more often.",
        R.FASTER_LINK: "The wait is for answers or for other stages, hardly for bytes.",
        R.MORE_TENSOR: "A larger group shares less work each and waits as often.",
        R.LARGER_BATCH: "It raises throughput, and would raise it more with a replica on each device.",
    }
    if facts.wanted == "throughput":
        return Said(
            answer=f"No, {times:.2g} times",
            outcome=Outcome(
                technique=T.DATA,
                finding=F.SPLIT_NOT_FASTER,
                says="Run a replica on each device, behind a balancer.",
                why=f"It fits on one. {why}",
                against=against,
                sources=("vLLM issue 1873", VLLM_SCALING),
            ),
        )
    return Said(
        answer=f"No, {times:.2g} times",
        outcome=Outcome(
            technique=T.DO_NOT_SPLIT,
            finding=F.SPLIT_NOT_FASTER,
            says="Run it on one device, the fastest, and give the others something else to do.",
            why=f"It fits on one. {why}",
            against=against,
            sources=("llama.cpp issue 4747", "exo issue 489", "LLMKube issue 1423"),
        ),
    )


# 2. The first fork, and then which piece.


def _sites(facts: Facts) -> Said | None:
    if facts.link_between is None or (facts.hosts or 2) == 1:
        return None
    if facts.link_between != FAR:
        return Said(answer="Yes")
    return Said(
        answer="No, they are in different places",
        outcome=Outcome(
            technique=T.DATA,
            says="Run independent replicas, one in each place, or stay in one.",
            why="Between places a message takes longer than a whole step of the model, and a split sends "
            "several for each "
            "token. Replicas send each other none when serving.",
            against={
                T.PIPELINE: "It moves few bytes, and each of them waits for the way between the places, "
                "once a boundary and "
                "token.",
                R.FASTER_LINK: "Distance is what takes the time.",
            },
            sources=("vLLM issue 11285",),
        ),
    )


def _fits(facts: Facts) -> Said | None:
    if facts.one_fits is None:
        return None
    if set(facts.overflows) & {"kv-cache", "activations", "sequence"}:
        return Said(answer="Its weights do" if facts.one_fits else "No")
    if not facts.one_fits:
        return Said(answer="No")
    return Said(answer="Yes", outcome=_it_fits(facts))


def _it_fits(facts: Facts) -> Outcome:
    if facts.devices == 1:
        return Outcome(
            technique=T.DO_NOT_SPLIT,
            says="Run it on the one device there is.",
            why="It fits, and there is nothing to split it over.",
        )
    if facts.wanted == "capacity":
        return Outcome(
            technique=T.DO_NOT_SPLIT,
            says="Leave it whole: this model needs no more room.",
            why="Splitting buys room, which is not short.",
        )
    if facts.wanted == "latency":
        several = facts.devices_per_host is None or facts.devices_per_host > 1
        if several and facts.has_fast(facts.link_inside) is not False:
            return Outcome(
                technique=T.TENSOR,
                says="Split every layer over the devices of one host, and measure against one device alone.",
                why="All devices read their part of the weights at the same moment, so it is the split "
                "that speeds up one "
                "conversation, where exchanges are quick beside the work they save.",
                against={
                    T.PIPELINE: "One request passes the stages in turn, so it gets no faster.",
                    T.DATA: "Replicas answer other requests; this one gets no faster.",
                },
                sources=("llama.cpp docs/multi-gpu.md", VLLM_SCALING),
            )
        return Outcome(
            technique=T.DO_NOT_SPLIT,
            says="Run it on one device, the fastest.",
            why="Only a split inside every layer speeds up one conversation, and here no link answers "
            "fast enough for it.",
            sources=(VLLM_SCALING,),
        )
    serving = facts.phase == "serving"
    return Outcome(
        technique=T.DATA,
        says="Put a replica on each device and share out the "
        + ("requests." if serving else "batch.")
        + ("" if serving else " Average the gradients once a step."),
        why="It fits, so the work can be shared without cutting the model: nothing else gives as much for "
        "as little traffic.",
        sources=(BRIDGE,),
    )


def _piece(facts: Facts) -> Said | None:
    overflows = facts.overflows
    if not overflows:
        return None
    answer = " and ".join(OVERFLOWS[name] for name in overflows)
    answer = answer[0].upper() + answer[1:]
    if facts.overflow is None:
        answer = f"The sequence: its {facts.tokens:,} tokens are shared out already"
    if {"layer", "stack"} <= set(overflows):
        return Said(answer=answer, outcome=_by_topology(facts) if len(overflows) == 2 else _several(facts))
    if len(overflows) > 1:
        return Said(answer=answer, outcome=_several(facts))
    return Said(answer=answer, outcome=_PIECES[overflows[0]](facts))


def _several(facts: Facts) -> Outcome:
    parts = [_PIECES[name](facts) for name in facts.overflows]
    families = tuple(dict.fromkeys(family for part in parts for family in part.uses))
    if len(families) == 1:
        return parts[0]
    return Outcome(
        technique=T.COMPOSITION,
        families=families,
        says="Compose them: " + " ".join(part.says for part in parts),
        why="Each piece that does not fit has its own cure. " + " ".join(part.why for part in parts),
        axes={axis: size for part in parts for axis, size in part.axes.items()},
        sources=tuple(dict.fromkeys(source for part in parts for source in part.sources)),
    )


def _layer(facts: Facts) -> Outcome:
    size = min(facts.devices_per_host or 0, facts.devices_to_fit or facts.devices_per_host or 0)
    sizes = [tp for tp in _tensor_sizes(facts) if tp <= size]
    axes = {"tp": max(sizes)} if sizes and size > 1 else {}
    inside = "" if not axes else f", TP {axes['tp']}"
    return Outcome(
        technique=T.TENSOR,
        says=f"Split the matrices of every layer over the devices of one host{inside}.",
        why="A layer is too wide for one device, and only cutting inside layers makes a layer smaller. "
        "Its exchanges come "
        "twice a layer, so it belongs on the fastest link.",
        axes=axes,
        against={
            T.PIPELINE: "A stage holds whole layers, and one whole layer is what does not fit.",
            T.SHARDED_DATA: "It gathers each layer whole before using it, and one whole layer is what "
            "does not fit.",
        },
        sources=(BRIDGE,),
    )


def _stack(facts: Facts) -> Outcome:
    quick = (
        facts.wording == "practice"
        and facts.wanted == "latency"
        and facts.has_fast(facts.link_inside)
        and (facts.hosts or 1) == 1
    )
    if quick:
        return Outcome(
            technique=T.TENSOR,
            says="Split every layer over the devices of the host.",
            why="Its links are fast, and of the splits that make the stack fit, only this one gives one "
            "user faster answers.",
            axes={"tp": facts.devices_per_host} if facts.devices_per_host else {},
            sources=(VLLM_SCALING,),
        )
    stages = facts.devices_to_fit or facts.devices
    return Outcome(
        technique=T.PIPELINE,
        says="Give each device a stage of consecutive layers" + (f", PP {stages}." if stages else "."),
        why="Each layer fits and all of them do not: the model is too deep, not too wide. Stages hand "
        "over one activation "
        "at each boundary, which any link carries.",
        axes={"pp": stages} if stages else {},
        against={
            T.TENSOR: "It cuts layers that fit, and makes all devices wait for each other twice in each of them.",
        },
        sources=(BRIDGE,),
    )


def _experts(facts: Facts) -> Outcome:
    across = (facts.hosts or 1) > 1 and facts.has_fast(facts.link_between) is False
    alone = (facts.devices_per_host or 1) == 1
    slow_inside = facts.has_fast(facts.link_inside) is False and not alone
    if facts.wording == "practice" and ((across and alone) or slow_inside):
        return Outcome(
            technique=T.PIPELINE,
            says="Give each device whole layers with all of their experts.",
            why="Experts in different places exchange every token twice in every such layer, and which "
            "rank waits for which "
            "changes with the routing. Over a slow link whole layers hand over one activation a boundary.",
            against={
                T.EXPERT: "Its two all-to-alls in every layer would wait for the slow link, and a busy "
                "expert for longer.",
            },
            sources=(MOE_README, VLLM_SCALING),
        )
    room = facts.devices_per_host if across else facts.devices
    sizes = [size for size in range(2, (room or 0) + 1) if facts.experts and facts.experts % size == 0]
    axes = {"ep": max(sizes)} if sizes else {}
    divides = (
        f" A size that divides {facts.experts} gives every device equally many." if facts.experts else ""
    )
    return Outcome(
        technique=T.EXPERT,
        says="Place different experts on different devices" + (f", EP {axes['ep']}." if axes else "."),
        why=f"The experts are what takes the room, and a token visits a few of them.{divides}",
        axes=axes,
        against={
            T.TENSOR: "It can cut every expert too, into slices that every token then visits; whole ones "
            "stay efficient.",
        },
        sources=(BRIDGE, MOE_README),
    )


def _activations(facts: Facts) -> Outcome:
    if (facts.tp or 1) > 1 and not facts.sp:
        return Outcome(
            technique=T.SEQUENCE,
            says=f"Switch sequence parallelism on in the tensor-parallel group of {facts.tp}.",
            why="Beside the layers that it cuts, tensor parallelism leaves every rank with all tokens. "
            "Sequence parallelism "
            "shares those too, for the same bytes forward.",
            against={
                T.CONTEXT: "It cuts the sequence in every layer, with an exchange of its own. Sequence "
                "parallelism comes "
                "first, where tensor parallelism is in use.",
            },
            sources=("Korthikanti 2022 (arXiv:2205.05198)", BRIDGE),
        )
    return _sequence(facts)


def _sequence(facts: Facts) -> Outcome:
    return Outcome(
        technique=T.CONTEXT,
        says="Cut the sequence in every layer over a group of its own"
        + (", besides the sequence parallelism that is on." if facts.sp else "."),
        why="The length of one sequence fills the devices, all alike. Context parallelism shares its "
        "tokens in every layer, "
        "needs no tensor parallelism, and leaves the weights as they are.",
        against={
            R.SMALLER_BATCH: "One sequence alone is too long, so fewer of them do not help.",
            R.MORE_DEVICES: "As replicas they would meet the same sequence.",
        },
        sources=("Megatron-LM docs/user-guide/features/context_parallel.md", BRIDGE),
    )


def _kv_cache(facts: Facts) -> Outcome:
    shorter = "Allow shorter sequences, or store the cache in fewer bits"
    against: Against = {
        T.DATA: "A replica has the same weights beside the same room, so each request meets the same limit.",
        R.LARGER_BATCH: "More sequences share the same room.",
    }
    why = "The cache gets what weights leave free, and must hold the longest sequence that is allowed."
    spread = (facts.tp or 1) < (facts.kv_heads or 8)
    if facts.wording == "exam":
        return Outcome(
            technique=T.CONTEXT,
            finding=F.KV_CACHE,
            says="Treat it as a sequence problem: share the tokens, and their keys and values, among devices.",
            why=f"{why} It grows with the sequence, which context parallelism cuts.",
            against=against,
            sources=("Ring Attention (arXiv:2310.01889)",),
        )
    if facts.devices == 1:
        return Outcome(
            technique=T.NONE_OF_THESE,
            finding=F.KV_CACHE,
            says=f"{shorter}; with a second device, share the key-value heads by tensor parallelism.",
            why=why,
            against={
                **against,
                T.TENSOR: "It shares key-value heads among devices, and there is one.",
                T.CONTEXT: "It shares tokens among devices, and there is one.",
                T.PIPELINE: "It would leave half the layers, with their cache, to a second device; there is one.",
            },
            sources=("vLLM issues 10517 and 2418",),
        )
    if spread:
        return Outcome(
            technique=T.TENSOR,
            finding=F.KV_CACHE,
            says=f"{shorter}; else share the key-value heads"
            + (f", up to TP {facts.kv_heads}." if facts.kv_heads else " by tensor parallelism."),
            why=f"{why} Each tensor-parallel rank keeps the cache of its own heads, and fewer weights beside it.",
            against=against,
            sources=("vLLM issues 10517 and 2418",),
        )
    return Outcome(
        technique=T.CONTEXT,
        finding=F.KV_CACHE,
        says="Share the cache by tokens: decode context parallelism in the same group.",
        why=f"{why} TP {facts.tp} has no key-value heads left to share, and its ranks hold copies.",
        against={**against, R.MORE_TENSOR: "More ranks would hold more copies of the same heads."},
        sources=("vLLM docs/serving/context_parallel_deployment.md", "rule R15"),
    )


def _model_states(facts: Facts) -> Outcome:
    return Outcome(
        technique=T.SHARDED_DATA,
        says="Shard optimizer state first, then gradients, then weights (ZeRO-1, 2, 3 or FSDP).",
        why="With mixed-precision Adam a parameter takes 16 bytes, 12 of them optimizer state, and plain "
        "replicas each hold "
        "all of it. It is still data parallelism: each device takes its part of the batch.",
        against={T.DATA: "Plain replicas hold all of it, however many there are."},
        sources=(ZERO, BRIDGE),
    )


_PIECES: Mapping[str, Callable[[Facts], Outcome]] = {
    "layer": _layer,
    "stack": _stack,
    "experts": _experts,
    "activations": _activations,
    "sequence": _sequence,
    "kv-cache": _kv_cache,
    "model-states": _model_states,
}


def _where(facts: Facts) -> Said | None:
    """Nobody says which piece is too large: the devices and their links decide."""
    if facts.one_fits is not False or facts.overflows:
        return None
    if facts.devices_per_host is None and facts.hosts is None:
        return None
    hosts = "one host" if (facts.hosts or 1) == 1 else f"{facts.hosts} hosts"
    outcome = _by_topology(facts)
    return Said(answer=f"{hosts}, {facts.devices_per_host or 1} devices in each", outcome=outcome)


def _by_topology(facts: Facts) -> Outcome:
    """Tensor parallelism where devices exchange fast, stages between, and replicas of that if devices are left."""
    hosts, per_host = facts.hosts or 1, facts.devices_per_host or 1
    devices = hosts * per_host
    need = min(facts.devices_to_fit or devices, devices)
    # An exam keeps tensor parallelism in the host, whatever joins its devices; in practice PCIe is too slow for it, and
    # vLLM's guide prefers stages even there.
    quick = facts.wording == "exam" or facts.has_fast(facts.link_inside) is not False
    inside = per_host > 1 and quick
    latency_between = per_host == 1 and facts.wanted == "latency" and bool(facts.has_fast(facts.link_between))
    reach = devices if latency_between else per_host if inside else 1
    tp = _tensor_size(facts, need, reach)
    pp = -(-need // tp)
    divides = need in _tensor_sizes(facts)
    dp = devices // (tp * pp) if facts.wanted == "throughput" else 1
    families = tuple(family for family, size in ((T.DATA, dp), (T.TENSOR, tp), (T.PIPELINE, pp)) if size > 1)
    axes = {axis: size for axis, size in (("dp", dp), ("tp", tp), ("pp", pp)) if size > 1}
    sizes = " × ".join(f"{axis.upper()} {size}" for axis, size in axes.items())
    against: Against = {}
    parts = []
    if tp > 1:
        parts.append(
            "Tensor parallelism exchanges twice a layer, so it stays where the link is fastest"
            + (
                ": here between the hosts, which answer fast enough."
                if latency_between
                else ", inside a host."
            )
        )
    if pp > 1:
        parts.append(
            "Stages hand over one activation a boundary, which "
            + ("even the link between hosts carries." if hosts > 1 else "a slow link carries.")
        )
        if tp == 1:
            against[T.TENSOR] = (
                "Its two exchanges in every layer would wait for a link that answers slowly."
                if reach == 1
                else f"The heads do not divide {need} ways."
                if not divides
                else "Its exchanges in every layer reach no further than the fast link."
            )
        elif hosts > 1:
            against[R.MORE_TENSOR] = (
                "A group that reaches into another host waits for the slower link in every layer."
            )
    if dp > 1:
        parts.append("The smallest group that holds it, repeated, serves more than one large group.")
        against[R.MORE_TENSOR] = (
            f"TP {tp * dp} would exchange among more devices for a model that {need} of them hold."
        )
        against[R.HUNT_A_BUG] = (
            "The links are as they should be; a larger group pays more for every exchange."
        )
    if pp == 1:
        against[T.PIPELINE] = "Inside one host with a fast link, stages would only wait for each other."
    technique = T.COMPOSITION if len(families) > 1 else families[0] if families else T.TENSOR
    return Outcome(
        technique=technique,
        families=families or (T.TENSOR,),
        says=f"Use {sizes}." if sizes else "Split every layer over the devices of a host.",
        why=" ".join(parts) or "All devices share each layer.",
        axes=axes,
        against=against,
        sources=(VLLM_SCALING, BRIDGE),
    )


PROCEDURE = (
    Step(asks="Do the numbers keep the rules of which sizes go together?", look=_rules),
    Step(asks="Can its context parallelism be cut further?", look=_head_cap),
    Step(asks="Do the ranks of the experts have equally much to do?", look=_hot_experts),
    Step(asks="Does it read weights nearly as fast as memory allows?", look=_at_ceiling),
    Step(asks="Does an exchange take as long as it should on that link?", look=_right_rung),
    Step(asks="Does full sharding get slower with every host?", look=_gathered),
    Step(asks="Does memory per device fall as devices are added?", look=_memory_falls),
    Step(asks="Is the link’s bandwidth used?", look=_latency_bound),
    Step(asks="Did a faster link help?", look=_link_matters),
    Step(asks="Do the devices compute most of the time?", look=_busy),
    Step(asks="Are enough requests in flight to fill the stages?", look=_filled),
    Step(asks="Is the split faster than one device alone?", look=_split_faster),
    Step(asks="Are all hosts in one place?", look=_sites),
    Step(asks="Does one copy of the model fit on one device?", look=_fits),
    Step(asks="What does not fit?", look=_piece),
    Step(asks="What devices are there, and how do they reach each other?", look=_where),
)


# What the facts say without being asked.


def in_use(facts: Facts) -> tuple[Technique, ...]:
    """The families that the layout has already."""
    sizes = ((T.TENSOR, facts.tp), (T.PIPELINE, facts.pp), (T.CONTEXT, facts.cp), (T.EXPERT, facts.ep))
    return tuple(family for family, size in sizes if (size or 1) > 1)


def broken_rules(facts: Facts) -> tuple[Violation, ...]:
    """The rules that the numbers given break. What is not given breaks none."""
    told = {name: getattr(facts, name) for name in _TOLD_TO_RULES}
    if facts.wording == "practice" and facts.phase == "serving" and facts.tool is None:
        told["tool"] = "vllm"
    return _broken(Facts(**told))


_TOLD_TO_RULES = (
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


def _tensor_sizes(facts: Facts) -> tuple[int, ...]:
    """Sizes of a tensor-parallel group that the heads allow, as far as they are known."""
    if not (facts.attention_heads or facts.kv_heads):
        return tuple(range(1, 129))
    heads = facts.attention_heads or 2**6 * 720_720
    kv_heads = facts.kv_heads or heads
    return tuple(
        size
        for size in range(1, min(heads, 128) + 1)
        if heads % size == 0 and (kv_heads % size == 0 or size % kv_heads == 0)
    )


def _tensor_size(facts: Facts, need: int, reach: int) -> int:
    """The group that shares a layer: one that holds all of it if the fast link reaches so far, else an equal part."""
    fine = [size for size in _tensor_sizes(facts) if size <= reach]
    whole = [size for size in fine if size >= need and reach % size == 0]
    return min(whole) if whole else max((size for size in fine if need % size == 0), default=1)


def _either(sizes: tuple[int, ...]) -> str:
    return " or ".join(f"{size:,}" for size in sizes) or "another size"
