"""The words of a split map: what is held and what travels, in phrases for the picture and in whole sentences."""

from __future__ import annotations

from calculators.predict.collectives import Kind
from calculators.predict.shapes import Phase
from calculators.splitmap.messages import Message
from calculators.splitmap.scene import Device, Run, Scene

MOST_TOLD_ONE_BY_ONE = 4
TAGS = {"tp": "TP", "cp": "CP", "ep": "EP", "etp": "ETP", "pp": "PP", "dp": "DP", "edp": "DP"}
FAMILY_OF = {"tp": "tp", "cp": "cp", "ep": "ep", "etp": "tp", "pp": "pp", "dp": "dp", "edp": "dp"}
"""Axis → the family whose colour it has."""
NEXT_STAGE, PREVIOUS_STAGE, ENDS = 1, -1, 2
"""Between whom a pipeline's calls are (`Message.to`)."""


def title(scene: Scene) -> str:
    """The layout in a few words."""
    if scene.layout.world_size == 1:
        return "The whole model on one device"
    said = splits(scene)
    devices = " devices" if len(said) == 1 and " with " not in said[0] else ""
    return f"{count(scene.layers, 'layer')}{_of_experts(scene)}, {listed(said)}{devices}"


def splits(scene: Scene) -> list[str]:
    """The splits of a layout, a phrase each."""
    layout = scene.layout
    zero = f" with ZeRO-{layout.zero}" if layout.zero else ""
    sp = " with sequence parallelism" if layout.sp else ""
    phrases = (
        (layout.tp, f"tensor parallel over {layout.tp}{sp}"),
        (layout.cp, f"context parallel over {layout.cp}"),
        (layout.dp, f"data parallel over {layout.dp}{zero}"),
        (layout.ep, f"expert parallel over {layout.ep}"),
        (layout.pp, f"pipeline parallel over {layout.pp}"),
    )
    return [phrase for size, phrase in phrases if size > 1]


def tag_of(scene: Scene, axis: str) -> str:
    """The short name of an axis, as the picture has it on its lines."""
    if axis == "tp" and scene.layout.sp:
        return "TP+SP"
    if axis in ("dp", "edp") and scene.layout.zero:
        return f"ZeRO-{scene.layout.zero}"
    if axis == "dp" and scene.layout.dp == 1:
        return "grads"  # of devices that share a sequence
    return TAGS[axis]


def message_label(scene: Scene, message: Message) -> tuple[str, ...]:
    """What travels in one kind of call: what, how often, how large."""
    how_often = f"{number(message.calls)} per {scene.phase.unit}"
    if message.axis == "pp" and len(scene.stage(0)) > 1:
        how_often += " from each"
    elif message.axis != "pp" and scene.pp > 1:
        how_often += " and stage"
    return (what_travels(message), how_often, size_of(message))


def size_of(message: Message) -> str:
    """The size of one call."""
    most = "up to " if message.varies else ""
    said = f"{most}{size(message.bytes_per_call)}"
    if message.calls == 1:
        return said
    # ZeRO-3 calls layer by layer, and what is beside the layers goes with them.
    return f"{said} on average" if message.axis in ("dp", "edp") else f"{said} each"


def what_travels(message: Message) -> str:
    """A kind of call and its purpose, short."""
    if message.axis == "pp":
        if message.to == ENDS:
            return "all-reduce of the tied embedding"
        return "send gradients up" if message.to < 0 else "send down"
    if message.kind is Kind.SEND:
        return "pass keys and values on" if message.what == "keys and values" else "pass their gradients on"
    if message.axis == "ep":
        return "all-to-all to the experts" if message.what.startswith("tokens") else "all-to-all back"
    if message.axis == "edp":
        return f"{message.kind} of experts’ {message.what}"
    if message.axis == "tp" and message.what in ("outputs of the blocks", "inputs of the blocks"):
        return str(message.kind)
    return f"{message.kind} of {_SHORT.get(message.what, message.what)}"


_SHORT = {
    "logs of the softmax sums": "softmax sums",
    "results of the experts": "experts’ results",
    "inputs of the experts": "experts’ inputs",
    "outputs of the experts": "experts’ outputs",
}


def where(scene: Scene, axis: str) -> str:
    """On which links the calls of an axis travel: inside a host, between hosts, or both."""
    if scene.hosts == 1:
        return "inside the host"
    crossing, links = scene.crossings[axis]
    if crossing == 0:
        return "inside hosts"
    if crossing == links:
        return "between hosts"
    return f"{crossing} of {links} between hosts" if axis == "pp" else "inside and between hosts"


