"""What `doctor` says of each hardware meter: seen, or why not, and that none has run on hardware."""

from dataclasses import replace

import pytest

from calculators.lab.devices import Gpu
from calculators.lab.meters.findings import hardware_findings
from tests.lab.ledgers import A_BOX
from tests.lab.recorded_driver import RecordedDriver, install

NOT_RUN = "This meter has not run on hardware yet, only on constructed sequences of counters"


@pytest.fixture
def driver(monkeypatch):
    return install(RecordedDriver(), monkeypatch)


def test_without_hardware_every_meter_says_why_it_is_blind_and_that_it_has_not_run(tmp_path):
    box = replace(A_BOX, no_gpu_reason="the NVIDIA driver is not installed")

    said = [str(finding) for finding in hardware_findings(box, tmp_path)]

    no_gpu = "cannot be seen, no NVIDIA GPU: the NVIDIA driver is not installed"
    assert said == [
        f"– NVLink bytes (NVML counters): {no_gpu}. {NOT_RUN}",
        f"– PCIe bytes (NVML counters): {no_gpu}. {NOT_RUN}",
        f"– NVLink and PCIe bytes (GPM averages): {no_gpu}. {NOT_RUN}",
        f"– energy (NVML counter): {no_gpu}. {NOT_RUN}",
        f"– InfiniBand bytes (port counters): cannot be seen, there is no InfiniBand or RoCE adapter ({tmp_path} has "
        f"no ports). {NOT_RUN}",
    ]


def test_on_gpus_each_meter_names_the_counters_that_it_sees_or_the_reason(driver, tmp_path):
    gpus = tuple(Gpu(index=index, name="constructed", memory_bytes=1) for index in (0, 3))

    said = [str(finding) for finding in hardware_findings(replace(A_BOX, gpus=gpus), tmp_path)]

    assert said[0] == (
        "✓ NVLink bytes (NVML counters) of GPU 0: can be read, payload (field 138); payload (field 139); "
        f"with protocol (field 140); with protocol (field 141). {NOT_RUN}"
    )
    assert said[1] == (
        f"– NVLink bytes (NVML counters) of GPU 3: cannot be seen, GPU 3 has no active NVLink. {NOT_RUN}"
    )
    assert said[6].startswith("✓ energy (NVML counter) of GPU 0: can be read, whole GPU 0")
    assert driver.opened == 0


def test_a_gpu_that_vanishes_while_doctor_looks_is_a_finding_and_no_crash(driver, tmp_path):
    driver.step = 2
    gpu = Gpu(index=1, name="constructed", memory_bytes=1)

    said = [str(finding) for finding in hardware_findings(replace(A_BOX, gpus=(gpu,)), tmp_path)]

    assert said[0].startswith("– NVLink bytes (NVML counters) of GPU 1: cannot be seen, GPU 1 has vanished: ")
    assert said[1].startswith("– PCIe bytes (NVML counters) of GPU 1: cannot be seen, GPU 1 has vanished: ")
    assert said[3].startswith("– energy (NVML counter) of GPU 1: cannot be seen, GPU 1 has vanished: ")
