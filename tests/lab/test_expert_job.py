"""Experts dealt to ranks: where copies of tokens go, what a hot expert and a full one do, and no byte unexplained."""

from collections.abc import Callable

import numpy as np
import pytest

from calculators.lab.measurements import Quantity, Series
from calculators.lab.spec import Spec, SpecError
from calculators.lab.splits import calls_of
from calculators.lab.splits.routing import routing_of
from calculators.predict.collectives import Kind
from calculators.predict.traffic.expert import expert_parallel
from tests.lab.conftest import Outcome

SMALL = {
    "job": "expert",
    "layers": 1,
    "hidden_size": 64,
    "attention_heads": 4,
    "ffn_width": 64,
    "vocab_size": 64,
    "batch": 12,
    "tokens": 16,
    "steps": 10,
}
MEBIBYTE = 2**20


def expert(**given: object) -> Spec:
    return Spec.parse({**SMALL, "phase": "training", **given})


def refused(**given: object) -> list[str]:
    with pytest.raises(SpecError) as refusal:
        expert(**given)
    return [problem.message for problem in refusal.value.problems]


def followed(outcome: Outcome, name: str) -> list[tuple[float, ...]]:
    """What each rank followed under this name."""
    series = sorted(outcome.all(Series), key=lambda one: one.rank)
    return [one.values for one in series if one.name == name]


def assert_right_and_explained(outcome: Outcome) -> None:
    assert outcome.is_verified
    assert [c for c in outcome.comparisons if c.unexplained] == []
    assert {c.measured for c in outcome.comparisons if c.quantity is Quantity.IDLE} == {0}


@pytest.mark.distributed
@pytest.mark.parametrize("phase", ["prefill", "training"])
@pytest.mark.parametrize("ranks", [2, 4])
def test_sharded_equals_unsharded_and_no_byte_of_a_mebibyte_call_is_unexplained(
    run: Callable[..., Outcome], ranks: int, phase: str
) -> None:
    # 512 tokens a rank, two copies of each, 1 KiB a copy.
    sizes = {**SMALL, "hidden_size": 256, "batch": 8 * ranks, "tokens": 64, "skew": 1.0}

    outcome = run(**sizes, phase=phase, ranks=ranks)

    assert all(call.payload_bytes >= MEBIBYTE for call in outcome.plan.calls)
    assert_right_and_explained(outcome)
    received = followed(outcome, "copies received in a layer")
    routing = routing_of(outcome.plan.spec)
    assert received == [(float(routing.received(rank)),) * 10 for rank in range(ranks)]
    assert received[0] == max(received) > min(received)  # the hot expert lives on the first rank


@pytest.mark.distributed
def test_copies_that_find_no_place_are_counted_and_dropped_alike_by_the_unsharded_model(
    run: Callable[..., Outcome],
) -> None:
    outcome = run(**SMALL, phase="decode", ranks=4, skew=2.0, capacity=1.0)

    assert_right_and_explained(outcome)
    dropped = followed(outcome, "copies dropped in a layer")
    routing = routing_of(outcome.plan.spec)
    assert dropped == [(float(routing.dropped(rank)),) * 10 for rank in range(4)]
    assert sum(values[0] for values in dropped) > 0


@pytest.mark.distributed
def test_ranks_that_no_token_visits_take_part_all_the_same(run: Callable[..., Outcome]) -> None:
    given = {"experts": 3, "top_k": 1, "skew": 8.0, "dtype": "bfloat16"}

    outcome = run(**SMALL, phase="training", ranks=3, **given)

    assert followed(outcome, "copies received in a layer")[2] == (0.0,) * 10
    assert_right_and_explained(outcome)
    parts = {c.detail for c in outcome.comparisons if c.quantity is Quantity.MEMORY}
    assert parts == {"weights", "gradients", "optimizer", "saved for backward"}


@pytest.mark.distributed
def test_expert_parallelism_of_a_dense_model_sends_nothing_forward(run: Callable[..., Outcome]) -> None:
    outcome = run(**SMALL, phase="prefill", ranks=2, experts=1, top_k=1)

    assert_right_and_explained(outcome)
    assert [c.measured for c in outcome.comparisons if c.quantity is Quantity.WIRE] == [0, 0]
    assert [c.measured for c in outcome.comparisons if c.quantity is Quantity.CALLS] == [0, 0]


