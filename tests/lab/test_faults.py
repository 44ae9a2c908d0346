"""Whatever is killed, hangs, fills up or is missing: the run ends with a sentence, nothing is left, earlier runs stay.

Where each fault is tried. Real: it happens to real processes, disks, locks, limits. Simulated: the device is not here.

| Fault | In set-up | Mid-run | While writing |
|---|---|---|---|
| kill -9 of a rank | here | here, test_launch, test_emulation (emulated hosts) | here |
| kill -9 of the launcher, that is of the worker | here | test_launch, test_worker, test_emulation | here |
| kill -9 of the fork server | | here | |
| kill -9 of what builds emulated hosts | test_emulation | | |
| kill -9 of the web server, of the supervisor | | test_faults_of_the_site | |
| cancelled | here | here | here |

| Fault | Where |
|---|---|
| a rank that hangs | test_launch (the time limit says where each was), here (cancelled in every part) |
| a rank that exits 0 early | here |
| a rank that runs out of memory | here (above the cap); test_launch (killed from outside, as the kernel does it) |
| ledger locked | here |
| disk full | here, on a disk of 2 MiB |
| port taken | tests/tutor/test_supervisor, test_start; ranks meet on a port that is bound as it is chosen |
| no user namespaces | test_emulation |
| no torch | here |
| a GPU that vanishes | simulated: test_nvml_meter, test_energy_meter (recorded driver) |
"""

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import sysconfig
import threading
import time
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from uuid import uuid4

import psutil
import pytest

from calculators.lab import store, worker
from calculators.lab.emulation import homes
from calculators.lab.launch import LocalLauncher
from calculators.lab.measurements import Failed, Log, Progress, Verified
from calculators.lab.opening import Opening
from calculators.lab.plan import make_plan
from calculators.lab.spec import Spec
from calculators.lab.store import RunState
from tests.lab import failing_ranks
from tests.lab.conftest import ON_CPU
from tests.lab.ledgers import A_BOX, Script, eventually, found, fresh_ledger, submitted

pytestmark = pytest.mark.distributed

SMALL = {"layers": 2, "hidden_size": 32, "attention_heads": 4, "ffn_width": 64, "vocab_size": 64, "batch": 1}
WELL = Verified(rank=0, worst=0.0, tolerance=1e-5)


@pytest.fixture
def sessions(tmp_path):
    return fresh_ledger(tmp_path)


def plan_of(**given):
    return make_plan(
        Spec.parse({"job": "tensor", "ranks": 2, "steps": 10, "warmup_steps": 1, **SMALL, **given}), ON_CPU
    )


def end_of(launcher, plan):
    *_, last = (event for event in launcher.run(plan) if event is not None)
    return last


def earlier_run(sessions):
    """A run that ended well before anything went wrong, and a look that fails once anything of it is different."""
    run = submitted(sessions)
    worker.work(sessions, Script(WELL, Log(rank=0, text="said")), owner="w", devices=A_BOX, once=True)

    def look():
        with sessions.reading() as session:
            return (
                store.get_run(session, run.id),
                store.log_of(session, run.id),
                store.result_of(session, run.id),
            )

    before = look()
    assert before[0].succeeded
    return lambda: look() == before


# Ranks.


@pytest.mark.parametrize("part", ["join", "verify", "timeline", "done"])
def test_a_rank_killed_in_any_part_of_its_run_is_named(launcher, part):
    before = _children()

    failed = end_of(LocalLauncher(work=partial(failing_ranks.one_is_killed_in, part)), plan_of())

    assert isinstance(failed, Failed)
    assert failed.rank == 1
    assert failed.reason.startswith("The process was killed by SIGKILL and could say nothing.")
    assert _children() == before


def test_a_rank_that_leaves_as_if_all_were_well_is_found_out(launcher):
    failed = end_of(LocalLauncher(work=failing_ranks.one_leaves_quietly), plan_of())

    assert (failed.rank, failed.reason) == (
        1,
        "The process ended with exit code 0 before its work was done, and said nothing.",
    )


def test_ranks_that_hold_more_than_the_cap_are_ended_and_the_largest_is_named(launcher):
    before = _children()
    hoarding = LocalLauncher(work=failing_ranks.one_hoards, max_memory_bytes=128 * 2**20)

    failed = end_of(hoarding, plan_of(time_limit_seconds=30))

    assert failed.rank == 1
    assert failed.reason.startswith("The ranks held ")
    assert ", rank 1 " in failed.reason
    assert failed.reason.endswith(
        "of it, and the limit is 128.0 MiB (SIXFOLD_LAB_MAX_MEMORY_BYTES): the run was ended. "
        "Take a smaller model or batch."
    )
    assert _children() == before


def _children():
    return {child.pid for child in psutil.Process().children(recursive=True)}


