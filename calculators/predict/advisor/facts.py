"""What an adviser can be told: each fact optional, each with the question that asks for it.

A fact is what somebody sees (so many devices, this link, half the time idle), never what follows from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import Any

from calculators.predict.arrays import MOST, said
from calculators.predict.links import RUNGS, rung
from calculators.predict.rules import tool

FAR = "wan"
LINKS = ("fast", "slow", FAR)
"""What may be said of a link without naming its rung; `wan` joins sites that are far apart."""

FAST_SECONDS = 1e-5
"""A link is fast where a small exchange typically takes less. NVLink and RDMA networks do; PCIe collectives, at 10 to
54 µs, do not (NCCL issue 1439), and vLLM's guide asks for pipeline parallelism there."""

LONG_TOKENS = 8_192
"""From here Megatron-LM's guide recommends context parallelism."""

OVERFLOWS: Mapping[str, str] = {
    "layer": "one layer’s own matrices",
    "stack": "all layers together, though each fits",
    "experts": "the experts of a layer",
    "activations": "activations, with tensor parallelism in use",
    "sequence": "one sequence, in every layer",
    "kv-cache": "the KV cache beside the weights",
    "model-states": "gradients and optimizer state beside the weights",
}
CHOICES: Mapping[str, Mapping[Any, str]] = {
    "wording": {"exam": "as an exam asks it", "practice": "as code and wire do it"},
    "phase": {"training": "Training", "serving": "Serving"},
    "fits": {True: "It fits", False: "It does not fit"},
    "overflow": OVERFLOWS,
    "moe": {True: "A mixture of experts", False: "A dense model"},
    "wanted": {
        "throughput": "More work done in all",
        "latency": "A faster answer to one user",
        "capacity": "Room for a larger model",
    },
    "exchange": {"ring": "a ring", "all-gather": "an all-gather", "all-to-all": "an all-to-all (Ulysses)"},
}
COUNTS = (
    *("devices_to_fit", "hosts", "devices_per_host", "requests", "micro_batches", "tokens"),
    *("dp", "tp", "pp", "vpp", "cp", "ep", "attention_heads", "kv_heads", "layers"),
    *("ffn_width", "experts", "expert_width", "quantisation_block"),
)
SHARES = ("speed_over_alone", "share_of_memory_ceiling", "device_busy", "link_busy")
FLAGS = ("sp", "faster_link_helped", "memory_falls_with_devices", "slower_with_more_hosts")


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What is known; None is not known.

    wording            exam: what a certification marks as right; practice: what code and wire do
    phase              training or serving
    fits               one replica of the model fits on one device
    devices_to_fit     the fewest devices that hold one replica
    overflow           what does not fit, keys of OVERFLOWS
    moe                the model is a mixture of experts
    wanted             throughput, latency (of one user) or capacity
    hosts, devices_per_host
    link_inside, link_between   of a host, and between hosts: a rung of the ladder, or fast, slow, wan

    dp, tp, sp, pp, vpp, cp, ep   the layout in use, or tried
    zero               stage of sharded data parallelism in use, 3 for FSDP
    exchange           how context parallelism brings keys and values together
    requests           in flight at one time, when serving
    micro_batches      per step, when training
    tokens             length of a sequence [tokens]
    attention_heads, kv_heads, layers, ffn_width, experts, expert_width
    quantisation_block side of blocks of weights that share a scale
    redundant_experts  copies that a load balancer adds; None without one
    tool               whose checks count, a key of rules.TOOLS

    speed_over_alone           speed of the split ÷ that of one device alone
    share_of_memory_ceiling    tokens a second ÷ (memory bandwidth ÷ bytes read for a token)
    seconds_per_exchange       one message or collective was seen to take [s]
    device_busy, link_busy     share of the time, or of the link's bandwidth, that is used
    faster_link_helped         a faster link changed something
    hottest_over_mean          load of the busiest rank of an expert-parallel group ÷ the mean
    memory_falls_with_devices  memory per device fell as devices were added
    slower_with_more_hosts     a step took longer as hosts were added
    """

    wording: str = "practice"
    phase: str | None = None
    fits: bool | None = None
    devices_to_fit: int | None = None
    overflow: tuple[str, ...] | str | None = None
    moe: bool | None = None
    wanted: str | None = None
    hosts: int | None = None
    devices_per_host: int | None = None
    link_inside: str | None = None
    link_between: str | None = None

    dp: int | None = None
    tp: int | None = None
    sp: bool | None = None
    pp: int | None = None
    vpp: int | None = None
    cp: int | None = None
    ep: int | None = None
    zero: int | None = None
    exchange: str | None = None
    requests: int | None = None
    micro_batches: int | None = None
    tokens: int | None = None
    attention_heads: int | None = None
    kv_heads: int | None = None
    layers: int | None = None
    ffn_width: int | None = None
    experts: int | None = None
    expert_width: int | None = None
    quantisation_block: int | None = None
    redundant_experts: int | None = None
    tool: str | None = None

    speed_over_alone: float | None = None
    share_of_memory_ceiling: float | None = None
    seconds_per_exchange: float | None = None
    device_busy: float | None = None
    link_busy: float | None = None
    faster_link_helped: bool | None = None
    hottest_over_mean: float | None = None
    memory_falls_with_devices: bool | None = None
    slower_with_more_hosts: bool | None = None

    def __post_init__(self) -> None:
        if isinstance(self.overflow, str):
            object.__setattr__(self, "overflow", (self.overflow,))
        for name, choices in CHOICES.items():
            given = getattr(self, name)
            for value in given if isinstance(given, tuple) else (given,):
                if value is not None and value not in choices:
                    offered = ", ".join(
                        str(choice) for choice in choices if not (name == "wording" and choice is None)
                    )
                    raise ValueError(f"{name} is {value!r}, which is no answer here. Use one of: {offered}.")
        for name in COUNTS:
            if (count := getattr(self, name)) is not None and (
                isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MOST
            ):
                raise ValueError(
                    f"{name} is {said(count)}, but it counts things: use a whole number, 1 or more."
                )
        for name in (*SHARES, "seconds_per_exchange", "hottest_over_mean"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, int | float) and 0 <= value <= MOST):
                raise ValueError(f"{name} is {said(value)}, but it must be a number, 0 or more.")
        for name in FLAGS:
            if (flag := getattr(self, name)) not in (None, True, False):
                raise ValueError(f"{name} is {flag!r}, but it is true or false.")
        if self.zero is not None and not (isinstance(self.zero, int) and 0 <= self.zero <= 3):
            raise ValueError(
                f"zero is {said(self.zero)}, but there are stages 0 to 3. Use 0 for plain replicas."
            )
        copies = self.redundant_experts
        if copies is not None and not (isinstance(copies, int) and 0 <= copies <= MOST):
            raise ValueError(f"redundant_experts is {said(copies)}, but it counts copies: use 0 or more.")
        for link in (self.link_inside, self.link_between):
            if link is not None and link not in LINKS:
                rung(link)
        if self.tool is not None:
            tool(self.tool)

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Facts:
        """Facts by name, as a pack of questions gives them. Raises ValueError that names an unknown one."""
        names = [field.name for field in fields(cls)]
        for name in given:
            if name not in names:
                near = get_close_matches(str(name), names, n=1)
                hint = f"Did you mean {near[0]}?" if near else "Facts lists those that can be given."
                raise ValueError(f"{name} is no fact that the adviser knows. {hint}")
        values = dict(given)
        if isinstance(values.get("overflow"), list):
            values["overflow"] = tuple(values["overflow"])
        return cls(**values)

    @property
    def known(self) -> dict[str, Any]:
        """What was given, by name."""
        return {
            field.name: value
            for field in fields(self)
            if (value := getattr(self, field.name)) is not None and field.name != "wording"
        }

    @property
    def devices(self) -> int | None:
        """All devices, where both numbers are known; one host where hosts are not spoken of."""
        if self.devices_per_host is None:
            return self.hosts if self.hosts == 1 else None
        return (self.hosts or 1) * self.devices_per_host

    @property
    def overflows(self) -> tuple[str, ...]:
        """What does not fit, in the order of OVERFLOWS: as given, or as other facts make plain.

        Where a sequence is long and its tokens are shared out already, and it still does not fit, it is the sequence.
        """
        given = self.overflow or ()
        shared = self.sp or (self.cp or 1) > 1
        if not given and self.fits is False and shared and (self.tokens or 0) >= LONG_TOKENS:
            given = ("sequence",)
        return tuple(name for name in OVERFLOWS if name in given)

    @property
    def one_fits(self) -> bool | None:
        """Whether one device holds a replica: as given, or as other facts make plain."""
        if self.fits is not None:
            return self.fits
        if self.devices_to_fit is not None:
            return self.devices_to_fit == 1
        if self.speed_over_alone is not None:
            return True  # it has run on one device alone
        if set(self.overflows) & {"layer", "stack", "experts", "model-states"}:
            return False
        return None

    def has_fast(self, link: str | None) -> bool | None:
        """Whether this link answers fast enough for exchanges in every layer; None where it is not known."""
        if link is None:
            return None
        if link in LINKS:
            return link == "fast"
        return RUNGS[link].typical_latency_seconds < FAST_SECONDS


@dataclass(frozen=True, kw_only=True)
class Question:
    """A question for one fact: what it asks, and the answers it offers, each with its words."""

    fact: str
    asks: str
    hint: str = ""

    @property
    def choices(self) -> tuple[tuple[Any, str], ...]:
        """Answers to choose among."""
        return tuple(_OFFERED.get(self.fact, CHOICES.get(self.fact, {})).items())


_YES_NO = {True: "Yes", False: "No"}
_RUNGS: Mapping[Any, str] = {
    "fast": "Fast: NVLink, or a network with RDMA",
    "slow": "Slow: PCIe without NVLink, Ethernet, Wi-Fi",
}
_OFFERED: Mapping[str, Mapping[Any, str]] = {
    "sp": _YES_NO,
    "tp": {1: "No", 2: "2 ways", 4: "4 ways", 8: "8 ways"},
    "hosts": {1: "One", 2: "2", 4: "4", 8: "8"},
    "devices_per_host": {1: "One", 2: "2", 4: "4", 8: "8"},
    "link_inside": _RUNGS,
    "link_between": {**_RUNGS, FAR: "The internet: the hosts are in different places"},
}
QUESTIONS = (
    Question(fact="phase", asks="Does it train, or does it answer?"),
    Question(
        fact="fits",
        asks="Does one copy of the model fit on one device?",
        hint="Weights when serving; gradients and optimizer state too when training.",
    ),
    Question(fact="overflow", asks="What does not fit?", hint="Read the sentence: too wide is not too deep."),
    Question(fact="moe", asks="Is the model a mixture of experts?"),
    Question(fact="tp", asks="Is tensor parallelism in use?"),
    Question(fact="sp", asks="Is sequence parallelism on already?"),
    Question(fact="wanted", asks="What is wanted?"),
    Question(fact="hosts", asks="How many hosts are there?"),
    Question(fact="devices_per_host", asks="How many devices does a host have?"),
    Question(fact="link_inside", asks="How do the devices of one host reach each other?"),
    Question(fact="link_between", asks="If there are several hosts, how do they reach each other?"),
)
"""What to ask in this order, when somebody describes a case from the start."""
