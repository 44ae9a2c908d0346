"""The textbook collectives against published factors, properties, and a ring played through step by step."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calculators.predict import collectives
from calculators.predict.links import rung
from tests.predict.sentences import exactly

RANKS = st.integers(min_value=1, max_value=64)
SIZES = st.integers(min_value=0, max_value=2**40)


def play_ring(ranks, *, laps):
    """Chunks that each rank sends while every chunk goes round: laps × (n−1) steps of one chunk each."""
    sent = np.zeros(ranks)
    for _ in range(laps * (ranks - 1)):
        sent += 1
    return sent


def play_tree_broadcast(ranks):
    """Copies that the root sends, and steps, until everybody has one: holders double every step."""
    holders, steps = 1, 0
    while holders < ranks:
        holders, steps = min(2 * holders, ranks), steps + 1
    return steps


def test_oracle_11_a_ring_all_reduce_sends_1_then_one_and_a_half_then_one_and_three_quarters():
    # nccl-tests doc/PERFORMANCE.md: 2·(n−1)/n
    assert collectives.all_reduce_bytes(1, [2, 4, 8]).tolist() == [1.0, 1.5, 1.75]


def test_bus_bandwidth_factors_are_those_of_nccl_tests():
    n = np.array([2, 3, 4, 8, 16])

    assert np.allclose(collectives.all_reduce_bytes(1, n), 2 * (n - 1) / n)
    assert np.allclose(collectives.reduce_scatter_bytes(1, n), (n - 1) / n)
    assert np.allclose(collectives.all_gather_bytes(1, n), (n - 1) / n)
    assert np.allclose(collectives.all_to_all_bytes(1, n), (n - 1) / n)
    assert collectives.broadcast_bytes(1, n).tolist() == [1] * 5
    assert collectives.send_bytes(1) == 1


@pytest.mark.parametrize("algorithm", collectives.ALL_REDUCE_ALGORITHMS)
def test_a_rank_alone_sends_nothing_and_waits_for_nothing(algorithm):
    assert collectives.all_reduce_bytes(1_000, 1, algorithm=algorithm) == 0
    assert collectives.all_reduce_rounds(1, algorithm=algorithm) == 0


@pytest.mark.parametrize("ranks", [1, 2, 3, 5, 8])
def test_playing_the_ring_step_by_step_gives_the_same_bytes_and_rounds(ranks):
    chunk = 1_000 / ranks

    assert np.allclose(play_ring(ranks, laps=2) * chunk, collectives.all_reduce_bytes(1_000, ranks))
    assert np.allclose(play_ring(ranks, laps=1) * chunk, collectives.reduce_scatter_bytes(1_000, ranks))
    assert collectives.all_reduce_rounds(ranks) == 2 * (ranks - 1)
    assert collectives.all_gather_rounds(ranks) == collectives.reduce_scatter_rounds(ranks) == ranks - 1
    assert collectives.all_to_all_rounds(ranks) == ranks - 1


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 5, 8, 9])
def test_a_broadcast_tree_takes_as_many_steps_as_the_holders_need_doublings(ranks):
    steps = play_tree_broadcast(ranks)

    assert collectives.broadcast_bytes(1_000, ranks, algorithm="tree") == 1_000 * steps
    assert collectives.broadcast_rounds(ranks, algorithm="tree") == steps
    assert collectives.broadcast_rounds(ranks) == ranks - 1


@given(size=SIZES, ranks=RANKS)
def test_an_all_reduce_is_a_reduce_scatter_and_an_all_gather(size, ranks):
    halves = collectives.reduce_scatter_bytes(size, ranks) + collectives.all_gather_bytes(size, ranks)

    assert np.isclose(collectives.all_reduce_bytes(size, ranks), halves)


@given(size=SIZES, ranks=st.sampled_from([2, 4, 8, 16, 32]))
def test_no_algorithm_without_the_switch_sends_less_than_the_ring(size, ranks):
    ring = collectives.all_reduce_bytes(size, ranks)

    for algorithm in ("tree", "recursive-doubling", "one-shot"):
        assert collectives.all_reduce_bytes(size, ranks, algorithm=algorithm) >= ring


def test_algorithms_trade_bytes_for_rounds():
    rounds = {
        name: collectives.all_reduce_rounds(8, algorithm=name) for name in collectives.ALL_REDUCE_ALGORITHMS
    }

    assert rounds == {
        "ring": 14,
        "tree": 6,
        "recursive-doubling": 3,
        "one-shot": 1,
        "in-switch": 2,
        "halving-doubling": 6,
    }
    assert collectives.all_reduce_bytes(1_000, 8, algorithm="one-shot") == 7_000
    assert collectives.all_reduce_bytes(1_000, 8, algorithm="recursive-doubling") == 3_000
    assert collectives.all_reduce_bytes(1_000, 8, algorithm="in-switch") == 1_000


def test_a_published_transfer_over_109_gbit_takes_the_published_time():
    # defilantech/LLMKube issue 1423: 151 MB in 11.1 ms, 9.66 GB in 709 ms, latency left out
    seconds = collectives.transfer_seconds(
        [32 * 192 * 24_576, 2048 * 192 * 24_576], 0, bytes_per_second=109e9 / 8, latency_seconds=0
    )

    assert np.allclose(seconds, [11.1e-3, 709e-3], rtol=0.002)


@pytest.mark.parametrize(("latency", "milliseconds"), [(6e-6, 0.8), (54e-6, 6.9), (300e-6, 38)])
def test_128_small_collectives_cost_what_the_ladder_says(latency, milliseconds):
    waited = collectives.transfer_seconds(0, 128, bytes_per_second=1e9, latency_seconds=latency)

    assert waited * 1e3 == pytest.approx(milliseconds, rel=0.05)


def test_a_small_message_takes_no_longer_on_a_slower_wire_of_the_same_latency():
    fast, slow = rung("ethernet-10"), rung("ethernet-2.5")
    seconds = [
        collectives.transfer_seconds(
            8_192, 1, bytes_per_second=link.bytes_per_second, latency_seconds=link.latency_seconds[1]
        )
        for link in (fast, slow)
    ]

    assert seconds[1] / seconds[0] < 1.1


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (
            lambda: collectives.all_reduce_bytes(8, 0),
            "ranks is 0, but a group has at least 1 rank.",
        ),
        (
            lambda: collectives.all_reduce_bytes(8, 2, algorithm="star"),
            "algorithm is 'star', which is not an all-reduce known here. "
            "Use one of: ring, tree, recursive-doubling, one-shot, in-switch, halving-doubling.",
        ),
        (
            lambda: collectives.all_reduce_rounds(2, algorithm="star"),
            "algorithm is 'star', which is not an all-reduce known here. "
            "Use one of: ring, tree, recursive-doubling, one-shot, in-switch, halving-doubling.",
        ),
        (
            lambda: collectives.all_reduce_bytes(8, [2, 6], algorithm="recursive-doubling"),
            "ranks is 6, but recursive doubling needs a power of two. Use the ring.",
        ),
        (
            lambda: collectives.broadcast_bytes(8, 2, algorithm="star"),
            "algorithm is 'star', which is not a broadcast known here. Use one of: ring, tree, direct.",
        ),
        (
            lambda: collectives.transfer_seconds(8, 1, bytes_per_second=0, latency_seconds=0),
            "bytes_per_second is 0, but nothing arrives over such a link. Use more than 0.",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(wrong, sentence):
    with pytest.raises(ValueError, match=exactly(sentence)):
        wrong()
