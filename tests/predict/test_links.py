"""The ladder: fastest first, one direction, every figure with a source."""

import pytest

from calculators.predict.links import LADDER, RUNGS, rung
from tests.predict.sentences import exactly


def test_the_ladder_goes_down():
    speeds = [step.bytes_per_second for step in LADDER]

    assert speeds == sorted(speeds, reverse=True)


def test_every_rung_has_its_own_key_a_source_and_a_direction():
    assert len(RUNGS) == len(LADDER)
    assert all(step.source and step.direction for step in LADDER)


def test_latencies_are_ranges_and_the_typical_one_lies_inside():
    for step in LADDER:
        least, most = step.latency_seconds
        assert 0 < least <= step.typical_latency_seconds <= most


def test_nvlink_is_counted_one_way():
    assert rung("nvlink-4").gb_per_s == 450


def test_networks_are_sold_in_bits():
    assert rung("ethernet-10").gbit_per_s == 10
    assert rung("infiniband-ndr").gbit_per_s == 400


def test_memory_is_more_than_an_order_of_magnitude_above_pcie():
    assert rung("hbm3-h100").bytes_per_second / rung("pcie-5").bytes_per_second > 28


def test_an_unknown_link_is_refused_with_those_that_exist():
    sentence = f"link is 'carrier-pigeon', which is not on the ladder. Use one of: {', '.join(RUNGS)}."

    with pytest.raises(ValueError, match=exactly(sentence)):
        rung("carrier-pigeon")
