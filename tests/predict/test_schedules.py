"""Pipeline schedules: published bubbles, and each formula against the schedule played operation by operation."""

import math
import re
from collections import Counter
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calculators.predict import schedules
from calculators.predict.schedules import SCHEDULES, Schedule, Work, orders, timetable
from calculators.predict.schedules.formulas import formulas
from tests.predict.sentences import exactly

EVERY = tuple(Schedule)
FOLDED = (Schedule.ZBV, Schedule.V_HALF, Schedule.V_MIN, Schedule.DUALPIPE_V)
WHOLE = (Schedule.NAIVE, Schedule.GPIPE, Schedule.ONE_F_ONE_B, Schedule.INTERLEAVED)
APPROXIMATE = (Schedule.V_HALF, Schedule.V_MIN)
TIMES = st.integers(min_value=1, max_value=9)


def legal_sizes(schedule, stages, rounds):
    """(stages, micro-batches) near the wanted ones that fill this schedule."""
    if schedule == Schedule.DUALPIPE:
        stages += stages % 2
        return stages, stages * 2 + 2 * rounds
    if schedule == Schedule.INTERLEAVED:
        return max(stages, 2), max(stages, 2) * (1 + rounds)
    return stages, 2 * stages + rounds


@st.composite
def cases(draw, of=EVERY, most_stages=8):
    schedule = draw(st.sampled_from(of))
    stages, micro_batches = legal_sizes(schedule, draw(st.integers(1, most_stages)), draw(st.integers(0, 9)))
    chunks = draw(st.integers(2, 4)) if schedule == Schedule.INTERLEAVED else None
    return {"schedule": schedule, "stages": stages, "micro_batches": micro_batches, "chunks": chunks}


