"""The ledger as readers and writers see it: what goes in comes out, and only its holder writes a run."""

import math
from datetime import UTC, datetime, timedelta, timezone

import pytest
from sqlalchemy.exc import OperationalError

from calculators.lab import reading, store
from calculators.lab.measurements import (
    Failed,
    Log,
    Measurement,
    Progress,
    Quantity,
    StepSeconds,
    Verified,
)
from calculators.lab.spec import experiment, experiment_names
from calculators.lab.store import NotYours, RunState
from tests.lab.ledgers import NOON, claimed, found, fresh_ledger, make_spec, plan_of, submitted


@pytest.fixture
def sessions(tmp_path):
    return fresh_ledger(tmp_path)


def record(sessions, run, *events, owner="worker", now=NOON):
    with sessions.begin() as session:
        store.record_events(session, run.id, events, owner=owner, now=now)


def finish(sessions, run, *, state=RunState.DONE, verified=True, failed=None, owner="worker", now=NOON):
    with sessions.begin() as session:
        store.finish(session, run.id, owner=owner, state=state, verified=verified, failed=failed, now=now)


@pytest.mark.parametrize("name", experiment_names())
def test_a_spec_comes_out_as_it_went_in(sessions, name):
    asked = experiment(name)

    with sessions.begin() as session:
        run = store.submit(session, asked, submitted_by="ada", now=NOON)

    back = found(sessions, run.id)
    assert back.spec == asked
    assert back.spec.note == asked.note
    assert back == run


def test_a_new_run_waits_and_knows_nothing_yet(sessions):
    run = submitted(sessions)

    assert run.state is RunState.QUEUED
    assert not run.is_final
    assert (run.verified, run.seconds, run.attempt, run.owner, run.error) == (None, None, 0, "", "")
    assert run.submitted_at == NOON


def test_the_first_submitted_is_the_first_claimed(sessions):
    first, second = submitted(sessions), submitted(sessions)
    with sessions.reading() as session:
        positions = [store.queue_position(session, run.id) for run in (first, second)]

    with sessions.begin() as session:
        taken = store.claim(session, owner="worker", now=NOON)

    assert positions == [1, 2]
    assert taken.id == first.id
    with sessions.reading() as session:
        assert [store.queue_position(session, run.id) for run in (first, second)] == [None, 1]
        assert store.queue_position(session, 99) is None


def test_a_claim_holds_for_one_lease_and_counts_as_an_attempt(sessions):
    run = claimed(sessions, now=NOON)

    assert (run.state, run.owner, run.attempt) == (RunState.RUNNING, "worker", 1)
    assert run.started_at == NOON
    assert run.lease_until == NOON + timedelta(seconds=6)


def test_an_empty_queue_gives_nothing(sessions):
    with sessions.begin() as session:
        assert not store.anything_queued(session)
        assert store.claim(session, owner="worker", now=NOON) is None


def test_a_run_can_be_claimed_by_its_number_and_only_once(sessions):
    submitted(sessions)
    wanted = submitted(sessions)

    with sessions.begin() as session:
        taken = store.claim(session, owner="a", now=NOON, run_id=wanted.id)
    with sessions.begin() as session:
        again = store.claim(session, owner="b", now=NOON, run_id=wanted.id)

    assert taken.id == wanted.id
    assert again is None


def test_a_heartbeat_renews_the_lease(sessions):
    run = claimed(sessions)

    with sessions.begin() as session:
        held = store.heartbeat(session, run.id, owner="worker", now=NOON + timedelta(seconds=5))

    assert held
    assert found(sessions, run.id).lease_until == NOON + timedelta(seconds=11)


def test_a_run_whose_lease_has_run_out_is_lost_as_soon_as_anybody_looks(sessions):
    run, later = claimed(sessions), NOON + timedelta(seconds=6.1)

    with sessions.reading() as session:
        assert store.overdue(session, now=NOON + timedelta(seconds=6)) == []
        assert store.overdue(session, now=later) == [run.id]
    with sessions.begin() as session:
        reaped = store.reap(session, now=later)

    lost = found(sessions, run.id)
    assert reaped == [run.id]
    assert (lost.state, lost.ended_at, lost.is_final) == (RunState.LOST, later, True)
    assert lost.error == (
        "The worker worker was not heard from for 6 s: it was killed, or its machine stopped. "
        "Run it again once a worker is there."
    )


def test_reaping_leaves_runs_that_wait_live_or_have_ended(sessions):
    done = claimed(sessions)
    finish(sessions, done)
    alive = claimed(sessions, now=NOON + timedelta(seconds=8))
    waiting = submitted(sessions)

    with sessions.begin() as session:
        assert store.reap(session, now=NOON + timedelta(seconds=10)) == []

    states = [found(sessions, run.id).state for run in (done, alive, waiting)]
    assert states == [RunState.DONE, RunState.RUNNING, RunState.QUEUED]


