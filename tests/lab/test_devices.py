"""Where ranks go: a GPU each, too few GPUs, none; and what CUDA_VISIBLE_DEVICES leaves of them."""

import re
import subprocess
import sys
from dataclasses import replace

import pytest

from calculators.lab.devices import Gpu, Torch, chosen_gpus, find_devices, place
from calculators.lab.spec import SpecError
from tests.lab.ledgers import A_BOX, make_spec

H200 = [Gpu(index=n, name="NVIDIA H200", memory_bytes=139 * 2**30) for n in range(4)]
BY_UUID = {f"GPU-{n}aaaaaaa-0000": gpu for n, gpu in enumerate(H200)}


def with_gpus(count):
    return replace(A_BOX, gpus=tuple(H200[:count]), torch=Torch(version="2.13.0", cuda="13.0"))


def test_a_gpu_for_each_rank_means_nccl():
    placement = place(make_spec(ranks=2), with_gpus(2))

    assert (placement.device, placement.backend, placement.staged) == ("cuda", "nccl", False)
    assert placement.note == ""


def test_fewer_gpus_than_ranks_compute_there_and_talk_through_host_memory():
    placement = place(make_spec(ranks=2), with_gpus(1))

    assert (placement.device, placement.backend, placement.staged) == ("cuda", "gloo", True)
    assert placement.note == (
        "2 ranks share 1 GPU, and NCCL refuses two ranks on one: they compute on the GPU, but every "
        "communicated tensor is staged through host memory and sent by gloo."
    )


def test_no_gpu_means_the_cpu_and_gloo_and_the_reason_is_said():
    box = replace(A_BOX, no_gpu_reason="the NVIDIA driver is not installed")

    placement = place(make_spec(device="auto"), box)

    assert (placement.device, placement.backend, placement.staged) == ("cpu", "gloo", False)
    assert placement.note == (
        "No NVIDIA GPU (the NVIDIA driver is not installed): the ranks compute on the CPU and talk through gloo."
    )


def test_the_cpu_asked_for_by_name_is_taken_whatever_gpus_there_are():
    placement = place(make_spec(device="cpu"), with_gpus(4))

    assert (placement.device, placement.backend, placement.note) == ("cpu", "gloo", "")


def test_cuda_asked_for_by_name_is_refused_where_there_is_none():
    box = replace(A_BOX, no_gpu_reason="the NVIDIA driver is not installed")

    with pytest.raises(SpecError) as refused:
        place(make_spec(device="cuda"), box)

    assert [problem.field for problem in refused.value.problems] == ["device"]
    assert str(refused.value) == (
        "device is “cuda”, but this machine offers no NVIDIA GPU: the NVIDIA driver is not installed. "
        "Take “auto” or “cpu”."
    )


@pytest.mark.parametrize(
    ("visible", "left"),
    [
        (None, [0, 1, 2, 3]),
        ("", []),
        ("2", [2]),
        ("3, 1", [3, 1]),
        ("GPU-2aaa", [2]),
        ("1,9,2", [1]),  # whatever follows one that there is not is hidden
        ("-1", []),
        ("0,0", [0]),
        ("GPU-", []),  # the beginning of all of them names none
    ],
)
def test_cuda_visible_devices_is_read_as_cuda_reads_it(visible, left):
    shown = chosen_gpus(BY_UUID, visible)

    assert [gpu.index for gpu in shown] == left


def test_a_machine_is_told_apart_in_one_line():
    assert A_BOX.machine == "box (2 cores, 8.0 GiB, no GPU)"
    assert with_gpus(1).machine == "box (2 cores, 8.0 GiB, NVIDIA H200)"
    assert with_gpus(4).machine == "box (2 cores, 8.0 GiB, 4 × NVIDIA H200)"


def test_this_machine_has_cores_and_memory_and_a_reason_where_it_has_no_gpu():
    here = find_devices()

    assert here.cores >= 1
    assert here.memory_bytes > 2**28
    assert here.host
    assert here.cpu
    assert bool(here.gpus) != bool(here.no_gpu_reason)


@pytest.mark.distributed
def test_the_version_of_torch_is_read_without_importing_it():
    script = (
        "import sys; from calculators.lab.devices import find_devices; found = find_devices();"
        "assert 'torch' not in sys.modules; import torch;"
        "assert found.torch.version == torch.__version__, found; assert found.torch.cuda == (torch.version.cuda or '')"
    )

    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)

    assert ended.returncode == 0, ended.stderr


def test_gpus_that_a_cpu_build_of_torch_cannot_use_are_not_offered(monkeypatch):
    from calculators.lab import devices

    monkeypatch.setattr(devices, "_visible_gpus", lambda visible: (tuple(H200[:2]), "580.1", ""))
    monkeypatch.setattr(devices, "_installed_torch", lambda: Torch(version="2.13.0+cpu", cuda=""))

    here = find_devices()

    assert here.gpus == ()
    assert re.fullmatch(r"2 × NVIDIA H200 found, but torch 2\.13\.0\+cpu is a CPU build", here.no_gpu_reason)
