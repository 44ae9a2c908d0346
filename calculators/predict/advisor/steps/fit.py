"""One copy of the model fits on one device: what to do with the others."""

from __future__ import annotations

from calculators.predict.advisor.advice import Outcome
from calculators.predict.advisor.advice import Technique as T
from calculators.predict.advisor.facts import Facts
from calculators.predict.advisor.steps.step import BRIDGE, VLLM_SCALING, Said


def one_fits(facts: Facts) -> Said | None:
    """Whether a device holds a copy of the model, which decides unless something else overflows."""
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
                why="All devices read their part of the weights at the same moment, so it is the split that "
                "speeds up one conversation, where exchanges are quick beside the work they save.",
                against={
                    T.PIPELINE: "One request passes the stages in turn, so it gets no faster.",
                    T.DATA: "Replicas answer other requests; this one gets no faster.",
                },
                sources=("llama.cpp docs/multi-gpu.md", VLLM_SCALING),
            )
        return Outcome(
            technique=T.DO_NOT_SPLIT,
            says="Run it on one device, the fastest.",
            why="Only a split inside every layer speeds up one conversation, and here no link answers fast "
            "enough for it.",
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
