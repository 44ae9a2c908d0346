"""Where the devices are, how they reach each other, and what split follows from that."""

from __future__ import annotations

from calculators.predict.advisor.advice import Outcome
from calculators.predict.advisor.advice import Remedy as R
from calculators.predict.advisor.advice import Technique as T
from calculators.predict.advisor.facts import FAR, Facts
from calculators.predict.advisor.steps.sizes import tensor_size, tensor_sizes
from calculators.predict.advisor.steps.step import BRIDGE, VLLM_SCALING, Against, Said


def hosts_are_together(facts: Facts) -> Said | None:
    """Whether the hosts are near enough to exchange anything within a step."""
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
            "several for each token. Replicas send each other none when serving.",
            against={
                T.PIPELINE: "It moves few bytes, and each of them waits for the way between the places, "
                "once a boundary and token.",
                R.FASTER_LINK: "Distance is what takes the time.",
            },
            sources=("vLLM issue 11285",),
        ),
    )


def what_there_is(facts: Facts) -> Said | None:
    """Nobody says which piece is too large: the devices and their links decide."""
    if facts.one_fits is not False or facts.overflows:
        return None
    if facts.devices_per_host is None and facts.hosts is None:
        return None
    hosts = "one host" if (facts.hosts or 1) == 1 else f"{facts.hosts} hosts"
    outcome = by_topology(facts)
    return Said(answer=f"{hosts}, {facts.devices_per_host or 1} devices in each", outcome=outcome)


def by_topology(facts: Facts) -> Outcome:
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
    tp = tensor_size(facts, need, reach)
    pp = -(-need // tp)
    divides = need in tensor_sizes(facts)
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