def test_what_a_worker_says_of_a_run_it_has_lost_is_refused_whole(sessions):
    run = claimed(sessions)
    with sessions.begin() as session:
        store.reap(session, now=NOON + timedelta(seconds=7))

    with pytest.raises(NotYours) as refused:
        record(sessions, run, Log(rank=0, text="late"), Verified(rank=0, worst=0, tolerance=1))
    with pytest.raises(NotYours):
        finish(sessions, run)
    with pytest.raises(NotYours), sessions.begin() as session:
        store.record_plan(session, run.id, plan_of(run.spec), owner="worker", machine="box", now=NOON)

    assert str(refused.value) == (
        "worker reported on run 1, but that run is lost and belongs to “worker”. Nothing was stored."
    )
    with sessions.reading() as session:
        assert store.log_of(session, run.id) == []
        assert store.verifications_of(session, run.id) == []
        assert store.predictions_of(session, run.id) == []
    assert found(sessions, run.id).state is RunState.LOST


def test_another_worker_cannot_write_a_run_that_it_does_not_hold(sessions):
    run = claimed(sessions, owner="mine")

    with pytest.raises(
        NotYours, match="theirs reported on run 1, but that run is running and belongs to “mine”"
    ):
        record(sessions, run, Log(rank=0, text="hello"), owner="theirs")
    with pytest.raises(NotYours, match="that run does not exist"), sessions.begin() as session:
        store.record_events(session, 99, [], owner="mine", now=NOON)
    with sessions.begin() as session:
        assert not store.heartbeat(session, run.id, owner="theirs", now=NOON)

    with sessions.reading() as session:
        assert store.log_of(session, run.id) == []


def test_a_waiting_run_is_cancelled_at_once(sessions):
    run = submitted(sessions)

    with sessions.begin() as session:
        assert store.request_cancel(session, run.id, now=NOON)

    assert found(sessions, run.id).state is RunState.CANCELLED
    with sessions.begin() as session:
        assert store.claim(session, owner="worker", now=NOON) is None


def test_a_running_run_is_told_at_its_next_heartbeat(sessions):
    run = claimed(sessions)

    with sessions.begin() as session:
        assert store.request_cancel(session, run.id, now=NOON)

    still = found(sessions, run.id)
    assert (still.state, still.cancel_requested) == (RunState.RUNNING, True)
    with sessions.begin() as session:
        assert not store.heartbeat(session, run.id, owner="worker", now=NOON)
    record(sessions, run, Log(rank=0, text="my last words"))
    finish(sessions, run, state=RunState.CANCELLED, verified=None)
    assert found(sessions, run.id).state is RunState.CANCELLED


def test_what_has_ended_cannot_be_cancelled(sessions):
    run = claimed(sessions)
    finish(sessions, run)

    with sessions.begin() as session:
        assert not store.request_cancel(session, run.id, now=NOON)
        assert not store.request_cancel(session, 99, now=NOON)


def test_a_plan_is_kept_with_every_prediction_in_its_order(sessions):
    run = claimed(sessions, job="pipeline")
    plan = plan_of(run.spec)

    for _ in range(2):  # told twice, kept once
        with sessions.begin() as session:
            store.record_plan(session, run.id, plan, owner="worker", machine="box (2 cores)", now=NOON)

    back = found(sessions, run.id)
    assert (back.device, back.backend, back.staged) == ("cpu", "gloo", False)
    assert (back.placement_note, back.machine, back.world_size) == ("on the CPU", "box (2 cores)", 2)
    with sessions.reading() as session:
        assert store.predictions_of(session, run.id) == list(plan.predictions)
        assert store.comparisons_of(session, run.id) == []


def test_measurements_stand_beside_their_predictions(sessions):
    run = claimed(sessions)
    plan = plan_of(run.spec)
    wanted = next(p for p in plan.predictions if p.quantity is Quantity.WIRE and p.rank == 1)
    pair = next(p for p in plan.predictions if p.quantity is Quantity.PAIR and p.rank == 1)
    with sessions.begin() as session:
        store.record_plan(session, run.id, plan, owner="worker", machine="box", now=NOON)

    record(
        sessions,
        run,
        Measurement(quantity=Quantity.PAIR, rank=1, peer=0, value=pair.predicted, steps=10),
        Measurement(quantity=Quantity.WIRE, rank=1, value=wanted.predicted + 96, steps=10),
        Measurement(quantity=Quantity.IDLE, rank=1, value=0, steps=10),
    )

    with sessions.reading() as session:
        wire, idle, to_peer = store.comparisons_of(session, run.id)
        assert (wire.rank, wire.unexplained, wire.steps) == (1, 96, 10)
        assert (to_peer.peer, to_peer.unexplained) == (0, 0)
        assert idle.measured == 0
        (control,) = store.idle_control_of(session, run.id)
        assert (control.rank, control.value) == (1, 0)


