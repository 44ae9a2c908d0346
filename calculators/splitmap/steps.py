"""One token's way through a layout (a prompt's, a training step's): captions, and what each lights in the picture."""

from __future__ import annotations

from collections.abc import Iterator

from calculators.predict.shapes import Phase
from calculators.splitmap import words
from calculators.splitmap.drawing import Lit
from calculators.splitmap.scene import Scene

MOST_STAGES_TOLD = 4

Told = tuple[str, tuple[str, ...]]
"""A caption, and the axes on which something travels meanwhile."""


def walk(scene: Scene) -> Iterator[tuple[str, Lit | None]]:
    """The moments in order. The first is the whole picture; of a long pipeline the middle is told in one."""
    yield words.title(scene) + ".", None
    if scene.layout.world_size == 1:
        return
    yield from _forward(scene)
    if scene.training:
        yield _backward(scene)
        yield from _gradients(scene)
    elif scene.sent.return_calls:
        yield (
            f"Stage {scene.pp - 1} chooses the token and returns its id, "
            f"{words.size(scene.sent.return_bytes)}, to stage 0. Only then does the next begin.",
            Lit(token_return=True, stages=(scene.pp - 1, 0)),
        )


def _forward(scene: Scene) -> Iterator[tuple[str, Lit]]:
    told_in_one = range(1, scene.pp - 1) if scene.pp > MOST_STAGES_TOLD else range(0)
    for stage in range(scene.pp):
        if stage in told_in_one:
            if stage == told_in_one[0]:
                yield _the_middle(scene, told_in_one)
            continue
        yield from _one_stage(scene, stage)
        if stage < scene.pp - 1:
            yield _one_boundary(scene, stage)


def _one_stage(scene: Scene, stage: int) -> Iterator[tuple[str, Lit]]:
    """What one stage does, a step for each thing that its devices do together."""
    layers = words.layer_range(scene.stage(stage)[0].runs)
    where = f"Stage {stage}: " if scene.pp > 1 else ""
    if scene.training:
        where = f"Stage {stage}, forward: " if scene.pp > 1 else "Forward: "
    told = _moments(scene, layers) if scene.pp == 1 else None
    for caption, axes in told or _things(scene, layers, stage):
        said = where + caption
        talking = {axis: (stage,) for axis in axes if scene.messages(axis)}
        yield said[0].upper() + said[1:], Lit(stages=(stage,), axes=talking)


def _things(scene: Scene, layers: str, stage: int) -> list[Told]:
    """One step for each axis that the layers talk on: what happens, and the axes that light up."""
    layout = scene.layout
    told: list[Told] = []
    if layout.zero == 3 and scene.messages("dp"):
        whole = (
            f"before each of {layers} its parts are all-gathered, and every device has it whole for its turn."
        )
        told.append((whole, ("dp",)))
    if layout.cp > 1:
        told.append((_context(scene, layers), ("cp",)))
    if scene.tp > 1:
        told.append((_tensor(scene, layers), ("tp",)))
    if layout.ep > 1:
        told.append((_experts(scene, layers), ("ep", *(("etp",) if layout.etp > 1 else ()))))
    if not told or (layout.zero == 3 and len(told) == 1):
        told.append((_alone(scene, layers, stage), ()))
    return told


def _moments(scene: Scene, layers: str) -> list[Told] | None:
    """The same, slower, with one split to watch: who computes, then what travels. None where there are more."""
    layout = scene.layout
    watched = [axis for axis in ("tp", "cp", "ep") if getattr(layout, axis) > 1]
    if len(watched) != 1 or layout.zero == 3 or (scene.shape.experts and layout.ep == 1):
        return None
    axis = watched[0]
    if axis == "tp":
        told = _gathered(scene) if layout.sp else _sliced(scene)
    elif axis == "ep":
        told = _routed(scene)
    elif scene.phase is not Phase.DECODE and scene.context == "ring":
        told = _around(scene)
    else:
        return None
    if scene.layers > 1:
        total = f": {words.count(2 * scene.layers, 'all-reduce')}" if axis == "tp" and not layout.sp else ""
        told.append((f"so on through {layers}{total}.", (axis,)))
    return told


