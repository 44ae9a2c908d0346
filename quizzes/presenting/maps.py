"""The right answer as a picture: the split map of what the advisor makes of a scenario's facts."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from django.utils.safestring import SafeString

from calculators.inline import map_of_layout
from calculators.predict.advisor import Advice, Facts, Technique, advise
from calculators.splitmap import HIDDEN_SIZE
from quizzes.facts import facts_of

MOST_DEVICES = 64
_AXES = ("dp", "tp", "pp", "cp", "ep")


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """The picture, and the sizes it was drawn for: a scenario's facts say what is split, seldom how wide it is."""

    html: SafeString
    layers: str
    hidden_size: int


def map_of_answer(facts: Mapping[str, str]) -> Drawn | None:
    """The map of the layout that the facts lead to; None where they do not say how large it is."""
    return _drawn(tuple(sorted(facts.items())))


@lru_cache(maxsize=512)  # the same for every learner
def _drawn(facts: tuple[tuple[str, str], ...]) -> Drawn | None:
    try:
        known = facts_of(dict(facts))
        layout = layout_of(known, advise(known))
        if layout is None:
            return None
        return Drawn(html=map_of_layout(layout), layers=layout["layers"], hidden_size=HIDDEN_SIZE)
    except ValueError:  # a layout that has no map
        return None


def layout_of(facts: Facts, advice: Advice) -> dict[str, str] | None:
    """Sizes for a split map: those that the advisor gives, else all devices along the family that it names."""
    sizes = {axis: size for axis, size in advice.axes.items() if axis in _AXES}
    devices = facts.devices
    if len(advice.families) == 1:
        family = advice.families[0]
        axis = _AXIS_OF.get(family)
        if axis and axis not in sizes and devices:
            sizes[axis] = facts.devices_per_host or devices if axis == "tp" else devices
        if family is Technique.SEQUENCE and facts.tp:
            sizes["tp"] = facts.tp
    if not sizes or any(size < 1 for size in sizes.values()) or max(sizes.values()) == 1:
        return None
    count = 1
    for axis, size in sizes.items():
        count *= size if axis != "ep" else 1
    if count > MOST_DEVICES:
        return None
    layout = {axis: str(size) for axis, size in sizes.items()}
    if Technique.SEQUENCE in advice.families or (facts.sp and sizes.get("tp", 1) > 1):
        layout["sp"] = "on"
    if Technique.SHARDED_DATA in advice.families:
        layout["zero"] = "3"
    if "ep" in sizes:
        layout["experts"] = str(facts.experts or 2 * sizes["ep"])
        layout.setdefault("dp", str(sizes["ep"]))
    layout["layers"] = str(min(facts.layers or max(8, sizes.get("pp", 1)), 256))
    layout["ranks_per_host"] = str(min(facts.devices_per_host or 8, 64))
    layout["phase"] = "training" if facts.phase == "training" else "decode"
    if facts.tokens:
        layout["tokens"] = str(facts.tokens)
    return layout


_AXIS_OF = {
    Technique.DATA: "dp",
    Technique.SHARDED_DATA: "dp",
    Technique.TENSOR: "tp",
    Technique.PIPELINE: "pp",
    Technique.CONTEXT: "cp",
    Technique.EXPERT: "ep",
}
