"""Where the run ledger is and how it is opened: addresses, SQLite's ways, tables brought up to date."""

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import create_engine, event, text
from sqlalchemy.engine import URL, Connection, Engine, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.orm import Session, sessionmaker
from sqlalchemy.pool import NullPool

HEAD = "0002"
"""The revision of the tables in rows.py; the newest in migrations/versions."""
_LOCKED_SECONDS = 20.0


class LedgerError(Exception):
    """The ledger cannot be opened or brought up to date; the text is the sentence to show."""


class Sessions(sessionmaker[Session]):
    """Makes sessions on one ledger: `.begin()` to change it, `.reading()` to look."""

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """A session that only looks, at one moment of the ledger; a change made in it is an error."""
        engine: Engine = self.kw["bind"]
        options: dict[str, Any] = {"ledger_reads_only": True}
        if engine.dialect.name == "postgresql":
            options |= {"postgresql_readonly": True, "isolation_level": "REPEATABLE READ"}
        with self(bind=engine.execution_options(**options)) as session:
            yield session

    @contextmanager
    def held_open(self) -> Iterator[None]:
        """Keeps the ledger's file open meanwhile, by one idle connection.

        SQLite folds its write-ahead log into the file whenever the last connection closes; without somebody
        who stays, every short transaction pays for that (half the time of a run's bookkeeping when we measured).
        """
        engine: Engine = self.kw["bind"]
        if engine.dialect.name != "sqlite":
            yield
            return
        with closing(engine.raw_connection()) as connection:
            connection.cursor().execute("SELECT count(*) FROM sqlite_master").fetchall()
            yield


def default_url() -> str:
    """The ledger of this installation: SIXFOLD_LEDGER_URL, else `runs.sqlite3` in the site's home."""
    return os.environ.get("SIXFOLD_LEDGER_URL") or f"sqlite:///{_home() / 'runs.sqlite3'}"


def open_ledger(url: str) -> Sessions:
    """Sessions on the ledger at `url`, for the life of the process: keep what you get.

    Any database URL of SQLAlchemy's, or `postgres://` as Django spells it. Its tables must be there
    (`migrate`). Raises `LedgerError` for an address that names no database.
    """
    return Sessions(bind=_engine(url), expire_on_commit=False)


def migrate(url: str) -> None:
    """Bring the tables at `url` up to date, making them (and SQLite's folder) where there are none.

    Safe to call from several processes at once. Raises `LedgerError` when the database cannot be reached, or
    was written by a newer program than this one.
    """
    engine = _engine(url, make_folder=True)
    try:
        if revision_of(engine) == HEAD:
            return  # Alembic takes most of a second to import
        _upgrade(engine)
    except SQLAlchemyError as error:
        raise _unreachable(engine, error) from error
    finally:
        engine.dispose()


def inspect_ledger(url: str) -> tuple[str, str | None]:
    """The ledger's address without its password, and the revision of its tables (None: there are none yet).

    Changes nothing, makes nothing. Raises `LedgerError` when it cannot be reached.
    """
    engine = _engine(url)
    file = engine.url.database
    if engine.dialect.name == "sqlite" and not Path(str(file)).exists():
        return _shown(engine.url), None
    try:
        return _shown(engine.url), revision_of(engine)
    except SQLAlchemyError as error:
        raise _unreachable(engine, error) from error
    finally:
        engine.dispose()


def folder_of(url: str) -> Path:
    """The folder for what belongs beside the ledger: that of a SQLite file, else the site's home."""
    address = _engine(url).url
    return (
        Path(str(address.database)).absolute().parent if address.get_backend_name() == "sqlite" else _home()
    )


def revision_of(engine: Engine) -> str | None:
    """The revision that the tables are of; None where there are none."""
    with engine.execution_options(ledger_reads_only=True).connect() as connection:
        if not engine.dialect.has_table(connection, "alembic_version"):
            return None
        return connection.execute(text("SELECT version_num FROM alembic_version")).scalar()


