"""The ledger's tables: made from nothing, brought up to date, and what is said when they cannot be."""

import multiprocessing
import os
import subprocess
import sys

import pytest
from sqlalchemy import create_engine, inspect, text

from calculators.lab import database, rows, store
from calculators.lab.store import LedgerError
from tests.lab.ledgers import NOON, make_spec


def url_in(folder, name="runs.sqlite3"):
    return f"sqlite:///{folder / name}"


def test_the_tables_are_those_that_the_rows_describe(tmp_path):
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    store.migrate(url_in(tmp_path))

    with create_engine(url_in(tmp_path)).connect() as connection:
        differences = compare_metadata(MigrationContext.configure(connection), rows.Base.metadata)
    assert differences == []


def test_the_newest_revision_is_the_one_that_the_code_expects():
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", os.path.join(os.path.dirname(store.__file__), "migrations"))

    assert ScriptDirectory.from_config(config).get_current_head() == store.HEAD


def test_migrating_makes_the_folder_and_can_be_done_again(tmp_path):
    url = url_in(tmp_path / "not" / "there yet 100%")

    store.migrate(url)
    sessions = store.open_ledger(url)
    with sessions.begin() as session:
        store.submit(session, make_spec(), submitted_by="ada", now=NOON)
    store.migrate(url)

    with sessions.reading() as session:
        assert len(store.latest_runs(session, limit=10)) == 1
    assert database.inspect_ledger(url)[1] == store.HEAD


def test_migrating_again_imports_no_alembic(tmp_path):
    store.migrate(url_in(tmp_path))
    script = (
        f"import sys; from calculators.lab import store; store.migrate({url_in(tmp_path)!r});"
        "assert 'alembic' not in sys.modules"
    )

    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)

    assert ended.returncode == 0, ended.stderr


def test_several_processes_may_migrate_at_once(tmp_path):
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=store.migrate, args=(url_in(tmp_path),)) for _ in range(3)]

    for process in processes:
        process.start()
    for process in processes:
        process.join()

    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert database.inspect_ledger(url_in(tmp_path))[1] == store.HEAD


def test_a_migration_can_be_taken_back(tmp_path):
    from alembic import command
    from alembic.config import Config

    store.migrate(url_in(tmp_path))
    engine = create_engine(url_in(tmp_path))
    config = Config()
    config.set_main_option("script_location", os.path.join(os.path.dirname(store.__file__), "migrations"))
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, "base")

    assert inspect(engine).get_table_names() == ["alembic_version"]


def test_a_ledger_written_by_a_newer_program_is_left_alone(tmp_path):
    url = url_in(tmp_path)
    store.migrate(url)
    with create_engine(url).begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))

    with pytest.raises(LedgerError) as refused:
        store.migrate(url)

    assert str(refused.value) == (
        f"The ledger at {url} is of revision 9999, and this program knows none newer than {store.HEAD}. "
        "Upgrade Sixfold, or give another ledger."
    )


@pytest.mark.parametrize(
    ("url", "said"),
    [
        (
            "runs.sqlite3",
            "The ledger address “runs.sqlite3” is not a database URL. Write sqlite:///FILE or "
            "postgresql://USER@HOST/DATABASE.",
        ),
        ("oranges://there/x", "The ledger address begins with “oranges”, which is not known."),
        (
            "sqlite://",
            "The ledger address “sqlite://” names no file, and a ledger in memory would be forgotten. "
            "Write sqlite:///FILE.",
        ),
        (
            "mysql+nomodule://there/x",
            "The ledger address begins with “mysql+nomodule”, which is not known.",
        ),
    ],
)
def test_an_address_that_is_none_is_refused_with_a_sentence(url, said):
    with pytest.raises(LedgerError) as refused:
        store.open_ledger(url)

    assert str(refused.value) == said


def test_a_driver_that_is_not_installed_is_named():
    with pytest.raises(LedgerError, match=r"needs the Python module oracledb, which is not installed\."):
        store.open_ledger("oracle+oracledb://there/x")


def test_a_file_that_is_no_database_is_said_to_be_none(tmp_path):
    (tmp_path / "runs.sqlite3").write_text(
        "not a database, but long enough to be read as the head of one" * 20
    )

    with pytest.raises(LedgerError, match="cannot be opened: file is not a database"):
        store.migrate(url_in(tmp_path))


def test_a_server_that_is_not_there_is_said_to_be_out_of_reach_without_its_password():
    with pytest.raises(LedgerError) as refused:
        store.migrate("postgresql://ada:secret@127.0.0.1:1/ledger")

    assert str(refused.value).startswith(
        "The ledger at postgresql+psycopg://ada:***@127.0.0.1:1/ledger cannot be opened: "
    )
    assert "secret" not in str(refused.value)


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").touch()

    with pytest.raises(LedgerError, match=r"The folder of the ledger cannot be made: .*file"):
        store.migrate(url_in(tmp_path / "file"))


def test_looking_at_a_ledger_makes_nothing(tmp_path):
    shown, revision = database.inspect_ledger(url_in(tmp_path))

    assert (shown, revision) == (url_in(tmp_path), None)
    assert list(tmp_path.iterdir()) == []


def test_the_default_ledger_follows_the_environment(tmp_path, monkeypatch):
    monkeypatch.delenv("SIXFOLD_LEDGER_URL", raising=False)
    monkeypatch.setenv("SIXFOLD_HOME", str(tmp_path))
    in_the_home = store.default_url()
    monkeypatch.setenv("SIXFOLD_LEDGER_URL", "postgresql://there/ledger")

    assert in_the_home == url_in(tmp_path)
    assert store.default_url() == "postgresql://there/ledger"


def test_without_an_environment_the_ledger_lies_where_the_site_keeps_its_databases(monkeypatch):
    monkeypatch.delenv("SIXFOLD_LEDGER_URL", raising=False)
    monkeypatch.delenv("SIXFOLD_HOME", raising=False)

    root = os.path.dirname(os.path.dirname(os.path.dirname(store.__file__)))
    assert store.default_url() == f"sqlite:///{root}/var/runs.sqlite3"
