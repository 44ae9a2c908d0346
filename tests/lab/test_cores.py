"""Ranks have cores of their own, and gloo's thread gives way to what they compute on them."""

import json
import os
import sys

import pytest

from calculators.lab.cores import cores_of_rank
from calculators.lab.devices import usable_cores
from calculators.lab.launch import LocalLauncher
from calculators.lab.measurements import Log
from calculators.lab.plan import make_plan
from calculators.lab.spec import Spec
from tests.lab.conftest import ON_CPU
from tests.lab.placed_ranks import tell

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="cores and turns are asked of Linux")


def test_ranks_share_the_cores_out_evenly_and_no_core_has_two():
    shares = [cores_of_rank(rank, ranks=3, usable=[9, 2, 4, 5, 7, 11, 12]) for rank in range(3)]
    assert shares == [{2, 4}, {5, 7}, {9, 11}]


def test_ranks_that_have_less_than_a_core_each_may_use_them_all():
    assert cores_of_rank(3, ranks=4, usable=[0, 1]) == {0, 1}


@on_linux
@pytest.mark.parametrize("ranks", [2, 4])
def test_each_rank_of_a_run_keeps_to_its_cores_in_short_turns_and_only_gloos_thread_gives_way(ranks: int):
    spec = Spec.parse({"job": "tensor", "ranks": ranks, "layers": 1, "steps": 10})
    with LocalLauncher(work=tell) as launcher:
        events = list(launcher.run(make_plan(spec, ON_CPU)))
    told = {e.rank: json.loads(e.text) for e in events if isinstance(e, Log) and "niceness" in e.text}
    usable = os.sched_getaffinity(0)
    for rank in range(ranks):
        assert set(told[rank]["cores"]) == cores_of_rank(rank, ranks=ranks, usable=usable)
        assert told[rank]["turn"] in (1e-4, None)
        niceness = told[rank]["niceness"]
        assert niceness.pop("gloo_tcp_loop") == 10
        assert set(niceness.values()) == {0}
    if usable_cores() >= ranks:
        assert not set(told[0]["cores"]) & set(told[1]["cores"])