def _home() -> Path:
    if home := os.environ.get("SIXFOLD_HOME"):
        return Path(home).absolute()
    root = Path(__file__).resolve().parents[2]
    if (root / "manage.py").exists():
        return root / "var"  # a clone: where the site keeps its databases, too
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "sixfold"


def _shown(url: URL) -> str:
    return url.render_as_string(hide_password=True)


def _unreachable(engine: Engine, error: SQLAlchemyError) -> LedgerError:
    reason = str(getattr(error, "orig", None) or error).strip().splitlines()[0]
    return LedgerError(f"The ledger at {_shown(engine.url)} cannot be opened: {reason}.")


def _engine(url: str, *, make_folder: bool = False) -> Engine:
    try:
        address = make_url(url)
        if address.drivername in ("postgres", "postgresql"):
            address = address.set(drivername="postgresql+psycopg")
        if address.get_backend_name() == "sqlite":
            if address.database in (None, "", ":memory:"):
                raise LedgerError(
                    f"The ledger address “{url}” names no file, and a ledger in memory would be forgotten. "
                    "Write sqlite:///FILE."
                )
            if make_folder:
                Path(str(address.database)).parent.mkdir(parents=True, exist_ok=True)
            # Whoever finds the ledger locked waits; `?timeout=SECONDS` in the address says how long.
            patience = {} if "timeout" in address.query else {"timeout": _LOCKED_SECONDS}
            engine = create_engine(address, poolclass=NullPool, connect_args=patience)
            event.listen(engine, "connect", _set_up_sqlite)
            event.listen(engine, "begin", _begin_sqlite)
            return engine
        return create_engine(address, pool_pre_ping=True)
    except ArgumentError as error:
        if isinstance(error, NoSuchModuleError):
            kind = address.drivername
            raise LedgerError(f"The ledger address begins with “{kind}”, which is not known.") from error
        raise LedgerError(
            f"The ledger address “{url}” is not a database URL. Write sqlite:///FILE or "
            "postgresql://USER@HOST/DATABASE."
        ) from error
    except ImportError as error:
        raise LedgerError(
            f"The ledger at {_shown(address)} needs the Python module {error.name}, which is not installed. "
            "For PostgreSQL install the extra “cluster”."
        ) from error
    except OSError as error:
        raise LedgerError(f"The folder of the ledger cannot be made: {error}.") from error


def _set_up_sqlite(connection: Any, record: object) -> None:
    # Python's sqlite3 begins no transaction at a SELECT, which silently loses updates between processes (112
    # of 180 when we tried): take that out of its hands, and begin ourselves below.
    connection.isolation_level = None
    _write_ahead(connection)
    for pragma in ("synchronous = NORMAL", "foreign_keys = ON"):
        connection.execute(f"PRAGMA {pragma}")


def _write_ahead(connection: Any) -> None:
    """Have a write-ahead log. SQLite does not wait for the lock that this takes on a new file, so it is asked again."""
    patience = time.monotonic() + _LOCKED_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > patience:
                raise
            time.sleep(0.02)


def _begin_sqlite(connection: Connection) -> None:
    if connection.get_execution_options().get("ledger_reads_only"):
        connection.exec_driver_sql("PRAGMA query_only = ON")
        connection.exec_driver_sql("BEGIN")
    else:
        # IMMEDIATE: a transaction that reads and then writes would fail at once, without waiting, when
        # somebody else wrote in between.
        connection.exec_driver_sql("BEGIN IMMEDIATE")


def _upgrade(engine: Engine) -> None:
    from alembic import command
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).with_name("migrations")).replace("%", "%%"))
    with engine.begin() as connection:  # one transaction: a second process waits here and finds the work done
        if engine.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(6015)"))
        if engine.dialect.has_table(connection, "alembic_version"):
            found = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
            known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
            if found is not None and found not in known:
                raise LedgerError(
                    f"The ledger at {_shown(engine.url)} is of revision {found}, and this program knows none "
                    f"newer than {HEAD}. Upgrade Sixfold, or give another ledger."
                )
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
