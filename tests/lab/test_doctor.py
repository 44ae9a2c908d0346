"""The doctor: each thing is tried, what was found is kept, and what is not there is not pretended."""

import json
import os
import sys
from dataclasses import replace

import pytest

from calculators.lab import cli, doctor, store
from calculators.lab.devices import Gpu, Torch
from tests.lab.ledgers import A_BOX, fresh_ledger


@pytest.fixture
def url(tmp_path):
    fresh_ledger(tmp_path)
    return f"sqlite:///{tmp_path / 'runs.sqlite3'}"


@pytest.fixture
def no_gpu(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


def refuse(*_, **__):
    raise AssertionError("no rank was to be started")


@pytest.mark.distributed
def test_two_ranks_make_every_call_and_what_they_found_is_kept(url, tmp_path, no_gpu, monkeypatch):
    first = [str(finding) for finding in doctor.examine(url)]
    kept = json.loads((tmp_path / "doctor.json").read_text())
    monkeypatch.setattr(doctor._Prober, "ask", refuse)
    second = [str(finding) for finding in doctor.examine(url)]

    for op in doctor.OPS:
        assert f"✓ gloo on cpu: {op} works" in first
    assert any(line.startswith("✓ torch ") and line.endswith("imported by a fork server") for line in first)
    for backend in ("nccl", "gloo"):
        assert any(line.startswith(f"– {backend} on cuda: not run here, no NVIDIA GPU: ") for line in first)
    assert set(kept["said"]) == {"torch", *(f"{op} gloo cpu" for op in doctor.OPS)}
    assert second == first


@pytest.mark.distributed
def test_a_call_that_does_not_work_is_said_to_be_so_with_its_reason(no_gpu):
    with doctor._Prober() as prober:
        said = prober.probe("all_reduce", "nccl", "cuda")

    assert said.startswith("does not work: ")
    assert len(said) > len("does not work: ")


def end_at_once(rank):
    os._exit(3)


@pytest.mark.distributed
def test_ranks_that_die_while_they_are_tried_are_reported():
    with doctor._Prober() as prober:
        assert prober.ask(end_at_once) == ["its process ended with exit code 3 and said nothing"]


def test_other_torch_driver_or_gpus_mean_trying_again(tmp_path):
    kept = tmp_path / "doctor.json"
    doctor._write(kept, doctor._key(A_BOX), {"all_reduce gloo cpu": ""})

    assert doctor._read(kept, doctor._key(A_BOX)) == {"all_reduce gloo cpu": ""}
    gpu = Gpu(index=0, name="NVIDIA H200", memory_bytes=1)
    for other in (
        replace(A_BOX, torch=Torch(version="2.14.0", cuda="")),
        replace(A_BOX, driver="580.1"),
        replace(A_BOX, gpus=(gpu,)),
    ):
        assert doctor._read(kept, doctor._key(other)) == {}


@pytest.mark.parametrize("text", ["", "not json", "[]", '{"key": 1}', '{"key": "k", "said": 7}'])
def test_kept_findings_that_cannot_be_read_are_found_again(tmp_path, text):
    (tmp_path / "doctor.json").write_text(text)

    assert doctor._read(tmp_path / "doctor.json", "k") == {}
    assert doctor._read(tmp_path / "none.json", "k") == {}


def test_one_gpu_is_too_few_for_two_ranks_of_nccl():
    gpu = Gpu(index=0, name="NVIDIA H200", memory_bytes=1)
    one, two = replace(A_BOX, gpus=(gpu,)), replace(A_BOX, gpus=(gpu, gpu))

    assert doctor._why_not("nccl", "cuda", one) == (
        "NCCL refuses two ranks on one GPU, and there is one (ranks talk through gloo then)"
    )
    assert doctor._why_not("gloo", "cuda", one) == doctor._why_not("nccl", "cuda", two) == ""


def test_without_torch_no_run_can_be_done(tmp_path):
    (finding,) = doctor._ranks(replace(A_BOX, torch=None), tmp_path / "doctor.json", fresh=False)

    assert str(finding) == ("✗ torch is not installed. Install the extra “lab”: pip install 'sixfold[lab]'")


@pytest.mark.skipif(sys.platform != "linux", reason="TCP_INFO is Linux's")
def test_the_kernel_counts_the_bytes_that_were_sent():
    assert str(doctor._tcp_info()) == (
        "✓ wire bytes can be measured: TCP_INFO counted 1,000 of 1,000 bytes sent"
    )


def test_the_ledger_is_looked_at_and_left_as_it_is(url, tmp_path):
    there, new = doctor._ledger(url), doctor._ledger(f"sqlite:///{tmp_path / 'other.sqlite3'}")
    out_of_reach = doctor._ledger("postgresql://127.0.0.1:1/x")

    assert str(there) == f"✓ ledger {url}: reachable, revision {store.HEAD}"
    assert str(new).endswith("other.sqlite3: no tables yet; the first command makes them")
    assert not (tmp_path / "other.sqlite3").exists()
    assert str(out_of_reach).startswith(
        "✗ The ledger at postgresql+psycopg://127.0.0.1:1/x cannot be opened: "
    )


def test_the_exit_code_says_whether_runs_can_be_done(url, capsys, monkeypatch):
    good = doctor.Finding(ok=True, needed=True, text="torch")
    poor = doctor.Finding(ok=False, text="no NVIDIA GPU")
    bad = doctor.Finding(ok=False, needed=True, text="torch is not installed")
    said = []

    for findings in ([good, poor], [poor, bad]):
        monkeypatch.setattr(doctor, "examine", lambda url, *, fresh, found=findings: iter(found))
        said.append((cli.main(["doctor", "--ledger", url]), capsys.readouterr().out.splitlines()[-1]))

    assert said == [
        (0, "Runs can be done here."),
        (1, "Runs cannot be done here until what is marked ✗ is put right."),
    ]
