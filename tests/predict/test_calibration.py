"""A measured link: what was planted is found again, within the error that the fit states."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calculators.predict.calibration import (
    FEWEST_SAMPLES,
    algorithm_bandwidth,
    bus_bandwidth,
    fit_link,
)
from calculators.predict.clusters import Cluster, Tier
from calculators.predict.collectives import all_reduce_bytes, all_reduce_rounds, transfer_seconds
from calculators.predict.devices import device
from tests.predict.sentences import exactly

ALPHA, BETA = 50e-6, 1.25e9
SIZES = np.repeat(2.0 ** np.arange(3, 25), 2)


def timed(rng, *, sizes=SIZES, noise=0.05, alpha=ALPHA, beta=BETA, late=0.0):
    """Ping-pongs with relative noise; a share of them `late` by 2 to 20 times."""
    seconds = (alpha + sizes / beta) * (1 + noise * rng.standard_normal(sizes.size))
    return np.where(rng.random(sizes.size) < late, seconds * rng.uniform(2, 20, sizes.size), seconds)


# O-23: the JSON in NCCL Inspector's README. It gives a reduce-scatter's shard; the full size is 8 of them.


def test_o23_bandwidths_of_an_all_reduce_are_those_that_nccl_inspector_prints():
    size, seconds = 17_179_869_184, 61_974e-6

    assert f"{algorithm_bandwidth(size, seconds).item() / 1e9:.6f}" == "277.210914"
    assert f"{bus_bandwidth('all-reduce', size, seconds, 8).item() / 1e9:.6f}" == "485.119099"


def test_o23_bandwidths_of_a_reduce_scatter_are_those_that_nccl_inspector_prints():
    shard, seconds = 2_147_483_648, 41_057e-6

    assert f"{algorithm_bandwidth(8 * shard, seconds).item() / 1e9:.6f}" == "418.439467"
    assert f"{bus_bandwidth('reduce-scatter', 8 * shard, seconds, 8).item() / 1e9:.6f}" == "366.134533"


def test_taking_the_shard_for_the_full_size_makes_a_reduce_scatter_eight_times_slower():
    shard, seconds = 2_147_483_648, 41_057e-6

    wrong = bus_bandwidth("reduce-scatter", shard, seconds, 8).item()

    assert 366.134533e9 / wrong == pytest.approx(8)


@pytest.mark.parametrize(
    ("call", "factor"),
    [
        ("all-reduce", 1.75),
        ("reduce-scatter", 0.875),
        ("all-gather", 0.875),
        ("all-to-all", 0.875),
        ("broadcast", 1),
        ("send", 1),
    ],
)
def test_bus_bandwidth_is_the_ring_factor_times_algorithm_bandwidth(call, factor):
    assert bus_bandwidth(call, [1e6, 2e6], 1e-3, 8).tolist() == pytest.approx([factor * 1e9, factor * 2e9])


# What was planted.


def test_exact_times_give_the_link_back():
    fit = fit_link(full_bytes=SIZES, seconds=ALPHA + SIZES / BETA)

    assert fit.latency_seconds == pytest.approx(ALPHA, rel=1e-9)
    assert fit.bytes_per_second == pytest.approx(BETA, rel=1e-9)
    assert fit.latency_error < 1e-6 * ALPHA
    assert fit.outliers == 0


@pytest.mark.parametrize(("noise", "late"), [(0.05, 0.0), (0.2, 0.0), (0.05, 0.1)])
def test_95_percent_intervals_hold_what_was_planted_about_95_times_in_100(noise, late):
    seeds = 400
    held = np.zeros(2)
    found = np.zeros((seeds, 4))
    for seed in range(seeds):
        fit = fit_link(full_bytes=SIZES, seconds=timed(np.random.default_rng(seed), noise=noise, late=late))
        least, most = fit.latency_interval
        slowest, fastest = fit.bytes_per_second_interval
        held += [least <= ALPHA <= most, slowest <= BETA <= fastest]
        found[seed] = (
            fit.latency_seconds,
            fit.seconds_per_byte,
            fit.latency_error,
            fit.seconds_per_byte_error,
        )

    # 400 draws of 95 % scatter by 1.1 points
    assert np.all(np.abs(held / seeds - 0.95) < 0.033)
    true_error = found[:, :2].std(axis=0)
    assert found[:, 2:].mean(axis=0) == pytest.approx(true_error, rel=0.12)
    bias = found[:, :2].mean(axis=0) - [ALPHA, 1 / BETA]
    assert np.all(np.abs(bias) < 4 * true_error / np.sqrt(seeds) + 0.002 * np.array([ALPHA, 1 / BETA]))


def test_samples_as_few_as_are_allowed_still_give_honest_intervals():
    sizes = 2.0 ** np.arange(3, 27, 3)
    held = 0
    for seed in range(400):
        fit = fit_link(full_bytes=sizes, seconds=timed(np.random.default_rng(seed), sizes=sizes))
        held += fit.latency_interval[0] <= ALPHA <= fit.latency_interval[1]

    assert sizes.size == FEWEST_SAMPLES
    assert 0.91 < held / 400 < 0.98


@settings(deadline=None)
@given(
    alpha=st.floats(1e-6, 1e-3),
    beta=st.floats(1e8, 1e11),
    ranks=st.sampled_from([2, 3, 4, 8]),
    call=st.sampled_from(["send", "all-reduce", "reduce-scatter", "all-gather", "all-to-all", "broadcast"]),
)
def test_any_collective_gives_the_cost_of_a_round_and_of_a_byte(alpha, beta, ranks, call):
    sizes = 8.0 ** np.arange(1, 10)
    rounds = {"all-reduce": 2 * (ranks - 1), "send": 1}.get(call, ranks - 1)
    share = {"all-reduce": 2 * (ranks - 1) / ranks, "send": 1, "broadcast": 1}.get(call, (ranks - 1) / ranks)
    seconds = rounds * alpha + sizes * share / beta

    fit = fit_link(full_bytes=sizes, seconds=seconds, ranks=ranks, call=call)

    assert fit.latency_seconds == pytest.approx(alpha, rel=1e-6)
    assert fit.bytes_per_second == pytest.approx(beta, rel=1e-6)


def test_calls_and_ranks_may_be_mixed_since_a_round_costs_what_it_costs():
    sizes, ranks = np.repeat(4.0 ** np.arange(2, 12), 2), np.tile([2, 4], 10)
    calls = np.where(ranks == 2, "send", "all-reduce")
    seconds = np.where(
        ranks == 2,
        ALPHA + sizes / BETA,
        transfer_seconds(
            all_reduce_bytes(sizes, 4),
            all_reduce_rounds(4),
            bytes_per_second=BETA,
            latency_seconds=ALPHA,
        ),
    )

    fit = fit_link(full_bytes=sizes, seconds=seconds, ranks=ranks, call=calls.tolist())

    assert fit.latency_seconds == pytest.approx(ALPHA, rel=1e-6)
    assert fit.bytes_per_second == pytest.approx(BETA, rel=1e-6)


def test_the_algorithm_of_the_all_reduce_decides_what_a_round_costs():
    sizes = 4.0 ** np.arange(2, 12)
    seconds = 1e-4 + 3 * sizes / BETA  # to every other of four ranks at once

    one_shot = fit_link(full_bytes=sizes, seconds=seconds, ranks=4, call="all-reduce", algorithm="one-shot")
    ring = fit_link(full_bytes=sizes, seconds=seconds, ranks=4, call="all-reduce")

    assert one_shot.latency_seconds == pytest.approx(1e-4)
    assert ring.latency_seconds == pytest.approx(1e-4 / 6)
    assert one_shot.bytes_per_second / ring.bytes_per_second == pytest.approx(3 / 1.5)


# A second way.


def test_it_is_the_weighted_least_squares_line_that_numpy_finds():
    fit = fit_link(full_bytes=SIZES, seconds=(seconds := timed(np.random.default_rng(1), late=0.1)))

    scale = np.sqrt(fit.weights) / fit.predicted_seconds
    design = np.stack([np.ones_like(SIZES), SIZES], axis=1)
    (alpha, per_byte), *_ = np.linalg.lstsq(design * scale[:, None], seconds * scale, rcond=None)
    assert fit.latency_seconds == pytest.approx(alpha, rel=1e-6)
    assert fit.seconds_per_byte == pytest.approx(per_byte, rel=1e-6)


def test_without_late_samples_it_is_close_to_plain_least_squares_and_so_is_its_error():
    for seed in range(20):
        seconds = timed(np.random.default_rng(seed))
        fit = fit_link(full_bytes=SIZES, seconds=seconds)

        predicted = seconds
        for _ in range(20):
            design = np.stack([np.ones_like(SIZES), SIZES], axis=1) / predicted[:, None]
            plain, left, *_ = np.linalg.lstsq(design, seconds / predicted, rcond=None)
            predicted = plain[0] + plain[1] * SIZES
        errors = np.sqrt(np.diag(np.linalg.inv(design.T @ design)) * left[0] / (SIZES.size - 2))
        assert abs(fit.latency_seconds - plain[0]) < errors[0]
        assert abs(fit.seconds_per_byte - plain[1]) < errors[1]
        assert fit.latency_error == pytest.approx(errors[0], rel=0.35)
        assert fit.seconds_per_byte_error == pytest.approx(errors[1], rel=0.35)


def test_a_few_interrupted_samples_change_nothing():
    seconds = timed(np.random.default_rng(5), noise=0.01)
    interrupted = seconds.copy()
    interrupted[[3, 20, 40]] *= [1_000, 50, 8]

    calm, disturbed = (fit_link(full_bytes=SIZES, seconds=times) for times in (seconds, interrupted))
    ordinary = np.linalg.lstsq(np.stack([np.ones_like(SIZES), SIZES], axis=1), interrupted, rcond=None)[0]

    assert disturbed.outliers - calm.outliers == 3
    assert abs(disturbed.latency_seconds - calm.latency_seconds) < calm.latency_error
    assert abs(disturbed.bytes_per_second - calm.bytes_per_second) < calm.bytes_per_second_error
    assert abs(ordinary[0] / ALPHA - 1) > 1  # what they do to a line through all


def test_a_link_without_small_messages_admits_that_it_cannot_see_the_latency():
    sizes = np.repeat(np.linspace(20e6, 200e6, 6), 3)

    fit = fit_link(full_bytes=sizes, seconds=timed(np.random.default_rng(0), sizes=sizes, alpha=1e-3))

    least, most = fit.latency_interval
    assert most - least > 2e-3
    assert fit.bytes_per_second == pytest.approx(BETA, rel=0.1)


# What it is for.


def test_the_fit_is_a_link_of_a_cluster():
    fit = fit_link(full_bytes=SIZES, seconds=timed(np.random.default_rng(2)), name="the cable on my desk")

    cluster = Cluster(device=device("rtx-4090"), tiers=(Tier(devices=2, link=fit.link),))

    assert cluster.tiers[0].link.name == "the cable on my desk"
    assert cluster.tiers[0].link.bytes_per_second == fit.bytes_per_second
    assert cluster.tiers[0].link.latency_seconds == fit.latency_seconds


def test_the_speeds_error_is_its_interval_to_first_order():
    fit = fit_link(full_bytes=SIZES, seconds=timed(np.random.default_rng(2), noise=0.01))

    slowest, fastest = fit.bytes_per_second_interval
    assert (fastest - slowest) / 2 == pytest.approx(2.02 * fit.bytes_per_second_error, rel=0.01)


def test_messages_too_small_to_see_the_speed_leave_it_open():
    sizes = np.repeat(np.linspace(8, 16_384, 10), 2)

    fit = fit_link(full_bytes=sizes, seconds=timed(np.random.default_rng(0), sizes=sizes, noise=0.2))

    slowest, fastest = fit.bytes_per_second_interval
    assert slowest < BETA < fastest == np.inf


# What cannot be.


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (
            {"full_bytes": [8, 64, 512], "seconds": [1e-5] * 3},
            "There are 3 samples, but a fit with its error needs 8 or more. Time more sizes, or each size again.",
        ),
        (
            {"full_bytes": [1024] * 9, "seconds": np.linspace(1e-5, 2e-5, 9)},
            "All samples have the same full_bytes, so latency and speed cannot be told apart. Time a range of sizes, "
            "from a few bytes to several megabytes.",
        ),
        (
            {"seconds": np.where(np.arange(44) == 3, -1e-6, 1e-5)},
            "seconds is -1e-06, but it must be a number, more than 0 and at most 1e+18.",
        ),
        (
            {"seconds": np.where(np.arange(44) == 3, np.nan, 1e-5)},
            "seconds is nan, but it must be a number, more than 0 and at most 1e+18.",
        ),
        (
            {"full_bytes": -SIZES},
            "full_bytes is -8, but it must be a number, 0 or more and at most 1e+18.",
        ),
        ({"ranks": 1}, "ranks is 1, but a link joins at least 2. Use 2 or more."),
        (
            {"call": "shout"},
            "call is 'shout', which is not timed here. Use one of: send, all-reduce, reduce-scatter, all-gather, "
            "all-to-all, broadcast.",
        ),
        (
            {"seconds": [1e-5, 2e-5, 3e-5]},
            "The arrays do not broadcast: full_bytes (44,), seconds (3,). Give them one shape, or shapes that "
            "differ only where one of them is 1.",
        ),
        (
            {"seconds": 1e-4 - SIZES * 1e-12},
            "The larger samples take no longer than the smaller ones, so no speed can be told. Time larger messages.",
        ),
    ],
)
def test_samples_that_say_nothing_are_refused(given, sentence):
    told = {"full_bytes": SIZES, "seconds": ALPHA + SIZES / BETA} | given

    with pytest.raises(ValueError, match=exactly(sentence)):
        fit_link(**told)


def test_a_latency_below_zero_is_refused_with_what_to_do():
    sizes = np.linspace(1e6, 8e6, 16)
    sentence = (
        "The fit gives a latency of -500 µs, which cannot be. The samples are too large or too scattered to show it. "
        "Time small messages as well, and each size several times."
    )

    with pytest.raises(ValueError, match=exactly(sentence)):
        fit_link(full_bytes=sizes, seconds=sizes / 1e9 - 500e-6)
