"""One card: a device, the part of the model that it keeps, and its share of tokens, batch, experts and states."""

from __future__ import annotations

from calculators.splitmap.arranging import PAD, Box, hosts_are_boxes
from calculators.splitmap.markup import group, tag, text, text_width
from calculators.splitmap.scene import Device, Scene
from calculators.splitmap.shares import MOST_SEGMENTS, Share, captions_of, fitting, shares_of

TITLE = 20.0
CAPTION = 17.0
BAR = 26.0  # a share's label, and its bar below
BAR_HEIGHT = 8.0
WIDE = 200.0  # a card as wide has its words beside the model, not below
MOST_STRIPES = 12
FEW_STRIPES = 6  # where there are many devices: a picture of 64 is to be read, and sent, too
MANY_DEVICES = 8
MANY_STAGES = 4
EDGE = 4.0
BOLD = 1.1
"""Bold letters are wider."""


class Cards:
    """The cards of one scene, all of one make: what they say, they all say in words of the same length."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.hosts_are_boxes = hosts_are_boxes(scene)
        self._captions = {device.rank: captions_of(scene, device) for device in scene.devices}
        self._shares = {device.rank: shares_of(scene, device) for device in scene.devices}
        self._lengths: dict[tuple[int, float], int] = {}

    def height(self, width: float) -> float:
        """How tall every card of so much width is."""
        shares = BAR * len(self._shares[self.scene.devices[0].rank])
        model = _model_height(self.scene)
        if width >= WIDE:
            return max(model + 2 * PAD, TITLE + CAPTION + 15 * (not self.hosts_are_boxes) + shares + 6)
        return TITLE + model + CAPTION + 14 * (not self.hosts_are_boxes) + shares + 3

    def draw(self, device: Device, box: Box, state: str) -> str:
        """One card."""
        frame = tag("rect", x=box.x, y=box.y, width=box.width, height=box.height, rx=5, class_="sm-frame")
        marks = self._beside(device, box) if box.width >= WIDE else self._below(device, box)
        return group(frame, *marks, class_=f"sm-card {state}".strip(), data_at=f"s{device.stage}")

    def _below(self, device: Device, box: Box) -> list[str]:
        """The words below the model."""
        model = Box(x=box.x + 6, y=box.y + TITLE, width=box.width - 12, height=_model_height(self.scene))
        y = model.bottom + 13
        said = self._caption(device, box.width - 2 * EDGE)
        lines = [text(said, x=box.middle, y=y, class_="sm-caption sm-middle")]
        if not self.hosts_are_boxes:
            y += 14
            lines.append(text(f"host {device.host}", x=box.middle, y=y, class_="sm-caption sm-middle"))
        within = Box(x=box.x + EDGE + 1, y=y + 4, width=box.width - 2 * EDGE - 2, height=0)
        return [
            text(self._name(device, box), x=box.middle, y=box.y + 14, class_="sm-name sm-middle"),
            *_model(self.scene, device, model),
            *lines,
            *self._bars(device, within),
        ]

    def _beside(self, device: Device, box: Box) -> list[str]:
        """The words beside the model."""
        model = Box(x=box.x + PAD, y=box.y + PAD, width=box.width * 0.36, height=_model_height(self.scene))
        x, y = model.right + 12, box.y + 22
        width = box.right - x - EDGE
        lines = [text(self._name(device, box), x=x, y=y, class_="sm-name")]
        y += 16
        lines.append(text(self._caption(device, width), x=x, y=y, class_="sm-caption"))
        if not self.hosts_are_boxes:
            y += 15
            lines.append(text(f"host {device.host}", x=x, y=y, class_="sm-caption"))
        within = Box(x=x, y=y + 4, width=width, height=0)
        return [*_model(self.scene, device, model), *lines, *self._bars(device, within)]

    def _name(self, device: Device, box: Box) -> str:
        name = f"Device {device.rank}"
        staged = f"{name} · stage {device.stage}"
        fits = text_width(staged, 12) * BOLD <= box.width
        return staged if fits and _names_stage(self.scene) else name

    def _caption(self, device: Device, width: float) -> str:
        return self._captions[device.rank][self._length(-1, width)]

    def _length(self, number: int, width: float) -> int:
        """Which of the lengths of a share's label (−1: of the caption) all cards can take."""
        if (number, width) not in self._lengths:
            every = (
                self._captions.values()
                if number < 0
                else [shares[number].labels for shares in self._shares.values()]
            )
            self._lengths[number, width] = fitting(every, width)
        return self._lengths[number, width]

    def _bars(self, device: Device, within: Box) -> list[str]:
        drawn, y = [], within.y
        for number, share in enumerate(self._shares[device.rank]):
            box = Box(x=within.x, y=y + 15, width=within.width, height=BAR_HEIGHT)
            label = share.labels[self._length(number, within.width)]
            drawn += [
                text(label, x=within.x, y=y + 11, class_="sm-caption"),
                *_bar(share, box, coarse=_is_coarse(self.scene)),
            ]
            y += BAR
        return drawn