def test_the_latest_progress_of_each_rank_is_kept(sessions):
    run = claimed(sessions)

    record(
        sessions,
        run,
        Progress(rank=1, part="verify", done=0, total=1),
        Progress(rank=0, part="verify", done=0, total=1),
        Progress(rank=1, part="measure", done=3, total=10),
    )
    record(sessions, run, Progress(rank=0, part="warm up", done=1, total=3))

    with sessions.reading() as session:
        assert store.progress_of(session, run.id) == [
            Progress(rank=0, part="warm up", done=1, total=3),
            Progress(rank=1, part="measure", done=3, total=10),
        ]


def test_the_log_can_be_read_on_from_any_line(sessions):
    run, other = claimed(sessions), claimed(sessions)
    record(sessions, run, Log(rank=None, text="starting"), Log(rank=1, text="é ✓ 日本"))
    record(sessions, other, Log(rank=0, text="of another run"))
    record(sessions, run, Log(rank=0, text="x" * 10_000))

    with sessions.reading() as session:
        first, second, third = store.log_of(session, run.id)
        rest = store.log_of(session, run.id, after=first.id)

    assert (first.rank, first.text, second.text, first.at) == (None, "starting", "é ✓ 日本", NOON)
    assert rest == [second, third]
    assert len(third.text) == 4_000


def test_verification_and_step_times_are_kept_to_the_last_digit(sessions):
    run = claimed(sessions)
    seconds = (0.1 + 0.2, 1e-7, 3.0)

    record(
        sessions,
        run,
        StepSeconds(rank=1, seconds=seconds),
        Verified(rank=1, worst=float("nan"), tolerance=1e-5),
        Verified(rank=0, worst=2.2e-7, tolerance=1e-5),
    )

    with sessions.reading() as session:
        assert store.step_seconds_of(session, run.id) == [StepSeconds(rank=1, seconds=seconds)]
        good, broken = store.verifications_of(session, run.id)
    assert good == Verified(rank=0, worst=2.2e-7, tolerance=1e-5)
    assert math.isnan(broken.worst)
    assert not broken.holds


def test_a_batch_with_something_impossible_in_it_is_not_half_stored(sessions):
    run = claimed(sessions)
    record(sessions, run, Verified(rank=0, worst=0, tolerance=1))

    with pytest.raises(Exception, match="UNIQUE"):
        record(sessions, run, Log(rank=0, text="before"), Verified(rank=0, worst=0, tolerance=1))

    with sessions.reading() as session:
        assert store.log_of(session, run.id) == []


def test_a_failure_keeps_its_first_rank_reason_and_traceback(sessions):
    run = claimed(sessions)
    failed = Failed(rank=1, reason="ValueError: no", traceback="Traceback …\nValueError: no")

    record(sessions, run, failed, Failed(rank=0, reason="its peer went away"))
    finish(sessions, run, state=RunState.FAILED, verified=None, now=NOON + timedelta(seconds=2.5))

    back = found(sessions, run.id)
    assert (back.state, back.error_rank, back.error) == (RunState.FAILED, 1, "ValueError: no")
    assert back.traceback == failed.traceback
    assert (back.seconds, back.succeeded) == (2.5, False)


def test_only_a_verified_run_that_is_done_has_succeeded(sessions):
    verdicts = []
    for verified in (True, False, None):
        run = claimed(sessions)
        finish(sessions, run, verified=verified)
        verdicts.append(found(sessions, run.id).succeeded)

    assert verdicts == [True, False, False]


def test_a_run_does_not_finish_in_a_state_that_is_not_final(sessions):
    run = claimed(sessions)

    with pytest.raises(ValueError, match="cannot finish as “running”, which is not a final state"):
        finish(sessions, run, state=RunState.RUNNING)


def test_the_newest_runs_come_first_and_can_be_one_persons(sessions):
    for by in ("ada", "ben", "ada"):
        submitted(sessions, by=by)

    with sessions.reading() as session:
        everybody = [run.id for run in store.latest_runs(session, limit=2)]
        adas = [run.id for run in store.latest_runs(session, limit=10, submitted_by="ada")]

    assert everybody == [3, 2]
    assert adas == [3, 1]


