"""The limits of an installation: read from its environment, and held where a run is asked for."""

import os
import subprocess
import sys
import threading

import pytest

from calculators.lab import cli, limits, store, worker
from calculators.lab.quota import OverQuota, Quota, QuotaError, wire_bytes
from calculators.lab.store import RunState
from tests.lab.ledgers import A_BOX, NOON, Clock, Script, found, fresh_ledger, make_spec, submitted
from tests.lab.test_cli import scripted


@pytest.fixture
def sessions(tmp_path):
    return fresh_ledger(tmp_path)


def said(quota, **given):
    return [(problem.field, problem.message) for problem in quota.problems(make_spec(**given))]


def test_the_environment_sets_each_limit_and_leaves_the_others_as_usual():
    quota = Quota.from_environment({"SIXFOLD_LAB_MAX_RANKS": "4", "SIXFOLD_LAB_MAX_BYTES": " 1_000_000 "})

    assert (quota.max_ranks, quota.max_bytes) == (4, 1_000_000)
    assert quota.max_runs == Quota().max_runs


@pytest.mark.parametrize("text", ["many", "0", "-1", "1.5", "²"])
def test_a_value_that_is_no_limit_is_refused_with_the_variable_and_what_to_write(text):
    with pytest.raises(QuotaError) as refused:
        Quota.from_environment({"SIXFOLD_LAB_MAX_RANKS": text})

    assert str(refused.value) == (
        f"SIXFOLD_LAB_MAX_RANKS is “{text}”, but a limit is a whole number of ranks from 1 up. "
        "Write a number, or unset it for the usual 16."
    )


def test_every_limit_of_a_run_is_said_with_what_was_asked_and_what_to_change():
    assert said(Quota()) == []
    assert said(Quota(max_ranks=3, max_seconds=60), ranks=4) == [
        (
            "ranks",
            "This run asks for 4 ranks, and the limit is 3 (SIXFOLD_LAB_MAX_RANKS). Take 3 or fewer.",
        ),
        (
            "time_limit_seconds",
            "This run may take 120 s, and the limit is 60 s (SIXFOLD_LAB_MAX_SECONDS). "
            "Give it a time limit of 60 s or less.",
        ),
    ]


def test_memory_and_wire_bytes_are_predicted_before_anything_starts():
    exchange = {"job": "exchange", "pattern": "gradients", "call_bytes": 2**20, "repeats": 4}
    spec = make_spec(**exchange, warmup_steps=2)
    # Two ranks each send a gradient once a call and repeat; 10 steps and the 2 before them.
    assert wire_bytes(spec) == pytest.approx(2 * 2**20 * 4 * 12, rel=0.001)
    assert limits.memory_bytes(spec) == 2 * 8 * 2**20

    tight = Quota(max_bytes=2**20, max_memory_bytes=2**20)
    assert said(tight, **exchange, warmup_steps=2) == [
        (
            "call_bytes",
            "The ranks of this run would need about 16.0 MiB of memory together, and the limit is 1.0 MiB "
            "(SIXFOLD_LAB_MAX_MEMORY_BYTES). Take smaller calls or fewer ranks.",
        ),
        (
            "steps",
            "This run would put about 96.1 MiB on the wire, and the limit is 1.0 MiB "
            "(SIXFOLD_LAB_MAX_BYTES). Take fewer steps, or smaller or fewer calls.",
        ),
    ]


def test_a_limit_of_the_environment_holds_for_whoever_submits(sessions, monkeypatch):
    monkeypatch.setenv("SIXFOLD_LAB_MAX_RANKS", "2")

    with pytest.raises(OverQuota, match="asks for 4 ranks, and the limit is 2"):
        submitted(sessions, ranks=4)

    with sessions.reading() as session:
        assert store.latest_runs(session, limit=1) == []


