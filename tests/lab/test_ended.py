"""What people do with runs that have ended: run again, put back, delete, find, and import from another box."""

import sqlite3

import pytest

from calculators.lab import cli, store
from calculators.lab.measurements import (
    Doing,
    Failed,
    Log,
    Measurement,
    Series,
    Span,
    StepSeconds,
    Timeline,
    Verified,
)
from calculators.lab.rows import Base
from calculators.lab.store import Impossible, LedgerError, RunState
from tests.lab.ledgers import NOON, claimed, found, fresh_ledger, make_spec, plan_of, submitted

LATER = NOON.replace(hour=13)


@pytest.fixture
def sessions(tmp_path):
    return fresh_ledger(tmp_path)


def ended(sessions, *, state=RunState.DONE, owner="worker", failed=None, now=NOON, **given):
    """A run with a row in every table."""
    run = claimed(sessions, owner=owner, now=now, **given)
    plan = plan_of(run.spec)
    with sessions.begin() as session:
        store.record_plan(session, run.id, plan, owner=owner, machine="a box", now=now)
        events = [
            Verified(rank=0, worst=0.0, tolerance=1e-5),
            Log(rank=0, text="said"),
            StepSeconds(rank=0, seconds=(0.1, 0.2)),
            Series(rank=0, name="loss", values=(1.0, 0.5)),
            Timeline(rank=0, spans=(Span(0.0, 1.0, Doing.BUSY, "step"),)),
            *measured(plan),
        ]
        store.record_events(session, run.id, events, owner=owner, now=now)
        store.finish(session, run.id, owner=owner, state=state, verified=True, failed=failed, now=now)
    return found(sessions, run.id)


def measured(plan):
    return [
        Measurement(
            quantity=p.quantity, rank=p.rank, peer=p.peer, detail=p.detail, value=p.predicted, steps=10
        )
        for p in plan.predictions
    ]


def lost(sessions):
    run = claimed(sessions)
    with sessions.begin() as session:
        store.record_plan(session, run.id, plan_of(run.spec), owner="worker", machine="a box", now=NOON)
        store.record_events(session, run.id, [Log(rank=0, text="said")], owner="worker", now=NOON)
    with sessions.begin() as session:
        assert store.reap(session, now=LATER) == [run.id]
    return run


def rows_of(sessions, run_id):
    """How many rows each table has of a run."""
    with sessions.reading() as session:
        return {
            table.name: session.query(table).filter(table.c.run_id == run_id).count()
            for table in Base.metadata.tables.values()
            if "run_id" in table.c
        }


def test_a_run_again_is_a_new_run_of_the_same_spec_in_the_same_trial(sessions):
    with sessions.begin() as session:
        first = store.submit(
            session, make_spec(), submitted_by="ada", now=NOON, experiment="e", trial="t", variant="v"
        )
    with sessions.begin() as session:
        again = store.run_again(session, first.id, submitted_by="bob", now=LATER)

    assert again.id != first.id
    assert (again.spec, again.state, again.submitted_by) == (first.spec, RunState.QUEUED, "bob")
    assert (again.experiment, again.trial, again.variant) == ("e", "t", "v")
    with sessions.begin() as session, pytest.raises(Impossible, match=r"^There is no run 99 in this ledger"):
        store.run_again(session, 99, submitted_by="bob", now=LATER)


def test_a_lost_run_goes_back_into_the_queue_with_its_log_and_nothing_else(sessions):
    run = lost(sessions)
    assert rows_of(sessions, run.id)["prediction"] > 0

    with sessions.begin() as session:
        back = store.put_back(session, run.id, by="bob", now=LATER)

    assert (back.state, back.error, back.owner, back.started_at) == (RunState.QUEUED, "", "", None)
    assert {table: rows for table, rows in rows_of(sessions, run.id).items() if rows} == {"log": 2}
    with sessions.reading() as session:
        assert store.log_of(session, run.id)[-1].text.startswith(
            "Attempt 1 was lost. The worker worker was not heard from for 6 s"
        )
    with sessions.begin() as session:
        assert store.claim(session, owner="another", now=LATER).attempt == 2