def _sliced(scene: Scene) -> list[Told]:
    everybody = _everybody(scene)
    size = words.size(scene.messages("tp")[0].bytes_per_call)
    return [
        (f"in layer 0, {everybody} work on their slices of attention at the same moment.", ()),
        (f"they all-reduce their partial sums, {size}: now each has the whole result.", ("tp",)),
        (f"{everybody} work on their slices of the feed-forward block.", ()),
        ("they all-reduce again. Only now can anybody go on.", ("tp",)),
    ]


def _gathered(scene: Scene) -> list[Told]:
    size = words.size(scene.messages("tp")[0].bytes_per_call)
    return [
        ("in layer 0, beside the blocks, each device normalises its own part of the tokens.", ()),
        (f"they all-gather what they made, {size}, since a block needs all tokens.", ("tp",)),
        (f"{_everybody(scene)} work on their slices of attention, for all tokens.", ()),
        ("they reduce-scatter their partial sums: each gets the whole sum, of its own tokens only.", ("tp",)),
        ("the feed-forward block does the same: all-gather, slices, reduce-scatter.", ("tp",)),
    ]


def _around(scene: Scene) -> list[Told]:
    sends = words.count(scene.layout.cp - 1, "send")
    return [
        ("in layer 0, each device attends from its own tokens to the keys and values of its own.", ()),
        (
            "each passes keys and values to the next and gets those of the one before, while it works on those that "
            f"it has: {sends}, until every query has met every key before it.",
            ("cp",),
        ),
        ("the feed-forward block needs nothing of other tokens: each device works on its own.", ()),
    ]


def _routed(scene: Scene) -> list[Told]:
    visits = words.count(scene.shape.experts.per_token, "expert") if scene.shape.experts else ""
    size = words.size(scene.messages("ep")[0].bytes_per_call)
    first = scene.shape.experts.dense_layers if scene.shape.experts else 0
    return [
        (
            f"in layer {first}, each device does attention for its own tokens, and the router picks {visits} for each.",
            (),
        ),
        (
            f"an all-to-all takes each token to where its experts are: {size} of each device’s, its own included.",
            ("ep",),
        ),
        (
            "experts work on what came. A device whose experts are wanted more often keeps the others waiting.",
            (),
        ),
        ("another all-to-all brings the results back to their tokens.", ("ep",)),
    ]


def _everybody(scene: Scene) -> str:
    if len(scene.stage(0)) > scene.tp or scene.is_collapsed:
        return f"the {scene.tp} devices of each group"
    return "both devices" if scene.tp == 2 else f"all {scene.tp} devices"


def _alone(scene: Scene, layers: str, stage: int) -> str:
    if scene.layout.zero == 3 and scene.is_sharded:
        return f"each replica works through {layers} on its own sequences, and drops what it gathered after each."
    if scene.layout.dp > 1:
        return f"each replica works through {layers} on its own sequences, and waits for nobody."
    return f"device {scene.stage(stage)[0].rank} works through {layers}, alone."


def _tensor(scene: Scene, layers: str) -> str:
    everybody = _everybody(scene)
    in_each = f"in {layers}" if scene.layers_per_stage == 1 else f"in each of {layers}"
    if scene.layout.sp:
        return (
            f"{in_each} {everybody} all-gather the tokens that they keep apart beside a block, work on their slices "
            "of it, and reduce-scatter the sums, so that each has its own tokens again."
        )
    if scene.shape.experts and not _is_block(scene):
        return f"{in_each} {everybody} work on their slices of attention at the same moment, and all-reduce after it."
    total = words.count(2 * scene.layers_per_stage, "all-reduce")
    end = "." if scene.layers_per_stage == 1 else f": {total}."
    return (
        f"{in_each} {everybody} work on their slices at the same moment and all-reduce twice, after attention and "
        f"after feed-forward{end}"
    )


def _is_block(scene: Scene) -> bool:
    """Whether experts are cut by tensor parallelism like any block."""
    return scene.layout.ep == 1 and scene.layout.etp == scene.tp


