"""Models that people ask about, each with the source of its sizes and the counts that its makers published.

The sizes themselves are data: models.toml, beside this module.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from calculators.predict.models.parameters import active_parameters, parameter_parts, total_parameters
from calculators.predict.shapes import Experts, LatentAttention, ModelShape, SlidingWindow

MXFP4_BYTES = 17 / 32  # OCP Microscaling 1.0: blocks of 32 four-bit numbers share one 8-bit scale


class Release(StrEnum):
    """The format of a model's published weights."""

    FP16 = "fp16"
    BF16 = "bf16"
    FP8 = "fp8"
    MXFP4 = "mxfp4"


@dataclass(frozen=True, kw_only=True)
class Model:
    """One preset: a `shape`, the published counts [parameters] and the format of the published weights."""

    key: str
    shape: ModelShape
    released: Release
    published_parameters: float | None = None
    published_active: float | None = None

    @property
    def parameters(self) -> int:
        """Parameters that these sizes make."""
        return total_parameters(self.shape)

    @property
    def active(self) -> int:
        """Parameters that one token uses, the whole embedding among them."""
        return active_parameters(self.shape)

    @property
    def released_bytes(self) -> float:
        """Size of the weights as they were published [bytes].

        Embedding, output, router and norms stay at 16 bits; fp8 is for all other matrices, mxfp4 for the experts only.
        """
        parts = parameter_parts(self.shape)
        if self.released is Release.MXFP4:
            return MXFP4_BYTES * parts.experts + 2.0 * (parts.total - parts.experts)
        if self.released is Release.FP8:
            eight = parts.attention + parts.feed_forward + parts.experts + parts.shared_experts
            return eight + 2.0 * (parts.total - eight)
        return 2.0 * parts.total


def model(key: str) -> Model:
    """The preset with this key. Raises ValueError that names them all."""
    if key not in MODELS:
        raise ValueError(f"model is {key!r}, which is not in the catalogue. Use one of: {', '.join(MODELS)}.")
    return MODELS[key]


def preset_of(shape: ModelShape) -> Model | None:
    """The preset that has exactly these sizes, whatever they are called; None where there is none.

    >>> from dataclasses import replace
    >>> found = preset_of(replace(MODELS["phi-4"].shape, name="mine", source="my own"))
    >>> found and found.key
    'phi-4'
    """
    return next(
        (
            model
            for model in MODELS.values()
            if replace(shape, name=model.shape.name, source=model.shape.source) == model.shape
        ),
        None,
    )


def _model(key: str, entry: Mapping[str, Any]) -> Model:
    shape = ModelShape(
        name=entry["name"],
        source=entry["source"],
        bytes_per_element=2,  # of activations: 16 bits, also where the weights were published in fewer
        experts=Experts(**entry["experts"]) if "experts" in entry else None,
        latent=LatentAttention(**entry["latent"]) if "latent" in entry else None,
        window=SlidingWindow(**entry["window"]) if "window" in entry else None,
        **entry["sizes"],
        **entry.get("kind", {}),
    )
    published = entry.get("published", {})
    return Model(
        key=key,
        shape=shape,
        released=Release(entry["released"]),
        published_parameters=published.get("total"),
        published_active=published.get("active"),
    )


MODELS = {
    key: _model(key, entry)
    for key, entry in tomllib.loads(Path(__file__).with_name("models.toml").read_text("utf-8")).items()
}
"""Every preset by its key, the lessons' own first."""
