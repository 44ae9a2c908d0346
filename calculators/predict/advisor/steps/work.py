"""Whether the devices have work, and what they wait for where they do not."""

from __future__ import annotations

from calculators.predict.advisor.advice import Finding as F
from calculators.predict.advisor.advice import Outcome
from calculators.predict.advisor.advice import Remedy as R
from calculators.predict.advisor.advice import Technique as T
from calculators.predict.advisor.facts import Facts
from calculators.predict.advisor.steps.sizes import in_use
from calculators.predict.advisor.steps.step import MOE_README, VLLM_SCALING, Against, Said

NEAR_CEILING = 0.6  # decode rarely reaches more than 60 to 90 % of the memory's peak
MOSTLY_BUSY = 0.7  # a well-filled pipeline idles less than that: (p − 1)/(m + p − 1) is 0.27 for p 4 and m 8
HOT = 1.5  # an expert-parallel exchange is as slow as its busiest rank


def experts_are_balanced(facts: Facts) -> Said | None:
    """Whether the busiest rank of an expert-parallel exchange has much more than the mean."""
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
            "nothing about its time, and neither does the sum over a host.",
            against={
                R.FASTER_LINK: "Average bandwidth is not what is short: one rank waits while the others’ "
                "links idle.",
                R.MORE_DEVICES: "More ranks leave the busy expert on one of them.",
                T.TENSOR: "Cutting every expert would move every token to every rank.",
            },
            sources=("deepseek-ai/EPLB", MOE_README),
        ),
    )


def memory_is_busy(facts: Facts) -> Said | None:
    """Whether decode is near what memory allows, where no link and no split of the same reads helps."""
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
            why="Each token reads all active weights from memory once. The devices already read nearly as "
            "fast as their memory allows, whatever joins them.",
            against={
                R.FASTER_LINK: "Another cable or network setting cannot make memory read faster.",
                R.HUNT_A_BUG: "Nothing is broken: this is the speed of the memory.",
                R.LARGER_BATCH: "It serves more users for the same reads, and gives this one no faster answer.",
            },
            sources=("decode ceiling: memory bandwidth ÷ bytes read for a token",),
        ),
    )


def devices_are_busy(facts: Facts) -> Said | None:
    """Whether each device computes most of the time, or the devices work in turns."""
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


def stages_are_filled(facts: Facts) -> Said | None:
    """Whether each stage has something to do; only where somebody wants throughput."""
    flying = facts.requests if facts.phase != "training" else facts.micro_batches
    if flying is None or (facts.pp or 1) == 1 or facts.wanted in ("latency", "capacity"):
        return None
    word = "requests" if facts.phase != "training" else "micro-batches"
    if flying >= (facts.pp or 1):
        return Said(answer=f"Yes, {flying} {word} for {facts.pp} stages")
    return Said(answer=f"No, {flying} for {facts.pp} stages", outcome=_bubble(facts))


def split_is_faster(facts: Facts) -> Said | None:
    """Whether the split answers sooner than one device alone would."""
    if facts.speed_over_alone is None:
        return None
    times = facts.speed_over_alone
    if times > 1.05:
        return Said(answer=f"Yes, {times:.2g} times as fast")
    piped = (facts.pp or 1) > 1
    why = (
        "A request passes the stages in turn, so their times add up. Stages give room for a larger model, "
        "and throughput with many requests in flight; never a faster answer."
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


def _one_at_a_time(facts: Facts) -> Outcome:
    why = (
        "Layers were dealt out over the devices and run one after another: it is a pipeline with one "
        "micro-batch, where one device works and the others hold their layers."
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


def _bubble(facts: Facts) -> Outcome:
    return Outcome(
        technique=T.NONE_OF_THESE,
        finding=F.BUBBLE,
        families=in_use(facts) or (T.PIPELINE,),
        says="Keep at least as many requests in flight as there are stages, or use fewer stages.",
        why="A stage works only while a request is in it. With few in flight the others wait, and a request "
        "passes all of them in turn.",
        against={
            R.FASTER_LINK: "A boundary hands over one activation for a token; the wait is for work, not for bytes.",
            R.MORE_DEVICES: "More stages need more requests in flight to fill them.",
            T.TENSOR: "Between hosts its all-reduces in every layer would wait for the slower link."
            if (facts.hosts or 2) > 1
            else "It needs no requests in flight, and pays an exchange in every layer for that.",
        },
        sources=("vLLM issue 9176", "llama.cpp issue 15463"),
    )
