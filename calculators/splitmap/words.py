"""The words of a split map: labels in the picture, and the sentences that say the same without it."""

from __future__ import annotations

from calculators.predict.shapes import Phase
from calculators.splitmap.scene import Device, Scene

MOST_TOLD_ONE_BY_ONE = 4


def title(scene: Scene) -> str:
    """The layout in a few words."""
    if scene.layout.world_size == 1:
        return "The whole model on one device"
    splits = []
    if scene.tp > 1:
        splits.append(f"tensor parallel over {scene.tp}")
    if scene.pp > 1:
        splits.append(f"pipeline parallel over {scene.pp}")
    devices = " devices" if len(splits) == 1 else ""
    return f"{count(scene.layers, 'layer')}, {' and '.join(splits)}{devices}"


def sentences(scene: Scene) -> tuple[str, ...]:
    """What each device holds, what travels, how often and how large: the picture in words."""
    return (*_place(scene), *_held(scene), *_travels(scene))


def all_reduce_label(scene: Scene) -> tuple[str, ...]:
    where = " across hosts" if scene.tensor_groups_cross_hosts else ""
    how_often = f"{number(scene.all_reduce.calls)} per {scene.phase.unit}"
    return (f"all-reduce{where}", how_often, f"{size(scene.all_reduce.bytes_per_call)} each")


def send_label(scene: Scene, boundary: int) -> tuple[str, ...]:
    calls = scene.send.calls
    where = " between hosts" if scene.boundary_crosses_hosts(boundary) else ""
    if scene.phase == Phase.TRAINING:
        what = f"sends{where}: {number(calls / 2)} down, {number(calls / 2)} up"
        how_often = f"per {scene.phase.unit}"
    else:
        what, how_often = f"send{where}", f"{number(calls)} per {scene.phase.unit}"
    each = " from each" if scene.tp > 1 else ""
    return (what, how_often + each, size(scene.send.bytes_per_call))


def token_return_label(scene: Scene) -> str:
    what = "the chosen token’s id" if scene.batch == 1 else "the chosen tokens’ ids"
    return f"dashed: {what}, {size(scene.token_return.bytes_per_call)}, back to stage 0"


def bytes_sent_label(scene: Scene) -> str:
    if scene.layout.world_size == 1:
        return "Nothing travels."
    # By a ring; with several stages the last sends less than the others.
    who = "The busiest device" if scene.pp > 1 else "Each device"
    return f"{who} sends {size(scene.bytes_sent_by_one)} per {scene.phase.unit}."


def holds(device: Device, scene: Scene) -> str:
    """What one device holds, as a phrase."""
    layers = layer_range(device.first_layer, device.last_layer)
    if scene.tp == 1:
        return f"all {layers}" if scene.pp == 1 and scene.layers > 1 else layers
    return f"slice {device.slice} of {scene.tp} of {layers}"


def layer_range(first: int, last: int) -> str:
    """Layers by number: "layer 3" or "layers 0–15"."""
    return f"layer {first}" if first == last else f"layers {first}–{last}"


def count(how_many: float, thing: str) -> str:
    """A number and its noun."""
    return f"{number(how_many)} {thing}{'' if how_many == 1 else 's'}"


def number(value: float) -> str:
    """A whole number with commas."""
    return f"{value:,.0f}"


