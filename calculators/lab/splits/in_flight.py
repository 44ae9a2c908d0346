"""What micro-batches in flight make a rank keep for the backward pass, from the order of its schedule."""

from collections.abc import Iterator

from calculators.lab.choices import Schedule
from calculators.lab.measurements import Prediction
from calculators.lab.spec import Spec
from calculators.lab.splits import memory
from calculators.lab.splits.memory import Kept
from calculators.lab.splits.stages import Stages

_SPLITS_BACKWARD = (Schedule.INTERLEAVED_ZERO_BUBBLE, Schedule.ZBV)
"""These let go of a layer's tensors in two parts, at times of their own: what they keep is not predicted."""


def predictions(
    spec: Spec, stages: Stages, rank: int, *, place: int, sequences: int, tp: int = 1
) -> Iterator[Prediction]:
    """What `rank` holds in training as the one at `place` of a pipeline that takes `sequences`; its slice of it."""
    held = stages.on(place)
    weights = memory.parameters(
        spec,
        layers=len(stages.layers_on(place)),
        is_first=0 in held,
        is_last=stages.last in held,
        tp=tp,
    )
    kept = most_kept(spec, stages, place, tokens=sequences // spec.microbatches * spec.tokens, tp=tp)
    for prediction in memory.predictions(spec, rank, parameters=weights, kept=kept):
        if prediction.detail != memory.SAVED or spec.schedule not in _SPLITS_BACKWARD:
            yield prediction


def most_kept(spec: Spec, stages: Stages, place: int, *, tokens: int, tp: int = 1) -> Kept:
    """The most at one moment, where a micro-batch has `tokens`: forward passes add to it, backward passes take away.

    Token ids and targets of a micro-batch are a view of the whole batch's, which is kept as long as any of them is.
    """
    held, ids = stages.on(place), memory.ID_BYTES * tokens
    at_ends = {stage: (stage == 0) + (stage == stages.last) for stage in held}
    of_stage = {
        stage: memory.stack(
            spec,
            layers=len(stages.layers_of(stage)),
            tokens=tokens,
            is_first=stage == 0,
            is_last=stage == stages.last,
            tp=tp,
        )
        + Kept(excess=-ids * at_ends[stage])
        for stage in held
    }
    now = most = Kept()
    for stage, sign in passes(spec, stages, place):
        now += of_stage[stage] * sign
        most = max(most, now, key=lambda kept: kept.total)
    return most + Kept(excess=spec.microbatches * ids * sum(at_ends.values()))


def passes(spec: Spec, stages: Stages, place: int) -> Iterator[tuple[int, int]]:
    """The stages that the rank at `place` works on, in order: forward (+1) or backward (−1), once a micro-batch.

    As `torch/distributed/pipelining/schedules.py` of torch 2.13 has them.
    """
    held, number = stages.on(place), spec.microbatches
    forward, backward = list(held), list(reversed(held))
    if spec.schedule is Schedule.ONE_F_ONE_B:
        ahead, follows = min(number, stages.ranks - place), False
    elif spec.schedule in (Schedule.GPIPE, Schedule.LOOPED_BFS):
        ahead, follows = number * len(held), False
    else:
        each = number // max(1, number // stages.ranks)  # micro-batches of a round
        ahead = min((len(held) - 1) * each + 2 * (stages.ranks - 1 - place), number * len(held))
        follows = True
        rounds = number // each
        order = [(there, back) for _ in range(rounds) for there, back in zip(forward, backward, strict=True)]
        forward = [there for there, _ in order for _ in range(each)]
        backward = [back for _, back in order for _ in range(each)]
    if not follows:
        forward = [stage for stage in forward for _ in range(number)]
        backward = [stage for stage in backward for _ in range(number)]
    yield from ((stage, 1) for stage in forward[:ahead])
    left = forward[ahead:]
    for stage, following in zip(backward, [*left, *[None] * ahead], strict=True):
        yield from ((one, sign) for one, sign in _in_turn(stage, following, follows) if one is not None)


def _in_turn(
    backward: int, forward: int | None, is_forward_first: bool
) -> tuple[tuple[int | None, int], ...]:
    """One backward pass and the forward pass beside it."""
    pair = ((forward, 1), (backward, -1))
    return pair if is_forward_first else pair[::-1]
