"""Pipelines of every schedule: right results, every byte explained, and what cannot be scheduled said before."""

from collections.abc import Callable

import pytest

from calculators.lab.devices import Placement
from calculators.lab.measurements import Quantity, Series
from calculators.lab.plan import Plan, make_plan
from calculators.lab.spec import Schedule, Spec, SpecError
from calculators.lab.splits.in_flight import passes
from calculators.lab.splits.memory import SAVED
from calculators.lab.splits.stages import Stages, stages_of
from calculators.lab.terminal import plan_text
from tests.lab.conftest import ON_CPU, Outcome

SIZES = {
    "job": "pipeline",
    "layers": 8,
    "hidden_size": 32,
    "attention_heads": 2,
    "ffn_width": 64,
    "vocab_size": 48,
    "tokens": 16,
    "steps": 10,
}
CHUNKED = [schedule for schedule in Schedule if schedule.has_chunks]


def plan_of(**given: object) -> Plan:
    return make_plan(Spec.parse({**SIZES, **given}), ON_CPU)


def problems(**given: object) -> dict[str, str]:
    with pytest.raises(SpecError) as refused:
        Spec.parse({**SIZES, **given})
    return {problem.field: problem.message for problem in refused.value.problems}


def chunks_of(schedule: Schedule) -> dict[str, object]:
    return {"schedule": schedule, "chunks": 2 if schedule.has_chunks else 1}


def assert_proved_and_explained(outcome: Outcome) -> None:
    assert outcome.is_verified
    pairs = [c for c in outcome.comparisons if c.quantity is Quantity.PAIR]
    assert len(pairs) == outcome.plan.world_size * (outcome.plan.world_size - 1)
    assert [c for c in outcome.comparisons if c.unexplained] == []  # memory included
    idle = [c for c in outcome.comparisons if c.quantity is Quantity.IDLE]
    assert [c.measured for c in idle] == [0] * outcome.plan.world_size


@pytest.mark.distributed
@pytest.mark.parametrize("schedule", list(Schedule))
def test_every_schedule_trains_like_the_whole_model_and_sends_what_is_predicted(
    run: Callable[..., Outcome], schedule: Schedule
) -> None:
    outcome = run(**SIZES, **chunks_of(schedule), phase="training", ranks=2, batch=4, microbatches=4)

    assert_proved_and_explained(outcome)
    parts = {c.prediction.detail for c in outcome.comparisons if c.quantity is Quantity.MEMORY}
    splits_backward = schedule in (Schedule.INTERLEAVED_ZERO_BUBBLE, Schedule.ZBV)
    saved = set() if splits_backward else {"saved for backward"}
    assert parts == {"weights", "gradients", "optimizer"} | saved


@pytest.mark.distributed
@pytest.mark.parametrize("schedule", [Schedule.ONE_F_ONE_B, Schedule.INTERLEAVED, Schedule.ZBV])
def test_four_ranks_train_in_one_stage_each_around_twice_or_down_and_up(
    run: Callable[..., Outcome], schedule: Schedule
) -> None:
    outcome = run(**SIZES, **chunks_of(schedule), phase="training", ranks=4, batch=4, microbatches=4)

    assert_proved_and_explained(outcome)


@pytest.mark.distributed
@pytest.mark.parametrize("schedule", list(Schedule))
def test_every_schedule_reads_prompts_forward_alone(run: Callable[..., Outcome], schedule: Schedule) -> None:
    outcome = run(**SIZES, **chunks_of(schedule), phase="prefill", ranks=2, batch=2, microbatches=2)

    assert_proved_and_explained(outcome)
    assert {c.prediction.detail for c in outcome.comparisons if c.quantity is Quantity.CALLS} == {
        "",
        "pp send",
    }


@pytest.mark.distributed
def test_one_mebibyte_a_call_is_explained_to_the_byte_forward_and_back(run: Callable[..., Outcome]) -> None:
    sizes = {**SIZES, "layers": 4, "hidden_size": 64, "tokens": 64}

    outcome = run(**sizes, phase="training", schedule="zbv", chunks=2, ranks=2, batch=128, microbatches=2)

    assert outcome.plan.spec.activation_bytes == 2**20
    assert_proved_and_explained(outcome)


@pytest.mark.distributed
@pytest.mark.parametrize(("ranks", "requests"), [(2, 4), (4, 2)])
def test_requests_in_flight_decode_what_the_whole_model_does(
    run: Callable[..., Outcome], ranks: int, requests: int
) -> None:
    outcome = run(**SIZES, ranks=ranks, batch=2 * requests, microbatches=requests)

    assert_proved_and_explained(outcome)
    series = outcome.all(Series)
    assert [(one.rank, len(one.values)) for one in series] == [(0, 10), (0, 10)]
    seconds, speed = (one.values for one in series)
    assert [one * other for one, other in zip(seconds, speed, strict=True)] == pytest.approx(
        [2 * requests] * 10
    )


