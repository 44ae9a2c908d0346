"""NVLink and PCIe counters, from a recorded sequence below the real pynvml; no such hardware is needed or claimed."""

import sys

import pynvml
import pytest

from calculators.lab.meters import CannotSee, nvml
from calculators.lab.meters.counters import Reading, Seen
from tests.lab.recorded_driver import RecordedDriver, install, refuse

MIB = 1024**2


@pytest.fixture
def driver(monkeypatch):
    return install(RecordedDriver(), monkeypatch)


def seen_by(meter, driver):
    before = meter.read()
    driver.step += 1
    return nvml.moved(before, meter.read())


def test_payload_and_protocol_are_two_levels_each_summed_over_the_active_links(driver):
    seen = seen_by(nvml.NvlinkMeter(0), driver)

    assert seen == (
        Seen(quantity="NVLink bytes sent", detail="payload (field 138), 4 links", value=4 * 3 * MIB),
        Seen(quantity="NVLink bytes received", detail="payload (field 139), 4 links", value=4 * 1 * MIB),
        Seen(
            quantity="NVLink bytes sent", detail="with protocol (field 140), 4 links", value=4 * 3_492 * 1024
        ),
        Seen(
            quantity="NVLink bytes received",
            detail="with protocol (field 141), 4 links",
            value=4 * 1_164 * 1024,
        ),
    )


def test_each_link_and_direction_can_be_told_apart(driver):
    meter = nvml.NvlinkMeter(0)
    before = meter.read()
    driver.step = 1
    after = meter.read()

    moved = nvml.each_moved(before, after)

    payload = {(one.place, one.quantity): one.value for one in moved if one.source.startswith("payload")}
    assert set(payload) == {
        (f"link {link}", f"NVLink bytes {way}") for link in (0, 1, 3, 4) for way in ("sent", "received")
    }
    assert payload["link 3", "NVLink bytes sent"] == 3 * MIB
    assert all(one.seconds == after.at - before.at > 0 for one in moved)


def test_a_newer_link_counts_bytes_and_not_kib(driver):
    assert seen_by(nvml.NvlinkMeter(1), driver) == (
        Seen(quantity="NVLink bytes sent", detail="bytes on the link (field 202), 2 links", value=2 * 1_024),
        Seen(
            quantity="NVLink bytes received", detail="bytes on the link (field 204), 2 links", value=2 * 2_048
        ),
    )


def test_where_a_link_cannot_be_asked_for_the_sum_of_all_is(driver):
    assert seen_by(nvml.NvlinkMeter(2), driver) == (
        Seen(quantity="NVLink bytes sent", detail="payload (field 138)", value=6 * 1_024),
        Seen(quantity="NVLink bytes received", detail="payload (field 139)", value=2 * 1_024),
    )


def test_pcie_bytes_are_the_counters_and_never_a_rate(driver):
    assert not hasattr(driver, "nvmlDeviceGetPcieThroughput")

    assert seen_by(nvml.PcieMeter(0), driver) == (
        Seen(quantity="PCIe bytes sent", detail="bytes at the PCIe port (field 197)", value=1_048_576),
        Seen(quantity="PCIe bytes received", detail="bytes at the PCIe port (field 198)", value=64),
    )


def test_a_counter_that_wraps_is_said_and_gives_no_number(driver):
    meter = nvml.PcieMeter(1)

    with pytest.raises(CannotSee) as blind:
        seen_by(meter, driver)

    assert str(blind.value) == (
        "the counter of PCIe bytes sent, bytes at the PCIe port (field 197), 32 bits: 4 GiB are unseen each time it "
        "wraps, went back from 4,294,967,000 to 704: it wrapped or was reset while "
        "the run was measured. Measure fewer steps, and reset nothing meanwhile"
    )


def test_readings_in_the_wrong_order_or_without_a_counter_are_refused(driver):
    meter = nvml.PcieMeter(0)
    first, second = meter.read(), meter.read()

    with pytest.raises(CannotSee, match=r"^its two readings are in the wrong order: the first was taken at "):
        nvml.moved(second, first)
    with pytest.raises(CannotSee) as blind:
        nvml.moved(first, Reading(at=second.at, counts=second.counts[1:]))
    assert str(blind.value) == (
        "the counter of PCIe bytes sent, bytes at the PCIe port (field 197), was there at the first reading and is "
        "gone at the second"
    )


