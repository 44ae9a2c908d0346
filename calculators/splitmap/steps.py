"""One token's way through a layout (a prompt's, a batch's): captions, and what each lights in the picture."""

from __future__ import annotations

from collections.abc import Iterator

from calculators.predict.shapes import Phase
from calculators.splitmap import words
from calculators.splitmap.drawing import Lit
from calculators.splitmap.scene import Scene

MOST_STAGES_TOLD = 4


def walk(scene: Scene) -> Iterator[tuple[str, Lit | None]]:
    """The moments in order. The first is the whole picture; of a long pipeline the middle is told in one."""
    yield words.title(scene) + ".", None
    if scene.layout.world_size == 1:
        return
    yield from _forward(scene)
    if scene.phase == Phase.TRAINING:
        yield _backward(scene)
    elif scene.token_return.calls:
        yield (
            f"Stage {scene.pp - 1} chooses the token and returns its id, "
            f"{words.size(scene.token_return.bytes_per_call)}, to stage 0. Only then does the next begin.",
            Lit(token_return=True, stages=(scene.pp - 1, 0)),
        )


def _forward(scene: Scene) -> Iterator[tuple[str, Lit]]:
    told_in_one = range(1, scene.pp - 1) if scene.pp > MOST_STAGES_TOLD else range(0)
    for stage in range(scene.pp):
        if stage in told_in_one:
            if stage == told_in_one[0]:
                yield _the_middle(scene, told_in_one)
            continue
        yield _one_stage(scene, stage)
        if stage < scene.pp - 1:
            yield _one_boundary(scene, stage)


def _one_stage(scene: Scene, stage: int) -> tuple[str, Lit]:
    first = scene.stage(stage)[0]
    layers = words.layer_range(first.first_layer, first.last_layer)
    where = f"Stage {stage}: " if scene.pp > 1 else ""
    if scene.tp == 1:
        return f"{where}device {first.rank} works through {layers}, alone.", Lit(stages=(stage,))
    forward = 2 * scene.layers_per_stage
    everybody = "both devices" if scene.tp == 2 else f"all {scene.tp} devices"
    caption = (
        f"{where}in each of {layers} {everybody} work on their slices at the same moment and "
        f"all-reduce twice, after attention and after feed-forward: {words.count(forward, 'all-reduce')}."
    )
    if scene.layers_per_stage == 1:
        caption = (
            f"{where}in {layers} {everybody} work on their slices at the same moment and "
            "all-reduce twice, after attention and after feed-forward."
        )
    return caption[0].upper() + caption[1:], Lit(stages=(stage,), all_reduces=(stage,))


def _one_boundary(scene: Scene, boundary: int) -> tuple[str, Lit]:
    size, below = words.size(scene.send.bytes_per_call), boundary + 1
    across = ", on another host" if scene.boundary_crosses_hosts(boundary) else ""
    caption = f"Stage {boundary} sends {size} to stage {below}{across}."
    if scene.tp > 1:
        caption = f"Each device of stage {boundary} sends {size} to its counterpart in stage {below}{across}."
    return caption, Lit(boundaries=(boundary,), stages=(boundary, below))


def _the_middle(scene: Scene, stages: range) -> tuple[str, Lit]:
    reductions = stages if scene.tp > 1 else ()
    caption = (
        f"Stages {stages[0]} to {stages[-1]} do the same one after another, with a send after each: "
        f"{words.size(scene.send.bytes_per_call)} every time."
    )
    return caption, Lit(stages=stages, all_reduces=reductions, boundaries=stages)


def _backward(scene: Scene) -> tuple[str, Lit]:
    everything = Lit(
        stages=range(scene.pp),
        all_reduces=range(scene.pp) if scene.tp > 1 else (),
        boundaries=range(scene.pp - 1),
    )
    if scene.pp == 1:
        return (
            "Backward, every layer all-reduces twice more, for the gradients of its two blocks.",
            everything,
        )
    again = " and every layer all-reduces twice more" if scene.tp > 1 else ""
    return f"Backward, the gradients go up the stages again, as large as what came down{again}.", everything
