"""Several processes at one ledger: each run has one owner, and the dead own nothing for long."""

import multiprocessing
import os
import signal
import threading
import time
from collections import Counter
from datetime import UTC, datetime

from calculators.lab import store
from calculators.lab.measurements import Log, Progress
from calculators.lab.store import RunState
from tests.lab.ledgers import A_BOX, NOON, Script, eventually, found, fresh_ledger, submitted

SPAWN = multiprocessing.get_context("spawn")


def claim_until_empty(url, owner, gate, say):
    sessions = store.open_ledger(url)
    gate.wait()
    while True:
        with sessions.begin() as session:
            run = store.claim(session, owner=owner, now=NOON)
        if run is None:
            if not still_queued(sessions):
                return
            continue
        say.put((owner, run.id, run.attempt))
        time.sleep(0.002)  # a run takes longer than that; without it one process may take them all


def still_queued(sessions):
    with sessions.reading() as session:
        return store.anything_queued(session)


def claims_by_two_processes(url, sessions, *, runs):
    """Queue so many runs, have two processes claim them all at once; (owner, run, attempt) of each claim."""
    for _ in range(runs):
        submitted(sessions)
    gate, said = SPAWN.Barrier(2), SPAWN.Queue()
    claimers = [
        SPAWN.Process(target=claim_until_empty, args=(url, owner, gate, said)) for owner in ("one", "two")
    ]
    for claimer in claimers:
        claimer.start()
    claims = [said.get(timeout=60) for _ in range(runs)]
    for claimer in claimers:
        claimer.join()
    assert said.empty()
    return claims


def test_two_processes_share_fifty_runs_and_none_is_claimed_twice(tmp_path):
    sessions = fresh_ledger(tmp_path)

    claims = claims_by_two_processes(f"sqlite:///{tmp_path / 'runs.sqlite3'}", sessions, runs=50)

    assert sorted(run for _, run, _ in claims) == list(range(1, 51))
    assert {attempt for _, _, attempt in claims} == {1}
    with sessions.reading() as session:
        owners = {run.id: run.owner for run in store.latest_runs(session, limit=100)}
    assert owners == {run: owner for owner, run, _ in claims}
    assert set(Counter(owners.values())) == {"one", "two"}


def work_for_ever(url):
    from calculators.lab.worker import work

    events = [Progress(rank=0, part="measure", done=1, total=9), Log(rank=0, text="still going"), 60]
    work(store.open_ledger(url), Script(*events), owner="doomed", devices=A_BOX)


def test_the_run_of_a_worker_that_was_killed_is_lost_within_ten_seconds(tmp_path):
    sessions = fresh_ledger(tmp_path)
    run = submitted(sessions, now=datetime.now(UTC))
    worker = SPAWN.Process(target=work_for_ever, args=(f"sqlite:///{tmp_path / 'runs.sqlite3'}",))
    worker.start()
    with eventually(30) as wait:
        wait(lambda: found(sessions, run.id).state is RunState.RUNNING)
    time.sleep(2.5)  # longer than a heartbeat

    os.kill(worker.pid, signal.SIGKILL)
    worker.join()
    killed = time.monotonic()

    def reaped():
        with sessions.begin() as session:
            return store.reap(session, now=datetime.now(UTC))

    with eventually(10) as wait:
        assert wait(reaped) == [run.id]
    assert 3 < time.monotonic() - killed < 10
    lost = found(sessions, run.id)
    assert lost.state is RunState.LOST
    assert lost.error.startswith("The worker doomed was not heard from for 6 s")
    with sessions.reading() as session:
        assert [line.text for line in store.log_of(session, run.id)] == ["still going"]
        assert store.workers_alive(session, now=datetime.now(UTC)) == []


def test_threads_that_write_at_once_lose_nothing(tmp_path):
    sessions = fresh_ledger(tmp_path)
    runs = [submitted(sessions) for _ in range(3)]
    with sessions.begin() as session:
        for run in runs:
            store.claim(session, owner="worker", now=NOON, run_id=run.id)

    def write(run):
        for number in range(20):
            with sessions.begin() as session:
                lines = [Log(rank=0, text=f"{number}")]
                store.record_events(session, run.id, lines, owner="worker", now=NOON)

    threads = [threading.Thread(target=write, args=(run,)) for run in runs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    with sessions.reading() as session:
        for run in runs:
            texts = [line.text for line in store.log_of(session, run.id)]
            assert texts == [str(number) for number in range(20)]
