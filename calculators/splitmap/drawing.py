"""A scene as one SVG: cards in their groups and hosts, lines between those that talk, and what travels below.

The picture is 352 units wide, a phone's column: text of 11 units stays legible there, and grows on a wider page.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise

from calculators.predict.shapes import Phase
from calculators.splitmap import words
from calculators.splitmap.arranging import (
    HOST_TITLE,
    MOST_TAGGED_STAGES,
    PAD,
    Box,
    Lane,
    Node,
    arrange,
)
from calculators.splitmap.cards import BOLD, MANY_DEVICES, Cards, stripes_of
from calculators.splitmap.markup import group, tag, text, text_width
from calculators.splitmap.scene import Scene

WIDTH = 352.0
MARGIN = 1.0
RETURN_LANE = 16.0  # beside the hosts, for the token's way back
LINE = 17.0
TAG_HEIGHT = 15.0
RING = 8  # between the two sides of a ring, drawn flat


@dataclass(frozen=True, kw_only=True)
class Lit:
    """What one step of the strip lights up: the stages at work, and the axes on which something travels.

    axes   axis → the stages whose groups talk; of pp, the boundaries that are crossed
    """

    stages: Collection[int] = ()
    axes: Mapping[str, Collection[int]] = field(default_factory=dict)
    token_return: bool = False

    @property
    def marks(self) -> str:
        """The `data-at` of all that is lit, for the script that lights it in a picture that is there already."""
        named = [f"s{stage}" for stage in self.stages]
        named += [f"{axis}-{place}" for axis, places in self.axes.items() for place in places]
        return " ".join([*named, *(["return"] if self.token_return else [])])


def draw(scene: Scene, lit: Lit | None = None) -> str:
    """The picture of `scene`; with `lit`, one step of a token's or a batch's way through it."""
    return _Drawing(scene, lit).svg()


class _Drawing:
    def __init__(self, scene: Scene, lit: Lit | None) -> None:
        self.scene, self.lit = scene, lit
        returns = scene.sent.return_calls > 0 and _one_pipeline(scene)
        self.lane = RETURN_LANE if returns else 0.0
        self.inner = Box(x=MARGIN, y=MARGIN, width=WIDTH - 2 * MARGIN - self.lane, height=0)
        self.cards = Cards(scene)
        self.root = arrange(
            scene,
            x=self.inner.x,
            y=self.inner.y,
            width=self.inner.width,
            card_height=self.cards.height,
        )

    def svg(self) -> str:
        legend, height = self._legend()
        stepping = " is-step" if self.lit else ""
        return tag(
            "svg",
            tag("title", escape(words.title(self.scene))),
            tag("desc", escape(" ".join(words.sentences(self.scene)))),
            *self._hosts(),
            *self._stage_names(),
            *self._lanes(),
            *self._sends(),
            *self._cards(),
            *([self._token_return()] if self.lane else []),
            *legend,
            xmlns="http://www.w3.org/2000/svg",
            viewBox=f"0 0 {WIDTH:.0f} {height:.0f}",
            role="img",
            class_=f"split-map{stepping}",
        )

    # The marks.

    def _hosts(self) -> Iterator[str]:
        for node in self.root.every():
            if node.host is None:
                continue
            box = node.box
            name = f"Host {node.host}" if self.scene.hosts > 1 else "One host"
            yield group(
                tag("rect", x=box.x, y=box.y, width=box.width, height=box.height, rx=8, class_="sm-host"),
                text(name, x=box.x + PAD, y=box.y + 14, class_="sm-host-name"),
                class_="sm-host-box",
            )

    def _stage_names(self) -> Iterator[str]:
        for node in self.root.every():
            if not node.is_stage:
                continue
            x, y = node.box.x, node.box.y
            if node.host is not None:
                x, y = x + PAD, y + HOST_TITLE
            name = f"Stage {node.stage}: {words.layer_range(node.devices[0].runs)}"
            if text_width(name, 12) > node.box.width - PAD:
                name = f"Stage {node.stage}"
            yield group(text(name, x=x, y=y + 13, class_="sm-stage-name"), class_="family-pp")

    def _cards(self) -> Iterator[str]:
        for node in self.root.every():
            if not node.children:
                device = node.devices[0]
                lit = self.lit is None or device.stage in self.lit.stages
                yield self.cards.draw(device, node.box, self._state(lit))

    def _lanes(self) -> Iterator[str]:
        named: set[tuple[str, int | None]] = set()
        for node in self.root.every():
            for lane in node.lanes:
                again = len(self.scene.devices) > MANY_DEVICES and (lane.axis, node.stage) in named
                named.add((lane.axis, node.stage))
                yield self._lane(node, lane, has_name=not again)

    def _lane(self, node: Node, lane: Lane, *, has_name: bool) -> str:
        rings = lane.axis == "cp" and self.scene.phase is not Phase.DECODE and self.scene.context == "ring"
        closes = (
            rings and lane.left is None and len(node.children) == self.scene.layout.cp
        )  # else it is cut by hosts
        lines, heads = [], []
        for y, boxes in lane.rails:
            xs = [box.middle + lane.shift for box in boxes]
            left = xs[0] if lane.left is None else lane.left
            lines.append(f"M{left:.1f} {y:.1f}H{xs[-1]:.1f}")
            for x, box in zip(xs, boxes, strict=True):
                lines.append(f"M{x:.1f} {y:.1f}V{box.bottom + 6:.1f}")
                heads.append(_up(x, box.bottom + 1.5))
            if rings:
                heads += [_right((one + other) / 2 + 3, y) for one, other in pairwise(xs)]
            if closes:
                lines.append(f"M{xs[0]:.1f} {y:.1f}v{RING}H{xs[-1]:.1f}v-{RING}")
                heads.append(_left((xs[0] + xs[1]) / 2 - 3, y + RING))
        y, boxes = lane.rails[-1]
        first, last = boxes[0].middle + lane.shift, boxes[-1].middle + lane.shift
        if lane.left is not None:
            lines.append(f"M{lane.left:.1f} {lane.rails[0][0]:.1f}V{y:.1f}")
        name = words.tag_of(self.scene, lane.axis)
        middle = (first + last) / 2
        if rings and len(boxes) % 2 == 0:
            middle += 26 if len(boxes) > 2 else -26
        stage = node.stage
        lit = self.lit is None or (
            lane.axis in self.lit.axes and (stage is None or stage in self.lit.axes[lane.axis])
        )
        drawn = [*_lines(lines, heads)]
        if has_name:
            drawn.append(_tag_at(name, middle, y + (RING / 2 if closes else 0)))
        at = lane.axis if stage is None else f"{lane.axis}-{stage}"
        return group(*drawn, class_=self._exchange(lane.axis, lit=lit), data_at=at)

    def _sends(self) -> Iterator[str]:
        for node in self.root.every():
            if node.axis == "pp":
                for above, below in pairwise(node.children):
                    yield self._send(above, below)

    def _send(self, above: Node, below: Node) -> str:
        boundary = max(device.stage for device in above.devices)
        top, end = above.box.bottom, below.box.y
        two_ways = self.scene.training
        xs = [box.middle for box in below.first_row]
        drawn = [
            *_lines(
                [f"M{x:.1f} {top + (8 if two_ways else 3):.1f}V{end - 7:.1f}" for x in xs],
                [_down(x, end - 2) for x in xs] + [_up(x, top + 2) for x in xs if two_ways],
            )
        ]
        if self.scene.pp <= MOST_TAGGED_STAGES or boundary == 0:
            at = below.box.middle if self.scene.pp <= MOST_TAGGED_STAGES else xs[0] + 24
            drawn.append(_tag_at("PP", at, (top + end) / 2))
        lit = self.lit is None or boundary in self.lit.axes.get("pp", ())
        return group(*drawn, class_=self._exchange("pp", lit=lit), data_at=f"pp-{boundary}")

    def _token_return(self) -> str:
        cards = [node.box for node in self.root.every() if not node.children]
        first, last = cards[0], cards[-1]
        right = self.root.first_row[-1].right if self.root.first_row else first.right
        x = WIDTH - MARGIN - RETURN_LANE / 2 + 2
        y_from, y_to = last.y + last.height / 2, first.y + first.height / 2
        line = f"M{last.right:.1f} {y_from:.1f}H{x:.1f}V{y_to:.1f}H{right + 7:.1f}"
        state = self._state(self.lit is None or self.lit.token_return)
        return group(
            *_lines([line], [_left(right + 2, y_to)]), class_=f"sm-return {state}".strip(), data_at="return"
        )

    # What travels, below the cards: the same tags, and what they stand for.

    def _legend(self) -> tuple[list[str], float]:
        scene, x, y = self.scene, self.inner.x + 2, self.root.box.bottom + 8
        parts = []
        for axis in scene.sent.axes:
            name = words.tag_of(scene, axis)
            indent = max(_tag_width(words.tag_of(scene, each)) for each in scene.sent.axes) + 8
            lines = []
            messages = scene.messages(axis)
            for message in messages:
                on = (words.where(scene, axis),) if message is messages[-1] else ()
                lines += _wrapped((*words.message_label(scene, message), *on), WIDTH - indent - 6)
            drawn = [_tag_at(name, x + _tag_width(name) / 2, y + 8)]
            for line in lines:
                drawn.append(text(line, x=x + indent, y=y + 12, class_="sm-message"))
                y += LINE
            y += 4
            lit = self.lit is None or axis in self.lit.axes
            parts.append(group(*drawn, class_=self._exchange(axis, lit=lit), data_at=axis))
        if self.lit:
            return parts, y + 2
        notes = [(words.bytes_sent_label(scene), "sm-total")]
        if scene.sent.return_calls and self.lane:
            notes.append((words.token_return_label(scene), "sm-key"))
        notes += [(line, "sm-key") for line in _keys(scene)]
        for line, class_ in notes:
            parts.append(text(line, x=x, y=y + 12, class_=class_))
            y += LINE
        return parts, y + 4

    def _exchange(self, axis: str, *, lit: bool) -> str:
        return f"sm-exchange sm-{axis} family-{words.FAMILY_OF[axis]} {self._state(lit)}".strip()

    def _state(self, on: bool) -> str:
        if self.lit is None:
            return ""
        return "is-lit" if on else "is-quiet"


def _one_pipeline(scene: Scene) -> bool:
    """Whether the stages go down the whole picture, not beside each other."""
    outer = scene.order[scene.order.index("pp") + 1 :]
    return all(getattr(scene.layout, axis) == 1 for axis in outer)


def _keys(scene: Scene) -> list[str]:
    """How the marks on the cards are read."""
    stripes = stripes_of(scene)
    if stripes == scene.layers:
        stripe = "each stripe is one layer"
    else:
        stand = "stands" if stripes == 1 else "stand"
        stripe = f"{words.count(stripes, 'stripe')} {stand} for {scene.layers} layers"
    if scene.layout.zero == 3 and scene.is_sharded:
        keys = ["solid: kept here; pale: gathered for its turn", stripe]
    elif scene.tp > 1 and scene.pp > 1:
        keys = ["filled: held here; outlined: this stage’s layers", stripe]
    else:
        keys = [f"filled: held here; {stripe}"]
    if scene.layout.sp:
        keys.append("SP: the tokens it works on beside the blocks")
    return keys


def _wrapped(pieces: tuple[str, ...], width: float) -> list[str]:
    """Pieces with dots between, in as many lines as they need."""
    lines = [pieces[0]]
    for piece in pieces[1:]:
        longer = f"{lines[-1]} · {piece}"
        if text_width(longer, 12) <= width:
            lines[-1] = longer
        else:
            lines.append(piece)
    return lines


def _tag_width(name: str) -> float:
    return text_width(name, 11) * BOLD + 9


def _tag_at(name: str, x: float, y: float) -> str:
    width = _tag_width(name)
    return group(
        tag(
            "rect",
            x=x - width / 2,
            y=y - TAG_HEIGHT / 2,
            width=width,
            height=TAG_HEIGHT,
            rx=4,
            class_="sm-pill",
        ),
        text(name, x=x, y=y + 4, class_="sm-tag sm-middle"),
        class_="sm-label",
    )


def _lines(lines: list[str], heads: list[str]) -> tuple[str, str]:
    """Lines and their arrowheads, a path each."""
    return tag("path", d="".join(lines), class_="sm-line"), tag("path", d="".join(heads), class_="sm-head")


def _up(x: float, y: float) -> str:
    return f"M{x:.1f} {y:.1f}l-4 6h8z"


def _down(x: float, y: float) -> str:
    return f"M{x:.1f} {y:.1f}l-4 -6h8z"


def _left(x: float, y: float) -> str:
    return f"M{x:.1f} {y:.1f}l6 -4v8z"


def _right(x: float, y: float) -> str:
    return f"M{x:.1f} {y:.1f}l-6 -4v8z"