@pytest.mark.distributed
@pytest.mark.parametrize(
    "given",
    [
        {},
        {"phase": "training", "schedule": "zbv", "chunks": 2},
    ],
    ids=["decode", "training in a V"],
)
def test_one_rank_holds_all_stages_and_sends_nothing(
    run: Callable[..., Outcome], given: dict[str, object]
) -> None:
    outcome = run(**SIZES, **given, ranks=1, batch=2, microbatches=2)

    assert_proved_and_explained(outcome)
    assert [c.measured for c in outcome.comparisons if c.quantity is Quantity.CALLS] == [0]
    assert "Calls of one step:\n  none" in plan_text(outcome.plan)


@pytest.mark.distributed
def test_staging_through_host_memory_changes_neither_result_nor_bytes(run: Callable[..., Outcome]) -> None:
    staged = Placement(device="cpu", backend="gloo", staged=True, note="")
    given = {"phase": "training", "schedule": "interleaved", "chunks": 2, "microbatches": 2}

    assert_proved_and_explained(run(staged, **SIZES, **given, ranks=2, batch=2))


def test_a_rank_holds_the_weights_of_its_stages_as_much_of_gradients_and_no_state_of_plain_sgd() -> None:
    plan = plan_of(phase="training", schedule="zbv", chunks=2, ranks=2, batch=2, microbatches=2)

    held = {(p.rank, p.detail): p.predicted for p in plan.predictions if p.quantity is Quantity.MEMORY}
    layer = 4 * 32 * 32 + 2 * 32 * 64 + 2 * 32
    ends = 2 * 48 * 32 + 32  # the V brings embedding and head together on rank 0
    assert [held[rank, "weights"] for rank in (0, 1)] == [4 * (4 * layer + ends), 4 * 4 * layer]
    assert [held[rank, "gradients"] for rank in (0, 1)] == [held[rank, "weights"] for rank in (0, 1)]
    assert [held[rank, "optimizer"] for rank in (0, 1)] == [0, 0]


def test_what_is_kept_follows_the_micro_batches_in_flight() -> None:
    given = {"phase": "training", "ranks": 4, "batch": 8, "microbatches": 8}
    gpipe, one_f_one_b = (
        {p.rank: p.formula for p in plan_of(**given, schedule=schedule).predictions if p.detail == SAVED}
        for schedule in ("gpipe", "1f1b")
    )

    # GPipe keeps all 8 everywhere; with 1F1B the first of 4 stages keeps 4, the last keeps 1.
    assert [gpipe[rank] / one_f_one_b[rank] for rank in range(4)] == [8 / 4, 8 / 3, 8 / 2, 8 / 1]


@pytest.mark.parametrize("number", [4, 8, 12])
@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "looped-bfs", "interleaved"])
def test_the_order_of_passes_is_pytorchs_own(schedule: str, number: int) -> None:
    pytest.importorskip("torch", reason="needs torch: pip install 'sixfold[lab]'")
    chunks = 2 if Schedule(schedule).has_chunks else 1
    spec = Spec.parse(
        {**SIZES, "phase": "training", "schedule": schedule, "ranks": 4, "chunks": chunks}
        | {"batch": number, "microbatches": number}
    )

    for rank in range(4):
        assert list(passes(spec, stages_of(spec), rank)) == order_in_pytorch(spec, rank)


def order_in_pytorch(spec: Spec, rank: int) -> list[tuple[int, int]]:
    """Forward (+1) and backward (−1) passes of a rank's stages, read from the schedule class that would run them."""
    from torch import nn
    from torch.distributed.pipelining import schedules

    class Stage:
        """As much of a stage as a schedule looks at to make its plan."""

        def __init__(self, number: int) -> None:
            self.stage_index, self.num_stages = number, spec.ranks * spec.chunks
            self.group_size, self.group_rank, self.submod = spec.ranks, rank, nn.Identity()

    kind = {
        "gpipe": schedules.ScheduleGPipe,
        "1f1b": schedules.Schedule1F1B,
        "looped-bfs": schedules.ScheduleLoopedBFS,
        "interleaved": schedules.ScheduleInterleaved1F1B,
    }[spec.schedule]
    stages = [Stage(number) for number in range(rank, spec.ranks * spec.chunks, spec.ranks)]
    plan = kind(stages if spec.schedule.has_chunks else stages[0], spec.microbatches)
    order = plan.pipeline_order or plan._get_pipeline_order()
    signs = {schedules.FORWARD: 1, schedules.FULL_BACKWARD: -1}
    actions = [action for action in order[rank] if action is not None and action.computation_type in signs]
    return [(action.stage_index, signs[action.computation_type]) for action in actions]