def test_only_a_lost_run_can_be_put_back(sessions):
    run = ended(sessions)

    with sessions.begin() as session, pytest.raises(Impossible) as refused:
        store.put_back(session, run.id, by="bob", now=LATER)

    assert str(refused.value) == (
        f"Run {run.id} is done, and only a lost run can be put back in the queue. "
        "Run its spec again as a new run."
    )
    assert rows_of(sessions, run.id)["measurement"] > 0


def test_a_deleted_run_is_gone_with_all_that_it_measured_and_no_other_is(sessions):
    kept, gone = ended(sessions), ended(sessions)
    before = rows_of(sessions, kept.id)
    assert min(rows for table, rows in before.items() if table != "progress") > 0

    with sessions.begin() as session:
        store.delete_run(session, gone.id)

    assert found(sessions, gone.id) is None
    assert set(rows_of(sessions, gone.id).values()) == {0}
    assert rows_of(sessions, kept.id) == before


def test_a_run_that_has_not_ended_is_not_deleted(sessions):
    running, waiting = claimed(sessions), submitted(sessions)

    for run, state in ((running, "running"), (waiting, "queued")):
        with sessions.begin() as session, pytest.raises(Impossible) as refused:
            store.delete_run(session, run.id)
        assert str(refused.value) == (
            f"Run {run.id} is {state}, and only what has ended can be deleted. Cancel it first."
        )
        assert found(sessions, run.id) is not None


def test_runs_are_found_by_what_somebody_remembers(sessions):
    exchange = ended(sessions, job="exchange", pattern="ring", call_bytes=4096, owner="w")
    tensor = submitted(sessions, note="Ünder 100% load")
    training = submitted(sessions, job="pipeline", phase="training", microbatches=2, batch=2, by="bob")

    def matching(**wanted):
        with sessions.reading() as session:
            return [run.id for run in store.runs_matching(session, **{"limit": 10, **wanted})]

    assert matching() == [training.id, tensor.id, exchange.id]
    assert matching(limit=1, before_id=training.id) == [tensor.id]
    assert matching(family="tp") == [tensor.id]
    assert matching(family="cp") == [exchange.id]
    assert matching(phase="decode") == [tensor.id]
    assert matching(state=RunState.DONE) == [exchange.id]
    assert matching(person="bob") == [training.id]
    assert matching(text="LOAD 100%") == [tensor.id]
    assert matching(text="a box") == [exchange.id]
    assert matching(text="100_") == []
    assert matching(experiment="none") == []
    with sessions.reading() as session:
        counted = store.runs_by_state(session)
    assert (counted[RunState.QUEUED], counted[RunState.DONE], counted[RunState.LOST]) == (2, 1, 0)


def test_a_hit_far_down_is_found_behind_pages_that_do_not_fit(sessions):
    wanted = submitted(sessions, job="pipeline")
    with sessions.begin() as session:
        for _ in range(99):
            store.submit(session, make_spec(), submitted_by="bob", now=NOON)
    for by in ("eve", "dan"):
        with sessions.begin() as session:
            for _ in range(100):
                store.submit(session, make_spec(), submitted_by=by, now=NOON)

    with sessions.reading() as session:
        assert [run.id for run in store.runs_matching(session, family="pp", limit=5)] == [wanted.id]


@pytest.fixture
def other(tmp_path):
    """Another box's ledger: its sessions, and its file."""
    folder = tmp_path / "other box"
    folder.mkdir()
    return fresh_ledger(folder), folder / "runs.sqlite3"


def imported(sessions, file, **more):
    with sessions.begin() as session:
        return store.import_ledger(session, file, **more)


def test_finished_runs_of_another_box_come_over_whole_and_only_once(sessions, other):
    theirs, file = other
    ended(sessions, owner="mine")
    failed = Failed(rank=1, reason="no", traceback="T")
    first, second = ended(theirs), ended(theirs, state=RunState.FAILED, owner="w2", failed=failed)
    submitted(theirs)
    before = file.read_bytes()

    came = imported(sessions, file, called="lab-7.sqlite3")

    assert came.sentence == "2 runs imported; 1 had not ended."
    for original, number in zip((first, second), came.runs, strict=True):
        here = found(sessions, number)
        assert here.origin == f"lab-7.sqlite3 #{original.id}"
        assert {**vars(here), "id": 0, "origin": ""} == {**vars(original), "id": 0}
        assert rows_of(sessions, number) == rows_of(theirs, original.id)
        with sessions.reading() as mine, theirs.reading() as session:
            assert store.comparisons_of(mine, number) == store.comparisons_of(session, original.id)
            assert store.timelines_of(mine, number) == store.timelines_of(session, original.id)
    assert file.read_bytes() == before
    again = imported(sessions, file, called="under another name.sqlite3")
    assert again.sentence == "No run imported; 2 were here already and 1 had not ended."


