"""The sizes of a model and of its layouts, and the one product that every traffic figure starts from."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import IntEnum, StrEnum
from typing import NoReturn

from numpy.typing import ArrayLike

from calculators.predict.arrays import (
    Floats,
    amounts,
    check_broadcast,
    counts,
    everywhere,
    floats,
    is_whole,
    numbers,
    said,
)


class Phase(StrEnum):
    """What the model is doing: it decides how many tokens are in flight and whether gradients travel."""

    DECODE = "decode"
    PREFILL = "prefill"
    TRAINING = "training"

    @classmethod
    def _missing_(cls, value: object) -> NoReturn:
        raise ValueError(
            f"phase is {said(value)}, but a model decodes, prefills or trains. Use one of: {', '.join(cls)}."
        )

    @property
    def unit(self) -> str:
        """What one traffic figure of this phase is counted for."""
        return {"decode": "token", "prefill": "prompt", "training": "step"}[self.value]


class Recompute(IntEnum):
    """What of the forward pass is computed again in the backward pass instead of being kept.

    SELECTIVE recomputes the attention core (scores, softmax, their product with the values), which is also what a
    flash-attention kernel does; FULL keeps a layer's input only.
    """

    NONE = 0
    SELECTIVE = 1
    FULL = 2


@dataclass(frozen=True, kw_only=True)
class Experts:
    """The mixture of experts of a model's sparse layers.

    routed, per_token   how many experts a layer has, and how many of them a token visits
    width               inner width of one expert [elements]
    shared_width        inner width of the expert that every token visits as well; 0 without one
    dense_layers        the first layers, which have an ordinary feed-forward block instead
    """

    routed: int
    per_token: int
    width: int
    shared_width: int = 0
    dense_layers: int = 0

    def __post_init__(self) -> None:
        for name, least in (
            ("routed", 1),
            ("per_token", 1),
            ("width", 1),
            ("shared_width", 0),
            ("dense_layers", 0),
        ):
            _check_size(name, getattr(self, name), least=least)
        if self.per_token > self.routed:
            raise ValueError(
                f"per_token is {self.per_token}, but a layer has only {self.routed} experts. "
                f"Use {self.routed} or less."
            )


@dataclass(frozen=True, kw_only=True)
class LatentAttention:
    """Multi-head latent attention (DeepSeek): what is cached is one compressed vector a token, for all heads.

    kv_rank, rope_dim   the cached vector and the rotary part beside it [elements]
    query_rank          of the compressed query; 0 where queries are projected directly
    value_dim           width of one head's value; `head_dim` of the model is the un-rotated part of its key
    """

    kv_rank: int
    rope_dim: int
    query_rank: int
    value_dim: int

    def __post_init__(self) -> None:
        for name, least in (("kv_rank", 1), ("rope_dim", 0), ("query_rank", 0), ("value_dim", 1)):
            _check_size(name, getattr(self, name), least=least)


@dataclass(frozen=True, kw_only=True)
class SlidingWindow:
    """Layers that look back only `tokens`, and how many `layers` of the model do so."""

    tokens: int
    layers: int

    def __post_init__(self) -> None:
        for name, least in (("tokens", 1), ("layers", 0)):
            _check_size(name, getattr(self, name), least=least)


@dataclass(frozen=True, kw_only=True)
class ModelShape:
    """The dimensions of a transformer. `bytes_per_element` is the width of its activations [bytes].

    gated             the feed-forward block has three matrices (SwiGLU and the like), not two
    tied_embeddings   the output matrix is the embedding again
    positions         learned position vectors
    experts, latent, window   None for a dense model, ordinary attention, and attention to everything
    """

    name: str
    hidden_size: int
    layers: int
    attention_heads: int
    kv_heads: int
    head_dim: int
    ffn_width: int
    vocab_size: int
    bytes_per_element: int
    source: str
    gated: bool = True
    tied_embeddings: bool = False
    positions: int = 0
    experts: Experts | None = None
    latent: LatentAttention | None = None
    window: SlidingWindow | None = None

    def __post_init__(self) -> None:
        for field in (
            "hidden_size",
            "layers",
            "attention_heads",
            "kv_heads",
            "head_dim",
            "ffn_width",
            "vocab_size",
            "bytes_per_element",
        ):
            value = getattr(self, field)
            if not is_whole(value, least=1):
                raise ValueError(
                    f"{field} is {said(value)} in {self.name}, but it counts things: use 1 or more."
                )
        _check_size("positions", self.positions, least=0)
        if self.experts and self.experts.dense_layers >= self.layers:
            raise ValueError(
                f"dense_layers is {self.experts.dense_layers} in {self.name}, but of {self.layers} layers at least "
                "one has experts. Use fewer, or no experts."
            )

    @property
    def is_sparse(self) -> bool:
        """Whether it has experts."""
        return self.experts is not None

    @property
    def sparse_layers(self) -> int:
        """Layers whose feed-forward block is a mixture of experts."""
        return self.layers - self.experts.dense_layers if self.experts else 0

    @property
    def dense_layers(self) -> int:
        """Layers with an ordinary feed-forward block."""
        return self.layers - self.sparse_layers


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How many ways each axis is split; 1 leaves that axis whole.

    `sp` rides on the tensor-parallel group. `ep` and `etp` (tensor parallelism inside experts) share out the
    devices of the other axes among the experts. `vpp` chunks of layers a stage interleave. `zero` is 0 (plain
    replicas) to 3 (FSDP).
    """

    dp: int = 1
    tp: int = 1
    pp: int = 1
    cp: int = 1
    ep: int = 1
    etp: int = 1
    vpp: int = 1
    sp: bool = False
    zero: int = 0

    def __post_init__(self) -> None:
        for axis in ("dp", "tp", "pp", "cp", "ep", "etp", "vpp"):
            size = getattr(self, axis)
            if not is_whole(size, least=1):
                raise ValueError(
                    f"{axis} is {said(size)}, but an axis has at least 1 part. Use 1 to leave it whole."
                )
        if not is_whole(self.zero, least=0) or self.zero > 3:
            raise ValueError(
                f"zero is {said(self.zero)}, but there are stages 0 to 3. Use 0 for plain replicas."
            )

    @property
    def world_size(self) -> int:
        """Devices that the layout needs: dp × tp × pp × cp. Experts share the devices of the other axes."""
        return self.dp * self.tp * self.pp * self.cp