def size(value: float) -> str:
    """Bytes in the largest binary unit that leaves at least 1 of it, three digits."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            break
        value /= 1024
    text = f"{value:.0f}" if value >= 100 else f"{value:.3g}"
    return f"{text} {unit}"


def _place(scene: Scene) -> tuple[str, ...]:
    if scene.layout.world_size == 1:
        return ("One device, no split.",)
    where = "on one host" if scene.hosts == 1 else f"on {scene.hosts} hosts of {scene.ranks_per_host}"
    if scene.hosts > 1 and scene.ranks_per_host == 1:
        where = "each on a host of its own"
    both = f": {scene.layout.world_size} devices" if scene.tp > 1 and scene.pp > 1 else ""
    return (f"{title(scene)}{both}, {where}.",)


def _held(scene: Scene) -> tuple[str, ...]:
    if scene.layout.world_size == 1:
        return (
            f"It holds {'the only layer' if scene.layers == 1 else f'all {scene.layers} layers'}, whole.",
        )
    if scene.tp == 1 and scene.pp > MOST_TOLD_ONE_BY_ONE:
        first, *_, last = scene.devices
        return (
            f"Device {first.rank} is stage {first.stage}: {_layers(first)}, whole; and so on, "
            f"{count(scene.layers_per_stage, 'layer')} each, to device {last.rank}, stage {last.stage}: "
            f"{_layers(last)}.",
        )
    if scene.tp == 1:
        return tuple(
            f"Device {device.rank} is stage {device.stage}: {_layers(device)}, whole."
            for device in scene.devices
        )
    held = []
    told = range(scene.pp) if scene.pp <= MOST_TOLD_ONE_BY_ONE else (0, scene.pp - 1)
    for stage in told:
        first, *_, last = scene.stage(stage)
        layers = f"all {scene.layers} layers" if scene.layers > 1 else "the only layer"
        shared = layers if scene.pp == 1 else _layers(first)
        is_stage = f" are stage {stage} and" if scene.pp > 1 else ""
        held.append(
            f"Devices {first.rank} {'and' if scene.tp == 2 else 'to'} {last.rank}{is_stage} share {shared}: "
            f"each holds one slice in {scene.tp} of every layer."
        )
    if scene.pp > MOST_TOLD_ONE_BY_ONE:
        held.insert(
            1, f"The stages between hold {count(scene.layers_per_stage, 'layer')} each in the same way."
        )
    return tuple(held)


def _layers(device: Device) -> str:
    return layer_range(device.first_layer, device.last_layer)


def _travels(scene: Scene) -> tuple[str, ...]:
    if scene.layout.world_size == 1:
        return ("Nothing travels between devices.",)
    said = []
    unit = scene.phase.unit
    if scene.tp > 1:
        each_stage = " of each stage" if scene.pp > 1 else ""
        across = ", from host to host," if scene.tensor_groups_cross_hosts else ""
        said.append(
            f"The {scene.tp} devices{each_stage} combine partial sums{across} in "
            f"{count(scene.all_reduce.calls, 'all-reduce')} per {unit} "
            f"of {size(scene.all_reduce.bytes_per_call)} each, before they may go on."
        )
    if scene.pp > 1:
        said.append(_boundary_sentence(scene))
    if scene.token_return.calls:
        said.append(
            f"The last stage chooses the token and returns its id to the first, "
            f"{size(scene.token_return.bytes_per_call)}, not counted with the rest."
        )
    said.append(bytes_sent_label(scene))
    return tuple(said)


def _boundary_sentence(scene: Scene) -> str:
    crossing = [scene.boundary_crosses_hosts(stage) for stage in range(scene.pp - 1)]
    where = "between hosts" if all(crossing) else "inside the host"
    if any(crossing) and not all(crossing):
        where = f"of which {sum(crossing)} lie{'s' if sum(crossing) == 1 else ''} between hosts"
    boundaries = "the one boundary" if scene.pp == 2 else f"each of the {scene.pp - 1} boundaries"
    each = "each device hands its counterpart" if scene.tp > 1 else "the stage hands the next"
    if scene.phase == Phase.TRAINING:
        times = number(scene.send.calls / 2)
        sends = f"{size(scene.send.bytes_per_call)} {times} times forward and as often back"
    else:
        times = "" if scene.send.calls == 1 else f" {number(scene.send.calls)} times"
        sends = f"{size(scene.send.bytes_per_call)}{times}"
    return f"Across {boundaries}, {where}, {each} {sends} per {scene.phase.unit}."
