"""The ladder: fastest first, one direction, every figure with a source."""

import numpy as np
import pytest

from calculators.predict.links import BUS_BYTES_PER_SECOND, LADDER, RUNGS, Reach, bus_bytes_per_second, rung
from tests.predict.sentences import exactly


def test_the_ladder_goes_down():
    speeds = [step.bytes_per_second for step in LADDER]

    assert speeds == sorted(speeds, reverse=True)


def test_every_rung_has_its_own_key_a_source_and_a_direction():
    assert len(RUNGS) == len(LADDER)
    assert all(step.source and step.direction for step in LADDER)


def test_a_name_on_an_axis_is_its_own_and_fits_a_phone():
    assert len({step.short for step in LADDER}) == len(LADDER)
    assert max(len(step.short) for step in LADDER) <= 19


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


# What the ladder says of each rung: one direction [GB/s], both as sold [GB/s].
@pytest.mark.parametrize(
    ("key", "one_way", "duplex"),
    [
        ("hbm3e-b200", 8000, None),
        ("hbm3e-h200", 4800, None),
        ("gddr7-5090", 1792, None),
        ("lpddr5x-spark", 273, None),
        ("nvlink-3", 300, 600),
        ("nvlink-4", 450, 900),
        ("nvlink-5", 900, 1800),
        ("pcie-3", 15.75, 31.5),
        ("pcie-4", 31, 62),
        ("pcie-5", 63, 126),
        ("pcie-6", 121, 242),
        ("infiniband-hdr", 25, 50),
        ("infiniband-ndr", 50, 100),
        ("infiniband-xdr", 100, 200),
        ("connectx-7-spark", 23.7, None),
        ("connectx-7-spark-tcp", 17.8 / 8, None),
        ("thunderbolt-4", 4, 8),
        ("thunderbolt-5", 8, 16),
        ("ethernet-1", 0.125, 0.25),
        ("ethernet-2.5", 0.3125, 0.625),
        ("ethernet-5", 0.625, 1.25),
        ("ethernet-10", 1.25, 2.5),
        ("ethernet-25", 3.125, 6.25),
        ("ethernet-100", 12.5, 25),
        ("ethernet-400", 50, 100),
    ],
)
def test_a_rung_carries_one_direction_and_both_stand_beside(key, one_way, duplex):
    step = rung(key)

    assert step.gb_per_s == pytest.approx(one_way, rel=1e-12)
    assert step.duplex_bytes_per_second == (None if duplex is None else pytest.approx(duplex * 1e9))


def test_wifi_lies_inside_what_is_measured_at_home_and_nobody_has_it_alone():
    assert 0.4 <= rung("wifi-6").gbit_per_s <= 0.9
    assert 1 <= rung("wifi-7").gbit_per_s <= 3
    assert all(
        step.duplex_bytes_per_second is None and "shared" in step.direction
        for step in LADDER
        if step.reach is Reach.AIR
    )


# A published figure that is wrong: Mission Control's documentation prints 900 GB/s for each link of NVLink 5.
def test_nvlink_5_carries_900_gb_per_s_in_all_its_links_together_not_in_each():
    nvlink = rung("nvlink-5")
    wrong_per_gpu = 900e9 * nvlink.links

    assert nvlink.bytes_per_second / nvlink.links == 50e9  # one way; both ways 100
    assert nvlink.duplex_bytes_per_second / nvlink.links == 100e9
    assert wrong_per_gpu / nvlink.bytes_per_second == 18
    assert "900 GB/s for each link" in nvlink.conflict


def test_halving_what_is_sold_applies_inside_a_host_and_not_to_networks():
    for step in LADDER:
        if step.reach is Reach.HOST:
            assert "both directions" in step.direction
        if step.reach is Reach.NETWORK:
            assert step.gbit_per_s == pytest.approx(float(step.key.removeprefix("ethernet-")))


def test_sources_that_disagree_about_thunderbolt_are_named_and_their_range_kept():
    over_rdma, over_ip = rung("thunderbolt-5-rdma"), rung("thunderbolt-5")

    assert over_rdma.latency_seconds == (3e-6, 50e-6)
    assert "tenfold" in over_rdma.conflict
    assert over_rdma.bytes_per_second == over_ip.bytes_per_second
    assert over_rdma.latency_seconds[1] < over_ip.latency_seconds[0]


def test_the_cable_does_not_set_the_latency_of_tcp():
    tcp = [step for step in LADDER if step.reach is Reach.NETWORK]

    assert len(tcp) == 7
    assert len({step.latency_seconds for step in tcp}) == 1
    assert rung("roce-100").bytes_per_second == rung("ethernet-100").bytes_per_second
    assert rung("roce-100").typical_latency_seconds * 20 < rung("ethernet-100").typical_latency_seconds


def test_the_carrier_sets_the_latency():
    assert len({(step.carrier, step.latency_seconds) for step in LADDER}) == len(
        {step.carrier for step in LADDER}
    )
    assert [step.key for step in LADDER if step.carrier == "memory"] == [
        step.key for step in LADDER if step.reach is Reach.MEMORY
    ]


def test_untuned_tcp_gets_a_tenth_of_what_rdma_gets_from_the_same_cable():
    assert rung("connectx-7-spark").gbit_per_s / rung("connectx-7-spark-tcp").gbit_per_s > 10


def test_only_memory_joins_no_devices_and_every_reach_has_words():
    assert {step.reach for step in LADDER} == set(Reach)
    assert all(reach.words for reach in Reach)
    assert [step.key for step in LADDER if not step.joins_devices] == [
        step.key for step in LADDER if step.reach is Reach.MEMORY
    ]


# O-33: Ultra-Scale Playbook, figure pp_comm_bandwidth, 256 MB, 1 to 64 hosts
@pytest.mark.parametrize(
    ("call", "gb_per_s"),
    [
        ("all-reduce", [435.97, 361.75, 160.14, 99.56, 84.74, 64.93, 32.94]),
        ("all-gather", [249.85, 184.61, 118.97, 69.00, 54.97, 27.97, 11.04]),
        ("reduce-scatter", [249.73, 181.55, 115.76, 68.55, 54.52, 27.94, 11.07]),
    ],
)
def test_o33_bus_bandwidth_is_the_playbooks_at_its_hosts(call, gb_per_s):
    found = bus_bytes_per_second(call, [1, 2, 4, 8, 16, 32, 64]) / 1e9

    assert found.tolist() == pytest.approx(gb_per_s, rel=1e-12)


def test_between_its_hosts_bus_bandwidth_falls_steadily():
    hosts = np.linspace(1, 64, 200)

    for call in BUS_BYTES_PER_SECOND:
        assert np.all(np.diff(bus_bytes_per_second(call, hosts)) < 0)
    assert bus_bytes_per_second("all-reduce", np.sqrt(2 * 4)) == pytest.approx(
        np.sqrt(361.75e9 * 160.14e9), rel=1e-12
    )


def test_calls_and_hosts_that_nobody_measured_are_refused():
    unknown = "call is 'gossip', which was not measured. Use one of: all-reduce, all-gather, reduce-scatter."
    beyond = "hosts is 128, but nothing was measured beyond 64. Use that or fewer."
    none = "hosts is 0, but it must be a number, 1 or more and at most 1e+18."

    with pytest.raises(ValueError, match=exactly(unknown)):
        bus_bytes_per_second("gossip", 2)
    with pytest.raises(ValueError, match=exactly(beyond)):
        bus_bytes_per_second("all-reduce", [8, 128])
    with pytest.raises(ValueError, match=exactly(none)):
        bus_bytes_per_second("all-reduce", 0)