def token_return_label(scene: Scene) -> str:
    what = "the chosen token’s id" if scene.batch // scene.layout.dp == 1 else "the chosen tokens’ ids"
    return f"dotted: {what}, {size(scene.sent.return_bytes)}, to stage 0"


def bytes_sent_label(scene: Scene) -> str:
    if not scene.sent.busiest_bytes:
        return "Nothing travels." if scene.layout.world_size == 1 else f"Nothing travels {_while(scene)}."
    # By rings; with several stages the last sends less than the others.
    who = "Each device" if scene.sent.is_even else "The busiest device"
    return f"{who} sends {size(scene.sent.busiest_bytes)} per {scene.phase.unit}."


def layer_range(runs: tuple[Run, ...]) -> str:
    """Layers by number: "layer 3", "layers 0–15" or "layers 0–3 and 8–11"."""
    many = len(runs) > 1 or runs[0][0] != runs[0][1]
    return f"layer{'s' if many else ''} {listed([span(run) for run in runs])}"


def span(run: Run) -> str:
    """Numbers from the first to the last."""
    first, last = run
    return f"{first:,}" if first == last else f"{first:,}–{last:,}"


def listed(items: list[str]) -> str:
    """Items with commas, and "and" before the last."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"


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


def ranks(devices: tuple[Device, ...]) -> str:
    """Devices by number: "devices 0 and 1", "devices 0 to 3", "devices 0, 2, 4 and 6"."""
    numbers = [device.rank for device in devices]
    if len(numbers) == 1:
        return f"device {numbers[0]}"
    if len(numbers) > 2 and numbers == list(range(numbers[0], numbers[-1] + 1)):
        return f"devices {numbers[0]} to {numbers[-1]}"
    return f"devices {listed([str(rank) for rank in numbers])}"


# --- the sentences ---------------------------------------------------------------------------------------------------


def sentences(scene: Scene) -> tuple[str, ...]:
    """What each device holds, what travels, how often and how large: the picture in words."""
    return (*_place(scene), *_held(scene), *_travels(scene))


def _place(scene: Scene) -> tuple[str, ...]:
    if scene.layout.world_size == 1:
        return ("One device, no split.",)
    on = "on one host" if scene.hosts == 1 else f"on {scene.hosts} hosts of {scene.ranks_per_host}"
    if scene.hosts > 1 and scene.ranks_per_host == 1:
        on = "each on a host of its own"
    both = f": {scene.layout.world_size} devices" if len(splits(scene)) > 1 or scene.layout.sp else ""
    said = [f"{title(scene)}{both}, {on}."]
    if scene.is_collapsed:
        drawn = "One replica is" if scene.replicas == 1 else f"{scene.replicas} replicas are"
        said.append(f"{drawn} drawn of {scene.layout.dp}; the others hold the same of the model.")
    return tuple(said)


def _held(scene: Scene) -> tuple[str, ...]:
    layout = scene.layout
    if layout.world_size == 1:
        whole = "the only layer" if scene.layers == 1 else f"all {scene.layers} layers"
        return (f"It holds {whole}, whole.",)
    return (
        *_held_layers(scene),
        *([_held_experts(scene)] if scene.shape.experts else []),
        *([_held_tokens(scene)] if layout.cp > 1 else []),
        *([_held_beside(scene)] if layout.sp else []),
        *([_held_sequences(scene)] if layout.dp > 1 else []),
        *([_held_shards(scene)] if scene.is_sharded else []),
    )


def _held_layers(scene: Scene) -> tuple[str, ...]:
    if scene.pp == 1 and scene.tp == 1:
        whole = "the only layer" if scene.layers == 1 else f"all {scene.layers} layers"
        but = " but for the experts" if scene.layout.ep > 1 else ""
        if scene.layout.zero == 3 and scene.is_sharded:
            return (f"Every device works through {whole}, whole, but keeps only a part of them.",)
        return (f"Every device holds {whole}, whole{but}: the same weights.",)
    told = list(range(scene.pp))
    lines = []
    if scene.pp > MOST_TOLD_ONE_BY_ONE:
        told = [0, scene.pp - 1]
    for stage in told:
        devices = scene.stage(stage)
        runs = devices[0].runs
        shared = layer_range(runs)
        if scene.pp == 1:
            shared = f"all {scene.layers} layers" if scene.layers > 1 else "the only layer"
        who = ranks(devices)
        is_stage = f" {'is' if len(devices) == 1 else 'are'} stage {stage}" if scene.pp > 1 else ""
        if scene.tp == 1:
            alike = ", each with" if len(devices) > 1 else ":"
            lines.append(f"{_capital(who)}{is_stage}{alike} {shared}, whole.")
        elif len(devices) == scene.tp:
            and_ = f"{is_stage} and" if is_stage else ""
            lines.append(
                f"{_capital(who)}{and_} share {shared}: each holds one slice in {scene.tp} of every layer."
            )
        else:
            groups = len(devices) // scene.tp
            are = f"{is_stage}," if is_stage else " are"
            lines.append(
                f"{_capital(who)}{are} {groups} groups of {scene.tp} that each share {shared}: a device holds one "
                f"slice in {scene.tp} of every layer."
            )
    if scene.pp > MOST_TOLD_ONE_BY_ONE:
        lines.insert(
            1, f"The stages between hold {count(scene.layers_per_stage, 'layer')} each in the same way."
        )
    return tuple(lines)


def _held_experts(scene: Scene) -> str:
    experts = scene.shape.experts
    assert experts is not None  # noqa: S101
    layout = scene.layout
    if layout.ep == 1:
        cut = f", one slice in {layout.etp} of each" if layout.etp > 1 else ""
        return f"Every device has all {experts.routed} experts of its layers{cut}."
    each = experts.routed // layout.ep
    group = scene.groups("ep")[0]
    spread = "; ".join(
        f"device {device.rank} has {'expert' if each == 1 else 'experts'} {span(device.experts)}"
        for device in group[:MOST_TOLD_ONE_BY_ONE]
        if device.experts
    )
    more = ", and so on" if len(group) > MOST_TOLD_ONE_BY_ONE else ""
    cut = f", one slice in {layout.etp} of each" if layout.etp > 1 else ""
    copies = layout.dp * layout.tp * layout.cp // (layout.ep * layout.etp)
    again = f" Each expert is on {copies} devices." if copies * layout.etp > 1 and layout.etp == 1 else ""
    return f"Of the {experts.routed} experts of each layer {spread}{more}{cut}.{again}"


def _held_tokens(scene: Scene) -> str:
    group = scene.groups("cp")[0]
    what = "keeps the keys and values of" if scene.phase is Phase.DECODE else "works on"
    told = "; ".join(
        f"device {device.rank} {what} tokens {span(device.tokens)}" for device in group[:MOST_TOLD_ONE_BY_ONE]
    )
    more = ", and so on" if len(group) > MOST_TOLD_ONE_BY_ONE else ""
    return f"Of every sequence {told}{more}, in all layers."


def _held_beside(scene: Scene) -> str:
    what = "tokens" if scene.phase is not Phase.DECODE else "sequences"
    return (
        "Beside the blocks (normalisation and dropout) each device of a tensor-parallel group works on "
        f"one part in {scene.tp} of the {what}; inside them on all{' of its own' if scene.layout.cp > 1 else ''}."
    )


def _held_sequences(scene: Scene) -> str:
    each = scene.batch // scene.layout.dp
    once = "" if scene.phase is not Phase.TRAINING else " at a time"
    return (
        f"The {scene.layout.dp} replicas share the batch of {count(scene.batch, 'sequence')}: "
        f"{number(each)}{once} each."
    )


def _held_shards(scene: Scene) -> str:
    what = SHARDED[scene.layout.zero]
    who = f"ZeRO-{scene.layout.zero}: each of the {scene.shards} devices that"
    if scene.layout.zero == 3:
        return (
            f"{who} work with the same weights keeps 1/{scene.shards} of the {what}. The rest of a layer’s weights is "
            "gathered for its turn, and dropped after it."
        )
    return f"{who} hold the same weights keeps 1/{scene.shards} of the {what}."


SHARDED = {
    1: "optimizer’s state",
    2: "optimizer’s state and the gradients",
    3: "optimizer’s state, the gradients and the weights",
}


def _travels(scene: Scene) -> tuple[str, ...]:
    if not scene.sent.messages:
        return ("Nothing travels between devices.",) if scene.layout.world_size == 1 else (_silence(scene),)
    said = [_exchange(scene, axis) for axis in scene.sent.axes]
    if scene.layout.dp > 1 and not scene.messages("dp") and not scene.training:
        said.append("Replicas do not talk to each other about weights: each answers its own requests.")
    if scene.sent.return_calls:
        said.append(
            "The last stage chooses the token and returns its id to the first, "
            f"{size(scene.sent.return_bytes)}, not counted with the rest."
        )
    said.append(bytes_sent_label(scene))
    return tuple(said)


def _silence(scene: Scene) -> str:
    if scene.layout.dp > 1:
        return f"Nothing travels {_while(scene)}: each replica works on its own sequences."
    return f"Nothing travels {_while(scene)}."


def _exchange(scene: Scene, axis: str) -> str:
    if axis == "pp":
        return _boundaries(scene)
    messages = scene.messages(axis)
    members = _members(scene, axis)
    across = {
        "inside and between hosts": ", inside and between hosts,",
        "between hosts": ", from host to host,",
    }
    via = across.get(where(scene, axis), "") if scene.hosts > 1 else ""
    groups = scene.groups(axis)
    if len(groups) == 1 and not scene.is_collapsed:
        who = f"The {members} devices"
    elif len(groups) == scene.pp and not scene.is_collapsed:
        who = f"The {members} devices of each stage"
    else:
        who = f"In each group of {members}, the first being {ranks(groups[0])}, the devices"
    calls = listed([_calls(scene, message, is_first=message is messages[0]) for message in messages])
    if axis == "tp" and not scene.layout.sp and len(messages) == 1:
        return f"{who} combine partial sums{via} in {calls}, before they may go on."
    return f"{who} make{via} {calls}: {_why(scene, axis)}."


def _members(scene: Scene, axis: str) -> int:
    """Devices of one group."""
    layout = scene.layout
    if axis == "dp":
        return scene.shards
    if axis == "edp":
        return layout.dp * layout.tp * layout.cp // (layout.ep * layout.etp)
    size: int = getattr(layout, axis)
    return size


def _calls(scene: Scene, message: Message, *, is_first: bool) -> str:
    """How many calls of what size: "8 all-reduces per token of 8 KiB each"."""
    each = size_of(message)
    if message.axis == "ep":
        if not is_first:
            return f"{number(message.calls)} back, of {each}"
        return f"{count(message.calls, str(message.kind))} per {scene.phase.unit} to the experts, of {each}"
    what = "" if message.axis == "tp" and message.what.endswith("of the blocks") else f" of {message.what}"
    if message.axis == "edp":
        what = f" of experts’ {message.what}"
    calls = count(message.calls, str(message.kind))
    comma = "," if what else ""
    return f"{calls}{what} per {scene.phase.unit}{comma} of {each}"


def _why_replicas(scene: Scene) -> str:
    if not scene.training:
        return "a layer needs its whole weights"
    if scene.layout.zero == 3:
        return "a layer needs its whole weights, and a gradient that all have part in"
    return "after it all hold the same weights again"


def _why(scene: Scene, axis: str) -> str:
    """What an exchange is for."""
    if axis == "tp" and scene.layout.sp:
        return "tokens that are apart beside the blocks come together for them"
    if axis == "dp":
        return _why_replicas(scene)
    return {
        "tp": "each has only a part of the result",
        "cp": "every query must meet the keys and values of all tokens",
        "ep": "a token’s experts may be on any of these devices",
        "etp": "each has only a slice of every expert",
        "edp": "copies of an expert must stay alike",
    }[axis]


def _boundaries(scene: Scene) -> str:
    crossing, boundaries = scene.crossings["pp"]
    on = (
        "between hosts"
        if crossing == boundaries
        else "inside the host"
        if scene.hosts == 1
        else "inside hosts"
    )
    if 0 < crossing < boundaries:
        on = f"of which {crossing} lie{'s' if crossing == 1 else ''} between hosts"
    which = "the one boundary" if scene.pp == 2 else f"each of the {boundaries} boundaries"
    single = len(scene.stage(0)) == 1 and not scene.is_collapsed
    hands = "the stage hands the next" if single else "each device hands its counterpart"
    down = next(message for message in scene.messages("pp") if message.to == NEXT_STAGE)
    each = size(down.bytes_per_call)
    if not scene.training:
        times = "" if down.calls == 1 else f" {number(down.calls)} times"
        return f"Across {which}, {on}, {hands} {each}{times} per {scene.phase.unit}."
    times = "once" if down.calls == 1 else f"{number(down.calls)} times"
    tied = "".join(
        f" The first and the last stage all-reduce the gradients of the embedding that both hold, "
        f"{size(message.bytes_per_call)}."
        for message in scene.messages("pp")
        if message.to == ENDS
    )
    return f"Across {which}, {on}, {hands} {each} {times} forward and as often back per {scene.phase.unit}.{tied}"


def _while(scene: Scene) -> str:
    return {
        "decode": "while tokens are decoded",
        "prefill": "while prompts are read",
        "training": "in a step",
    }[scene.phase.value]


def _of_experts(scene: Scene) -> str:
    return f" of {scene.shape.experts.routed} experts" if scene.shape.experts else ""


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]
