"""What a calibration says of a link and a machine, from timings that are known and from real ranks."""

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calculators.lab import calibrations
from calculators.lab.calibrations import Estimate, NoCalibration
from calculators.lab.calls import Call
from calculators.lab.link_cost import bucket_bytes, link_cost
from calculators.lab.spec import Spec
from calculators.lab.splits.calibration import MULTIPLICATIONS, READING, WEIGHT_BYTES
from calculators.predict.collectives import Kind
from tests.lab.timings import ARITHMETIC_SECONDS, timings

LOOPBACK = Spec.parse({"job": "calibration", "call_bytes": 2**20, "steps": 10, "repeats": 1})
SLOW = replace(LOOPBACK, hosts=2, link_mbit=20.0)
WHERE = {"run_id": 7, "machine": "here", "backend": "gloo", "device": "cpu"}


@given(latency=st.floats(20e-6, 5e-3), speed=st.floats(1e6, 1e10), slow=st.booleans())
@settings(max_examples=25, deadline=None)
def test_latency_and_speed_come_out_as_they_went_in(latency, speed, slow):
    spec = SLOW if slow else LOOPBACK
    found = calibrations.of_series(spec, timings(spec, latency=latency, speed=speed), **WHERE)
    assert found.latency_seconds.value == pytest.approx(latency, rel=1e-5)
    assert found.bytes_per_second.value == pytest.approx(speed, rel=1e-5)


def test_scattered_timings_leave_both_within_their_intervals_nearly_always():
    held = 0
    for seed in range(40):
        noise = random.Random(seed)
        series = timings(
            LOOPBACK, latency=2e-4, speed=1e8, factor=lambda noise=noise: noise.lognormvariate(0, 0.1)
        )
        found = calibrations.of_series(LOOPBACK, series, **WHERE)
        assert found.scatter > 0
        # The mean of what is left without the slowest tenth lies a little below the whole's.
        speed = found.bytes_per_second
        held += found.latency_seconds.low <= 2e-4 <= found.latency_seconds.high * 1.05
        held += speed.low * 0.95 <= 1e8 <= speed.high
    assert held >= 72


def test_one_call_that_was_interrupted_changes_nothing_much():
    calm = timings(LOOPBACK, latency=2e-4, speed=1e8)
    interrupted = [
        replace(series, values=(*series.values[:-1], 10.0)) if "all-reduce" in series.name else series
        for series in calm
    ]
    found = calibrations.of_series(LOOPBACK, interrupted, **WHERE)
    assert found.latency_seconds.value == pytest.approx(2e-4, rel=1e-5)


def test_arithmetic_is_that_of_the_slowest_rank():
    series = timings(LOOPBACK, latency=2e-4, speed=1e8)
    slower = [
        replace(one, values=tuple(2 * value for value in one.values))
        if one.rank == 1 and one.name == READING
        else one
        for one in series
    ]
    found = calibrations.of_series(LOOPBACK, slower, **WHERE)
    assert found.memory_bytes_per_second.value == pytest.approx(WEIGHT_BYTES / (2 * ARITHMETIC_SECONDS))
    assert found.flops_per_second.value == pytest.approx(MULTIPLICATIONS / ARITHMETIC_SECONDS)


def test_going_on_after_a_wait_costs_what_one_layer_takes_beyond_one_of_many():
    found = calibrations.of_series(LOOPBACK, timings(LOOPBACK, latency=2e-4, speed=1e8), **WHERE)
    assert found.layer_seconds.value == pytest.approx(ARITHMETIC_SECONDS / 8)
    assert found.resume_seconds.value == pytest.approx(ARITHMETIC_SECONDS * 7 / 8)


def test_bus_bandwidth_is_that_of_nccl_tests():
    found = calibrations.of_series(LOOPBACK, timings(LOOPBACK, latency=1e-9, speed=1e8), **WHERE)
    bus = {(call.kind, call.size): call.bus_bytes_per_second.value for call in found.calls}
    seconds = {(call.kind, call.size): call.seconds.value for call in found.calls}
    largest = 2**20
    assert bus[Kind.ALL_REDUCE, largest] == pytest.approx(largest / seconds[Kind.ALL_REDUCE, largest])
    assert bus[Kind.ALL_GATHER, largest] == pytest.approx(largest / 2 / seconds[Kind.ALL_GATHER, largest])


def test_the_interval_of_a_median_lies_between_samples_and_needs_no_shape_of_noise():
    # The second of ten from either end: outside of it 2 × 11/1024 of the time (binomial).
    assert Estimate.median([float(n) for n in range(1, 11)]) == Estimate(value=5.5, low=2, high=9)


def test_a_mean_leaves_out_the_slowest_tenth():
    assert Estimate.mean([1.0] * 9 + [100.0]) == Estimate(value=1.0, low=1.0, high=1.0)


def test_a_rate_turns_the_interval_around():
    assert Estimate(value=2.0, low=1.0, high=4.0).per(8) == Estimate(value=4.0, low=2.0, high=8.0)


def test_timings_that_grow_with_no_size_give_no_speed():
    series = [replace(one, values=(1e-3,) * 10) for one in timings(LOOPBACK, latency=1e-3, speed=1e8)]
    with pytest.raises(
        NoCalibration, match=r"Run 7 gives no latency and speed\. The larger samples take no longer"
    ):
        calibrations.of_series(LOOPBACK, series, **WHERE)


# What a call costs a link.


def _call(kind: Kind, size: int) -> Call:
    return Call(op=kind, payload_bytes=size, times=1, what="", axis="tp", destination=1)


def test_on_one_host_the_link_carries_what_sockets_do():
    cost = link_cost(LOOPBACK, _call(Kind.SEND, 8_192), backend="gloo")
    assert (cost.rounds, cost.bytes) == (1, 8_192 + 96)


def test_between_hosts_every_packet_has_66_bytes_of_headers():
    cost = link_cost(SLOW, _call(Kind.SEND, 8_192), backend="gloo")
    notification, tensor = 1, 6  # (8,192 + 48) ÷ 1,448, rounded up
    assert cost.bytes == 8_192 + 96 + 66 * (notification + tensor)
    # Four segments of 2,048 bytes: a notification, an answer and two packets for each.
    summed = link_cost(SLOW, _call(Kind.ALL_REDUCE, 8_192), backend="gloo")
    assert (summed.rounds, summed.bytes) == (2, 4 * (2_048 + 96 + 48) + 66 * 4 * 4)


def test_what_stays_on_a_host_crosses_no_link():
    inside = replace(SLOW, ranks=4)
    assert link_cost(inside, _call(Kind.SEND, 8_192), backend="gloo").bytes == 0


def test_the_second_round_of_a_ring_hides_behind_the_other_segment_as_far_as_it_goes():
    cost = link_cost(LOOPBACK, _call(Kind.ALL_REDUCE, 8_192), backend="gloo")
    segment = cost.bytes / 4
    assert cost.exposed_rounds(1e-3, 0.0) == 2
    assert cost.exposed_rounds(1e-3, 0.5e-3 / segment) == pytest.approx(1.5)
    assert cost.exposed_rounds(1e-3, 1.0) == 1


def test_nccl_is_counted_by_the_ring_without_framing():
    assert link_cost(LOOPBACK, _call(Kind.ALL_REDUCE, 8_192), backend="nccl").bytes == 8_192


def test_only_a_shaped_link_lets_a_bucketful_through_at_once():
    assert bucket_bytes(LOOPBACK) == bucket_bytes(replace(SLOW, link_mbit=0.0)) == 0
    assert bucket_bytes(SLOW) == 1_514 + 250 + 1