def test_a_fork_server_that_is_killed_ends_the_run_and_the_next_run_has_a_new_one(launcher):
    hanging = LocalLauncher(work=partial(failing_ranks.one_hangs_in, "measure"))
    events = []
    for event in hanging.run(plan_of()):
        events += [event] if event is not None else []
        if isinstance(event, Progress) and (event.rank, event.part) == (1, "measure"):
            (server,) = {p.ppid() for p in psutil.Process().children(recursive=True)} - {os.getpid()}
            os.kill(server, signal.SIGKILL)

    assert (events[-1].rank, events[-1].reason) == (
        None,
        "The fork server, from which all ranks come, was killed, and the ranks ended with it. "
        "Run it again: a new one is started.",
    )
    assert end_of(launcher, plan_of()).part == "done"


# Cancelled at any moment.


@pytest.mark.parametrize("part", ["join", "verify", "warm up", "measure", "timeline"])
def test_a_run_is_cancelled_whatever_its_ranks_are_at(sessions, launcher, part):
    is_whole, before = earlier_run(sessions), _children()
    run = submitted(sessions, warmup_steps=1, now=datetime.now(UTC), **SMALL)
    hanging = LocalLauncher(work=partial(failing_ranks.one_hangs_in, part))

    def is_there():
        with sessions.reading() as session:
            return any(p.rank == 1 and p.part == part for p in store.progress_of(session, run.id))

    _cancel_when(is_there, sessions, hanging, run)

    back = found(sessions, run.id)
    assert (back.state, back.error) == (RunState.CANCELLED, "")
    assert _children() == before
    assert is_whole()


def test_a_run_is_cancelled_while_its_hosts_are_being_made(sessions, launcher, monkeypatch):
    monkeypatch.setattr(homes, "_building_process", failing_ranks.never_build)
    before = _children()
    run = submitted(sessions, hosts=2, now=datetime.now(UTC))

    _cancel_when(lambda: len(_children() - before) > 0, sessions, LocalLauncher(), run)

    assert found(sessions, run.id).state is RunState.CANCELLED
    assert _children() == before


def _cancel_when(condition, sessions, launcher, run):
    """Work on the run here, and cancel it from another thread once it is where it should be."""

    def cancel():
        with eventually(60) as wait:
            wait(condition)
        with sessions.begin() as session:
            assert store.request_cancel(session, run.id, now=datetime.now(UTC))

    thread = threading.Thread(target=cancel)
    thread.start()
    worker.work(sessions, launcher, owner="worker", devices=A_BOX, once=True)
    thread.join()


def test_a_cancellation_that_comes_while_the_end_is_being_written_comes_too_late_and_harms_nothing(
    sessions, monkeypatch
):
    run = submitted(sessions, now=datetime.now(UTC))
    finish, answers, clicks = store.finish, [], []

    def cancel():
        with sessions.begin() as session:
            answers.append(store.request_cancel(session, run.id, now=datetime.now(UTC)))

    def finish_meanwhile(*what, **more):
        clicks.append(threading.Thread(target=cancel))
        clicks[0].start()
        time.sleep(0.2)  # it waits for our transaction, which has written all but the end
        assert answers == []
        finish(*what, **more)

    monkeypatch.setattr(store, "finish", finish_meanwhile)

    worker.work(sessions, Script(WELL, Log(rank=0, text="said")), owner="w", devices=A_BOX, once=True)
    clicks[0].join()

    assert answers == [False]
    assert found(sessions, run.id).succeeded
    with sessions.reading() as session:
        assert [line.text for line in store.log_of(session, run.id)] == ["said"]


def test_who_gives_up_does_not_wait_for_what_is_stuck_and_it_is_tidied_once_it_comes():
    """As a run does that is cancelled while a new fork server still imports torch."""
    stuck, said = threading.Event(), []

    def opens(stack, check):
        stack.callback(said.append, "tidied")
        stuck.wait(60)
        check()
        said.append("went on")

    with Opening(opens) as opening:
        assert not opening.is_over(0.01)
    assert said == []

    stuck.set()
    assert opening.is_over(60)
    assert said == ["tidied"]


# The worker, and the launcher in it.


