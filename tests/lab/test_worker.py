"""What a worker does with a run: from the claim to the last line in the ledger, whatever happens."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime

import pytest
from sqlalchemy.exc import OperationalError

from calculators.lab import store, worker
from calculators.lab.measurements import Failed, Log, Measurement, Progress, StepSeconds, Verified
from calculators.lab.store import RunState
from tests.lab.ledgers import (
    A_BOX,
    NOON,
    Clock,
    Script,
    eventually,
    found,
    fresh_ledger,
    plan_of,
    submitted,
)

SOUND = Verified(rank=0, worst=1e-7, tolerance=1e-5), Verified(rank=1, worst=1e-7, tolerance=1e-5)


@pytest.fixture
def sessions(tmp_path):
    return fresh_ledger(tmp_path)


@pytest.fixture(autouse=True)
def _quick_heartbeats(monkeypatch):
    monkeypatch.setattr(store, "HEARTBEAT_SECONDS", 0.1)


def work_once(sessions, *events, stop=None, clock=None):
    launcher = Script(*events)
    worker.work(
        sessions,
        launcher,
        owner="worker",
        devices=A_BOX,
        once=True,
        stop=stop,
        clock=clock or Clock(),
    )
    return launcher


def log_of(sessions, run):
    with sessions.reading() as session:
        return [(line.rank, line.text) for line in store.log_of(session, run.id)]


def test_a_run_that_goes_well_is_done_verified_and_whole_in_the_ledger(sessions):
    run = submitted(sessions)
    measured = [
        Measurement(
            quantity=p.quantity, rank=p.rank, peer=p.peer, detail=p.detail, value=p.predicted, steps=10
        )
        for p in plan_of(run.spec).predictions
    ]

    launcher = work_once(
        sessions,
        Progress(rank=0, part="verify", done=0, total=1),
        *SOUND,
        None,
        Log(rank=0, text="hello"),
        *measured,
        StepSeconds(rank=0, seconds=(0.1,) * 10),
        Progress(rank=0, part="done", done=10, total=10),
    )

    back = found(sessions, run.id)
    assert (back.state, back.verified, back.succeeded) == (RunState.DONE, True, True)
    assert (back.backend, back.machine, back.owner) == ("gloo", A_BOX.machine, "worker")
    assert launcher.plans[0].spec == run.spec
    with sessions.reading() as session:
        assert len(store.comparisons_of(session, run.id)) == len(measured)
        assert store.progress_of(session, run.id)[0].part == "done"
        assert len(store.step_seconds_of(session, run.id)) == 1
    assert log_of(sessions, run) == [(0, "hello")]


def test_a_result_that_differs_from_the_unsharded_one_is_done_but_not_verified(sessions):
    run = submitted(sessions)

    work_once(sessions, SOUND[0], Verified(rank=1, worst=0.5, tolerance=1e-5))

    back = found(sessions, run.id)
    assert (back.state, back.verified, back.succeeded) == (RunState.DONE, False, False)


def test_a_run_that_proved_nothing_is_not_called_verified(sessions):
    run = submitted(sessions)

    work_once(sessions, Log(rank=0, text="nothing to compare"))

    assert (found(sessions, run.id).state, found(sessions, run.id).verified) == (RunState.DONE, None)


def test_a_rank_that_fails_is_kept_with_its_traceback_and_what_was_said_before(sessions):
    run = submitted(sessions)
    failed = Failed(rank=1, reason="ValueError: no", traceback="Traceback …")

    work_once(sessions, SOUND[0], Log(rank=1, text="last words"), failed, Log(rank=0, text="never read"))

    back = found(sessions, run.id)
    assert (back.state, back.verified) == (RunState.FAILED, None)
    assert (back.error_rank, back.error, back.traceback) == (1, "ValueError: no", "Traceback …")
    assert log_of(sessions, run) == [(1, "last words")]


def test_a_mistake_of_the_lab_fails_the_run_with_a_sentence_and_the_worker_goes_on(sessions):
    first, second = submitted(sessions), submitted(sessions)

    def break_something():
        raise RuntimeError("the fork server\nis gone")

    work_once(sessions, Log(rank=0, text="so far"), break_something)
    work_once(sessions, *SOUND)

    back = found(sessions, first.id)
    assert (back.state, back.error_rank) == (RunState.FAILED, None)
    assert back.error == "The lab failed, not a rank: RuntimeError: the fork server"
    assert "break_something" in back.traceback
    assert log_of(sessions, first) == [(0, "so far")]
    assert found(sessions, second.id).succeeded


def test_a_spec_that_this_machine_cannot_run_fails_with_the_sentence(sessions):
    run = submitted(sessions, device="cuda")

    launcher = work_once(sessions, *SOUND)

    back = found(sessions, run.id)
    assert back.state is RunState.FAILED
    assert back.error.startswith("device is “cuda”, but this machine offers no NVIDIA GPU")
    assert back.traceback == ""
    assert launcher.plans == []


def test_a_cancelled_run_ends_its_ranks_at_the_next_heartbeat(sessions):
    run = submitted(sessions)

    def cancel():
        with sessions.begin() as session:
            store.request_cancel(session, run.id, now=NOON)

    started = time.monotonic()
    launcher = work_once(sessions, Log(rank=0, text="before"), cancel, 30)

    assert time.monotonic() - started < 5
    assert launcher.was_closed_early
    assert found(sessions, run.id).state is RunState.CANCELLED
    assert log_of(sessions, run) == [(0, "before")]


def test_a_run_that_was_taken_away_ends_its_ranks_and_writes_nothing_more(sessions):
    run = submitted(sessions)

    def lose():
        clock.turn(7)  # the machine slept, and somebody looked meanwhile
        with sessions.begin() as session:
            store.reap(session, now=clock())

    clock = Clock()
    launcher = work_once(sessions, lose, Log(rank=0, text="too late"), 30, clock=clock)

    assert launcher.was_closed_early
    back = found(sessions, run.id)
    assert (back.state, back.error_rank) == (RunState.LOST, None)
    assert log_of(sessions, run) == []


def test_a_long_run_keeps_its_lease(sessions):
    run = submitted(sessions)
    clock = Clock()

    def turn():
        clock.turn(4)
        with sessions.begin() as session:
            assert store.reap(session, now=clock()) == []

    work_once(sessions, turn, 0.2, turn, 0.2, turn, 0.2, *SOUND, clock=clock)

    back = found(sessions, run.id)
    assert back.succeeded
    assert back.seconds == 12


def test_stopping_the_worker_marks_its_run_lost_and_says_why(sessions):
    run = submitted(sessions)
    stop = threading.Event()

    launcher = work_once(sessions, Log(rank=0, text="before"), stop.set, 30, stop=stop)

    back = found(sessions, run.id)
    assert launcher.was_closed_early
    assert back.state is RunState.LOST
    assert back.error == "The worker was stopped before the run had ended."
    assert log_of(sessions, run) == [(0, "before")]


def test_a_worker_finds_the_runs_of_silent_ones(sessions):
    run = submitted(sessions)
    with sessions.begin() as session:
        store.claim(session, owner="silent", now=NOON)

    work_once(sessions, clock=Clock(NOON.replace(hour=13)))

    assert found(sessions, run.id).state is RunState.LOST


def test_events_are_written_in_a_few_transactions_not_one_each(sessions, monkeypatch):
    run = submitted(sessions)
    written = []
    record = store.record_events

    def count(session, run_id, events, **who):
        written.append(len(events))
        record(session, run_id, events, **who)

    monkeypatch.setattr(store, "record_events", count)

    work_once(sessions, *(Log(rank=0, text=f"{number}") for number in range(500)))

    assert sum(written) == 500
    assert len(written) <= 5
    assert len(log_of(sessions, run)) == 500


def test_progress_can_be_seen_while_the_run_goes_on(sessions):
    run = submitted(sessions)
    seen = []

    def look():
        with sessions.reading() as session:
            seen.extend(store.progress_of(session, run.id))

    work_once(sessions, Progress(rank=0, part="verify", done=0, total=1), 0.3, look)

    assert seen == [Progress(rank=0, part="verify", done=0, total=1)]


def test_a_ledger_that_does_not_answer_for_a_while_does_not_end_the_worker(sessions, monkeypatch, caplog):
    run = submitted(sessions)
    claim, trouble = store.claim, [OperationalError("SELECT", {}, Exception("server closed the connection"))]
    monkeypatch.setattr(worker, "_RETRY_SECONDS", 0.01)

    def fail_once(session, **who):
        if trouble:
            raise trouble.pop()
        return claim(session, **who)

    monkeypatch.setattr(store, "claim", fail_once)

    work_once(sessions, *SOUND)

    assert found(sessions, run.id).succeeded
    assert "The ledger does not answer (server closed the connection); trying again." in caplog.text


def test_a_worker_is_known_while_it_is_there_and_gone_when_it_leaves(sessions):
    stop, here = threading.Event(), {}

    def look(name):
        with sessions.reading() as session:
            here[name] = [(w.owner, w.machine) for w in store.workers_alive(session, now=NOON)]
        return here[name]

    arguments = {"owner": "worker", "devices": A_BOX, "stop": stop, "clock": Clock()}
    thread = threading.Thread(target=worker.work, args=(sessions, Script()), kwargs=arguments)
    thread.start()
    with eventually(5) as wait:
        wait(lambda: look("during"))
    stop.set()
    thread.join(5)
    look("after")

    assert here == {"during": [("worker", A_BOX.machine)], "after": []}


def test_an_idle_worker_takes_a_click_at_once(sessions):
    stop = threading.Event()
    arguments = {"owner": "worker", "devices": A_BOX, "stop": stop}
    thread = threading.Thread(target=worker.work, args=(sessions, Script(*SOUND)), kwargs=arguments)
    thread.start()
    time.sleep(0.3)

    run = submitted(sessions, now=datetime.now(UTC))
    with eventually(5) as wait:
        ended = wait(lambda: (now := found(sessions, run.id)).is_final and now)
    stop.set()
    thread.join(5)

    assert ended.succeeded
    assert (ended.started_at - ended.submitted_at).total_seconds() < 1


# With real ranks.


@pytest.mark.distributed
@pytest.mark.parametrize("job", ["tensor", "pipeline"])
def test_real_ranks_leave_a_verified_run_with_nothing_unexplained(sessions, launcher, job):
    run = submitted(sessions, job=job, now=datetime.now(UTC))

    worker.work(sessions, launcher, owner="worker", devices=A_BOX, once=True)

    back = found(sessions, run.id)
    assert back.succeeded, back.traceback or back.error
    with sessions.reading() as session:
        comparisons = store.comparisons_of(session, run.id)
        assert len(comparisons) == len(store.predictions_of(session, run.id))
        assert {c.unexplained for c in comparisons} == {0}
        assert {c.steps for c in comparisons} == {10}
        assert [m.value for m in store.idle_control_of(session, run.id)] == [0, 0]
        assert [len(s.seconds) for s in store.step_seconds_of(session, run.id)] == [10, 10]
        assert [p.part for p in store.progress_of(session, run.id)] == ["done", "done"]


def work_command(sessions, *more):
    url = sessions.kw["bind"].url.render_as_string()
    command = [sys.executable, "-m", "calculators.lab", "work", "--ledger", url, *more]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def descendants_of(pid):
    psutil = pytest.importorskip("psutil")
    return psutil.Process(pid).children(recursive=True)


def wait_until_measuring(sessions, run):
    def parts():
        with sessions.reading() as session:
            return {p.part for p in store.progress_of(session, run.id)} == {"measure"}

    with eventually(60) as wait:
        wait(parts)


def gone(processes):
    return lambda: not any(p.is_running() and p.status() != "zombie" for p in processes)


@pytest.mark.distributed
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_told_to_stop_leaves_no_rank_and_a_tidy_ledger(sessions, signum):
    run = submitted(sessions, steps=10_000, now=datetime.now(UTC))
    process = work_command(sessions)
    wait_until_measuring(sessions, run)
    ranks = descendants_of(process.pid)

    process.send_signal(signum)
    said, _ = process.communicate(timeout=20)

    assert process.returncode == 0, said
    assert len(ranks) >= 3  # the fork server and two ranks
    with eventually(3) as wait:
        wait(gone(ranks))
    back = found(sessions, run.id)
    assert (back.state, back.error) == (
        RunState.LOST,
        "The worker was stopped before the run had ended.",
    )
    assert f"Run {run.id} (tensor): The worker was stopped" in said


@pytest.mark.distributed
def test_a_killed_worker_takes_its_ranks_along(sessions):
    run = submitted(sessions, steps=10_000, now=datetime.now(UTC))
    process = work_command(sessions)
    wait_until_measuring(sessions, run)
    ranks = descendants_of(process.pid)

    process.kill()
    process.communicate()

    with eventually(5) as wait:
        wait(gone(ranks))


def start_a_worker_and_wait(url, pids):
    command = [sys.executable, "-m", "calculators.lab", "work", "--ledger", url]
    process = subprocess.Popen([*command, "--with-parent", str(os.getpid())], stdout=subprocess.DEVNULL)
    pids.put(process.pid)
    process.wait()


@pytest.mark.distributed
def test_a_worker_bound_to_its_parent_ends_with_it_even_when_that_was_killed(sessions):
    psutil = pytest.importorskip("psutil")
    context = multiprocessing.get_context("spawn")
    pids, url = context.Queue(), sessions.kw["bind"].url.render_as_string()
    parent = context.Process(target=start_a_worker_and_wait, args=(url, pids))
    parent.start()
    child = psutil.Process(pids.get(timeout=30))

    def is_there():
        with sessions.reading() as session:
            return store.workers_alive(session, now=datetime.now(UTC))

    with eventually(30) as wait:
        wait(is_there)

    os.kill(parent.pid, signal.SIGKILL)
    parent.join()

    with eventually(10) as wait:
        wait(gone([child]))
