"""What an adviser answers: a technique, how it was reached, what was turned down, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from calculators.predict.rules import Violation


class Technique(StrEnum):
    """What to do: a family, several of them, none, or not yet to be said."""

    DATA = "data"
    SHARDED_DATA = "sharded-data"
    TENSOR = "tensor"
    PIPELINE = "pipeline"
    SEQUENCE = "sequence"
    CONTEXT = "context"
    EXPERT = "expert"
    COMPOSITION = "composition"
    DO_NOT_SPLIT = "do-not-split"
    NONE_OF_THESE = "none-of-these"
    ASK_MORE = "ask-more"

    @property
    def label(self) -> str:
        """Its name as a heading."""
        return _TITLES[self]


FAMILIES = (
    Technique.DATA,
    Technique.SHARDED_DATA,
    Technique.TENSOR,
    Technique.PIPELINE,
    Technique.SEQUENCE,
    Technique.CONTEXT,
    Technique.EXPERT,
)


class Finding(StrEnum):
    """What is wrong, where something is, beside or instead of the choice of a split."""

    RULE = "rule"
    BUBBLE = "bubble"
    LATENCY = "latency-bound"
    MEMORY_BANDWIDTH = "memory-bandwidth-bound"
    WRONG_RUNG = "wrong-rung"
    LINK_NOT_THE_LIMIT = "link-not-the-limit"
    HOT_EXPERT = "hot-expert"
    ONE_AT_A_TIME = "one-at-a-time"
    REPLICATED = "replicated"
    GATHERED_OVER_SLOW_LINK = "gathered-over-slow-link"
    SPLIT_NOT_FASTER = "split-not-faster"
    KV_CACHE = "kv-cache"

    @property
    def label(self) -> str:
        """Its name in a sentence."""
        return _FINDINGS[self]


class Remedy(StrEnum):
    """What people reach for beside the families, and an adviser may have to turn down."""

    UMBRELLA = "model-parallelism"
    FASTER_LINK = "faster-link"
    MORE_DEVICES = "more-devices"
    MORE_TENSOR = "more-tensor-parallelism"
    MORE_MEMORY = "more-memory"
    LARGER_BATCH = "larger-batch"
    SMALLER_BATCH = "smaller-batch"
    HUNT_A_BUG = "hunt-a-bug"
    CHANGE_THE_MODEL = "change-the-model"
    NO_EXPERTS = "no-expert-parallelism"
    ANY_SIZE = "any-size"

    @property
    def label(self) -> str:
        """Its name as a heading."""
        return _REMEDIES[self]


@dataclass(frozen=True, kw_only=True)
class Answered:
    """One question of the procedure and what the facts answered; the last one decided."""

    asks: str
    answer: str
    decides: bool = False


@dataclass(frozen=True, kw_only=True)
class Rejected:
    """What was turned down, and the reason."""

    option: Technique | Remedy
    reason: str


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Where one question of the procedure leads.

    families   the families that it uses; the technique itself unless more are named
    axes       sizes that it suggests
    against    reasons of its own against what tempts here
    """

    technique: Technique
    says: str
    why: str
    finding: Finding | None = None
    families: tuple[Technique, ...] = ()
    axes: Mapping[str, int] = field(default_factory=dict)
    against: Mapping[Technique | Remedy, str] = field(default_factory=dict)
    rules: tuple[Violation, ...] = ()
    sources: tuple[str, ...] = ()

    @property
    def uses(self) -> tuple[Technique, ...]:
        """The families that it uses."""
        return self.families or ((self.technique,) if self.technique in FAMILIES else ())


@dataclass(frozen=True, kw_only=True)
class Advice:
    """The answer.

    technique, families   what to use, and the families that make it up
    finding               what is wrong, where something is
    says, why             what to do, and the reason, each in a sentence or two
    axes                  sizes that it suggests, where enough is known
    path                  the questions asked in order, with their answers; the last one decided
    rejected              everything turned down, with its reason
    rules                 rules that the numbers break, with the nearest that work
    sources               where it is written
    otherwise             the answer in the other wording, where that differs
    """

    technique: Technique
    says: str
    why: str
    path: tuple[Answered, ...]
    finding: Finding | None = None
    families: tuple[Technique, ...] = ()
    axes: Mapping[str, int] = field(default_factory=dict)
    rejected: tuple[Rejected, ...] = ()
    rules: tuple[Violation, ...] = ()
    sources: tuple[str, ...] = ()
    otherwise: Advice | None = None

    @property
    def label(self) -> str:
        """The technique as a heading; a composition by the families that make it up."""
        if self.technique is not Technique.COMPOSITION:
            return self.technique.label
        *others, last = (family.label.removesuffix(" parallelism").lower() for family in self.families)
        return f"{', '.join(others)} and {last} parallelism".capitalize()

    def reason_against(self, option: Technique | Remedy) -> str | None:
        """Why this was turned down; None where it was not."""
        return next((each.reason for each in self.rejected if each.option == option), None)


_TITLES = {
    Technique.DATA: "Data parallelism",
    Technique.SHARDED_DATA: "Sharded data parallelism",
    Technique.TENSOR: "Tensor parallelism",
    Technique.PIPELINE: "Pipeline parallelism",
    Technique.SEQUENCE: "Sequence parallelism",
    Technique.CONTEXT: "Context parallelism",
    Technique.EXPERT: "Expert parallelism",
    Technique.COMPOSITION: "A composition",
    Technique.DO_NOT_SPLIT: "Do not split it",
    Technique.NONE_OF_THESE: "No other split",
    Technique.ASK_MORE: "Not enough is known",
}
_FINDINGS = {
    Finding.RULE: "the numbers break a rule",
    Finding.BUBBLE: "the pipeline is not filled",
    Finding.LATENCY: "latency, not bandwidth",
    Finding.MEMORY_BANDWIDTH: "memory bandwidth is the limit",
    Finding.WRONG_RUNG: "messages take the wrong link",
    Finding.LINK_NOT_THE_LIMIT: "the link is not the limit",
    Finding.HOT_EXPERT: "a few ranks hold the busy experts",
    Finding.ONE_AT_A_TIME: "the devices work one at a time",
    Finding.REPLICATED: "every device holds the same",
    Finding.GATHERED_OVER_SLOW_LINK: "weights are gathered over the slow link",
    Finding.SPLIT_NOT_FASTER: "the split makes nothing faster",
    Finding.KV_CACHE: "the cache is what does not fit",
}
_REMEDIES = {
    Remedy.UMBRELLA: "Model parallelism",
    Remedy.FASTER_LINK: "A faster link",
    Remedy.MORE_DEVICES: "More devices, or more stages",
    Remedy.MORE_TENSOR: "A larger tensor-parallel group",
    Remedy.MORE_MEMORY: "More memory",
    Remedy.LARGER_BATCH: "A larger batch",
    Remedy.SMALLER_BATCH: "A smaller batch",
    Remedy.HUNT_A_BUG: "Looking for a fault in the machine or the software",
    Remedy.CHANGE_THE_MODEL: "Changing the model",
    Remedy.NO_EXPERTS: "Giving up expert parallelism",
    Remedy.ANY_SIZE: "Any other size",
}
