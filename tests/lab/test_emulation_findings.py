"""What is said of emulated hosts before any run: by the doctor, and where a spec's ranks are placed."""

import sys
from dataclasses import replace

import pytest

from calculators.lab import doctor
from calculators.lab.devices import Gpu, place
from calculators.lab.spec import Spec
from tests.lab.ledgers import A_BOX

SPEC = {"job": "tensor", "ranks": 2, "hosts": 2, "link_mbit": 20}
HOSTS = (
    "2 emulated hosts of 1 rank each, links 20 Mbit/s each way: "
    "network namespaces of this machine, whose cores they share."
)


@pytest.mark.skipif(sys.platform != "linux", reason="network namespaces are Linux's")
def test_the_doctor_tries_each_part_of_emulated_hosts() -> None:
    said = [str(finding) for finding in doctor._emulation()]

    assert said[0].startswith("✓ emulated hosts: network namespaces (hosts) works, made ")
    assert said[1:4] == [
        "✓ emulated hosts: veth (cables) works",
        "✓ emulated hosts: bridge (the switch) works",
        "✓ emulated hosts: tbf (the links' rates) works",
    ]
    assert said[4:] in (
        ["✓ emulated hosts: netem (latency) works"],
        [
            "– emulated hosts: netem (latency) cannot be had: "
            "this kernel has no netem, so latency is not emulated"
        ],
    )


def test_a_placement_says_which_hosts_are_emulated() -> None:
    assert place(Spec.parse({**SPEC, "device": "cpu"}), A_BOX).note == HOSTS
    assert place(Spec.parse({"job": "tensor", "device": "cpu"}), A_BOX).note == ""


def test_ranks_on_emulated_hosts_talk_through_gloo_although_each_has_a_gpu() -> None:
    gpu = Gpu(index=0, name="NVIDIA H200", memory_bytes=1)

    placement = place(Spec.parse(SPEC), replace(A_BOX, gpus=(gpu, gpu)))

    assert (placement.backend, placement.staged) == ("gloo", True)
    assert placement.note == (
        "NCCL would go around emulated links, from GPU to GPU: the ranks compute on GPUs, but every "
        f"communicated tensor is staged through host memory and sent by gloo. {HOSTS}"
    )
