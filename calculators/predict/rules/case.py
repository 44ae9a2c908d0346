"""What the rules are asked about: a model, one layout or many, and as much of the job around them as is known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calculators.predict.arrays import Floats, amounts, check_broadcast, counts, floats, whole
from calculators.predict.rules.tools import tool
from calculators.predict.shapes import Layouts, ModelShape, Phase

Mask = NDArray[np.bool_]
Exchange = Literal["ring", "all-gather", "all-to-all"]
"""How context parallelism brings keys and values together; all-to-all is what Ulysses does."""

AXES = ("dp", "tp", "pp", "cp", "ep", "etp", "vpp", "micro_batch")
GIVEN = (
    "tokens",
    "batch",
    "given_micro_batches",
    "micro_batch_group",
    "devices",
    "devices_per_host",
    "decode_cp",
)


@dataclass(frozen=True, kw_only=True, eq=False)
class Case:
    """One question to the rules. What is None is not known, and rules that need it stay silent.

    layouts                the axes, as arrays that broadcast against each other and keep their own shapes
    phase                  training has rules that serving has not
    tokens                 length of a sequence [tokens]
    batch                  global batch [sequences]
    given_micro_batches    micro-batches per step; otherwise batch ÷ (dp × micro_batch)
    schedule               a value of schedules.Schedule; None is 1F1B, or interleaved where vpp is above 1
    micro_batch_group      consecutive micro-batches of one chunk in an interleaved schedule; pp unless given
    devices                all devices of the run
    devices_per_host       devices that share the fast link
    quantisation_block     side of the blocks that share one scale [elements]
    exchange               how context parallelism brings keys and values together
    replicated_kv          all-to-all may repeat key-value heads, as grouped tensor parallelism does
    uneven_stages          a layout of the stages is given, so that they need not be equally deep
    redundant_experts      extra copies of hot experts; None where nothing balances load
    decode_cp              decode context parallelism (vLLM), which reuses the tensor-parallel group
    vocabulary_divisor     the vocabulary is padded to a multiple of this × tp
    tool                   whose checks count, a key of TOOLS
    """

    shape: ModelShape
    layouts: Layouts = field(default_factory=Layouts)
    phase: Phase = Phase.TRAINING
    tokens: ArrayLike | None = None
    batch: ArrayLike | None = None
    given_micro_batches: ArrayLike | None = None
    schedule: str | None = None
    micro_batch_group: ArrayLike | None = None
    devices: ArrayLike | None = None
    devices_per_host: ArrayLike | None = None
    quantisation_block: int | None = None
    exchange: Exchange = "ring"
    replicated_kv: bool = False
    uneven_stages: bool = False
    redundant_experts: ArrayLike | None = None
    decode_cp: ArrayLike | None = None
    vocabulary_divisor: int = 128  # Megatron-LM --make-vocab-size-divisible-by
    tool: str = "megatron"

    def __post_init__(self) -> None:
        tool(self.tool)
        object.__setattr__(self, "phase", Phase(self.phase))
        if self.exchange not in ("ring", "all-gather", "all-to-all"):
            raise ValueError(
                f"exchange is {self.exchange!r}, but keys and values meet by ring, all-gather or all-to-all. "
                "Use one of those."
            )
        known = {name: getattr(self, name) for name in GIVEN if getattr(self, name) is not None}
        sizes = counts(**{axis: getattr(self.layouts, axis) for axis in AXES}, **known)
        whole("vocabulary_divisor", self.vocabulary_divisor)
        if self.quantisation_block is not None:
            whole("quantisation_block", self.quantisation_block)
        if self.redundant_experts is not None:
            sizes |= amounts(redundant_experts=self.redundant_experts)
        check_broadcast({**sizes, "sp": floats(self.layouts.sp)})
        object.__setattr__(self, "_sizes", sizes)

    def __getitem__(self, name: str) -> Floats:
        """The array of an axis or of something given, as it was given: not broadcast."""
        return self._known[name]

    @cached_property
    def _known(self) -> Mapping[str, Floats]:
        sizes: dict[str, Floats] = self.__dict__["_sizes"]
        return sizes

    def knows(self, name: str) -> bool:
        """Whether this is known of the case."""
        if name == "micro_batches":
            return self.given_micro_batches is not None or self.batch is not None
        return getattr(self, name) is not None

    @cached_property
    def sp(self) -> Mask:
        """Where sequence parallelism is on."""
        return np.asarray(self.layouts.sp, dtype=np.bool_)

    @cached_property
    def micro_batches(self) -> Floats:
        """Micro-batches per step and replica: given, or batch ÷ (dp × micro_batch)."""
        if self.given_micro_batches is not None:
            return self["given_micro_batches"]
        return self["batch"] / (self["dp"] * self["micro_batch"])

    @cached_property
    def replica(self) -> Floats:
        """Devices that hold one copy of the model: tp × cp × pp."""
        return self["tp"] * self["cp"] * self["pp"]

    @cached_property
    def world(self) -> Floats:
        """All devices: as given, or as many as the layout makes."""
        return self["devices"] if self.devices is not None else self["dp"] * self.replica

    @property
    def cached_heads(self) -> int:
        """Heads whose keys and values are cached apart: 1 with latent attention."""
        return 1 if self.shape.latent else self.shape.kv_heads

    def but(self, layout: Mapping[str, ArrayLike] | None = None, **changed: Any) -> Case:
        """The same case with other values, axes in `layout` and the rest by name."""
        layouts = replace(self.layouts, **(layout or {}))
        return replace(self, layouts=layouts, **changed)


def divides(size: ArrayLike, total: ArrayLike) -> Mask:
    """Where `total` is a whole multiple of `size`; exact for whole numbers below 2⁵³, and faster than a remainder.

    >>> divides([1, 3, 4], 64).tolist()
    [True, False, True]
    """
    share = floats(total) / floats(size)
    return np.asarray(share == np.floor(share))
