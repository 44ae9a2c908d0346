"""One card: a device, the part of the model that it keeps, and its share of tokens, batch, experts and states."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from calculators.predict.shapes import Phase
from calculators.splitmap import words
from calculators.splitmap.arranging import PAD, Box, hosts_are_boxes
from calculators.splitmap.markup import group, tag, text, text_width
from calculators.splitmap.scene import Device, Scene

TITLE = 20.0
CAPTION = 17.0
BAR = 26.0  # a share's label, and its bar below
BAR_HEIGHT = 8.0
WIDE = 200.0  # a card as wide has its words beside the model, not below
MOST_STRIPES = 12
FEW_STRIPES = 6  # where there are many devices: a picture of 64 is to be read, and sent, too
MANY_DEVICES = 8
MOST_SEGMENTS = 16
MANY_STAGES = 4
EDGE = 4.0
BOLD = 1.1
"""Bold letters are wider."""


@dataclass(frozen=True, kw_only=True)
class Share:
    """One bar: `held` of `parts` equal segments, with the longest of its labels that fits."""

    family: str
    labels: tuple[str, ...]
    parts: int
    held: tuple[int, int]


def card_height(scene: Scene, width: float) -> float:
    """How tall every card of so much width is."""
    shares = BAR * len(shares_of(scene, scene.devices[0]))
    named = not hosts_are_boxes(scene)
    if width >= WIDE:
        return max(_model_height(scene) + 2 * PAD, TITLE + CAPTION + 15 * named + shares + 6)
    return TITLE + _model_height(scene) + CAPTION + 14 * named + shares + 3


def draw_card(scene: Scene, device: Device, box: Box) -> list[str]:
    """The marks of one card."""
    frame = tag("rect", x=box.x, y=box.y, width=box.width, height=box.height, rx=5, class_="sm-frame")
    name = f"Device {device.rank}"
    staged = f"{name} · stage {device.stage}"
    if _names_stage(scene) and text_width(staged, 12) * BOLD <= box.width:
        name = staged
    host = f"host {device.host}" if not hosts_are_boxes(scene) else ""
    if box.width < WIDE:
        model = Box(x=box.x + 6, y=box.y + TITLE, width=box.width - 12, height=_model_height(scene))
        y = model.bottom + 13
        lines = [
            text(
                _caption(scene, device, box.width - 2 * EDGE),
                x=box.middle,
                y=y,
                class_="sm-caption sm-middle",
            )
        ]
        if host:
            y += 14
            lines.append(text(host, x=box.middle, y=y, class_="sm-caption sm-middle"))
        within = Box(x=box.x + EDGE + 1, y=y + 4, width=box.width - 2 * EDGE - 2, height=0)
        return [
            frame,
            text(name, x=box.middle, y=box.y + 14, class_="sm-name sm-middle"),
            *_model(scene, device, model),
            *lines,
            *_shares(scene, device, within),
        ]
    model = Box(x=box.x + PAD, y=box.y + PAD, width=box.width * 0.36, height=_model_height(scene))
    x, y = model.right + 12, box.y + 22
    beside = Box(x=x, y=0, width=box.right - x - EDGE, height=0)
    lines = [text(name, x=x, y=y, class_="sm-name")]
    y += 16
    lines.append(text(_caption(scene, device, beside.width), x=x, y=y, class_="sm-caption"))
    if host:
        y += 15
        lines.append(text(host, x=x, y=y, class_="sm-caption"))
    within = Box(x=x, y=y + 4, width=beside.width, height=0)
    return [frame, *_model(scene, device, model), *lines, *_shares(scene, device, within)]


def _names_stage(scene: Scene) -> bool:
    """Whether cards say their stage, since no line above several of them does."""
    innermost = next((axis for axis in scene.order if getattr(scene.drawn, axis) > 1), "")
    return scene.pp > 1 and innermost == "pp"


def stripes_of(scene: Scene) -> int:
    """Stripes that stand for the layers: one each, or as many as are told apart."""
    runs = scene.pp * scene.layout.vpp
    most = MOST_STRIPES if len(scene.devices) <= MANY_DEVICES else FEW_STRIPES
    return runs * min(scene.layers // runs, max(1, most // runs))


def shares_of(scene: Scene, device: Device) -> list[Share]:
    """What a device has of everything but layers and slices, a bar each."""
    layout, at = scene.layout, device.at
    found = []
    labels: tuple[str, ...]
    if layout.cp > 1:
        what = "cache" if scene.phase is Phase.DECODE else "tokens"
        long = "keeps tokens" if scene.phase is Phase.DECODE else "tokens"
        part = f"{at['cp'] + 1}/{layout.cp}"
        mine = f"{long} {words.span(device.tokens)}"
        labels = (f"{mine} in every layer", mine, f"{what} {part}", f"CP {part}")
        found.append(_one("cp", labels, layout.cp, at["cp"]))
    if layout.sp:
        part = f"{at['tp'] + 1}/{layout.tp}"
        tokens = f"tokens {words.span(device.beside)}"
        labels = (f"beside blocks: {tokens}", f"beside: {tokens}", f"SP tokens {part}", f"SP {part}")
        if scene.phase is Phase.DECODE:  # a token of each sequence is in flight: sequences are shared
            labels = (f"beside blocks: part {part}", f"SP {part}")
        found.append(_one("sp", labels, layout.tp, at["tp"]))
    if layout.dp > 1:
        part = f"{at['dp'] + 1}/{layout.dp}"
        one = device.sequences[0] == device.sequences[1]
        mine = f"sequence{'' if one else 's'} {words.span(device.sequences)} of {scene.batch:,}"
        labels = (mine, f"batch {part}", f"DP {part}")
        found.append(_one("dp", labels, layout.dp, at["dp"]))
    if scene.shape.experts and device.experts:
        routed = scene.shape.experts.routed
        span = words.span(device.experts)
        cut = f", slice {at['etp'] + 1} of {layout.etp}" if layout.etp > 1 else ""
        labels = (f"experts {span} of {routed}{cut}", f"experts {span}", f"exp. {span}", f"e {span}")
        parts = routed if routed <= MOST_SEGMENTS else layout.ep
        held = device.experts if parts == routed else (at["ep"], at["ep"])
        found.append(Share(family="ep", labels=labels, parts=parts, held=held))
    if scene.is_sharded and layout.zero < 3:  # what ZeRO-3 leaves is seen in the model itself
        part = f"{at['shard'] + 1}/{scene.shards}"
        labels = {
            1: (f"optimizer’s state {part}", f"state {part}"),
            2: (f"state and gradients {part}", f"grads {part}"),
        }[layout.zero]
        found.append(_one("dp", (*labels, f"Z{layout.zero} {part}"), scene.shards, at["shard"]))
    return found


def _one(family: str, labels: tuple[str, ...], parts: int, part: int) -> Share:
    return Share(family=family, labels=labels, parts=parts, held=(part, part))


def _held(scene: Scene, device: Device) -> tuple[str, ...]:
    """What it has of the layers, from the longest way to say so to the shortest."""
    layers = words.layer_range(device.runs)
    short = f"L {', '.join(words.span(run) for run in device.runs)}"
    if scene.tp > 1:
        part = f"{device.at['tp'] + 1}/{scene.tp}"
        of = f" of {layers}" if scene.pp > 1 and len(scene.stage(0)) == 1 else ""
        return (f"slice {device.at['tp'] + 1} of {scene.tp}{of}", f"slice {part}", part)
    if scene.pp == 1:
        layers, short = (
            ("the only layer" if scene.layers == 1 else f"all {scene.layers} layers"),
            "all layers",
        )
    if scene.layout.zero == 3 and scene.is_sharded:
        part = f"keeps 1/{scene.shards}"
        return (f"{part} of {layers}", part)
    if scene.layout.ep > 1:
        return (f"dense part of {layers}", "dense part", "dense")
    return (f"{layers}, whole", layers, short, "whole")


def _caption(scene: Scene, device: Device, width: float) -> str:
    return _held(scene, device)[_fitting((_held(scene, each) for each in scene.devices), width)]


def _fitting(every: Iterable[tuple[str, ...]], width: float) -> int:
    """Which label to take, so that all cards say theirs in the same way: the first that fits on each, else the last."""
    choices = list(zip(*every, strict=True))
    fitting = (
        number
        for number, labels in enumerate(choices)
        if all(text_width(label, 11) <= width for label in labels)
    )
    return next(fitting, len(choices) - 1)


def _shares(scene: Scene, device: Device, within: Box) -> list[str]:
    drawn, y = [], within.y
    for number, share in enumerate(shares_of(scene, device)):
        box = Box(x=within.x, y=y + 15, width=within.width, height=BAR_HEIGHT)
        label = share.labels[
            _fitting((shares_of(scene, each)[number].labels for each in scene.devices), within.width)
        ]
        drawn += [
            text(label, x=within.x, y=y + 11, class_="sm-caption"),
            *_bar(share, box, coarse=_is_coarse(scene)),
        ]
        y += BAR
    return drawn


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


def grouped(scene: Scene, device: Device, box: Box, state: str) -> str:
    """The card as one element."""
    return group(
        *draw_card(scene, device, box), class_=f"sm-card {state}".strip(), data_at=f"s{device.stage}"
    )