def test_stages_go_around_the_ranks_or_down_and_back_up() -> None:
    loop, v = (Stages(layers=16, ranks=4, chunks=2, is_v=is_v) for is_v in (False, True))

    assert [loop.on(rank) for rank in range(4)] == [(0, 4), (1, 5), (2, 6), (3, 7)]
    assert [v.on(rank) for rank in range(4)] == [(0, 7), (1, 6), (2, 5), (3, 4)]
    assert (loop.layers_on(3), v.layers_on(3)) == ((6, 7, 14, 15), (6, 7, 8, 9))


def test_a_loop_wraps_around_and_a_v_turns_without_a_send() -> None:
    given = {"phase": "training", "ranks": 4, "chunks": 2, "batch": 4, "microbatches": 4}
    loop, v = (
        [(call.source, call.destination) for call in plan_of(**given, schedule=schedule).calls]
        for schedule in ("interleaved", "zbv")
    )

    around = [(0, 1), (1, 2), (2, 3), (3, 0), (0, 1), (1, 2), (2, 3)]
    there_and_back = [(0, 1), (1, 2), (2, 3), (3, 2), (2, 1), (1, 0)]
    assert loop == around + [(there, here) for here, there in around]
    assert v == there_and_back + [(there, here) for here, there in there_and_back]


def test_a_micro_batch_moves_its_part_of_the_batch_and_a_request_its_own_token_ids() -> None:
    (prefill,) = plan_of(phase="prefill", batch=8, microbatches=4).calls
    hidden, ids = plan_of(batch=8, microbatches=4).calls

    assert (prefill.times, prefill.payload_bytes) == (4, 2 * 16 * 32 * 4)
    assert (hidden.times, hidden.payload_bytes, hidden.is_control) == (4, 2 * 32 * 4, False)
    assert (ids.times, ids.payload_bytes, ids.is_control) == (4, 2 * 8, True)


def test_a_plan_names_the_layers_of_all_stages_of_a_rank() -> None:
    text = plan_text(plan_of(phase="training", schedule="interleaved", chunks=2, layers=16, batch=2))

    assert "rank 0: layers 0 to 3 and 8 to 11" in text
    assert "rank 0: layers 0 and 2\n" in plan_text(
        plan_of(phase="training", schedule="interleaved", chunks=2, layers=4, batch=2)
    )


@pytest.mark.parametrize(
    ("given", "field", "sentence"),
    [
        (
            {"schedule": "gpipe", "chunks": 2},
            "chunks",
            "chunks is 2, but the schedule “gpipe” gives each rank one stage. Leave it at 1, or take a schedule of "
            "“interleaved”, “looped-bfs”, “interleaved-zero-bubble”, “zbv”.",
        ),
        (
            {"schedule": "interleaved"},
            "chunks",
            "chunks is 1, but the schedule “interleaved” gives each rank several stages. Take 2 or more, or the "
            "schedule “1f1b”.",
        ),
        (
            {"schedule": "zbv", "chunks": 4},
            "chunks",
            "chunks is 4, but the schedule “zbv” runs down all ranks and back up, so each holds two stages. Take 2, "
            "or another schedule.",
        ),
        (
            {"schedule": "looped-bfs", "chunks": 3},
            "layers",
            "8 layers cannot be dealt to 6 stages evenly. Each of 2 ranks holds 3 stages of the same number of "
            "layers here (rule R4). Take 6 or 12, or another number of ranks or chunks.",
        ),
        (
            {"schedule": "interleaved", "chunks": 2, "batch": 14, "microbatches": 7},
            "microbatches",
            "microbatches is 7, but the schedule “interleaved” works through them in 3 equal rounds, one for every "
            "2 ranks' worth. Take 6 or 8, or another schedule.",
        ),
        (
            {"phase": "decode", "batch": 7, "microbatches": 2},
            "batch",
            "7 sequences cannot be dealt to 2 requests in flight evenly. Every request holds the same number of "
            "sequences. Take 6 or 8, or another number of requests.",
        ),
    ],
)
def test_what_cannot_be_scheduled_is_refused_in_a_sentence(
    given: dict[str, object], field: str, sentence: str
) -> None:
    assert problems(**{"phase": "training", "microbatches": 2, **given}) == {field: sentence}


@pytest.mark.parametrize("schedule", [Schedule.INTERLEAVED, Schedule.INTERLEAVED_ZERO_BUBBLE])
def test_rounds_are_what_pytorch_itself_asks_for(schedule: Schedule) -> None:
    # torch 2.13: as many rounds as ranks fit into the micro-batches, all of one length.
    accepted = []
    for number in range(1, 17):
        try:
            plan_of(**chunks_of(schedule), phase="training", ranks=4, batch=number, microbatches=number)
            accepted.append(number)
        except SpecError:
            continue

    assert accepted == [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 16]


@pytest.mark.parametrize("schedule", CHUNKED)
def test_a_decoding_pipeline_has_one_stage_a_rank_whatever_the_schedule(schedule: Schedule) -> None:
    spec = Spec.parse({**SIZES, **chunks_of(schedule)})

    assert (spec.schedule, spec.chunks) == (Schedule.ONE_F_ONE_B, 1)
