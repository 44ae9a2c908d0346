"""GPU performance metrics, from recorded averages below the real pynvml."""

import pynvml
import pytest

from calculators.lab.meters import CannotSee, gpm
from tests.lab.recorded_driver import RecordedDriver, install, refuse

MIB = 1024**2


@pytest.fixture
def driver(monkeypatch):
    return install(RecordedDriver(), monkeypatch)


def test_an_average_in_mib_a_second_times_the_seconds_between_two_samples_is_bytes(driver):
    meter = gpm.GpmMeter(0)
    before = meter.read()
    after = meter.read()

    seen = {(one.quantity, one.detail): one.value for one in gpm.moved(before, after)}

    seconds = after.at - before.at
    assert seconds > gpm.REFRESH_SECONDS  # a sample sooner would repeat the last
    assert seen == {
        ("PCIe bytes sent", "GPM average × time (metric 20)"): pytest.approx(8 * MIB * seconds),
        ("PCIe bytes received", "GPM average × time (metric 21)"): pytest.approx(2 * MIB * seconds),
        ("NVLink bytes received", "GPM average × time (metric 60)"): pytest.approx(100 * MIB * seconds),
        ("NVLink bytes sent", "GPM average × time (metric 61)"): pytest.approx(300 * MIB * seconds),
    }
    meter.close()
    assert driver.opened == 0


def test_each_link_is_read_where_it_is_asked_for_and_there(driver):
    meter = gpm.GpmMeter(0, links=True)

    details = [count.source for count in meter.read().counts]

    assert details[4:] == ["GPM average × time, link 0 (metric 62)", "GPM average × time, link 0 (metric 63)"]


def test_a_gpu_without_gpm_or_without_its_links_in_it_is_said(driver):
    with pytest.raises(CannotSee) as older:
        gpm.GpmMeter(3)
    with pytest.raises(CannotSee) as partial:
        gpm.GpmMeter(1)

    assert str(older.value) == "GPU 3 keeps no GPU performance metrics (GPM); Hopper and newer do"
    assert str(partial.value) == "GPU 1 keeps GPU performance metrics, but none of NVLink, C2C or PCIe"
    assert driver.opened == 0


def test_a_gpu_that_vanishes_or_stops_saying_a_metric_ends_the_reading(driver, monkeypatch):
    meter = gpm.GpmMeter(0)
    del driver.gpus["0"]["gpm"]["61"]
    with pytest.raises(CannotSee) as silent:
        meter.read()
    refuse(monkeypatch, "nvmlGpmSampleGet", pynvml.NVML_ERROR_GPU_IS_LOST)
    with pytest.raises(CannotSee, match=r"^GPU 0 has vanished: "):
        meter.read()

    assert str(silent.value) == "GPU 0 does not say GPM average × time (metric 61) any more"


def test_the_metric_ids_and_directions_are_those_of_the_installed_pynvml():
    named = {
        getattr(pynvml, name): name
        for name in dir(pynvml)
        if name.startswith("NVML_GPM_METRIC_") and "_PER_SEC" in name
    }
    link, way = {"NVLink": "NVLINK", "PCIe": "PCIE"}, {"sent": "_TX_", "received": "_RX_"}

    for metric, quantity, source in gpm._TOTALS + gpm._LINKS:
        kind, _, direction = quantity.split()
        assert ("C2C" if "C2C" in source else link[kind]) in named[metric]
        assert way[direction] in named[metric]
    assert [metric for metric, _, _ in gpm._LINKS] == list(range(62, 98))