def test_waiting_and_running_runs_count_and_ended_ones_do_not(sessions, monkeypatch):
    monkeypatch.setenv("SIXFOLD_LAB_MAX_RUNS_PER_PERSON", "2")
    monkeypatch.setenv("SIXFOLD_LAB_MAX_RUNS", "3")
    first, _ = submitted(sessions), submitted(sessions)
    with sessions.begin() as session:
        store.claim(session, owner="worker", now=NOON)

    with pytest.raises(OverQuota) as refused:
        submitted(sessions)
    assert str(refused.value) == (
        "ada has 2 runs waiting or running, and the limit is 2 for each person "
        "(SIXFOLD_LAB_MAX_RUNS_PER_PERSON). Wait until one has ended, or cancel one."
    )
    submitted(sessions, by="bob")
    with pytest.raises(OverQuota) as refused:
        submitted(sessions, by="eve")
    assert str(refused.value) == (
        "There are 3 runs waiting or running, and the limit is 3 for everybody together "
        "(SIXFOLD_LAB_MAX_RUNS). Try again when some have ended."
    )
    with sessions.begin() as session:
        store.finish(
            session, first.id, owner="worker", state=RunState.DONE, verified=True, failed=None, now=NOON
        )
    submitted(sessions)


def test_of_clicks_that_arrive_together_only_as_many_pass_as_may(sessions, monkeypatch):
    monkeypatch.setenv("SIXFOLD_LAB_MAX_RUNS_PER_PERSON", "3")
    together, refused = threading.Barrier(8), []

    def click():
        together.wait()
        try:
            submitted(sessions)
        except OverQuota as error:
            refused.append(error)

    threads = [threading.Thread(target=click) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(refused) == 5
    with sessions.reading() as session:
        assert len(store.latest_runs(session, limit=10)) == 3


def test_a_worker_refuses_what_it_has_no_room_for_and_says_that_it_was_the_worker(sessions):
    run = submitted(sessions, ranks=4)
    launcher = Script()

    worker.work(
        sessions,
        launcher,
        owner="worker",
        devices=A_BOX,
        once=True,
        clock=Clock(),
        quota=Quota(max_ranks=2),
    )

    back = found(sessions, run.id)
    assert back.state is RunState.FAILED
    assert back.error == (
        "The worker on box refuses this run. This run asks for 4 ranks, and the limit is 2 "
        "(SIXFOLD_LAB_MAX_RANKS). Take 2 or fewer."
    )
    assert (back.traceback, launcher.plans) == ("", [])


def test_a_machine_gives_no_more_memory_than_it_has():
    assert Quota().within(2**30).max_memory_bytes == int(0.8 * 2**30)
    assert Quota(max_memory_bytes=2**20).within(2**30).max_memory_bytes == 2**20


def test_run_on_the_command_line_is_held_to_the_limits_of_a_run_but_not_to_their_number(
    tmp_path, monkeypatch, capsys
):
    sessions = fresh_ledger(tmp_path)
    ledger = ["--ledger", sessions.kw["bind"].url.render_as_string()]
    monkeypatch.setenv("SIXFOLD_LAB_MAX_RUNS_PER_PERSON", "1")
    monkeypatch.setattr(cli, "_who", lambda: "ada")
    scripted(monkeypatch)
    first = submitted(sessions)

    assert cli.main(["run", "tensor-decode", "--json", *ledger]) == cli.NOT_GOOD  # it proved nothing
    assert cli.main(["again", str(first.id), *ledger]) == cli.CANNOT
    assert capsys.readouterr().err.startswith("ada has 1 run waiting or running, and the limit is 1 for each")
    monkeypatch.setenv("SIXFOLD_LAB_MAX_RANKS", "1")
    assert cli.main(["run", "tensor-decode", *ledger]) == cli.CANNOT
    assert capsys.readouterr().err == (
        "This run asks for 2 ranks, and the limit is 1 (SIXFOLD_LAB_MAX_RANKS). Take 1 or fewer.\n"
    )
    with sessions.reading() as session:
        assert len(store.latest_runs(session, limit=10)) == 2


@pytest.mark.parametrize("command", [["-m", "calculators.lab", "work", "--once"], ["manage.py", "check"]])
def test_a_value_that_is_no_limit_is_said_at_start(tmp_path, command):
    environment = {
        **os.environ,
        "SIXFOLD_LAB_MAX_RUNS": "lots",
        "SIXFOLD_HOME": str(tmp_path),
        "DJANGO_SETTINGS_MODULE": "tutor.settings",
    }

    said = subprocess.run(
        [sys.executable, *command], env=environment, capture_output=True, text=True, check=False
    )

    assert said.returncode != 0
    assert said.stderr == (
        "SIXFOLD_LAB_MAX_RUNS is “lots”, but a limit is a whole number of runs from 1 up. "
        "Write a number, or unset it for the usual 500.\n"
    )