def _names_stage(scene: Scene) -> bool:
    """Whether cards say their stage, since no line above several of them does."""
    innermost = next((axis for axis in scene.order if getattr(scene.drawn, axis) > 1), "")
    return scene.pp > 1 and innermost == "pp"


def stripes_of(scene: Scene) -> int:
    """Stripes that stand for the layers: one each, or as many as are told apart."""
    runs = scene.pp * scene.layout.vpp
    most = MOST_STRIPES if len(scene.devices) <= MANY_DEVICES else FEW_STRIPES
    return runs * min(scene.layers // runs, max(1, most // runs))


def _bar(share: Share, box: Box, *, coarse: bool) -> list[str]:
    """Segments, of which those held are filled; `coarse` without gaps between the others."""
    first, last = share.held
    parts = share.parts
    if parts > MOST_SEGMENTS:
        each = box.width / parts
        whole, held = (
            [box],
            [Box(x=box.x + first * each, y=box.y, width=(last - first + 1) * each, height=box.height)],
        )
    else:
        gap = 1.5 if parts < MOST_SEGMENTS else 1.0
        each = (box.width + gap) / parts
        segments = [
            Box(x=box.x + part * each, y=box.y, width=each - gap, height=box.height) for part in range(parts)
        ]
        held = segments[first : last + 1]
        whole = segments[:first] + segments[last + 1 :]
    if coarse:
        whole = [box]
    return [*_filled(whole, "sm-elsewhere"), *_filled(held, f"sm-held family-{share.family}")]


def _model_height(scene: Scene) -> float:
    return max(30.0 if scene.pp > MANY_STAGES else 48.0, 2.4 * stripes_of(scene))


def _model(scene: Scene, device: Device, box: Box) -> list[str]:
    """The whole model as stripes of layers; what this device holds of it is filled."""
    stripes = stripes_of(scene)
    per_run = stripes // (scene.pp * scene.layout.vpp)
    depth = scene.layers // (scene.pp * scene.layout.vpp)
    mine = {first // depth * per_run + each for first, _ in device.runs for each in range(per_run)}
    step = box.height / stripes
    width = box.width / scene.tp
    inset = 0.75 * (scene.tp > 1)
    held_at = Box(x=box.x + device.at["tp"] * width + inset, y=0, width=width - 2 * inset, height=0)
    sharded = scene.layout.zero == 3 and scene.is_sharded
    if sharded:  # a device keeps a part of what it works with
        part = held_at.width / scene.shards
        borrowed = held_at
        held_at = Box(x=held_at.x + device.at["shard"] * part, y=0, width=part, height=0)
    elsewhere: list[Box] = []
    band: list[Box] = []
    comes: list[Box] = []
    held: list[Box] = []
    for stripe in range(stripes):
        y, height = box.y + stripe * step, step - (1.5 if step > 4 else 0.9)
        whole = Box(x=box.x, y=y, width=box.width, height=height)
        if stripe not in mine:
            elsewhere.append(whole)
            continue
        held.append(Box(x=held_at.x, y=y, width=held_at.width, height=height))
        if sharded:
            comes.append(Box(x=borrowed.x, y=y, width=borrowed.width, height=height))
        if scene.tp > 1:
            (band if scene.pp > 1 else elsewhere).append(whole)
    if _is_coarse(scene):
        whole = Box(x=box.x, y=box.y, width=box.width, height=box.height - 1)
        elsewhere, band = [whole] if elsewhere else [], _one_box(band) if scene.layout.vpp == 1 else band
        comes = _one_box(comes) if scene.layout.vpp == 1 else comes
    family = "family-tp" if scene.tp > 1 else "family-pp" if scene.pp > 1 else "sm-unsplit"
    if sharded:
        family = "family-dp"
    return [
        *_filled(elsewhere, "sm-elsewhere"),
        *_filled(band, "sm-band family-pp"),
        *_filled(comes, "sm-comes family-dp"),
        *_filled(held, f"sm-held {family}"),
    ]


def _is_coarse(scene: Scene) -> bool:
    """Whether what is not held is drawn without gaps: of many cards each must be short."""
    return len(scene.devices) > MANY_DEVICES


def _one_box(stripes: list[Box]) -> list[Box]:
    """The box around stripes that follow each other."""
    if not stripes:
        return []
    first, last = stripes[0], stripes[-1]
    return [Box(x=first.x, y=first.y, width=first.width, height=last.bottom - first.y)]


def _filled(boxes: list[Box], class_: str) -> list[str]:
    """Rectangles of one class as one path."""
    if not boxes:
        return []
    return [tag("path", d="".join(_rectangle(box) for box in boxes), class_=class_)]


def _rectangle(box: Box) -> str:
    x, y, width, height = (
        f"{value:.1f}".removesuffix(".0") for value in (box.x, box.y, box.width, box.height)
    )
    return f"M{x} {y}h{width}v{height}h-{width}z"
