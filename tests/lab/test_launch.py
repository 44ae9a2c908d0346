"""Ranks end with their run, however it ends, and the one that failed first is named."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import psutil
import pytest

from calculators.lab.launch import LocalLauncher
from calculators.lab.measurements import Event, Failed, Progress
from calculators.lab.plan import Plan, make_plan
from calculators.lab.spec import Spec
from tests.lab import failing_ranks
from tests.lab.conftest import ON_CPU

pytestmark = pytest.mark.distributed

END_SECONDS = 2.0
"""A crash ends the run within this."""


def plan_of(**given: object) -> Plan:
    return make_plan(Spec.parse({"job": "tensor", "ranks": 2, **given}), ON_CPU)


def end_of(work: Callable[..., None], plan: Plan) -> tuple[Failed, list[Event], float]:
    """The last event of a run that fails, all of them, and the seconds from the last sign of life to the end."""
    events, alive = [], time.monotonic()
    for event in LocalLauncher(work=work).run(plan):
        if event is not None:
            events.append(event)
            alive = alive if isinstance(event, Failed) else time.monotonic()
    assert isinstance(events[-1], Failed)
    return events[-1], events, time.monotonic() - alive


@pytest.mark.parametrize("ranks", [2, 4])
def test_a_rank_that_raises_is_named_with_its_traceback_and_ends_the_run(
    launcher: LocalLauncher, ranks: int
) -> None:
    failed, _, seconds = end_of(failing_ranks.one_raises, plan_of(ranks=ranks))

    assert failed.rank == 1
    assert failed.reason == "ArithmeticError: the hidden state of layer 3 is not a number"
    assert "in _raise" in failed.traceback
    assert seconds < END_SECONDS


def test_a_rank_that_is_killed_is_named_although_it_could_say_nothing(launcher: LocalLauncher) -> None:
    failed, _, seconds = end_of(failing_ranks.one_is_killed, plan_of(ranks=4))

    assert failed.rank == 1
    assert re.fullmatch(
        r"The process was killed by SIGKILL and could say nothing\. Somebody did that, or the kernel, which ends "
        r"processes so when memory runs out \(it held [\d.]+ (MiB|KiB|bytes) when last looked at\)\.",
        failed.reason,
    )
    assert seconds < END_SECONDS


def test_a_rank_that_leaves_is_named_with_its_exit_code(launcher: LocalLauncher) -> None:
    failed, _, _ = end_of(failing_ranks.one_leaves, plan_of())

    assert (failed.rank, failed.reason) == (
        1,
        "The process ended with exit code 7 before its work was done, and said nothing.",
    )


def test_the_time_limit_ends_a_run_and_says_where_each_rank_was(launcher: LocalLauncher) -> None:
    started = time.monotonic()

    failed, events, _ = end_of(failing_ranks.none_ends, plan_of(time_limit_seconds=3))

    assert failed.rank is None
    assert failed.reason.startswith("The time limit of 3 s ended the run: rank 0 at “sleep in ")
    assert 3 <= time.monotonic() - started < 3 + END_SECONDS
    assert not any(psutil.pid_exists(pid) for pid in _pids(events))


def test_closing_the_stream_leaves_no_rank(launcher: LocalLauncher) -> None:
    stream = LocalLauncher(work=failing_ranks.none_ends).run(plan_of())
    events = []
    while len(events) < 2:
        events += [event for event in [next(stream)] if event is not None]

    stream.close()

    assert not any(psutil.pid_exists(pid) for pid in _pids(events))


def test_ranks_and_their_fork_server_die_with_a_launcher_that_is_killed() -> None:
    program = (
        "from calculators.lab.launch import LocalLauncher\n"
        "from tests.lab import failing_ranks\n"
        "from tests.lab.test_launch import plan_of\n"
        "if __name__ == '__main__':\n"
        "    for event in LocalLauncher(work=failing_ranks.none_ends).run(plan_of()):\n"
        "        print(event, flush=True)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    asleep = 0
    while asleep < 2:
        asleep += "sleep in" in parent.stdout.readline()
    family = psutil.Process(parent.pid).children(recursive=True)
    assert len(family) >= 3  # the fork server and two ranks

    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()

    _, alive = psutil.wait_procs(family, timeout=5)
    assert alive == []


def test_the_launcher_itself_never_imports_torch() -> None:
    check = "import sys, calculators.lab.launch, calculators.lab.plan; sys.exit('torch' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0


def _pids(events: list[Event]) -> list[int]:
    pids = [int(e.part.split()[-1]) for e in events if isinstance(e, Progress) and e.part.startswith("sleep")]
    assert pids
    return pids