def _context(scene: Scene, layers: str) -> str:
    cp = scene.layout.cp
    if scene.phase is Phase.DECODE:
        return (
            f"in each of {layers} every device attends to the tokens whose keys and values it keeps; then they weigh "
            "and sum what they found."
        )
    if scene.context == "ring":
        sends = words.count(cp - 1, "send")
        return (
            f"each device works on its own tokens; in each of {layers} keys and values go round the ring in {sends}, "
            "so that every query meets every key before it."
        )
    how = (
        "are gathered by all"
        if scene.context == "all-gather"
        else "and queries are swapped, tokens for whole heads"
    )
    return f"each device works on its own tokens; in each of {layers} keys and values {how}."


def _experts(scene: Scene, layers: str) -> str:
    experts = scene.shape.experts
    visits = words.count(experts.per_token, "expert") if experts else ""
    return (
        f"in each of {layers} the router picks {visits} for every token; one all-to-all takes tokens there, and "
        "another brings the results back."
    )


def _one_boundary(scene: Scene, boundary: int) -> tuple[str, Lit]:
    down = next(message for message in scene.messages("pp") if message.to == words.NEXT_STAGE)
    size, below = words.size(down.bytes_per_call), boundary + 1
    crosses = any(
        one.host != other.host
        for group in scene.groups("pp")
        for one, other in zip(group[boundary:], group[boundary + 1 : boundary + 2], strict=False)
    )
    across = ", on another host" if crosses else ""
    caption = f"Stage {boundary} sends {size} to stage {below}{across}."
    if len(scene.stage(0)) > 1 or scene.is_collapsed:
        caption = f"Each device of stage {boundary} sends {size} to its counterpart in stage {below}{across}."
    return caption, Lit(axes={"pp": (boundary,)}, stages=(boundary, below))


def _the_middle(scene: Scene, stages: range) -> tuple[str, Lit]:
    down = next(message for message in scene.messages("pp") if message.to == words.NEXT_STAGE)
    caption = (
        f"Stages {stages[0]} to {stages[-1]} do the same one after another, with a send after each: "
        f"{words.size(down.bytes_per_call)} every time."
    )
    return caption, Lit(stages=stages, axes=_inside(scene) | {"pp": stages})


def _inside(scene: Scene) -> dict[str, range]:
    """What talks while the layers are worked on."""
    axes = ["tp", "cp", "ep", "etp"] + ["dp"] * (scene.layout.zero == 3)
    return {axis: range(scene.pp) for axis in axes if scene.messages(axis)}


def _backward(scene: Scene) -> tuple[str, Lit]:
    lit = Lit(
        stages=range(scene.pp),
        axes=_inside(scene) | ({"pp": range(scene.pp - 1)} if scene.pp > 1 else {}),
    )
    layout = scene.layout
    again = []
    if scene.pp > 1:
        again.append("the gradients go up the stages again, as large as what came down")
    if layout.zero == 3 and scene.messages("dp"):
        again.append("every layer’s weights are gathered once more")
    if layout.cp > 1:
        again.append("keys and values travel again, and their gradients with them")
    if scene.tp > 1 and not layout.sp:
        alone = scene.pp == 1 and not again
        again.append(
            "every layer all-reduces twice more, for the gradients of its two blocks"
            if alone
            else "every layer all-reduces twice more"
        )
    if layout.sp:
        more = ", and gathers once more what it did not keep" if scene.regather else ""
        again.append(f"every layer gathers and scatters again{more}")
    if layout.ep > 1:
        again.append("two all-to-alls more take the gradients to the experts and back")
    if not again:
        return "Backward, each replica makes the gradients of its own sequences; they differ.", lit
    return f"Backward, {'; '.join(again)}.", lit


def _gradients(scene: Scene) -> Iterator[tuple[str, Lit]]:
    layout = scene.layout
    axes = {axis: range(scene.pp) for axis in ("dp", "edp") if scene.messages(axis)}
    if not axes:
        return
    lit = Lit(stages=range(scene.pp), axes=axes)
    if layout.zero == 0:
        both = "replicas" if layout.cp == 1 else "devices that hold the same weights"
        yield f"The {both} all-reduce their gradients: each has the average, and takes the same step.", lit
        return
    yield (
        "A reduce-scatter averages the gradients: each device gets the part whose state it keeps, and updates that.",
        lit,
    )
    if layout.zero < 3:
        yield "An all-gather gives everybody the updated weights of all parts.", lit