@dataclass(frozen=True, kw_only=True, eq=False)
class Layouts:
    """Many layouts at once: each axis an array, and all of them broadcast against each other.

    An axis that varies alone may have a shape of its own, (tp, 1) beside (1, dp): what depends on few axes is then
    calculated once for each of their values. Axes as in `Layout`; besides, what training chooses for each:

    micro_batch   sequences that one replica takes through the model at a time
    recompute     a value of Recompute
    """

    dp: ArrayLike = 1
    tp: ArrayLike = 1
    pp: ArrayLike = 1
    cp: ArrayLike = 1
    ep: ArrayLike = 1
    etp: ArrayLike = 1
    vpp: ArrayLike = 1
    sp: ArrayLike = False
    zero: ArrayLike = 0
    micro_batch: ArrayLike = 1
    recompute: ArrayLike = int(Recompute.NONE)

    def __post_init__(self) -> None:
        sizes = counts(
            dp=self.dp,
            tp=self.tp,
            pp=self.pp,
            cp=self.cp,
            ep=self.ep,
            etp=self.etp,
            vpp=self.vpp,
            micro_batch=self.micro_batch,
        )
        modes = {"zero": check_zero(self.zero), "recompute": check_recompute(self.recompute)}
        check_broadcast({**sizes, **modes, **numbers(sp=self.sp)})

    @classmethod
    def of(
        cls, layout: Layout, *, micro_batch: ArrayLike = 1, recompute: ArrayLike = int(Recompute.NONE)
    ) -> Layouts:
        """One layout, with what training chooses beside it."""
        axes = {field.name: getattr(layout, field.name) for field in fields(Layout)}
        return cls(**axes, micro_batch=micro_batch, recompute=recompute)

    @property
    def world_size(self) -> Floats:
        """Devices of each: dp × tp × pp × cp."""
        return floats(self.dp) * floats(self.tp) * floats(self.pp) * floats(self.cp)

    @property
    def expert_dp(self) -> Floats:
        """Replicas of each expert: the devices of a stage ÷ (ep × etp). A legal layout makes it whole (R13)."""
        stage = floats(self.dp) * floats(self.tp) * floats(self.cp)
        return stage / (floats(self.ep) * floats(self.etp))


def activation_bytes(
    batch: ArrayLike, tokens: ArrayLike, hidden_size: ArrayLike, bytes_per_element: ArrayLike
) -> Floats:
    """Bytes of the tensor that one layer hands to the next: batch × tokens in flight × hidden × element.

    In decode each sequence has one token in flight, in prefill and training its whole length.

    >>> activation_bytes(batch=1, tokens=1, hidden_size=4096, bytes_per_element=2).item()
    8192.0
    >>> activation_bytes(batch=[1, 32], tokens=1, hidden_size=4096, bytes_per_element=2).tolist()
    [8192.0, 262144.0]
    """
    given = {
        **amounts(batch=batch, tokens=tokens, bytes_per_element=bytes_per_element),
        **counts(hidden_size=hidden_size),
    }
    check_broadcast(given)
    return floats(given["batch"] * given["tokens"] * given["hidden_size"] * given["bytes_per_element"])


def check_zero(zero: ArrayLike) -> Floats:
    """The stages as numbers. Raises ValueError for others than 0 to 3."""
    stage = numbers(zero=zero)["zero"]
    known = (stage == 0) | (stage == 1) | (stage == 2) | (stage == 3)
    if not everywhere(known):
        wrong = stage[~known].flat[0]
        raise ValueError(f"zero is {wrong:g}, but there are stages 0 to 3. Use 0 for plain replicas.")
    return stage


def check_recompute(recompute: ArrayLike) -> Floats:
    """The modes as numbers. Raises ValueError for others than those of Recompute."""
    mode = numbers(recompute=recompute)["recompute"]
    known = (mode == 0) | (mode == 1) | (mode == 2)
    if not everywhere(known):
        raise ValueError(
            f"recompute is {mode[~known].flat[0]:g}, but the modes are 0 (none), 1 (selective) and 2 (full)."
        )
    return mode


def _check_size(name: str, value: object, *, least: int) -> None:
    if not is_whole(value, least=least):
        raise ValueError(f"{name} is {said(value)}, but the least that works is {least}.")
