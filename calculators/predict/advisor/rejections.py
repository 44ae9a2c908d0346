"""Why the families that an outcome does not use are turned down, from the same facts."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from calculators.predict.advisor.advice import FAMILIES, Finding, Outcome, Rejected, Remedy, Technique
from calculators.predict.advisor.facts import Facts

WEIGHTS = {"layer", "stack", "experts"}
TOKENS = {"activations", "sequence"}
KEPT_AS_IT_IS = "The rule can be kept with the split that is there, so no other is needed for it."


def rejected(facts: Facts, outcome: Outcome) -> tuple[Rejected, ...]:
    """Every family that is not used, and every remedy that tempts, each with its reason; its own reasons first."""
    own = [
        Rejected(option=option, reason=reason)
        for option, reason in outcome.against.items()
        if option not in outcome.uses
    ]
    named = {each.option for each in own}
    rest = [
        Rejected(option=family, reason=_reason(family, facts, outcome))
        for family in FAMILIES
        if family not in outcome.uses and family not in named
    ]
    if outcome.finding is None and outcome.technique in (
        Technique.TENSOR,
        Technique.PIPELINE,
        Technique.EXPERT,
        Technique.CONTEXT,
    ):
        rest.append(
            Rejected(
                option=Remedy.UMBRELLA,
                reason=f"It is the umbrella over several splits. {outcome.technique.label} is the most "
                "specific one "
                "that is true.",
            )
        )
    return (*own, *rest)


def _reason(family: Technique, facts: Facts, outcome: Outcome) -> str:
    put_right = outcome.finding is Finding.RULE and facts.one_fits is not False
    if put_right and family not in (Technique.SEQUENCE, Technique.EXPERT):
        return KEPT_AS_IT_IS
    return _REASONS[family](facts, outcome)


def _states(facts: Facts, outcome: Outcome) -> bool:
    """Whether it is about model states, which replicas can share out."""
    return "model-states" in facts.overflows or outcome.finding in (
        Finding.REPLICATED,
        Finding.GATHERED_OVER_SLOW_LINK,
    )


def _data(facts: Facts, outcome: Outcome) -> str:
    over = set(facts.overflows)
    if over & TOKENS:
        return "Every replica takes whole sequences, and one of those is what does not fit."
    if "kv-cache" in over:
        return "A replica has the same weights beside the same room, so each request meets the same limit."
    if facts.one_fits is False:
        return (
            "A plain replica is the whole model, which does not fit on one device; more of them hold no more."
        )
    if facts.wanted == "latency":
        return "Replicas answer other requests; this one gets no faster."
    if facts.wanted == "capacity" or outcome.technique is Technique.DO_NOT_SPLIT:
        return "Replicas add throughput, which is not what is asked for."
    if "kv-cache" in over or outcome.finding is None:
        return "More replicas of the whole model leave what does not fit as it is."
    return "More replicas, each split the same way, would have the same trouble each."


def _sharded(facts: Facts, outcome: Outcome) -> str:
    over = set(facts.overflows)
    if facts.phase == "serving":
        return (
            "Most of what it cuts, gradients and optimizer state, serving has none of, and it gathers "
            "every layer’s weights for each token."
        )
    if "layer" in over:
        return "It gathers each layer whole before using it, and one whole layer is what does not fit."
    if over & TOKENS:
        return "It cuts model states. The activations of a sequence stay whole on every device."
    if facts.one_fits:
        return "Model states fit, so there is nothing to shard."
    return "It would hold the model too, and send all weights to every device in every step for it."


def _tensor(facts: Facts, outcome: Outcome) -> str:
    over = set(facts.overflows)
    if over & TOKENS and (facts.tp or 1) > 1:
        return "It is in use already. What is too large here lies beside or between the layers that it cuts."
    if "sequence" in over or "activations" in over:
        return "It cuts weights, and leaves every rank with all tokens beside each layer."
    if "kv-cache" in over:
        return "It shares the cache only as far as there are key-value heads."
    if "stack" in over and "layer" not in over:
        return "It cuts layers that fit, and makes all devices wait for each other twice in each of them."
    if "experts" in over:
        return "It would cut every expert into slices that every token visits, with exchanges in every layer."
    if _states(facts, outcome):
        return (
            "It would make the model smaller too, for exchanges in every layer; states can be shared "
            "out for a few a step."
        )
    if facts.one_fits:
        return "It fits: two exchanges in every layer would buy nothing but a single user’s latency."
    return "Its exchanges in every layer cost more than they are worth here."


def _pipeline(facts: Facts, outcome: Outcome) -> str:
    over = set(facts.overflows)
    if "layer" in over and "stack" not in over:
        return "A stage holds whole layers, and one whole layer is what does not fit."
    if over & TOKENS:
        return "A stage holds fewer layers, and in each of them the whole sequence."
    if "experts" in over:
        return "It moves whole layers, and it is the experts inside one that take the room."
    if facts.wanted == "latency":
        return "One request passes the stages in turn, so it gets no faster."
    if _states(facts, outcome):
        return "It would divide the states too, and add a bubble; each layer’s work fits where it is."
    if "kv-cache" in over:
        return "A stage keeps the cache of its own layers, so it makes room too; one answer gets no faster."
    if facts.one_fits:
        return "It fits, so stages would only wait for each other."
    return "Stages would wait for each other, and nothing here needs the room that they give."


def _sequence(facts: Facts, outcome: Outcome) -> str:
    if (facts.tp or 1) == 1 and not {Technique.TENSOR} & set(outcome.uses):
        return "It rides on a tensor-parallel group. Without one it does nothing."
    if facts.sp:
        return "It is on already, and shares out only what lies beside tensor parallelism."
    return "It can be added to the tensor-parallel group; it shares out activations and makes no weights smaller."


def _context(facts: Facts, outcome: Outcome) -> str:
    over = set(facts.overflows)
    if "kv-cache" in over:
        return "It shares the cache by tokens, which comes after its heads have been shared."
    if over & WEIGHTS or (facts.one_fits is False and not over):
        return "It cuts the sequence and leaves the whole weights on every device."
    if _states(facts, outcome):
        return "It cuts activations. Model states stay whole on every device."
    return "The length of a sequence is not what is the matter."


def _expert(facts: Facts, outcome: Outcome) -> str:
    if facts.moe is False:
        return "The model is dense: it has no experts to place."
    if facts.moe is None and not facts.experts:
        return "Nothing says that the model has experts, and a dense one has none to place."
    return "Where experts are placed is not what is the matter here."


_REASONS: Mapping[Technique, Callable[[Facts, Outcome], str]] = {
    Technique.DATA: _data,
    Technique.SHARDED_DATA: _sharded,
    Technique.TENSOR: _tensor,
    Technique.PIPELINE: _pipeline,
    Technique.SEQUENCE: _sequence,
    Technique.CONTEXT: _context,
    Technique.EXPERT: _expert,
}