@pytest.mark.parametrize(
    ("meter", "gpu", "why"),
    [
        (nvml.NvlinkMeter, 3, "GPU 3 has no active NVLink"),
        (nvml.PcieMeter, 3, "GPU 3 or its driver has no cumulative PCIe counters (fields 197 and 198)"),
        (nvml.NvlinkMeter, 9, "there is no GPU 9: the NVIDIA driver counts 4, from 0"),
    ],
)
def test_a_gpu_without_the_counters_is_not_read(driver, meter, gpu, why):
    with pytest.raises(CannotSee) as blind:
        meter(gpu)

    assert str(blind.value) == why
    assert driver.opened == 0


@pytest.mark.parametrize("make", [nvml.NvlinkMeter, nvml.PcieMeter])
def test_a_gpu_that_vanishes_ends_the_reading_with_a_sentence(driver, make):
    meter = make(1)
    driver.step = 2

    with pytest.raises(CannotSee) as blind:
        meter.read()

    assert str(blind.value) == (
        "GPU 1 has vanished: it fell off the bus or cannot be reached any more. Nothing that was measured on it "
        "counts; reset it or restart this machine, and run again"
    )
    meter.close()
    assert driver.opened == 0


@pytest.mark.parametrize(
    ("code", "why"),
    [
        (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, "the NVIDIA driver is not installed"),
        (
            pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
            "the NVIDIA driver is installed, but its kernel module is not loaded (modprobe nvidia, or restart)",
        ),
        (
            pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
            "the NVIDIA driver was updated and its old kernel module still runs; restart this machine",
        ),
        (
            pynvml.NVML_ERROR_NO_PERMISSION,
            "this user may not read its GPUs; root may, or allow it to all users in the NVIDIA driver",
        ),
        (
            pynvml.NVML_ERROR_RESET_REQUIRED,
            "the GPU must be reset before it answers again (nvidia-smi --gpu-reset)",
        ),
        (pynvml.NVML_ERROR_GPU_NOT_FOUND, "the GPU is not there any more"),
        (pynvml.NVML_ERROR_TIMEOUT, "asked for its GPUs, the NVIDIA driver says “Timeout”"),
    ],
)
def test_a_driver_that_cannot_start_is_the_reason_in_words(monkeypatch, code, why):
    install(RecordedDriver(start=code), monkeypatch)

    with pytest.raises(CannotSee) as blind:
        nvml.NvlinkMeter(0)

    assert str(blind.value) == why


def test_a_driver_without_the_function_is_too_old(driver, monkeypatch):
    monkeypatch.delattr(RecordedDriver, "nvmlDeviceGetFieldValues")

    with pytest.raises(CannotSee) as blind:
        nvml.PcieMeter(0)

    assert str(blind.value) == (
        "this NVIDIA driver is too old to be asked for cumulative PCIe counters (fields 197 and 198); "
        "a newer one can be"
    )


def test_a_meter_whose_driver_was_shut_down_says_so(driver, monkeypatch):
    meter = nvml.PcieMeter(0)
    refuse(monkeypatch, "nvmlDeviceGetFieldValues", pynvml.NVML_ERROR_UNINITIALIZED)

    with pytest.raises(CannotSee) as blind:
        meter.read()

    assert str(blind.value) == (
        "NVML was shut down before it was asked for cumulative PCIe counters (fields 197 and 198)"
    )


def test_without_the_package_that_asks_the_driver_the_reason_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)

    with pytest.raises(CannotSee) as blind:
        nvml.NvlinkMeter(0)

    assert str(blind.value) == "the package nvidia-ml-py, which asks the NVIDIA driver, is not installed"


def test_a_number_with_a_fraction_is_no_counter(driver, monkeypatch):
    monkeypatch.setattr(pynvml, "NVML_VALUE_TYPE_UNSIGNED_LONG_LONG", pynvml.NVML_VALUE_TYPE_DOUBLE)

    with pytest.raises(CannotSee) as blind:
        nvml.PcieMeter(0)

    assert str(blind.value) == "the NVIDIA driver gives field 197 in a type that no counter has"


def test_the_field_ids_are_those_of_the_installed_pynvml():
    ids = [field[0] for pair in nvml._NVLINK for field in pair] + [field[0] for field in nvml._PCIE]

    assert ids == [
        pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX,
        pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX,
        pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_RAW_TX,
        pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_RAW_RX,
        pynvml.NVML_FI_DEV_NVLINK_COUNT_XMIT_BYTES,
        pynvml.NVML_FI_DEV_NVLINK_COUNT_RCV_BYTES,
        pynvml.NVML_FI_DEV_PCIE_COUNT_TX_BYTES,
        pynvml.NVML_FI_DEV_PCIE_COUNT_RX_BYTES,
    ]
