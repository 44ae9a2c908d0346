"""A plan says, before anything runs, what every meter should read."""

import pytest

from calculators.lab.devices import Placement
from calculators.lab.measurements import Prediction, Quantity
from calculators.lab.plan import Plan, make_plan
from calculators.lab.spec import Spec, experiment
from calculators.predict import traffic
from calculators.predict.shapes import Phase

GLOO = Placement(device="cpu", backend="gloo", staged=False, note="")


def plan_of(**given: object) -> Plan:
    return make_plan(Spec.parse(given), GLOO)


def prediction(plan: Plan, quantity: Quantity, rank: int, peer: int | None = None) -> Prediction:
    wanted = (quantity, "", rank, peer)
    (found,) = (p for p in plan.predictions if (p.quantity, p.detail, p.rank, p.peer) == wanted)
    return found


def test_the_lessons_example_is_128_calls_against_1_and_1_mib_against_8_kib() -> None:
    sizes = {"layers": 64, "hidden_size": 256, "batch": 8, "steps": 10}

    tensor, pipeline = plan_of(job="tensor", **sizes), plan_of(job="pipeline", **sizes)

    assert (tensor.calls_per_step, pipeline.calls_per_step) == (128, 1)
    assert prediction(tensor, Quantity.WIRE, 0).formula == 10 * 1_048_576
    assert prediction(pipeline, Quantity.WIRE, 0).formula == 10 * 8_192


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("phase", [Phase.DECODE, Phase.TRAINING])
def test_the_formula_part_is_the_calculators(ranks: int, phase: Phase) -> None:
    plan = plan_of(job="tensor", phase=str(phase), ranks=ranks, layers=3, steps=10)

    calculated = traffic.tensor_parallel(
        hidden_size=256, layers=3, ranks=ranks, phase=phase, batch=8, tokens=64, bytes_per_element=4
    )

    assert prediction(plan, Quantity.WIRE, 1).formula == 10 * float(calculated.wire_bytes)
    assert prediction(plan, Quantity.CALLS, 1).formula == 10 * float(calculated.calls)


def test_eight_kibibytes_all_reduced_by_two_ranks_take_8768_bytes_of_wire() -> None:
    # formulas.md §1, counted by TCP_INFO: 8,768 sent by each of 2 ranks, 14,016 by each of 4.
    two = plan_of(job="tensor", ranks=2, layers=1, steps=10)
    four = plan_of(job="tensor", ranks=4, layers=1, steps=10)

    assert prediction(two, Quantity.WIRE, 0).predicted == 2 * 10 * 8_768
    assert prediction(four, Quantity.WIRE, 0).predicted == 2 * 10 * 14_016


def test_a_decoding_pipeline_counts_the_token_id_as_control() -> None:
    plan = plan_of(job="pipeline", ranks=2, batch=8, steps=10)

    there, back = prediction(plan, Quantity.PAIR, 0, 1), prediction(plan, Quantity.PAIR, 1, 0)

    assert (there.formula, there.framing, there.control) == (10 * 8_192, 10 * 96, 10 * 48)
    assert (back.formula, back.framing, back.control) == (0, 10 * 48, 10 * (8 * 8 + 96))


def test_separate_projections_reduce_six_times_a_layer_in_training_and_twice_in_decode() -> None:
    training = plan_of(job="tensor", phase="training", qkv="separate", layers=4)
    decode = plan_of(job="tensor", qkv="separate", layers=4)

    assert (training.calls_per_step, decode.calls_per_step) == (24, 8)


@pytest.mark.parametrize("name", ["tensor-decode", "pipeline-decode", "tensor-training", "pipeline-training"])
def test_a_ranks_bytes_are_the_sum_of_its_pairs_and_idle_is_nothing(name: str) -> None:
    plan = make_plan(experiment(name), GLOO)

    for rank in range(plan.world_size):
        pairs = [p.predicted for p in plan.predictions if p.quantity is Quantity.PAIR and p.rank == rank]
        assert prediction(plan, Quantity.WIRE, rank).predicted == pytest.approx(sum(pairs))
        assert prediction(plan, Quantity.IDLE, rank).predicted == 0


def test_a_tensor_that_does_not_divide_shows_its_rounding_as_the_backends() -> None:
    # 315 floats in 6 segments of 53: the last is short, so ranks send a little more or less than the textbook's.
    plan = plan_of(
        job="tensor", ranks=3, hidden_size=315, attention_heads=3, ffn_width=300, batch=1, layers=1
    )

    totals = [prediction(plan, Quantity.WIRE, rank) for rank in range(3)]

    assert sum(p.formula for p in totals) == pytest.approx(sum(p.formula + p.backend_excess for p in totals))
    assert any(p.backend_excess for p in totals)


def test_nothing_is_claimed_of_the_wire_of_a_backend_not_known_to_the_byte() -> None:
    nccl = Placement(device="cuda", backend="nccl", staged=False, note="")

    plan = make_plan(experiment("tensor-decode"), nccl)

    assert {p.quantity for p in plan.predictions} == {Quantity.CALLS, Quantity.HANDED}


def test_a_stage_holds_consecutive_layers_and_a_tensor_rank_a_slice_of_all() -> None:
    assert plan_of(job="pipeline", ranks=4, layers=8).layers_by_rank == tuple(
        (i, i + 1) for i in (0, 2, 4, 6)
    )
    assert plan_of(job="tensor", ranks=2, layers=8).layers_by_rank == (range(8), range(8))
