"""The sizes of a model and of a layout, and the one product that every traffic figure starts from."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


class Phase(StrEnum):
    """What the model is doing: it decides how many tokens are in flight and whether gradients travel."""

    DECODE = "decode"
    PREFILL = "prefill"
    TRAINING = "training"

    @property
    def unit(self) -> str:
        """What one traffic figure of this phase is counted for."""
        return {"decode": "token", "prefill": "prompt", "training": "step"}[self.value]


@dataclass(frozen=True, kw_only=True)
class ModelShape:
    """The dimensions of a dense transformer. `bytes_per_element` is the width of its activations [bytes]."""

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
            if value < 1:
                raise ValueError(f"{field} is {value} in {self.name}, but it counts things: use 1 or more.")


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How many ways each axis is split; 1 leaves that axis whole. `sp` rides on the tensor-parallel group."""

    dp: int = 1
    tp: int = 1
    pp: int = 1
    cp: int = 1
    ep: int = 1
    sp: bool = False

    def __post_init__(self) -> None:
        for axis in ("dp", "tp", "pp", "cp", "ep"):
            size = getattr(self, axis)
            if size < 1:
                raise ValueError(
                    f"{axis} is {size}, but an axis has at least 1 part. Use 1 to leave it whole."
                )

    @property
    def world_size(self) -> int:
        """Devices that the layout needs: dp × tp × pp × cp. Experts share the devices of the other axes."""
        return self.dp * self.tp * self.pp * self.cp


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
    return floats(batch) * floats(tokens) * floats(hidden_size) * floats(bytes_per_element)


def floats(values: ArrayLike) -> Floats:
    """The values as float64: exact for whole numbers of bytes up to 2⁵³ (9 PB)."""
    return np.asarray(values, dtype=np.float64)