@pytest.mark.distributed
def test_one_rank_has_all_experts_and_speaks_to_nobody(run: Callable[..., Outcome]) -> None:
    outcome = run(**SMALL, phase="training", ranks=1)

    assert outcome.plan.calls == ()
    assert_right_and_explained(outcome)


def test_tokens_that_visit_all_experts_move_what_the_formula_of_uniform_routing_says() -> None:
    spec = expert(ranks=4, experts=8, top_k=8, layers=3)
    formula = expert_parallel(
        hidden_size=64,
        layers=3,
        tokens=12 * 16 // 4,
        experts=8,
        experts_per_token=8,
        ranks=4,
        phase="training",
        dispatch_bytes_per_element=4,
        combine_bytes_per_element=4,
    )
    exchanges = [call for call in calls_of(spec) if call.axis == "ep"]

    leaving = sum(call.times * sum(call.parts[0][1:]) for call in exchanges)
    assert leaving == formula.wire_bytes.item()
    assert sum(call.times for call in exchanges) == formula.calls.item()


def test_a_copy_is_sent_for_each_expert_even_to_one_rank() -> None:
    spec = expert(ranks=2, experts=4, top_k=3)

    assert sum(map(sum, routing_of(spec).counts())) == 3 * 12 * 16


def test_weights_that_every_rank_has_are_summed_and_experts_are_not() -> None:
    spec = expert(ranks=2, experts=4, layers=3)

    (weights,) = [call for call in calls_of(spec) if call.axis == "dp"]
    assert (weights.op, weights.times) == (Kind.ALL_REDUCE, 1)
    assert weights.payload_bytes == 4 * (spec.parameters - 3 * 4 * 2 * 64 * 64)


def test_a_token_visits_distinct_experts_each_as_often_as_the_skew_says() -> None:
    once = routing_of(expert(experts=4, top_k=1, skew=1.0, batch=1024))
    twice = routing_of(expert(experts=4, top_k=2, skew=1.0))

    shares = np.bincount(once.chosen.ravel()) / once.chosen.size
    assert shares == pytest.approx([12 / 25, 6 / 25, 4 / 25, 3 / 25], abs=0.01)
    assert (twice.chosen[:, 0] != twice.chosen[:, 1]).all()


def test_an_expert_takes_no_more_of_a_ranks_copies_than_its_capacity() -> None:
    free, limited = (
        routing_of(expert(ranks=4, experts=8, top_k=2, skew=1.0, capacity=factor)) for factor in (0, 1.25)
    )
    places = 15  # 1.25 × 48 tokens × 2 ÷ 8 experts

    for rank in range(4):
        assert limited.loads(rank).tolist() == np.minimum(free.loads(rank), places).tolist()
        assert limited.dropped(rank) == np.maximum(free.loads(rank) - places, 0).sum() > 0
    first_dropped = np.nonzero(~limited.kept[:, 0])[0][0]
    earlier = limited.chosen[:first_dropped][limited.kept[:first_dropped]]
    assert (earlier == limited.chosen[first_dropped, 0]).sum() == places  # who comes first is served


def test_a_group_of_a_mesh_routes_its_own_tokens_among_all_experts() -> None:
    whole = routing_of(expert(ranks=4, experts=8))
    groups = [whole.among(group, 2) for group in (0, 1)]

    assert [group.ranks for group in groups] == [2, 2]
    assert np.array_equal(np.concatenate([group.chosen for group in groups]), whole.chosen)
    assert [len(group.experts_of(1)) for group in groups] == [4, 4]


def test_sizes_that_ranks_cannot_share_are_refused() -> None:
    assert refused(ranks=3) == [
        "8 experts cannot be dealt to 3 ranks evenly. Every rank holds the same number of experts (rule R11). "
        "Take 6 or 9, or another number of ranks."
    ]
    assert refused(ranks=8) == [
        "A batch of 12 sequences cannot be dealt to 8 ranks evenly. Around the experts each rank works on its own "
        "sequences, as many as the others. Take 8 or 16, or another number of ranks."
    ]
    assert refused(experts=1) == [
        "top_k is 2, but a layer has only 1 expert, and those of one token are distinct. "
        "Take 1, or more experts."
    ]


def test_a_run_says_that_the_choice_of_experts_is_drawn() -> None:
    assert expert().caveat == (
        "Which experts a token visits is drawn from the seed, as unequally as the skew says: the plan must know it "
        "before the run. The router only learns how much each answer counts."
    )
    assert expert(experts=1, top_k=1).caveat == ""
