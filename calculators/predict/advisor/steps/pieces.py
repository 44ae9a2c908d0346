"""What does not fit, and the cure of each such piece."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from calculators.predict.advisor.advice import Finding as F
from calculators.predict.advisor.advice import Outcome
from calculators.predict.advisor.advice import Remedy as R
from calculators.predict.advisor.advice import Technique as T
from calculators.predict.advisor.facts import OVERFLOWS, Facts
from calculators.predict.advisor.steps.places import by_topology
from calculators.predict.advisor.steps.sizes import tensor_sizes
from calculators.predict.advisor.steps.step import BRIDGE, MOE_README, VLLM_SCALING, ZERO, Against, Said


def what_does_not_fit(facts: Facts) -> Said | None:
    """The cure of the piece that is too large, or of each where several are."""
    overflows = facts.overflows
    if not overflows:
        return None
    answer = " and ".join(OVERFLOWS[name] for name in overflows)
    answer = answer[0].upper() + answer[1:]
    if facts.overflow is None:
        answer = f"The sequence: its {facts.tokens:,} tokens are shared out already"
    if {"layer", "stack"} <= set(overflows):
        return Said(answer=answer, outcome=by_topology(facts) if len(overflows) == 2 else _several(facts))
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
    sizes = [tp for tp in tensor_sizes(facts) if tp <= size]
    axes = {"tp": max(sizes)} if sizes and size > 1 else {}
    inside = "" if not axes else f", TP {axes['tp']}"
    return Outcome(
        technique=T.TENSOR,
        says=f"Split the matrices of every layer over the devices of one host{inside}.",
        why="A layer is too wide for one device, and only cutting inside layers makes a layer smaller. Its "
        "exchanges come twice a layer, so it belongs on the fastest link.",
        axes=axes,
        against={
            T.PIPELINE: "A stage holds whole layers, and one whole layer is what does not fit.",
            T.SHARDED_DATA: "It gathers each layer whole before using it, and one whole layer is what does "
            "not fit.",
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
        why="Each layer fits and all of them do not: the model is too deep, not too wide. Stages hand over "
        "one activation at each boundary, which any link carries.",
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
            why="Experts in different places exchange every token twice in every such layer, and which rank "
            "waits for which changes with the routing. Over a slow link whole layers hand over one "
            "activation a boundary.",
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
            "Sequence parallelism shares those too, for the same bytes forward.",
            against={
                T.CONTEXT: "It cuts the sequence in every layer, with an exchange of its own. Sequence "
                "parallelism comes first, where tensor parallelism is in use.",
            },
            sources=("Korthikanti 2022 (arXiv:2205.05198)", BRIDGE),
        )
    return _sequence(facts)


def _sequence(facts: Facts) -> Outcome:
    return Outcome(
        technique=T.CONTEXT,
        says="Cut the sequence in every layer over a group of its own"
        + (", besides the sequence parallelism that is on." if facts.sp else "."),
        why="The length of one sequence fills the devices, all alike. Context parallelism shares its tokens "
        "in every layer, needs no tensor parallelism, and leaves the weights as they are.",
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
    if facts.tp and facts.kv_heads and facts.tp < 2 * facts.kv_heads:  # no head is held twice: rule R15
        return Outcome(
            technique=T.CONTEXT,
            finding=F.KV_CACHE,
            says=f"Take TP {2 * facts.kv_heads}, and share the cache by tokens: decode context parallelism of size 2.",
            why=f"{why} At TP {facts.tp} each rank holds one key-value head and nobody a copy: no ranks could "
            "share its tokens.",
            against={**against, R.MORE_TENSOR: "Alone, it would only hold the same heads twice."},
            sources=("vLLM docs/serving/context_parallel_deployment.md", "rule R15"),
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
        "replicas each hold all of it. It is still data parallelism: each device takes its part of the "
        "batch.",
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