def test_the_result_is_the_object_that_other_programs_read(sessions):
    run = claimed(sessions)
    plan = plan_of(run.spec)
    with sessions.begin() as session:
        store.record_plan(session, run.id, plan, owner="worker", machine="box", now=NOON)
    record(
        sessions,
        run,
        *(
            Measurement(
                quantity=p.quantity,
                rank=p.rank,
                peer=p.peer,
                detail=p.detail,
                value=p.predicted + 1,
                steps=10,
            )
            for p in plan.predictions
        ),
    )
    finish(sessions, run, now=NOON + timedelta(seconds=3))

    with sessions.reading() as session:
        result = store.result_of(session, run.id)

    rows = result.pop("comparisons")
    assert result == {
        "run": 1,
        "job": "tensor",
        "status": "done",
        "verified": True,
        "world_size": 2,
        "backend": "gloo",
        "seconds": 3.0,
        "machine": "box",
    }
    assert len(rows) == sum(p.peer is None for p in plan.predictions)
    for row in rows:
        assert row["predicted"] == row["formula"] + row["backend_excess"] + row["framing"] + row["control"]
        assert row["unexplained"] == row["measured"] - row["predicted"] == 1


def test_a_result_of_no_run_is_an_error(sessions):
    with sessions.reading() as session, pytest.raises(KeyError):
        store.result_of(session, 7)


def test_workers_are_alive_for_one_lease(sessions):
    with sessions.begin() as session:
        store.worker_seen(session, owner="old", machine="box", now=NOON)
        store.worker_seen(session, owner="new", machine="bigger box", now=NOON + timedelta(seconds=4))
    with sessions.begin() as session:
        store.worker_seen(session, owner="new", machine="bigger box", now=NOON + timedelta(seconds=5))

    with sessions.reading() as session:
        both = store.workers_alive(session, now=NOON + timedelta(seconds=6))
        one = store.workers_alive(session, now=NOON + timedelta(seconds=8))

    assert [worker.owner for worker in both] == ["old", "new"]
    assert [(w.owner, w.machine, w.started_at) for w in one] == [
        ("new", "bigger box", NOON + timedelta(seconds=4))
    ]


def test_a_worker_that_leaves_is_forgotten_and_with_it_those_of_days_ago(sessions):
    with sessions.begin() as session:
        for owner, days in (("killed long ago", 3), ("here", 0), ("leaving", 0)):
            store.worker_seen(session, owner=owner, machine="box", now=NOON - timedelta(days=days))

    with sessions.begin() as session:
        store.worker_gone(session, owner="leaving", now=NOON)

    with sessions.reading() as session:
        left = store.workers_alive(session, now=NOON - timedelta(days=3))
    assert [worker.owner for worker in left] == ["here"]


def test_times_come_back_in_utc_whatever_zone_they_were_given_in(sessions):
    in_tokyo = NOON.astimezone(timezone(timedelta(hours=9)))

    run = submitted(sessions, now=in_tokyo)

    back = found(sessions, run.id).submitted_at
    assert back == NOON
    assert back.tzinfo is UTC


def test_a_time_without_a_zone_is_refused(sessions):
    with pytest.raises(Exception, match="has no time zone; the ledger keeps UTC"):
        submitted(sessions, now=datetime(2026, 12, 1, 12))


def test_a_reader_cannot_change_anything(sessions):
    run = submitted(sessions)

    with sessions.reading() as session, pytest.raises(OperationalError, match="readonly"):
        store.claim(session, owner="worker", now=NOON)

    assert found(sessions, run.id).state is RunState.QUEUED


def test_a_reader_does_not_wait_for_a_writer(sessions):
    run = submitted(sessions)

    with sessions.begin() as writing:
        store.claim(writing, owner="worker", now=NOON)
        seen = found(sessions, run.id)  # would wait for 20 s, and fail, if it wanted the write lock

    assert seen.state is RunState.QUEUED


def test_a_spec_that_would_be_refused_today_can_still_be_read(sessions, monkeypatch):
    run = submitted(sessions, steps=10)
    monkeypatch.setitem(reading._RANGES, "steps", (100, 1_000, "steps"))

    assert found(sessions, run.id).spec == run.spec
    with pytest.raises(ValueError, match="the least that works is 100"):
        make_spec(steps=10)


def test_a_ledger_that_is_held_open_keeps_its_log_between_transactions(sessions, tmp_path):
    log = tmp_path / "runs.sqlite3-wal"

    with sessions.held_open():
        submitted(sessions)
        held = log.exists()
    let_go = log.exists()

    assert (held, let_go) == (True, False)


@pytest.mark.parametrize("number", [-1, 0, 2**31, 10**30])
def test_a_number_that_no_run_can_have_is_no_run(sessions, number):
    run = submitted(sessions)

    with sessions.begin() as session:
        assert store.get_run(session, number) is None
        assert store.queue_position(session, number) is None
        assert not store.request_cancel(session, number, now=NOON)
        assert store.log_of(session, run.id, after=number) == []