def test_an_older_ledger_is_brought_up_to_date_in_a_copy(sessions, tmp_path):
    from alembic import command
    from alembic.config import Config

    from calculators.lab import database

    folder = tmp_path / "old"
    folder.mkdir()
    theirs = fresh_ledger(folder)
    run = claimed(theirs)
    with theirs.begin() as session:
        store.finish(
            session, run.id, owner="worker", state=RunState.DONE, verified=None, failed=None, now=NOON
        )
    config = Config()
    config.set_main_option("script_location", str(database.Path(database.__file__).with_name("migrations")))
    with theirs.kw["bind"].begin() as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, "0001")

    assert len(imported(sessions, folder / "runs.sqlite3").runs) == 1

    with sqlite3.connect(folder / "runs.sqlite3") as connection:
        assert connection.execute("SELECT version_num FROM alembic_version").fetchone() == ("0001",)


def test_a_ledger_with_one_run_that_cannot_be_read_here_is_not_imported_at_all(sessions, other):
    theirs, file = other
    ended(theirs)
    bad = ended(theirs, owner="w2")
    with sqlite3.connect(file) as connection:
        connection.execute("UPDATE measurement SET quantity = 'luck' WHERE run_id = ?", (bad.id,))
    connection.close()

    with pytest.raises(LedgerError) as refused:
        imported(sessions, file)

    assert str(refused.value) == (
        f"Run {bad.id} of “runs.sqlite3” cannot be read here: 'luck' is not a valid Quantity. "
        "Nothing was imported."
    )
    with sessions.reading() as session:
        assert store.latest_runs(session, limit=5) == []


def _text(file):
    file.write_text("no database")


def _another_database(file):
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE run (id INTEGER)")
    connection.close()


def _with_a_trigger(file):
    fresh_ledger(file.parent)
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TRIGGER t AFTER UPDATE ON run BEGIN DELETE FROM run; END")
    connection.close()


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda file: None, "“runs.sqlite3” cannot be read: No such file or directory."),
        (
            _text,
            "“runs.sqlite3” is no ledger: file is not a database. Give the file runs.sqlite3 of another box.",
        ),
        (
            _another_database,
            "“runs.sqlite3” is a database, but no run ledger. Give the file runs.sqlite3 of another box.",
        ),
        (
            _with_a_trigger,
            "“runs.sqlite3” is a database, but no run ledger. Give the file runs.sqlite3 of another box.",
        ),
    ],
    ids=["missing", "text", "another database", "a trigger"],
)
def test_a_file_that_is_no_ledger_is_refused_with_a_sentence(sessions, tmp_path, make, said):
    folder = tmp_path / "given"
    folder.mkdir()
    make(folder / "runs.sqlite3")

    with pytest.raises(LedgerError) as refused:
        imported(sessions, folder / "runs.sqlite3")

    assert str(refused.value) == said


def test_the_commands_again_delete_and_import_say_what_they_did(sessions, other, capsys):
    theirs, file = other
    ended(theirs, owner="theirs")
    done, gone = ended(sessions), lost(sessions)
    ledger = ["--ledger", sessions.kw["bind"].url.render_as_string()]

    def said(*command):
        code = cli.main([*map(str, command), *ledger])
        return code, "".join(capsys.readouterr())

    takes = "in the queue; a worker (`python -m calculators.lab work`) takes it.\n"
    assert said("again", gone.id) == (cli.OK, f"Run {gone.id} is back {takes}")
    assert said("again", done.id) == (cli.OK, f"Run {gone.id + 1} waits {takes}")
    assert said("delete", done.id) == (cli.OK, f"Run {done.id} is deleted.\n")
    assert said("delete", done.id) == (cli.CANNOT, f"There is no run {done.id} in this ledger.\n")
    assert said("import", file) == (cli.OK, "1 run imported.\n")
    assert said("import", "none")[0] == cli.CANNOT
