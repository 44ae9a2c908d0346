"""What a step of the procedure is, what it says, and the sources that several of them name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from calculators.predict.advisor.advice import Outcome, Remedy, Technique
from calculators.predict.advisor.facts import Facts

Against = dict[Technique | Remedy, str]
"""What is turned down, and why."""

BRIDGE = "Megatron-Bridge docs/parallelisms.md"
VLLM_SCALING = "vLLM docs/serving/parallelism_scaling.md"
MOE_README = "Megatron-LM core/transformer/moe/README.md"
ZERO = "ZeRO (arXiv:1910.02054)"


@dataclass(frozen=True, kw_only=True)
class Step:
    """One question of the procedure. `look` gives None where the facts say nothing about it."""

    asks: str
    look: Callable[[Facts], Said | None]


@dataclass(frozen=True, kw_only=True)
class Said:
    """What the facts answer to one question, and the outcome where that decides."""

    answer: str
    outcome: Outcome | None = None
