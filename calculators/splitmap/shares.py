"""What one device has, in words of several lengths: its layers as a caption, all else as shares that become bars."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from calculators.predict.shapes import Phase
from calculators.splitmap import words
from calculators.splitmap.markup import text_width
from calculators.splitmap.scene import Device, Scene

MOST_SEGMENTS = 16


@dataclass(frozen=True, kw_only=True)
class Share:
    """One bar: `held` of `parts` equal segments, with the longest of its labels that fits."""

    family: str
    labels: tuple[str, ...]
    parts: int
    held: tuple[int, int]


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


def captions_of(scene: Scene, device: Device) -> tuple[str, ...]:
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


def fitting(every: Iterable[tuple[str, ...]], width: float) -> int:
    """Which label to take, so that all cards say theirs in the same way: the first that fits on each, else the last."""
    choices = list(zip(*every, strict=True))
    found = (
        number
        for number, labels in enumerate(choices)
        if all(text_width(label, 11) <= width for label in labels)
    )
    return next(found, len(choices) - 1)
