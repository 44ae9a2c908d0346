"""Whether exchanges take as long as they should, and what makes them slow."""

from __future__ import annotations

from calculators.predict.advisor.advice import Finding as F
from calculators.predict.advisor.advice import Outcome
from calculators.predict.advisor.advice import Remedy as R
from calculators.predict.advisor.advice import Technique as T
from calculators.predict.advisor.facts import Facts
from calculators.predict.advisor.steps.sizes import in_use
from calculators.predict.advisor.steps.step import VLLM_SCALING, Said
from calculators.predict.links import LADDER, RUNGS

LINK_IDLE = 0.1  # below a tenth of its bandwidth a link is not what is waited for


def in_time(facts: Facts) -> Said | None:
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


def bandwidth_is_used(facts: Facts) -> Said | None:
    """Whether tensor parallelism fills its link, or waits for answers."""
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
            "that answers sooner.",
            why="Two small all-reduces a layer each wait for an answer. The link carries next to nothing "
            "meanwhile, so its bandwidth is not what is short.",
            against={
                R.FASTER_LINK: "More bandwidth shortens transfers that already take next to no time; the "
                "waits remain.",
                R.MORE_TENSOR: "More ranks wait for more answers.",
                T.TENSOR: "It is tensor parallelism over a link that answers slowly that makes the waits.",
            },
            sources=("distributed-llama issue 58", VLLM_SCALING),
        ),
    )


def faster_link_helps(facts: Facts) -> Said | None:
    """Whether the link was what the run waited for."""
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
            why="A boundary between stages hands over one activation for a token, which fills no link. What "
            "is waited for is work: a stage without a request, or its computation.",
            against={
                R.FASTER_LINK: "Twice the speed changed nothing.",
                T.TENSOR: "Between hosts it would exchange in every layer, and make the link matter.",
            },
            sources=("vLLM issue 6610",),
        ),
    )
