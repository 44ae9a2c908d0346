"""The same ledger on PostgreSQL: tables, queue, and values that come back as they went in."""

import os
import threading
import uuid
from datetime import UTC, datetime, timedelta, timezone

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.exc import DBAPIError

from calculators.lab import database, rows, store
from calculators.lab.measurements import Failed, Log, Measurement, Progress, StepSeconds, Verified
from calculators.lab.quota import OverQuota
from calculators.lab.spec import experiment
from calculators.lab.store import LedgerError, NotYours, RunState
from tests.lab.ledgers import NOON, claimed, found, fresh_ledger, plan_of, submitted
from tests.lab.test_ledger_claims import claims_by_two_processes

pytestmark = pytest.mark.postgres


@pytest.fixture
def url():
    """A database of its own, gone afterwards."""
    server = database._engine(os.environ["SIXFOLD_TEST_POSTGRES_URL"]).url
    name = f"sixfold_ledger_{uuid.uuid4().hex[:12]}"
    admin = create_engine(server, isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    yield server.set(database=name).render_as_string(hide_password=False)
    with admin.connect() as connection:
        connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
    admin.dispose()


@pytest.fixture
def sessions(url):
    store.migrate(url)
    opened = store.open_ledger(url)
    yield opened
    opened.kw["bind"].dispose()


def test_the_tables_are_those_that_the_rows_describe(url, sessions):
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    store.migrate(url)

    with sessions.kw["bind"].connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), rows.Base.metadata) == []
    assert database.inspect_ledger(url)[1] == store.HEAD


def test_an_address_as_django_spells_it_works(url):
    store.migrate(url.replace("postgresql+psycopg://", "postgres://"))

    assert database.inspect_ledger(url)[1] == store.HEAD


def test_a_database_that_is_not_there_is_said_so(url):
    with pytest.raises(
        LedgerError, match=r'cannot be opened: .*"?there_is_no_such_database"? does not exist'
    ):
        store.migrate(url.rpartition("/")[0] + "/there_is_no_such_database")


def test_two_processes_share_fifty_runs_and_none_is_claimed_twice(url, sessions):
    claims = claims_by_two_processes(url, sessions, runs=50)

    assert sorted(run for _, run, _ in claims) == list(range(1, 51))
    assert {attempt for _, _, attempt in claims} == {1}


def test_a_claim_in_progress_is_skipped_not_waited_for(sessions):
    first, second = submitted(sessions), submitted(sessions)

    with sessions.begin() as one, sessions.begin() as other:
        mine = store.claim(one, owner="one", now=NOON)
        theirs = store.claim(other, owner="other", now=NOON)

    assert (mine.id, theirs.id) == (first.id, second.id)


def test_everything_comes_back_as_it_went_in(sessions):
    in_tokyo = NOON.astimezone(timezone(timedelta(hours=9)))
    spec = experiment("pipeline-training")
    with sessions.begin() as session:
        run = store.submit(session, spec, submitted_by="ada é", now=in_tokyo)
        store.claim(session, owner="worker", now=NOON)
    plan = plan_of(spec)
    seconds, nan = (0.1 + 0.2, 1e-7), float("nan")
    events = [
        Progress(rank=1, part="measure", done=3, total=10),
        Log(rank=None, text="✓"),
        Verified(rank=0, worst=nan, tolerance=1e-5),
        StepSeconds(rank=0, seconds=seconds),
        *(
            Measurement(
                quantity=p.quantity, rank=p.rank, peer=p.peer, detail=p.detail, value=p.predicted, steps=10
            )
            for p in plan.predictions
        ),
    ]

    with sessions.begin() as session:
        store.record_plan(session, run.id, plan, owner="worker", machine="box", now=NOON)
        store.record_events(session, run.id, events, owner="worker", now=NOON)
    with sessions.begin() as session:
        store.finish(
            session,
            run.id,
            owner="worker",
            state=RunState.FAILED,
            verified=False,
            failed=Failed(rank=1, reason="no", traceback="…"),
            now=NOON + timedelta(seconds=2),
        )

    back = found(sessions, run.id)
    assert (back.spec, back.spec.note, back.submitted_by) == (spec, spec.note, "ada é")
    assert (back.submitted_at, back.submitted_at.tzinfo) == (NOON, UTC)
    assert (back.state, back.error_rank, back.seconds) == (RunState.FAILED, 1, 2.0)
    with sessions.reading() as session:
        assert store.predictions_of(session, run.id) == list(plan.predictions)
        comparisons = store.comparisons_of(session, run.id)
        assert len(comparisons) == len(plan.predictions)
        assert {c.unexplained for c in comparisons} == {0}
        assert store.step_seconds_of(session, run.id) == [StepSeconds(rank=0, seconds=seconds)]
        assert not store.verifications_of(session, run.id)[0].holds
        assert store.progress_of(session, run.id) == [events[0]]
        assert [line.text for line in store.log_of(session, run.id)] == ["✓"]


def test_a_worker_that_lost_its_run_writes_nothing(sessions):
    run = claimed(sessions, now=NOON)
    with sessions.begin() as session:
        assert store.reap(session, now=NOON + timedelta(seconds=7)) == [run.id]

    with pytest.raises(NotYours), sessions.begin() as session:
        store.record_events(session, run.id, [Log(rank=0, text="late")], owner="worker", now=NOON)

    with sessions.reading() as session:
        assert store.log_of(session, run.id) == []


def test_a_reader_cannot_change_anything_and_the_next_writer_can(sessions):
    submitted(sessions)

    with sessions.reading() as session, pytest.raises(DBAPIError, match="read-only"):
        store.claim(session, owner="worker", now=datetime.now(UTC))

    assert claimed(sessions).state is RunState.RUNNING


def test_of_clicks_that_arrive_together_only_as_many_pass_as_may(sessions, monkeypatch):
    monkeypatch.setenv("SIXFOLD_LAB_MAX_RUNS_PER_PERSON", "3")
    together, refused = threading.Barrier(6), []

    def click():
        together.wait()
        try:
            submitted(sessions)
        except OverQuota as error:
            refused.append(error)

    threads = [threading.Thread(target=click) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(refused) == 3


def test_runs_are_found_imported_put_back_and_deleted(sessions, tmp_path):
    theirs = fresh_ledger(tmp_path)
    run = claimed(theirs, note="Over 100% load")
    with theirs.begin() as session:
        store.record_plan(session, run.id, plan_of(run.spec), owner="worker", machine="a box", now=NOON)
        store.record_events(session, run.id, [Log(rank=0, text="said")], owner="worker", now=NOON)
        store.reap(session, now=NOON + timedelta(hours=1))

    with sessions.begin() as session:
        (number,) = store.import_ledger(session, tmp_path / "runs.sqlite3").runs

    with sessions.reading() as session:
        assert [r.id for r in store.runs_matching(session, text="OVER 100%", family="tp", limit=5)] == [
            number
        ]
        assert store.runs_matching(session, text="over 1000", limit=5) == []
        assert store.runs_by_state(session)[RunState.LOST] == 1
        assert store.predictions_of(session, number) == list(plan_of(run.spec).predictions)
    with sessions.begin() as session:
        assert store.put_back(session, number, by="ada", now=NOON).state is RunState.QUEUED
        assert store.predictions_of(session, number) == []
        store.request_cancel(session, number, now=NOON)
        store.delete_run(session, number)
    assert found(sessions, number) is None
