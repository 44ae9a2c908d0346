"""Split maps for pages: a layout's picture, or the sentence why there is none, and the step that is lit."""

from dataclasses import dataclass
from typing import Any

from calculators.families import Case, Way
from calculators.predict.shapes import Layout, Phase
from calculators.splitmap import SplitMap, Step, map_of_shape, split_map

MOST_DRAWN = 8
"""Devices that a picture beside a calculation shows; more would be too small to read."""


@dataclass(frozen=True, kw_only=True)
class NumberedStep:
    """A step of the walk and its place in it, from 1."""

    number: int
    step: Step


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A layout as a page shows it, at one step of the walk (the first is the whole picture).

    `problem` says why there is no map, else it is empty.
    """

    map: SplitMap | None
    problem: str = ""
    number: int = 1

    @property
    def steps(self) -> list[NumberedStep]:
        steps = self.map.steps if self.map else ()
        return [NumberedStep(number=i, step=step) for i, step in enumerate(steps, start=1)]

    @property
    def walks(self) -> bool:
        """Whether there is more to see than the whole picture."""
        return self.map is not None and len(self.map.steps) > 1

    @property
    def svg(self) -> str:
        """The picture at its step."""
        if self.map is None:
            return ""
        return self.map.svg if self.number == 1 else self.map.steps[self.number - 1].svg


def drawn(case: Case, way: Way) -> Picture | None:
    """The picture beside a calculation of one way to split; None where a whole layout moves more than that way alone.

    Devices that share a sequence or experts sum their gradients, too, which no page of one family counts.
    """
    if case.phase is Phase.TRAINING and way.family in ("cp", "ep"):
        return None
    layout = way.layout(case.shape, min(case.devices, MOST_DRAWN))
    return picture(
        layout,
        shape=case.shape,
        phase=case.phase,
        batch=case.batch * layout.dp,
        tokens=case.tokens,
        micro_batches=case.micro_batches,
        context="ulysses" if way.key == "ulysses" else "ring",
    )


def picture(layout: Layout, *, number: int = 1, **sizes: Any) -> Picture:
    """The map of a layout (`sizes` as `split_map` takes them); one that cannot be drawn gives the reason."""
    draw = map_of_shape if "shape" in sizes else split_map
    try:
        found = draw(layout, **sizes)
    except ValueError as error:
        return Picture(map=None, problem=str(error))
    return Picture(map=found, number=max(1, min(number, len(found.steps))))