@pytest.mark.parametrize("moment", ["set-up", "writing"])
def test_a_worker_killed_in_set_up_or_while_it_writes_leaves_a_run_to_take_up_again(
    sessions, tmp_path, moment
):
    is_whole = earlier_run(sessions)
    run = submitted(sessions, warmup_steps=1, now=datetime.now(UTC), **SMALL)
    mark, temporary = uuid4().hex, tmp_path / "temporary"
    temporary.mkdir()
    url = sessions.kw["bind"].url.render_as_string()

    dying = subprocess.run(
        [sys.executable, "-m", "tests.lab.dying_worker", url, moment],
        env={**os.environ, "SIXFOLD_MARK": mark, "TMPDIR": str(temporary)},
        check=False,
    )

    assert dying.returncode == -9
    with eventually(10) as wait:
        wait(lambda: not _marked(mark))
        wait(lambda: not list(temporary.iterdir()))
    with sessions.begin() as session:
        assert store.reap(session, now=datetime.now(UTC) + timedelta(seconds=7)) == [run.id]
    back = found(sessions, run.id)
    assert back.error.startswith("The worker dying was not heard from for 6 s: it was killed")
    with sessions.reading() as session:
        assert store.measurements_of(session, run.id) == []  # nothing is half written
    with sqlite3.connect(tmp_path / "runs.sqlite3") as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()
    assert is_whole()

    with sessions.begin() as session:
        store.put_back(session, run.id, by="ada", now=datetime.now(UTC))
    worker.work(sessions, Script(WELL), owner="another", devices=A_BOX, once=True)
    back = found(sessions, run.id)
    assert (back.succeeded, back.attempt) == (True, 2)


def _marked(mark):
    """Living processes that were started with this mark in their environment."""
    alive = []
    for process in psutil.process_iter():
        try:
            if process.status() != psutil.STATUS_ZOMBIE and process.environ().get("SIXFOLD_MARK") == mark:
                alive.append(process.cmdline())
        except psutil.Error:
            continue
    return alive


# The ledger.


def test_a_ledger_locked_mid_run_ends_the_run_with_the_reason_as_soon_as_it_answers(
    sessions, tmp_path, monkeypatch, caplog
):
    monkeypatch.setattr(worker, "_RETRY_SECONDS", 0.1)
    is_whole = earlier_run(sessions)
    impatient = store.open_ledger(f"sqlite:///{tmp_path / 'runs.sqlite3'}?timeout=0.05")
    run = submitted(sessions, now=datetime.now(UTC))
    other = sqlite3.connect(tmp_path / "runs.sqlite3", isolation_level=None, check_same_thread=False)

    def lock():
        other.execute("BEGIN IMMEDIATE")
        threading.Timer(0.6, other.rollback).start()
        return Log(rank=0, text="said while it is locked")

    script = Script(lock, 30)
    started = time.monotonic()
    worker.work(impatient, script, owner="worker", devices=A_BOX, once=True)

    assert time.monotonic() - started < 25  # not at the run's own end
    assert script.was_closed_early
    back = found(sessions, run.id)
    assert (back.state, back.error) == (
        RunState.FAILED,
        "The ledger could not be written while the run went on: database is locked. Its ranks were ended. "
        "Run it again.",
    )
    assert f"Run {run.id} has ended, but the ledger does not take it (database is locked)." in caplog.text
    assert is_whole()
    other.close()


@pytest.mark.skipif(not shutil.which("unshare"), reason="needs unshare(1) of Linux")
def test_a_disk_full_at_the_end_of_a_run_fails_it_with_the_reason_and_loses_nothing_else(tmp_path):
    command = ["unshare", "-Urm", sys.executable, "-m", "tests.lab.full_disk", str(tmp_path)]

    def ran(seconds_full):
        said = subprocess.run([*command, str(seconds_full)], capture_output=True, text=True, check=True)
        return said.stdout.splitlines()

    lost = (
        "failed|None|0|The run went well, but the ledger could not take what it measured: "
        "database or disk is full. Make room for it and run it again."
    )
    assert ran(2) == ["done|True|1|", lost, "done|True|1|", "['runs.sqlite3']"]


# What is missing.


def test_without_torch_a_run_is_refused_with_what_to_install(tmp_path):
    packages = Path(sysconfig.get_paths()["purelib"])
    here = tmp_path / "packages"
    here.mkdir()
    for entry in packages.iterdir():
        if entry.name.split("-")[0] not in ("torch", "torchgen", "functorch") and entry.suffix != ".pth":
            (here / entry.name).symlink_to(entry)
    environment = {**os.environ, "PYTHONPATH": str(here), "SIXFOLD_HOME": str(tmp_path)}
    environment.pop("SIXFOLD_LEDGER_URL", None)
    sessions = fresh_ledger(tmp_path)
    run = submitted(sessions, now=datetime.now(UTC))

    def lab(*command):
        # -S: without the packages of this environment, which have torch.
        python = [sys.executable, "-S", "-m", "calculators.lab", *command]
        return subprocess.run(python, env=environment, capture_output=True, text=True, check=False)

    direct, queued = lab("run", "tensor-decode"), lab("work", "--once")

    what = "and ranks compute with it. Install the extra “lab”: pip install 'sixfold[lab]'."
    assert direct.returncode == 2
    assert direct.stderr.startswith("torch is not installed on ")
    assert direct.stderr.strip().endswith(what)
    assert queued.returncode == 0, queued.stderr
    back = found(sessions, run.id)
    assert back.state is RunState.FAILED
    assert back.error.startswith("torch is not installed on ")
    assert back.error.endswith(what)
