"""The accelerators: one direction of truth (dense, decimal bandwidth), each with a source."""

import pytest

from calculators.predict.devices import DEVICES, device
from tests.predict.sentences import exactly


def test_every_device_has_its_own_key_a_name_and_a_source():
    assert all(key == found.key for key, found in DEVICES.items())
    assert len({found.name for found in DEVICES.values()}) == len(DEVICES)
    assert all(found.source for found in DEVICES.values())


def test_the_devices_that_a_home_a_class_or_a_cluster_has_are_there():
    wanted = {"a100-80", "h100", "h200", "b200", "rtx-4090", "rtx-5090", "rtx-3090", "l40s", "dgx-spark"}

    assert wanted | {"m3-ultra", "m4-max", "m4-pro"} == set(DEVICES)


# facts of the ladder: memory bandwidth in GB/s
@pytest.mark.parametrize(
    ("key", "gb_per_s"),
    [
        ("h100", 3350),
        ("h200", 4800),
        ("b200", 8000),
        ("rtx-5090", 1792),
        ("rtx-4090", 1008),
        ("m3-ultra", 819),
        ("m4-max", 546),
        ("m4-pro", 273),
        ("dgx-spark", 273),
    ],
)
def test_memory_bandwidth_is_that_of_the_ladder(key, gb_per_s):
    assert device(key).memory_bytes_per_second == gb_per_s * 1e9


def test_arithmetic_is_dense_so_sparse_figures_are_halved():
    sold_with_sparsity = {"h100": 1979e12, "l40s": 733e12, "b200": 4.5e15}

    for key, sparse in sold_with_sparsity.items():
        assert device(key).flops_per_second == pytest.approx(sparse / 2, rel=0.015)


def test_where_a_vendor_publishes_no_arithmetic_the_source_says_so():
    for key in ("m3-ultra", "m4-max", "m4-pro", "dgx-spark"):
        assert "not published" in device(key).source or "publishes no" in device(key).source


def test_every_device_needs_dozens_of_operations_for_each_byte_before_arithmetic_is_what_limits():
    for found in DEVICES.values():
        assert 20 < found.flops_per_byte < 500


def test_an_unknown_device_is_refused_with_those_that_exist():
    sentence = f"device is 'abacus', which is not in the catalogue. Use one of: {', '.join(DEVICES)}."

    with pytest.raises(ValueError, match=exactly(sentence)):
        device("abacus")
