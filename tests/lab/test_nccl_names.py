"""What NCCL logs of its choices is told when a run is over, and its log does not stay behind."""

import os
from pathlib import Path

import pytest

from calculators.lab.meters.nccl import NcclNames


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> NcclNames:
    for name in ("NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "NCCL_DEBUG_FILE"):
        monkeypatch.setenv(name, "")  # so that it is put back
    return NcclNames()


def folder() -> Path:
    return Path(os.environ["NCCL_DEBUG_FILE"]).parent


def test_each_kind_of_call_is_told_with_its_algorithm_and_protocol(names: NcclNames) -> None:
    (folder() / "nccl-box-7.log").write_text(
        "box:7:7 [0] NCCL INFO NCCL version 2.27.5+cuda12.9\n"
        "box:7:7 [0] NCCL INFO AllReduce: 1048576 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..3}\n"
    )
    said: list[str] = []

    names.tell(said.append)

    assert said == ["NCCL made 1 × AllReduce by RING, SIMPLE, 4 channels"]


def test_a_log_without_choices_says_why_nothing_is_named(names: NcclNames) -> None:
    said: list[str] = []

    names.tell(said.append)

    assert len(said) == 1
    assert said[0].endswith(".")


def test_the_log_does_not_stay_behind(names: NcclNames) -> None:
    left = folder()

    names.tell(lambda text: None)

    assert not left.exists()
