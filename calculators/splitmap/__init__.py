"""Split maps: the picture of a layout, and the same in words, drawn from what `predict` calculates."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from calculators.predict.models.catalogue import MODELS
from calculators.predict.shapes import Experts, Layout, ModelShape, Phase
from calculators.splitmap import words
from calculators.splitmap.checks import AXES
from calculators.splitmap.drawing import Lit, draw
from calculators.splitmap.scene import Scene, make_scene
from calculators.splitmap.steps import walk

__all__ = ["HIDDEN_SIZE", "SplitMap", "Step", "map_of_shape", "split_map"]

HIDDEN_SIZE = 4096
"""Of the model that is drawn where none is given."""
PER_TOKEN = 2
"""Experts that a token of a drawn model visits, where there are as many."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """One moment of a token's way: what happens, and what that lights in the picture.

    `marks` names what is lit by its `data-at`, for the script; `svg` is the picture with it lit.
    """

    scene: Scene
    caption: str
    lit: Lit | None

    @property
    def marks(self) -> str:
        return self.lit.marks if self.lit else ""

    @cached_property
    def svg(self) -> str:
        return draw(self.scene, self.lit)


@dataclass(frozen=True, kw_only=True)
class SplitMap:
    """The picture of one layout as SVG markup, safe in a page as it is; `static/splitmap.css` colours it.

    `sentences` say what the picture shows, `text` is all of them together, and `steps` follow one token, prompt or
    training step: first the whole picture, then each thing that happens. Each is made when it is first asked for.
    """

    scene: Scene

    @property
    def title(self) -> str:
        """The layout in a few words."""
        return words.title(self.scene)

    @cached_property
    def svg(self) -> str:
        """The picture."""
        return draw(self.scene)

    @cached_property
    def sentences(self) -> tuple[str, ...]:
        """The picture in words, a sentence for each thing it shows."""
        return words.sentences(self.scene)

    @property
    def text(self) -> str:
        """The picture in words, one paragraph."""
        return " ".join(self.sentences)

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """What happens, step by step."""
        return tuple(Step(scene=self.scene, caption=caption, lit=lit) for caption, lit in walk(self.scene))


def split_map(
    layout: Layout,
    *,
    layers: int,
    ranks_per_host: int = 8,
    phase: Phase = Phase.DECODE,
    batch: int | None = None,
    tokens: int = 1,
    micro_batches: int = 1,
    hidden_size: int = HIDDEN_SIZE,
    bytes_per_element: int = 2,
    experts: int = 0,
    context: str = "ring",
) -> SplitMap:
    """The split map of a `layout` of a model of `layers` layers, as wide as the lessons' model.

    With `experts`, every layer's feed-forward block is as many, and a token visits two of them. `batch` is the
    sequences that go through the model at a time, all replicas together (of a micro-batch, in training): one for each
    replica unless given. The other arguments as in `predict.traffic`. Raises ValueError, in a sentence for the reader,
    for a layout that has no map.

    >>> split_map(Layout(tp=2), layers=64).sentences[-1]
    'Each device sends 1 MiB per token.'
    """
    if layers < 1:
        raise ValueError(f"layers is {layers}, but a model has at least 1 layer.")
    lesson = MODELS["lesson"].shape
    mixture = (
        Experts(routed=experts, per_token=min(PER_TOKEN, experts), width=lesson.ffn_width)
        if experts
        else None
    )
    shape = replace(
        lesson,
        layers=layers,
        hidden_size=hidden_size,
        bytes_per_element=bytes_per_element,
        experts=mixture,
    )
    return map_of_shape(
        layout,
        shape,
        ranks_per_host=ranks_per_host,
        phase=phase,
        batch=layout.dp if batch is None else batch,
        tokens=tokens,
        micro_batches=micro_batches,
        context=context,
    )


@lru_cache(maxsize=128)  # pages draw the same few layouts again and again
def map_of_shape(
    layout: Layout,
    shape: ModelShape,
    *,
    ranks_per_host: int = 8,
    phase: Phase = Phase.DECODE,
    batch: int = 1,
    tokens: int = 1,
    micro_batches: int = 1,
    context: str = "ring",
    regather: bool = True,
    order: tuple[str, ...] = AXES,
) -> SplitMap:
    """The split map of a layout of any model.

    Ranks are numbered by `order`, the innermost axis first. `regather`: in training, sequence parallelism gathers
    again what it did not keep.
    """
    scene = make_scene(
        layout,
        shape=shape,
        ranks_per_host=ranks_per_host,
        phase=phase,
        batch=batch,
        tokens=tokens,
        micro_batches=micro_batches,
        context=context,
        regather=regather,
        order=order,
    )
    return SplitMap(scene=scene)
