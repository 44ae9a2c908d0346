"""The energy counter, from a recorded sequence below the real pynvml."""

import pytest

from calculators.lab.meters import CannotSee, energy
from tests.lab.recorded_driver import RecordedDriver, install


@pytest.fixture
def driver(monkeypatch):
    return install(RecordedDriver(), monkeypatch)


def test_millijoules_between_two_readings_are_joules(driver):
    meter = energy.EnergyMeter(0)
    before = meter.read()
    driver.step = 1

    (seen,) = energy.moved(before, meter.read())

    assert (seen.quantity, seen.detail) == ("energy", "whole GPU 0, since its driver was loaded")
    assert seen.value == pytest.approx(12.5)


def test_a_driver_loaded_anew_starts_from_zero_and_gives_no_number(driver):
    meter = energy.EnergyMeter(1)
    before = meter.read()
    driver.step = 1

    with pytest.raises(CannotSee, match="went back from 100 to 90: it wrapped or was reset"):
        energy.moved(before, meter.read())


def test_a_gpu_that_counts_no_energy_or_vanishes_is_said(driver):
    with pytest.raises(CannotSee) as older:
        energy.EnergyMeter(3)
    meter = energy.EnergyMeter(1)
    driver.step = 2
    with pytest.raises(CannotSee, match=r"^GPU 1 has vanished: "):
        meter.read()
    meter.close()

    assert str(older.value) == "GPU 3 or its driver has no energy counter"
    assert driver.opened == 0