def neighbours(schedule, stages, chunks, operation):
    """The (stage, chunk) from which this operation's input comes, told from the shape of the schedule alone."""
    stage, chunk = operation.stage, operation.chunk
    if schedule in FOLDED:
        position = stage if chunk == 0 else 2 * stages - 1 - stage
        last, at = 2 * stages - 1, lambda here: (here, 0) if here < stages else (2 * stages - 1 - here, 1)
    elif schedule == Schedule.DUALPIPE:
        position = stage if chunk == 0 else stages - 1 - stage
        last, at = stages - 1, lambda here: (here if chunk == 0 else stages - 1 - here, chunk)
    else:
        position = chunk * stages + stage
        last, at = chunks * stages - 1, lambda here: (here % stages, here // stages)
    if operation.work == Work.FORWARD:
        return at(position - 1) if position else None
    return at(position + 1) if position < last else None


# Published figures.


def test_oracle_9_four_stages_and_eight_micro_batches_idle_for_three_eighths_of_the_ideal_time():
    sizes = {"stages": 4, "micro_batches": 8}

    for schedule in ("gpipe", "1f1b"):
        assert schedules.bubble_over_ideal(schedule, **sizes) == 0.375
        assert schedules.idle_share(schedule, **sizes) == 3 / 11
    assert schedules.bubble_over_ideal("interleaved", chunks=2, **sizes) == 0.1875
    assert schedules.idle_share("interleaved", chunks=2, **sizes) == pytest.approx(3 / 19, rel=1e-15)


def test_o_6_the_playbooks_24_bars_for_eight_stages():
    # Ultra-Scale Playbook, pp_bubblesize.html, "Bubble size for PP=8": rows 1 … 32 micro-batches, columns 1 2 4 8
    # chunks. Some bars cannot be run (fewer micro-batches than stages); the figure plots the formula all the same.
    bars = [
        [7, 3.5, 1.75, 0.875],
        [3.5, 1.75, 0.875, 0.4375],
        [1.75, 0.875, 0.4375, 0.21875],
        [0.875, 0.4375, 0.21875, 0.109375],
        [0.4375, 0.21875, 0.109375, 0.0546875],
        [0.21875, 0.109375, 0.0546875, 0.02734375],
    ]

    predicted = schedules.bubble_over_ideal(
        "interleaved",
        stages=8,
        micro_batches=np.array([[1], [2], [4], [8], [16], [32]]),
        chunks=[1, 2, 4, 8],
    )

    assert predicted.tolist() == bars


@pytest.mark.parametrize(
    ("schedule", "bubble_of_1f1b", "memory_of_1f1b", "sends_of_1f1b"),
    [
        ("1f1b", Fraction(1), 1, 1),
        ("zb-h1", Fraction(1, 3), 1, 1),
        ("zb-h2", Fraction(0), 2, 1),
        ("zbv", Fraction(0), 1, 2),
        ("v-half", Fraction(1, 2), 1 / 2, 2),
        ("v-min", Fraction(2, 3), 1 / 3, 2),
    ],
)
def test_o_28_the_table_of_zero_bubble_schedules_for_equal_times(
    schedule, bubble_of_1f1b, memory_of_1f1b, sends_of_1f1b
):
    # sail-sg/zero-bubble-pipeline-parallelism README (T_F = T_B = T_W). Its memory column leaves out what does not grow
    # with the stages, so it is read here as the slope between many stages and twice as many.
    p, m = np.array([4, 8, 16, 300, 600]), 2_000

    ratio = schedules.bubble_over_ideal(schedule, stages=p, micro_batches=m) / schedules.bubble_over_ideal(
        "1f1b", stages=p, micro_batches=m
    )
    held = schedules.peak_in_flight(schedule, stages=p, micro_batches=m)
    sends = schedules.sends_per_micro_batch(schedule, stages=p)

    assert np.allclose(ratio, float(bubble_of_1f1b), rtol=1e-12, atol=0)
    assert (held[-1] - held[-2]) / 300 == pytest.approx(memory_of_1f1b, rel=1e-12)
    assert (sends / schedules.sends_per_micro_batch("1f1b", stages=p) == sends_of_1f1b).all()


def test_o_28_the_idle_share_of_1f1b_is_that_of_the_table_and_the_third_of_zb_h1_is_one_of_the_ideal_time():
    # README: (p−1)/(m+p−1) for 1F1B; (p−1)/3m for ZB1P in its first wording. A third of the share is another number.
    p, m = 8, 24
    third = schedules.idle_share("1f1b", stages=p, micro_batches=m) / 3

    assert schedules.idle_share("1f1b", stages=p, micro_batches=m) == pytest.approx(7 / 31, rel=1e-15)
    assert schedules.bubble_over_ideal("zb-h1", stages=p, micro_batches=m) == pytest.approx(7 / 72, rel=1e-15)
    assert schedules.idle_share("zb-h1", stages=p, micro_batches=m) == pytest.approx(7 / 79, rel=1e-15)
    assert abs(schedules.idle_share("zb-h1", stages=p, micro_batches=m) - third) > 0.01


def test_the_bubbles_and_activations_of_the_dualpipe_readme():
    # deepseek-ai/DualPipe README, whose B is both gradients: (PP−1)(F+B), (PP−1)(F+B−2W), (PP/2−1)(F&B+B−3W);
    # activations PP, PP, PP+1; parameters 1, 1, 2
    f, full, w, both, p = 2.0, 5.0, 1.5, 6.0, 8
    times = {"forward": f, "backward_input": full - w, "backward_weight": w}

    assert schedules.bubble_seconds("1f1b", stages=p, **times) == 7 * (f + full)
    assert schedules.bubble_seconds("zb-h1", stages=p, **times) == 7 * (f + full - 2 * w)
    assert schedules.bubble_seconds("dualpipe", stages=p, overlapped=both, **times) == 3 * (
        both + full - 3 * w
    )
    held = [
        schedules.peak_in_flight(name, stages=p, micro_batches=32).item()
        for name in ("1f1b", "zb-h1", "dualpipe")
    ]
    assert held == [8, 8, 9]
    assert [schedules.parameter_copies(name) for name in ("1f1b", "zb-h1", "dualpipe")] == [1, 1, 2]


def test_interleaving_raises_the_activations_of_the_first_stage_as_korthikanti_says():
    # arXiv:2205.05198 §4.2.3: 1 + (p−1)/(p·v); 175B has p 8, v 3, and 530B p 35, v 3
    p, v = np.array([8, 35]), 3

    held = schedules.peak_in_flight("interleaved", stages=p, micro_batches=280, chunks=v)

    assert held == pytest.approx(p * (1 + (p - 1) / (p * v)), rel=1e-15)


def test_the_share_of_the_whole_is_not_the_share_of_the_ideal():
    over, share = (
        function("gpipe", stages=4, micro_batches=9)
        for function in (schedules.bubble_over_ideal, schedules.idle_share)
    )

    assert (over, share) == (pytest.approx(1 / 3), pytest.approx(1 / 4))


# The formulas against the schedule that is played.


@given(case=cases(of=WHOLE), f=TIMES, b=TIMES, w=TIMES)
@settings(max_examples=150)
def test_the_bubble_of_undivided_schedules_is_exact_for_any_times(case, f, b, w):
    times = {"forward": f, "backward_input": b, "backward_weight": w}

    played = timetable(**case, **times)

    assert played.bubble_seconds == pytest.approx(schedules.bubble_seconds(**case, **times).item(), abs=1e-9)
    assert played.makespan == pytest.approx(played.period)


@pytest.mark.parametrize("schedule", EVERY)
@pytest.mark.parametrize("stages", [1, 2, 3, 4, 5, 8, 13, 16])
def test_with_three_equal_times_every_formula_is_what_is_played(schedule, stages):
    for rounds in (0, 3, 16):
        p, m = legal_sizes(schedule, stages, rounds)

        played = timetable(schedule, stages=p, micro_batches=m)

        formula = schedules.bubble_seconds(schedule, stages=p, micro_batches=m).item()
        if (
            schedule in APPROXIMATE
        ):  # "to within a micro-batch's time"; played it never waits longer than published
            assert formula - 1 <= played.bubble_seconds <= formula + 1e-9
        else:
            assert played.bubble_seconds == pytest.approx(formula, abs=1e-9)
            over = schedules.bubble_over_ideal(schedule, stages=p, micro_batches=m).item()
            assert played.bubble_over_ideal == pytest.approx(over, abs=1e-12)
            share = schedules.idle_share(schedule, stages=p, micro_batches=m).item()
            assert played.idle_share == pytest.approx(share, abs=1e-12)


@given(case=cases(of=(Schedule.ZB_H1, Schedule.ZB_H2)), f=TIMES, b=TIMES, w=TIMES)
@settings(max_examples=150)
def test_the_zero_bubble_formulas_are_exact_while_weight_gradients_are_the_shortest(case, f, b, w):
    times = {"forward": f, "backward_input": b, "backward_weight": min(f, b, w)}

    played = timetable(**case, **times)

    assert played.bubble_seconds == pytest.approx(schedules.bubble_seconds(**case, **times).item(), abs=1e-9)


@given(case=cases(of=(Schedule.ZBV,)), times=st.tuples(TIMES, TIMES, TIMES).map(sorted))
@settings(max_examples=100)
def test_the_bubble_of_zb_v_is_what_the_input_gradient_takes_longer_than_the_weight_gradient(case, times):
    w, f, b = times
    given_times = {"forward": f, "backward_input": b, "backward_weight": w}

    played = timetable(**case, **given_times)

    assert played.bubble_seconds == pytest.approx((case["stages"] - 1) * (b - w), abs=1e-9)
    assert schedules.bubble_seconds(**case, **given_times) == (case["stages"] - 1) * (b - w)


@given(case=cases(of=(Schedule.DUALPIPE, Schedule.DUALPIPE_V)), f=TIMES, w=TIMES)
@settings(max_examples=60)
def test_the_bubble_of_dualpipe_is_exact_where_forward_and_input_gradient_take_equal_times(case, f, w):
    times = {"forward": f, "backward_input": f, "backward_weight": min(f, w)}

    played = timetable(**case, **times)

    assert played.bubble_seconds == pytest.approx(schedules.bubble_seconds(**case, **times).item(), abs=1e-9)


def test_beyond_its_condition_the_zero_bubble_formula_promises_too_much():
    times = {"forward": 1, "backward_input": 1, "backward_weight": 1.3}

    played = timetable("zb-h1", stages=4, micro_batches=16, **times)

    assert played.bubble_seconds == pytest.approx(3.0)
    assert schedules.bubble_seconds("zb-h1", stages=4, **times) == pytest.approx(2.1)


@given(
    schedule=st.sampled_from((Schedule.NAIVE, Schedule.GPIPE, Schedule.ONE_F_ONE_B)),
    stages=st.integers(1, 8),
    micro_batches=st.integers(1, 40),
    send=st.integers(0, 20),
    times=st.tuples(TIMES, TIMES, TIMES),
)
@settings(max_examples=200)
def test_messages_that_take_time_cost_what_the_formulas_say(schedule, stages, micro_batches, send, times):
    sizes = {"stages": stages, "micro_batches": micro_batches, "send": send}
    f, b, w = times
    lasting = {"forward": f, "backward_input": b, "backward_weight": w}

    played = timetable(schedule, **sizes, **lasting)

    assert played.bubble_seconds == pytest.approx(
        schedules.bubble_seconds(schedule, **sizes, **lasting).item(), abs=1e-9
    )


def test_slow_messages_cost_1f1b_more_than_gpipe_because_little_is_in_flight():
    sizes = {"stages": 4, "micro_batches": 16, "send": 1.0}

    gpipe, one_f_one_b = (timetable(name, **sizes).makespan for name in ("gpipe", "1f1b"))

    assert gpipe == 57 + 2 * 3
    assert one_f_one_b == 57 + 2 * (3 + 15 - 4)


@pytest.mark.parametrize("schedule", EVERY)
@pytest.mark.parametrize("stages", [1, 2, 3, 4, 6, 8, 11, 16])
def test_the_activations_in_flight_are_those_that_the_played_schedule_holds(schedule, stages):
    for rounds in (0, 16):
        p, m = legal_sizes(schedule, stages, rounds)
        m = max(m, 2 * p)  # in a V the first micro-batches come back only then

        held = timetable(schedule, stages=p, micro_batches=m).peak_in_flight

        formula = schedules.in_flight(schedule, stages=p, micro_batches=m, stage=np.arange(p))
        if schedule in APPROXIMATE:
            fullest = schedules.peak_in_flight(schedule, stages=p, micro_batches=m)
            assert held.max() == fullest or p == 1
        else:
            assert held == pytest.approx(np.broadcast_to(formula, held.shape))


@pytest.mark.parametrize("schedule", EVERY)
def test_the_played_schedule_sends_as_many_messages_as_the_formula(schedule):
    p, _ = legal_sizes(schedule, 4, 3)
    routes = orders.routes(schedule, p, 2)

    hops = sum(here != there for route in routes for here, there in pairwise(route))

    each = schedules.sends_per_micro_batch(schedule, stages=p).item()
    assert each == 2 * hops / len(routes)


def test_a_larger_group_of_megatron_holds_more_and_waits_as_long():
    sizes = {"stages": 4, "micro_batches": 12, "chunks": 2}

    small, large = (timetable("interleaved", group=group, **sizes) for group in (4, 6))

    assert small.bubble_seconds == large.bubble_seconds == 4.5
    assert large.peak_in_flight[0] == small.peak_in_flight[0] + 1


@pytest.mark.parametrize(("micro_batches", "group"), [(9, 5), (10, 6), (14, 5), (11, 7)])
def test_the_leftover_group_that_megatron_accepts_keeps_the_bubble(micro_batches, group):
    played = timetable("interleaved", stages=4, micro_batches=micro_batches, chunks=2, group=group)

    assert played.bubble_seconds == 4.5


# Properties of every schedule.


@given(case=cases(), send=st.integers(0, 3), data=st.data())
@settings(max_examples=120)
def test_no_operation_starts_before_what_it_needs_or_waits_for_anything_else(case, send, data):
    per_stage = st.lists(TIMES, min_size=case["stages"], max_size=case["stages"])
    times = {
        name: data.draw(per_stage, label=name) for name in ("forward", "backward_input", "backward_weight")
    }

    played = timetable(**case, **times, send=send)

    ends = {
        (o.work == Work.FORWARD, o.stage, o.chunk, o.micro_batch): o.end
        for row in played.rows
        for o in row
        if o.work != Work.BACKWARD_WEIGHT
    }
    for row in played.rows:
        free, side_by_side, earliest = 0.0, None, 0.0
        for o in row:
            arrived = 0.0
            if o.work != Work.BACKWARD_WEIGHT:
                source = neighbours(played.schedule, played.stages, played.chunks, o)
                if source:
                    arrived = ends[o.work == Work.FORWARD, *source, o.micro_batch]
                    arrived += send * (source[0] != o.stage)
            if o.work != Work.FORWARD:
                assert ends[True, o.stage, o.chunk, o.micro_batch] <= o.start
            if o.work == Work.BACKWARD_WEIGHT:
                assert ends[False, o.stage, o.chunk, o.micro_batch] <= o.start
            if side_by_side == (o.start, o.end):  # the other half of a pair of DualPipe
                assert arrived <= o.start
                earliest = max(earliest, arrived)
            else:
                if side_by_side:
                    assert side_by_side[0] == earliest
                earliest = max(free, arrived)
                free = o.end
            side_by_side = (o.start, o.end)
        assert side_by_side[0] == earliest


@given(case=cases(), data=st.data())
@settings(max_examples=80)
def test_every_micro_batch_gets_its_whole_work_once_on_every_stage(case, data):
    f, b, w = (data.draw(TIMES) for _ in range(3))

    played = timetable(**case, forward=f, backward_input=b, backward_weight=w)

    m, v = played.micro_batches, played.chunks
    per_chunk = m // 2 if played.schedule == Schedule.DUALPIPE else m
    for row in played.rows:
        done = Counter()
        for o in row:
            gradients = {
                Work.FORWARD: ("F",),
                Work.BACKWARD: ("B", "W"),
                Work.BACKWARD_INPUT: ("B",),
                Work.BACKWARD_WEIGHT: ("W",),
            }[o.work]
            done.update((kind, o.chunk, o.micro_batch) for kind in gradients)
        assert set(done.values()) == {1}
        assert len(done) == 3 * v * per_chunk
        assert {micro_batch for _, _, micro_batch in done} == set(range(m))
    assert played.busy == pytest.approx(m * (f + b + w))


@given(case=cases(), send=st.integers(0, 3), data=st.data())
@settings(max_examples=80)
def test_the_longest_chain_is_as_long_as_the_step_with_nothing_between_but_messages(case, send, data):
    per_stage = st.lists(TIMES, min_size=case["stages"], max_size=case["stages"])
    times = {
        name: data.draw(per_stage, label=name) for name in ("forward", "backward_input", "backward_weight")
    }

    played = timetable(**case, **times, send=send)

    chain = played.longest_chain
    assert chain[0].start == 0
    assert chain[-1].end == played.makespan
    for earlier, later in pairwise(chain):
        assert later.start == earlier.end + send * (earlier.stage != later.stage)


@given(case=cases(most_stages=6))
@settings(max_examples=60)
def test_more_micro_batches_never_raise_the_idle_share(case):
    more = dict(case, micro_batches=case["micro_batches"] + case["stages"] * (2 - case["stages"] % 2))

    assert timetable(**more).idle_share <= timetable(**case).idle_share + 1e-12
    assert schedules.idle_share(**more) <= schedules.idle_share(**case)


@pytest.mark.parametrize("schedule", [s for s in EVERY if s not in (Schedule.INTERLEAVED, Schedule.DUALPIPE)])
def test_one_stage_never_waits_and_sends_nothing(schedule):
    assert timetable(schedule, stages=1, micro_batches=5).idle.tolist() == [0]
    assert schedules.bubble_seconds(schedule, stages=1, micro_batches=5) == 0
    assert schedules.sends_per_micro_batch(schedule, stages=1) == 0


@given(stages=st.integers(1, 9), micro_batches=st.integers(1, 20))
def test_a_stage_of_1f1b_holds_what_is_still_ahead_of_it_and_gpipe_holds_everything(stages, micro_batches):
    sizes = {"stages": stages, "micro_batches": micro_batches}

    assert timetable("1f1b", **sizes).peak_in_flight.tolist() == [
        min(micro_batches, stages - stage) for stage in range(stages)
    ]
    assert set(timetable("gpipe", **sizes).peak_in_flight) == {micro_batches}


def test_one_slow_stage_sets_the_pace_whatever_the_formula_says():
    # the lesson's four stages of 10, 10, 10 and 14 ms, forward and backward alike
    times = [10.0, 10.0, 10.0, 14.0]

    played = timetable(
        "1f1b", stages=4, micro_batches=32, forward=times, backward_input=times, backward_weight=0.0
    )

    mean = schedules.idle_share(
        "1f1b", stages=4, micro_batches=32, forward=11, backward_input=11, backward_weight=0
    )
    assert played.makespan >= 32 * 28
    assert played.makespan == 32 * 28 + 2 * 30
    assert played.idle_share > 2 * mean
    assert played.idle[3] < played.idle[0]


def test_two_zero_bubbles_need_the_next_step_to_start_before_this_one_has_ended_everywhere():
    played = timetable("zb-h2", stages=4, micro_batches=16)

    assert played.period == 48
    assert played.makespan == 51
    assert played.idle_share == 0


def test_too_few_micro_batches_for_1f1b_can_be_played_and_leave_most_stages_waiting():
    # pytorch/torchtitan issue 775
    played = timetable("1f1b", stages=8, micro_batches=2)

    assert played.idle_share == pytest.approx(7 / 9)
    assert schedules.problems("1f1b", stages=8, micro_batches=2)


@pytest.mark.parametrize(("stages", "micro_batches"), [(2, 4), (4, 8), (4, 12), (8, 16)])
@pytest.mark.parametrize(
    ("schedule", "torch_name"),
    [
        ("interleaved", "ScheduleInterleaved1F1B"),
        ("zbv", "ScheduleZBVZeroBubble"),
        ("dualpipe-v", "ScheduleDualPipeV"),
    ],
)
def test_the_orders_of_two_chunks_are_those_that_pytorch_runs(schedule, torch_name, stages, micro_batches):
    from torch.distributed.pipelining import schedules as torch_schedules

    theirs = object.__new__(getattr(torch_schedules, torch_name))
    theirs.pp_group_size, theirs.n_local_stages, theirs.num_stages = stages, 2, 2 * stages
    theirs._n_microbatches = micro_batches
    theirs.number_of_rounds = max(1, micro_batches // stages)
    theirs.microbatches_per_round = micro_batches // theirs.number_of_rounds
    works = {
        "FORWARD": orders.FORWARD,
        "FULL_BACKWARD": orders.BACKWARD,
        "BACKWARD_INPUT": orders.BACKWARD_INPUT,
        "BACKWARD_WEIGHT": orders.BACKWARD_WEIGHT,
    }

    def flat(actions):
        for action in actions:
            if action is None:
                continue
            for part in action.sub_actions or (action,):
                yield works[part.computation_type.name], part.stage_index, part.microbatch_index

    plan = orders.plan(Schedule(schedule), stages, micro_batches, 2, stages)

    for stage, order in enumerate(plan.orders):
        ours = [(step.work, step.position, step.micro_batch) for slot in order for step in slot]
        assert ours == list(flat(theirs._calculate_single_rank_operations(stage)))


# What cannot be.


def test_formulas_broadcast_and_what_depends_on_few_axes_stays_small():
    waited = schedules.bubble_seconds(
        "interleaved", stages=np.ones((5, 1, 1)) * 4, micro_batches=np.ones((1, 7, 1)), chunks=[1, 2]
    )

    assert waited.shape == (5, 1, 2)
    assert schedules.in_flight("gpipe", stages=np.ones((5, 1)) * 4, micro_batches=[8, 9]).shape == (2,)


def test_one_chunk_of_an_interleaved_formula_is_1f1b():
    sizes = {"stages": [2, 4, 8], "micro_batches": 16}

    assert (
        schedules.idle_share("interleaved", chunks=1, **sizes).tolist()
        == schedules.idle_share("1f1b", **sizes).tolist()
    )


@pytest.mark.parametrize(
    ("sizes", "sentence"),
    [
        (
            {"schedule": "1f1b", "stages": 8, "micro_batches": 4},
            "1F1B has 4 micro-batches for 8 stages, so the pipeline is never full, and PyTorch refuses to start it. "
            "Take 8 or more, or GPipe.",
        ),
        (
            {"schedule": "zb-h2", "stages": 8, "micro_batches": 8},
            "ZB-H2 has 8 micro-batches for 8 stages, too few for the bubble that was published. Take 15 or more.",
        ),
        (
            {"schedule": "interleaved", "stages": 4, "micro_batches": 6},
            "Interleaved 1F1B has 6 micro-batches in 4 stages, but they go in groups of 4. Nearest that work: 4 or 8. "
            "Megatron also takes larger groups, if at least 4 are left over.",
        ),
        (
            {"schedule": "interleaved", "stages": 4, "micro_batches": 3},
            "Interleaved 1F1B has 3 micro-batches in 4 stages, but they go in groups of 4. Nearest that works: 4. "
            "Megatron also takes larger groups, if at least 4 are left over.",
        ),
        (
            {"schedule": "interleaved", "stages": 4, "micro_batches": 11, "group": 4},
            "group is 4, which leaves 3 of 11 micro-batches for the last one, fewer than the 4 stages, so stages would "
            "wait for them. Take a group that leaves 0, or 4 or more.",
        ),
        (
            {"schedule": "interleaved", "stages": 4, "micro_batches": 11, "group": 3},
            "group is 3, but it must be at least the 4 stages and at most the 11 micro-batches.",
        ),
        (
            {"schedule": "interleaved", "stages": 4, "micro_batches": 8, "chunks": 1},
            "Interleaved 1F1B has 1 chunk a stage, which is plain 1F1B. Give chunks 2 or more, or take 1F1B.",
        ),
        (
            {"schedule": "interleaved", "stages": 1, "micro_batches": 8},
            "Interleaved 1F1B has 1 stage, so there is nothing to interleave. Take 2 or more stages.",
        ),
        (
            {"schedule": "gpipe", "stages": 4, "micro_batches": 8, "chunks": 2},
            "chunks is 2, but GPipe has one chunk on each stage. Give 1, or take interleaved 1F1B.",
        ),
        (
            {"schedule": "zbv", "stages": 4, "micro_batches": 8, "chunks": 3},
            "chunks is 3, but ZB-V has two chunks on each stage. Give 2, or take interleaved 1F1B.",
        ),
        (
            {"schedule": "gpipe", "stages": 4, "micro_batches": 8, "group": 4},
            "group is 4, but only interleaved 1F1B sends groups of micro-batches. Leave it out.",
        ),
        (
            {"schedule": "dualpipe", "stages": 5, "micro_batches": 20},
            "DualPipe cannot fold 5 stages in two equal halves. Take 4 or 6.",
        ),
        (
            {"schedule": "dualpipe", "stages": 1, "micro_batches": 20},
            "DualPipe cannot fold 1 stages in two equal halves. Take 2.",
        ),
        (
            {"schedule": "dualpipe", "stages": 4, "micro_batches": 9},
            "DualPipe has 9 micro-batches, but half of them enter at each end. Take 10.",
        ),
        (
            {"schedule": "dualpipe-v", "stages": 4, "micro_batches": 7},
            "DualPipe-V has 7 micro-batches for 4 stages, but its order of work needs twice as many as stages. "
            "Take 8 or more.",
        ),
        (
            {"schedule": "gpipe", "stages": 0, "micro_batches": 8},
            "stages is 0, but a schedule needs a whole number, 1 or more.",
        ),
        (
            {"schedule": "gpipe", "stages": 4, "micro_batches": 2.5},
            "micro_batches is 2.5, but a schedule needs a whole number, 1 or more.",
        ),
    ],
)
def test_sizes_that_do_not_fit_are_told_in_a_sentence(sizes, sentence):
    assert schedules.problems(**sizes) == (sentence,)


def test_sizes_that_fit_have_no_problem():
    for schedule in EVERY:
        stages, micro_batches = legal_sizes(schedule, 4, 2)

        assert schedules.problems(schedule, stages=stages, micro_batches=micro_batches) == ()


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (
            lambda: timetable("zigzag", stages=4, micro_batches=8),
            "schedule is 'zigzag', which is not a pipeline schedule known here. Use one of: naive, gpipe, 1f1b, "
            "interleaved, zb-h1, zb-h2, zbv, v-half, v-min, dualpipe, dualpipe-v.",
        ),
        (
            lambda: timetable("dualpipe", stages=3, micro_batches=8),
            "DualPipe cannot fold 3 stages in two equal halves. Take 2 or 4.",
        ),
        (
            lambda: timetable("gpipe", stages=4, micro_batches=8, forward=[1, 2]),
            "forward has 2 times for 4 stages. Give one number for all of them, or one for each.",
        ),
        (
            lambda: timetable("gpipe", stages=2, micro_batches=8, backward_weight=[1, float("nan")]),
            "backward_weight is nan, but it must be a time [s], 0 or more and at most 1e+18.",
        ),
        (
            lambda: timetable("gpipe", stages=2, micro_batches=8, send="soon"),
            "send is 'soon', but it must be a time [s], 0 or more and at most 1e+18.",
        ),
        (
            lambda: timetable(
                "gpipe", stages=2, micro_batches=8, forward=0, backward_input=[0, 0], backward_weight=0
            ),
            "forward, backward_input and backward_weight are all 0, so there is no work to play. "
            "Give one of them a time.",
        ),
        (
            lambda: timetable("gpipe", stages=2, micro_batches=8, overlapped=2.0),
            "overlapped is 2.0, but only DualPipe runs two operations side by side. Leave it out.",
        ),
        (
            lambda: schedules.bubble_seconds("zb-h1", stages=4, send=[0, 0.5]),
            "send is 0.5, but no formula is known for ZB-H1 with messages that take time. "
            "Play it with timetable(…, send=…).",
        ),
        (
            lambda: schedules.bubble_seconds("gpipe", stages=[4, 0]),
            "stages is 0, but it must be a number, 1 or more and at most 1e+18.",
        ),
        (
            lambda: schedules.bubble_seconds("gpipe", stages=[4, 8], forward=[1, 2, 3]),
            "The arrays do not broadcast: stages (2,), forward (3,). Give them one shape, or shapes that differ only "
            "where one of them is 1.",
        ),
        (
            lambda: schedules.bubble_seconds("zbv", stages=4, chunks=[2, 3]),
            "chunks is 3, but ZB-V has two chunks on each stage. Give 2, or take interleaved 1F1B.",
        ),
        (
            lambda: schedules.idle_share(
                "gpipe", stages=4, micro_batches=8, forward=0, backward_input=0, backward_weight=0
            ),
            "forward, backward_input and backward_weight are all 0, so there is no work to compare with. "
            "Give one of them a time.",
        ),
        (
            lambda: schedules.in_flight("1f1b", stages=[4, 8], micro_batches=8, stage=[3, 9]),
            "stage is 9, but the last of 8 stages is number 7, counted from 0.",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(wrong, sentence):
    with pytest.raises(ValueError, match=exactly(sentence)):
        wrong()


def test_every_schedule_says_what_it_does_and_where_it_comes_from():
    for schedule, kind in SCHEDULES.items():
        assert kind.schedule == schedule
        assert kind.idea.endswith(".")
        assert kind.source
        assert kind.exact_when


def value_of(tex):
    """What a formula with its numbers in it comes to, read as arithmetic."""
    tex = tex.replace("{,}", "")
    while r"\frac" in tex:  # innermost first
        tex = re.sub(r"\\frac\{([^{}]*)\}\{([^{}]*)\}", r"((\1)/(\2))", tex)
    for name, python in {r"\cdot": "*", r"\max": "max", r"\min": "min", r"\,": " "}.items():
        tex = tex.replace(name, python)
    for round_to in ("ceil", "floor"):
        tex = tex.replace(rf"\l{round_to}", f"math.{round_to}(").replace(rf"\r{round_to}", ")")
    return eval(tex, {"math": math})


@pytest.mark.parametrize(
    ("schedule", "send"), [*((s, 0) for s in EVERY), ("naive", 2e-3), ("gpipe", 2e-3), ("1f1b", 2e-3)]
)
def test_a_formula_with_its_numbers_in_it_comes_to_what_stands_behind_its_equals_sign(schedule, send):
    p, m = legal_sizes(schedule, 4, 2)
    times = {"forward": 0.010, "backward_input": 0.012, "backward_weight": 0.008, "send": send}

    bubble, over, share, held = formulas(schedule, stages=p, micro_batches=m, **times)

    waited = schedules.bubble_seconds(schedule, stages=p, micro_batches=m, **times).item() * 1000
    left, right = bubble.numbers.split(" = ")
    assert value_of(left) == pytest.approx(waited)
    assert right.replace("{,}", "") == rf"{waited:g}\text{{ ms}}"
    for formula, expected in ((over, waited / (30 * m)), (share, waited / (30 * m + waited))):
        left, right = formula.numbers.split(" = ")
        assert value_of(left) == pytest.approx(expected)
        assert right == rf"{expected * 100:.1f}\,\%"
    most = schedules.peak_in_flight(schedule, stages=p, micro_batches=m).item()
    assert value_of(held.numbers.split(" = ")[0]) == most
    assert {"p", "m", "T_F", "T_B", "T_W"} <= {symbol for symbol, _ in (*bubble.legend, *held.legend)}


# Real situations, of which the lessons tell.


def serving(stages, in_flight):
    """Requests that pass a server's stages forward only, one slot each."""
    return timetable(
        "gpipe", stages=stages, micro_batches=in_flight, forward=1, backward_input=0, backward_weight=0
    )


def test_two_machines_with_one_request_are_each_half_idle():
    # ggml-org/llama.cpp issue 15463: both GPUs sit near 50 %, one machine alone at 100 %
    assert serving(2, 1).idle_share == 0.5
    assert serving(1, 1).idle_share == 0
    assert serving(2, 8).idle_share == pytest.approx(1 / 9)


def test_a_pipelined_server_is_miserable_with_few_requests_and_fine_with_many():
    # vllm-project/vllm issue 9176
    few, many = serving(4, 1), serving(4, 27)

    assert few.idle_share == 0.75
    assert many.idle_share == pytest.approx(0.1)


@given(stages=st.integers(2, 64), rounds=st.integers(1, 100), chunks=st.integers(2, 32))
def test_interleaving_shrinks_the_bubble_and_never_removes_it(stages, rounds, chunks):
    sizes = {"stages": stages, "micro_batches": stages * rounds}

    interleaved = schedules.idle_share("interleaved", chunks=chunks, **sizes)

    assert 0 < interleaved < schedules.idle_share("1f1b", **sizes)
    assert schedules.sends_per_micro_batch("interleaved", stages=stages, chunks=chunks) > (
        schedules.sends_per_micro_batch("1f1b", stages=stages)
    )
