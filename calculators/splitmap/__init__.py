"""Split maps: the picture of a layout, and the same in words, drawn from what `predict` calculates."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

from calculators.predict.shapes import Layout, Phase
from calculators.splitmap import words
from calculators.splitmap.drawing import draw
from calculators.splitmap.scene import Scene, make_scene
from calculators.splitmap.steps import walk

__all__ = ["SplitMap", "Step", "split_map"]


@dataclass(frozen=True, kw_only=True)
class Step:
    """One moment of a token's way: what happens, and the picture with that part lit."""

    caption: str
    svg: str


@dataclass(frozen=True, kw_only=True)
class SplitMap:
    """The picture of one layout as SVG markup, safe in a page as it is; `static/splitmap.css` colours it.

    `sentences` say what the picture shows, `text` is all of them together, and `steps` follow one token: first
    the whole picture, then each thing that happens, for readers without a script as well. Each is made when it
    is first asked for.
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
        """One token's way through the layout."""
        return tuple(Step(caption=caption, svg=draw(self.scene, lit)) for caption, lit in walk(self.scene))


@lru_cache(maxsize=128)  # pages draw the same few layouts again and again
def split_map(
    layout: Layout,
    *,
    layers: int,
    ranks_per_host: int = 8,
    phase: Phase = Phase.DECODE,
    batch: int = 1,
    tokens: int = 1,
    micro_batches: int = 1,
    hidden_size: int = 4096,
    bytes_per_element: int = 2,
) -> SplitMap:
    """The split map of a tensor and pipeline `layout` of a model of `layers` layers.

    Devices are numbered host by host, `ranks_per_host` in each, and neighbours share a layer. The other
    arguments set how often something travels and how large it is [bytes], as in `predict.traffic`; a model
    of 4096 in 16 bits hands over 8 KiB per token. Raises ValueError, in a sentence for the reader, for a
    layout that has no map.

    >>> split_map(Layout(tp=2), layers=64).sentences[-1]
    'Each device sends 1 MiB per token.'
    """
    scene = make_scene(
        layout,
        layers=layers,
        ranks_per_host=ranks_per_host,
        phase=phase,
        batch=batch,
        tokens=tokens,
        micro_batches=micro_batches,
        hidden_size=hidden_size,
        bytes_per_element=bytes_per_element,
    )
    return SplitMap(scene=scene)
