"""Where everything of a picture goes: cards in groups, groups in hosts, room for the lines between them.

Devices are nested as their ranks are: the innermost axis makes a row, the next puts such rows side by side or one below
the other. Stages always go down.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate

from calculators.splitmap.checks import AXES
from calculators.splitmap.scene import Device, Scene

PAD = 8.0
GAP = 8.0
HOST_TITLE = 20.0
STAGE_TITLE = 19.0
LANE = 24.0  # a line under a row of cards, and its tag
FIRST_LANE = 15.0
BRACKET = 9.0  # beside rows that a line joins
SENDS = 38.0  # between two stages, with a tag
SENDS_SHORT = 22.0
MOST_COLUMNS = 4
MOST_TAGGED_STAGES = 4


@dataclass(frozen=True, kw_only=True)
class Box:
    """A rectangle of the picture."""

    x: float
    y: float
    width: float
    height: float

    @property
    def middle(self) -> float:
        return self.x + self.width / 2

    @property
    def bottom(self) -> float:
        return self.y + self.height

    @property
    def right(self) -> float:
        return self.x + self.width


@dataclass(frozen=True, kw_only=True)
class Lane:
    """A line that joins the members of a group: under each row of them, all rows joined at the left."""

    axis: str
    rails: tuple[tuple[float, tuple[Box, ...]], ...]
    shift: float  # of the drops, so that those of two lanes stand beside each other
    left: float | None  # of what joins the rails; None for a single one


@dataclass(kw_only=True)
class Node:
    """A device, or a group whose members differ in their place on `axis`."""

    devices: tuple[Device, ...]
    axis: str = ""
    children: list[Node] = field(default_factory=list)
    host: int | None = None  # whose box this is
    is_stage: bool = False
    box: Box = field(default_factory=lambda: Box(x=0, y=0, width=0, height=0))
    lanes: list[Lane] = field(default_factory=list)

    @property
    def stage(self) -> int | None:
        """The stage that all its devices are in, if it is one."""
        stages = {device.stage for device in self.devices}
        return stages.pop() if len(stages) == 1 else None

    @property
    def columns(self) -> int:
        """Cards side by side."""
        if not self.children:
            return 1
        each = max(child.columns for child in self.children)
        return each if self.axis == "pp" else each * self.in_a_row

    @property
    def in_a_row(self) -> int:
        """Members side by side."""
        many = len(self.children)
        each = max(child.columns for child in self.children)
        most = max(1, MOST_COLUMNS // each)
        if self.axis == "pp" or most == 1:
            return 1
        if many <= most:
            return many
        return max(range(most, 1, -1), key=lambda columns: (many % columns == 0, columns))

    def every(self) -> Iterator[Node]:
        """This node and all below it."""
        yield self
        for child in self.children:
            yield from child.every()

    @property
    def first_row(self) -> list[Box]:
        """The cards in its first row."""
        if not self.children:
            return [self.box]
        if self.axis == "pp":
            return self.children[0].first_row
        return [box for child in self.children[: self.in_a_row] for box in child.first_row]


def arrange(scene: Scene, *, x: float, y: float, width: float, card_height: Callable[[float], float]) -> Node:
    """The tree of a scene, with the box of everything in it."""
    root = _tree(scene)
    _place(scene, root, x, y, width, card_height)
    return root


def hosts_are_boxes(scene: Scene) -> bool:
    """Whether each host holds whole groups, or whole hosts make up each group: else cards name their host."""
    if scene.hosts == 1:
        return True
    return not scene.is_collapsed and _nests(_levels(scene), scene.ranks_per_host)


def joins(scene: Scene, axis: str, inside: int, outside: int) -> tuple[str, ...]:
    """The axes whose groups join members of `inside` devices to groups of `outside`, and on which anything travels."""
    found = []
    experts = scene.layout.etp, scene.layout.etp * scene.layout.ep
    for other in scene.sent.axes:
        if other == "pp":
            continue
        if other in ("etp", "ep"):
            first, last = (1, experts[0]) if other == "etp" else experts
            holds = axis != "pp" and _is_stage_inside(scene) and first <= inside and outside <= last
        elif other == "dp":
            holds = axis == "dp" or (axis == "cp" and scene.layout.cp > 1)
        elif other == "edp":
            holds = False
        else:
            holds = axis == other
        if holds and not (other == "etp" and "tp" in found):
            found.append(other)
    return tuple(found)


def _is_stage_inside(scene: Scene) -> bool:
    """Whether devices of one stage have consecutive ranks, numbered as those that share experts are."""
    return [axis for axis in scene.order if getattr(scene.layout, axis) > 1] == [
        axis for axis in AXES if getattr(scene.layout, axis) > 1
    ]


def _levels(scene: Scene) -> list[tuple[str, int]]:
    """(axis, members) from the inside out; hosts and groups of experts cut a level in two where they fit."""
    levels = [(axis, getattr(scene.drawn, axis)) for axis in scene.order if getattr(scene.drawn, axis) > 1]
    cuts = [scene.ranks_per_host] if scene.hosts > 1 and not scene.is_collapsed else []
    if scene.layout.ep > 1 and _is_stage_inside(scene):
        cuts += [scene.layout.etp, scene.layout.etp * scene.layout.ep]
    for cut in cuts:
        inside = 1
        for index, (axis, members) in enumerate(levels):
            outside = inside * members
            is_last = index == len(levels) - 1  # whose last host may be half empty
            if inside < cut < outside and cut % inside == 0 and (is_last or outside % cut == 0):
                levels[index : index + 1] = [(axis, cut // inside), (axis, -(-outside // cut))]
                break
            inside = outside
    return levels


def _nests(levels: list[tuple[str, int]], per_host: int) -> bool:
    return per_host in _sizes(levels)


def _sizes(levels: list[tuple[str, int]]) -> list[int]:
    """Devices of a group of each level, a single device first."""
    return list(accumulate((members for _, members in levels), operator.mul, initial=1))


def _tree(scene: Scene) -> Node:
    levels = _levels(scene)
    sizes = _sizes(levels)
    boxed = -1
    if scene.hosts == 1:
        boxed = len(levels)
    elif hosts_are_boxes(scene):
        boxed = sizes.index(scene.ranks_per_host)

    def build(devices: tuple[Device, ...], depth: int) -> Node:
        node = Node(devices=devices, host=devices[0].host if depth == boxed else None)
        if depth:
            each = sizes[depth - 1]
            node.axis = levels[depth - 1][0]
            node.children = [
                build(devices[first : first + each], depth - 1) for first in range(0, len(devices), each)
            ]
            if node.axis == "pp":
                for child in node.children:
                    child.is_stage = child.stage is not None and len(child.devices) > 1 and child.axis != "pp"
        return node

    return build(scene.devices, len(levels))


def _place(
    scene: Scene, node: Node, x: float, y: float, width: float, card_height: Callable[[float], float]
) -> None:
    top, left, wide = y, x, width
    if node.host is not None:
        left, wide, y = x + PAD, width - 2 * PAD, y + HOST_TITLE
    if node.is_stage:
        y += STAGE_TITLE
    if not node.children:
        card = Box(x=left, y=y, width=wide, height=card_height(wide))
        node.box = card
        if node.host is not None:  # a host of one device is a box around its card
            inside = Node(devices=node.devices, box=card)
            node.children, node.axis = [inside], ""
            node.box = Box(x=x, y=top, width=width, height=card.bottom + PAD - top)
        return
    if node.axis == "pp":
        y = _stack(scene, node, left, y, wide, card_height)
    else:
        y = _rows(scene, node, left, y, wide, card_height)
    bottom = y + (PAD if node.host is not None else 0)
    node.box = Box(x=x, y=top, width=width, height=bottom - top)


def _stack(
    scene: Scene, node: Node, x: float, y: float, width: float, card_height: Callable[[float], float]
) -> float:
    gap = SENDS if scene.pp <= MOST_TAGGED_STAGES else SENDS_SHORT
    for child in node.children:
        _place(scene, child, x, y, width, card_height)
        y = child.box.bottom + gap
    return y - gap


def _rows(
    scene: Scene, node: Node, x: float, y: float, width: float, card_height: Callable[[float], float]
) -> float:
    across = node.in_a_row
    inside = len(node.children[0].devices)
    axes = joins(scene, node.axis, inside, len(node.devices))
    if len(node.children) == 1:  # the rest of a last host that is not full
        axes = ()
    several = len(node.children) > across
    indent = BRACKET * len(axes) * several
    gap = GAP if inside == 1 else GAP + 4
    each = (width - indent - gap * (across - 1)) / across
    rails: list[list[tuple[float, tuple[Box, ...]]]] = [[] for _ in axes]
    for first in range(0, len(node.children), across):
        row = node.children[first : first + across]
        for column, child in enumerate(row):
            _place(scene, child, x + indent + column * (each + gap), y, each, card_height)
        bottom = max(child.box.bottom for child in row)
        last = first + across >= len(node.children)
        for lane, found in enumerate(rails):
            found.append((bottom + FIRST_LANE + lane * LANE, tuple(child.box for child in row)))
        y = bottom
        if axes:
            y += FIRST_LANE + (len(axes) - 1) * LANE + (9 if last else 0)
        y += 0 if last else PAD
    node.lanes = [
        Lane(
            axis=axis,
            rails=tuple(found),
            shift=(lane - (len(axes) - 1) / 2) * 9,
            left=x + BRACKET * lane + 3 if several else None,
        )
        for lane, (axis, found) in enumerate(zip(axes, rails, strict=True))
    ]
    return y
