"""Routing: nothing is lost or made, averages are those of draws, and the uniform case is the formula's."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calculators.predict.shapes import Phase
from calculators.predict.traffic import expert_parallel
from calculators.predict.traffic.routing import (
    draw_choices,
    exchange,
    histogram,
    power_law,
    route,
    route_choices,
    skewed_layer,
    uniform,
)
from calculators.predict.traffic.routing_formulas import routing_formulas
from tests.predict.sentences import exactly
from tests.predict.test_traffic import value_of

OVER = st.sampled_from(["rank", "group"])
COPIES = st.sampled_from(["expert", "rank"])


def walk(choices, *, experts, ranks, places, over, copies):
    """Token by token: who gets a place, and what crosses from which rank to which."""
    t = len(choices) // ranks
    taken = np.zeros((ranks, experts))
    kept, crossed = np.zeros((ranks, experts)), np.zeros((ranks, ranks))
    for number, chosen in enumerate(choices):
        source = number // t
        counter = taken[source] if over == "rank" else taken[0]
        there = []
        for expert in chosen:
            counter[expert] += 1
            if places is None or counter[expert] <= places:
                kept[source, expert] += 1
                there.append(expert // (experts // ranks))
        for goal in there if copies == "expert" else set(there):
            crossed[source, goal] += 1
    return kept, crossed


@settings(max_examples=150)
@given(
    seed=st.integers(0, 2**32),
    ranks=st.sampled_from([1, 2, 4]),
    per_rank=st.integers(1, 4),
    k=st.integers(1, 3),
    t=st.integers(1, 12),
    exponent=st.floats(0, 3),
    factor=st.none() | st.floats(0.25, 2),
    over=OVER,
    copies=COPIES,
)
def test_walking_token_by_token_gives_the_same_places_and_crossings(
    seed, ranks, per_rank, k, t, exponent, factor, over, copies
):
    experts = ranks * per_rank
    k = min(k, experts)
    choices = draw_choices(
        power_law(experts, exponent), tokens=ranks * t, experts_per_token=k, rng=np.random.default_rng(seed)
    )

    routed = route_choices(
        choices, experts=experts, ranks=ranks, capacity_factor=factor, capacity_over=over, copies=copies
    )

    kept, crossed = walk(
        choices.tolist(), experts=experts, ranks=ranks, places=routed.capacity, over=over, copies=copies
    )
    assert np.array_equal(routed.kept, kept)
    assert np.array_equal(routed.copies, crossed)


@settings(max_examples=150)
@given(
    ranks=st.sampled_from([1, 2, 4, 8]),
    per_rank=st.integers(1, 8),
    k=st.integers(1, 8),
    t=st.integers(1, 1000),
    exponent=st.floats(0, 4),
    factor=st.none() | st.floats(0.25, 2),
    over=OVER,
)
def test_nothing_is_lost_or_made(ranks, per_rank, k, t, exponent, factor, over):
    experts = ranks * per_rank
    k = min(k, experts)

    routed = route(
        power_law(experts, exponent),
        tokens=t,
        experts_per_token=k,
        ranks=ranks,
        capacity_factor=factor,
        capacity_over=over,
    )

    assert routed.wanted.sum() == pytest.approx(ranks * t * k)
    assert routed.loads.sum() + routed.dropped == pytest.approx(ranks * t * k)
    assert np.all(routed.wanted <= t * (1 + 1e-12))  # no expert gets a token twice
    assert routed.copies.sum() == pytest.approx(routed.rank_loads.sum())
    assert routed.copies.sum(axis=0) == pytest.approx(routed.rank_loads)
    moved = exchange(routed, hidden_size=16, dispatch_bytes_per_element=1, combine_bytes_per_element=2)
    assert moved.sent.sum() == pytest.approx(moved.received.sum())
    assert moved.combine == pytest.approx(2 * moved.dispatch.T)


@given(
    ranks=st.sampled_from([1, 2, 4, 8]),
    k=st.integers(1, 8),
    t=st.integers(1, 100),
    copies=COPIES,
    padded=st.booleans(),
)
def test_uniform_routing_is_the_formula_s(ranks, k, t, copies, padded):
    factor = 1.25 if padded and copies == "expert" else None
    formula = expert_parallel(
        hidden_size=64,
        layers=1,
        tokens=t,
        experts=16,
        experts_per_token=k,
        ranks=ranks,
        phase=Phase.PREFILL,
        copies=copies,
        capacity_factor=factor,
    )

    routed = route(
        uniform(16), tokens=t, experts_per_token=k, ranks=ranks, copies=copies, capacity_factor=factor
    )
    moved = exchange(routed, hidden_size=64, padded=factor is not None)

    assert moved.sent == pytest.approx(np.full(ranks, formula.wire_bytes))
    assert moved.sent_spread.imbalance == pytest.approx(1)


@pytest.mark.parametrize("exponent", [0.0, 0.8, 2.0])
def test_many_draws_come_to_the_averages(exponent):
    shares = power_law(16, exponent)
    drawn = route(shares, tokens=20_000, experts_per_token=4, ranks=4, rng=np.random.default_rng(3))
    average = route(shares, tokens=20_000, experts_per_token=4, ranks=4)

    # 80,000 tokens: a count of 20,000·p deviates by 1/√(20,000·p) of itself
    assert drawn.loads == pytest.approx(average.loads, rel=0.05, abs=80)
    assert drawn.copies == pytest.approx(average.copies, rel=0.05)


@pytest.mark.parametrize("exponent", [0.0, 0.8, 2.0])
def test_many_draws_come_to_the_average_of_one_copy_for_each_rank(exponent):
    shares = power_law(16, exponent)
    drawn, average = (
        route(shares, tokens=20_000, experts_per_token=4, ranks=4, copies="rank", rng=rng)
        for rng in (np.random.default_rng(3), None)
    )

    assert drawn.copies == pytest.approx(average.copies, rel=0.05)


def test_skew_leaves_the_sum_and_changes_the_hottest():
    def received(exponent):
        routed = route(power_law(64, exponent), tokens=1000, experts_per_token=8, ranks=8)
        return exchange(routed, hidden_size=1, dispatch_bytes_per_element=1)

    even, skewed, steep = (received(exponent) for exponent in (0, 0.5, 1))

    assert even.received_spread.imbalance == pytest.approx(1)
    assert 1 < skewed.received_spread.imbalance < steep.received_spread.imbalance
    assert even.received_spread.index in range(8)
    assert steep.received_spread.index == 0
    assert steep.dispatch.sum() == pytest.approx(even.dispatch.sum())


def test_ranks_that_hold_hot_experts_send_less_and_receive_more():
    moved = exchange(route(power_law(8, 1), tokens=1000, experts_per_token=2, ranks=4), hidden_size=1)

    assert np.argmin(moved.dispatch.sum(axis=1)) == np.argmax(moved.dispatch.sum(axis=0)) == 0


def test_what_does_not_fit_is_dropped_and_named():
    # all tokens want expert 0 and 1, of 4: capacity ⌈1·100·2/4⌉ = 50 of each rank's 100
    routed = route(histogram([1, 1, 0, 0]), tokens=100, experts_per_token=2, ranks=2, capacity_factor=1.0)

    assert routed.capacity == 50
    assert routed.loads.tolist() == [100, 100, 0, 0]
    assert (routed.dropped, routed.drop_rate) == (200, 0.5)


def test_a_group_shares_places_that_a_rank_alone_would_not_find():
    choices = [[0], [0], [1], [2], [3], [1], [2], [3]]
    own, group = (
        route_choices(choices, experts=4, ranks=2, capacity_factor=1.0, capacity_over=over)
        for over in ("rank", "group")
    )

    assert (own.capacity, group.capacity) == (1, 2)
    assert (own.dropped, group.dropped) == (2, 0)


def test_padded_buffers_are_as_large_as_the_capacity_whatever_the_routing():
    def sent(exponent):
        routed = route(power_law(8, exponent), tokens=64, experts_per_token=2, ranks=4, capacity_factor=1.5)
        return exchange(routed, hidden_size=8, padded=True).dispatch

    assert np.array_equal(sent(0), sent(2))
    assert sent(0).sum(axis=1).tolist() == [8 * 24 * 8 * 2 * 3 / 4] * 4


def test_a_power_law_is_one_expert_s_when_steep_and_everybody_s_when_flat():
    assert power_law(4, 0).tolist() == [0.25] * 4
    assert power_law(4, 1e9).tolist() == pytest.approx([1, 0, 0, 0])
    assert sorted(power_law(16, 1, rng=np.random.default_rng(0))) == pytest.approx(sorted(power_law(16, 1)))


def test_an_expert_that_everybody_wants_gets_every_token_once():
    routed = route(histogram([97, 1, 1, 1]), tokens=300, experts_per_token=2, ranks=1)

    assert routed.loads.tolist() == pytest.approx([300, 100, 100, 100])


def test_fewer_wanted_experts_than_a_token_visits_share_the_rest_out():
    assert route(histogram([1, 0, 0]), tokens=8, experts_per_token=2, ranks=1).loads.tolist() == [8, 4, 4]


def test_the_same_seed_draws_the_same():
    first, second = (
        draw_choices(power_law(8, 1), tokens=50, experts_per_token=3, rng=np.random.default_rng(5))
        for _ in range(2)
    )

    assert np.array_equal(first, second)
    assert all(len(set(row)) == 3 for row in first.tolist())


def test_one_rank_has_all_experts_and_sends_nothing():
    moved = exchange(route(power_law(8, 1), tokens=10, experts_per_token=2, ranks=1), hidden_size=4)

    assert (moved.sent.sum(), moved.received.sum(), moved.received_spread.imbalance) == (0, 0, 1)


@pytest.mark.parametrize("copies", ["expert", "rank"])
def test_every_formula_s_numbers_come_to_what_they_explain(copies):
    layer = skewed_layer(
        experts=8,
        experts_per_token=2,
        hidden_size=64,
        ranks=4,
        tokens=100,
        skew=1.0,
        capacity_factor=1.25,
        copies=copies,
    )
    found = {formula.gives.split()[0]: formula for formula in routing_formulas(layer)}

    for name in ("Bytes", "Of", "Places", "The"):
        plain = found[name].numbers.replace(r"\left\lceil", "np.ceil(").replace(r"\right\rceil", ")")
        left, right = value_of(plain)
        assert left == pytest.approx(right, rel=1e-4), found[name].gives
    balanced = exchange(
        route(uniform(8), tokens=100, experts_per_token=2, ranks=4, copies=copies), hidden_size=64
    )
    assert value_of(found["Bytes"].numbers)[1] == pytest.approx(balanced.sent_spread.mean, abs=1)
    assert (
        value_of(found["Places"].numbers.replace(r"\left\lceil", "np.ceil(").replace(r"\right\rceil", ")"))[1]
        == 32
    )
    assert value_of(found["The"].numbers)[1] == pytest.approx(
        layer.exchange.received_spread.imbalance, rel=1e-4
    )


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (lambda: uniform(2.5), "experts is 2.5, but it must be a whole number from 1 to 100,000."),
        (lambda: power_law(4, -1), "exponent is -1, but it must be a number, 0 or more and at most 1e+18."),
        (lambda: histogram([0, 0]), "loads are all 0, but somebody gets the tokens. Give one above 0."),
        (
            lambda: histogram([[1, 2]]),
            "loads has the shape (1, 2), but it is one number for each expert. Give a list.",
        ),
        (
            lambda: route(uniform(8), tokens=1, experts_per_token=9, ranks=2),
            "experts_per_token is 9, but a layer has only 8 experts. Use 8 or less.",
        ),
        (
            lambda: route(uniform(8), tokens=1, experts_per_token=2, ranks=3),
            "ranks is 3, which cannot share 8 experts equally. Nearest that work: 2 or 4.",
        ),
        (
            lambda: route(uniform(8), tokens=1, experts_per_token=2, ranks=2, copies="node"),
            "copies is 'node', which is not known here. Use one of: expert, rank.",
        ),
        (
            lambda: route(uniform(8), tokens=1, experts_per_token=2, ranks=2, capacity_over="node"),
            "capacity_over is 'node', which is not known here. Use one of: rank, group.",
        ),
        (
            lambda: route_choices([[0, 0]], experts=2, ranks=1),
            "choices names an expert twice for token 0, but a token visits each once. Change one.",
        ),
        (
            lambda: route_choices([[0, 2]], experts=2, ranks=1),
            "choices names expert 2, but 2 experts are numbered 0 to 1.",
        ),
        (
            lambda: route_choices([[0], [1], [1]], experts=2, ranks=2),
            "choices has 3 tokens, which 2 ranks cannot share equally. Use a multiple of 2.",
        ),
        (
            lambda: route_choices([0.5, 1], experts=2, ranks=2),
            "choices has the shape (2,) of float64, but it is a table: for each token the whole numbers of its "
            "experts.",
        ),
        (
            lambda: route_choices([[0], [1]], experts=2, ranks=2, copies="node"),
            "copies is 'node', which is not known here. Use one of: expert, rank.",
        ),
        (
            lambda: draw_choices(
                uniform(256), tokens=10**6, experts_per_token=8, rng=np.random.default_rng()
            ),
            "tokens is 1,000,000 with 256 experts, but at most 78,125 tokens are drawn at once. "
            "Use fewer, or averages (no rng).",
        ),
        (
            lambda: exchange(
                route(uniform(4), tokens=1, experts_per_token=1, ranks=2), hidden_size=1, padded=True
            ),
            "padded is on, but there is no capacity to pad to. Give a capacity_factor, or pad nothing.",
        ),
    ],
)
def test_what_cannot_be_routed_is_refused_in_a_sentence(wrong, sentence):
    with pytest.raises(ValueError, match=exactly(sentence)):
        wrong()
