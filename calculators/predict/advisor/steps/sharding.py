"""What replicas hold of the model, and where what they shard is gathered."""

from __future__ import annotations

from calculators.predict.advisor.advice import Finding as F
from calculators.predict.advisor.advice import Outcome
from calculators.predict.advisor.advice import Remedy as R
from calculators.predict.advisor.advice import Technique as T
from calculators.predict.advisor.facts import LONG_TOKENS, Facts
from calculators.predict.advisor.steps.step import ZERO, Said


def hosts_slow_it_down(facts: Facts) -> Said | None:
    """Whether weights that are sharded over all hosts are gathered over a slow link."""
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
            why="Full sharding gathers every layer’s weights twice a step from all hosts. Sharded inside a "
            "host, only gradients cross, once a step.",
            against={
                R.FASTER_LINK: "Faster cards help a little; not sending weights between hosts at all helps more.",
                T.TENSOR: "Between hosts its all-reduces would wait for the same link, in every layer, for "
                "activations.",
                R.MORE_DEVICES: "Every further host made it slower.",
            },
            sources=("DeepSpeed issues 6889 and 7019", "ZeRO++ (arXiv:2306.10209)"),
        ),
    )


def memory_falls(facts: Facts) -> Said | None:
    """Whether more devices hold less each, or each of them a replica of all."""
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
            why="Replicas hold the same, however many there are: weights, gradients, optimizer state, and "
            "the activations of a whole sequence each.",
            against={
                R.MORE_DEVICES: "Each further device is one more replica with all of it.",
                T.DATA: "That is what there is: a replica on every device.",
            },
            sources=(ZERO, "DeepSpeedExamples issue 817"),
        ),
    )
