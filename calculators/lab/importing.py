"""Taking over the finished runs of another box: its ledger file is read from a copy, and never changed."""

import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from sqlalchemy import Table, select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from calculators.lab.database import LedgerError, migrate, open_ledger
from calculators.lab.measurements import Doing, Quantity
from calculators.lab.records import RunState, run_of
from calculators.lab.rows import (
    Base,
    LogRow,
    MeasurementRow,
    PredictionRow,
    ProgressRow,
    RunRow,
    SeriesRow,
    StepSecondsRow,
    TimelineRow,
    VerificationRow,
)
from calculators.lab.spec import Spec

_WITH_NUMBERS = (PredictionRow, MeasurementRow, LogRow)
_BY_RANK = (ProgressRow, VerificationRow, StepSecondsRow, SeriesRow, TimelineRow)
_ROWS_AT_A_TIME = 10_000
_LONGEST_NAME = 200


@dataclass(frozen=True, kw_only=True)
class Imported:
    """What came of it: the numbers that the runs have here, and how many were here already or had not ended."""

    runs: tuple[int, ...]
    known: int
    unfinished: int

    @property
    def sentence(self) -> str:
        """For whoever asked."""
        came = {0: "No run", 1: "1 run"}.get(len(self.runs), f"{len(self.runs)} runs")
        left = [f"{self.known} {'was' if self.known == 1 else 'were'} here already"] if self.known else []
        left += [f"{self.unfinished} had not ended"] if self.unfinished else []
        return f"{came} imported{'; ' if left else ''}{' and '.join(left)}."


def import_ledger(session: Session, file: Path, *, called: str = "") -> Imported:
    """Copy the finished runs of the SQLite ledger `file` (an upload's own name is `called`) into this ledger.

    A run keeps its times, its people and where it ran, and its `origin` says which file and number it had. The same
    run is not taken twice, whatever its file is called. Raises `LedgerError` for a file that is no ledger, or has a
    run that cannot be read here; then, end the session without committing it, and nothing of it was imported.
    """
    name = (called or file.name)[:_LONGEST_NAME]
    with (
        tempfile.TemporaryDirectory(prefix="sixfold-import-") as folder,
        _readable(file, name, folder) as theirs,
    ):
        rows = theirs.scalars(select(RunRow).order_by(RunRow.id)).all()
        final = [row for row in rows if row.state in [state for state in RunState if state.is_final]]
        here = {_identity(row) for row in session.scalars(select(RunRow))}
        runs = []
        try:
            for row in final:
                if _identity(row) in here:
                    continue
                here.add(_identity(row))
                _check(theirs, row, name)
                runs.append(_copied(theirs, session, row, name))
        except SQLAlchemyError as error:
            reason = str(getattr(error, "orig", None) or error).splitlines()[0]
            raise LedgerError(f"“{name}” cannot be imported: {reason}. Nothing was imported.") from error
    return Imported(runs=tuple(runs), known=len(final) - len(runs), unfinished=len(rows) - len(final))


@contextmanager
def _readable(file: Path, name: str, folder: str) -> Iterator[Session]:
    """A session on a copy of the file that has today's tables."""
    copy = Path(folder) / "ledger.sqlite3"
    try:
        shutil.copyfile(file, copy)
        # What was written last may still be in the log beside it.
        if (log := file.with_name(file.name + "-wal")).exists():
            shutil.copyfile(log, copy.with_name(copy.name + "-wal"))
        _require_ledger(copy, name)
    except OSError as error:
        raise LedgerError(f"“{name}” cannot be read: {error.strerror}.") from error
    url = f"sqlite:///{copy}"
    migrate(url)
    with open_ledger(url).reading() as theirs:
        yield theirs


def _require_ledger(copy: Path, name: str) -> None:
    """Only what a ledger is made of: no view or trigger would be run by reading it."""
    try:
        with closing(sqlite3.connect(copy)) as connection:
            made = dict(connection.execute("SELECT name, type FROM sqlite_master"))
            sound = connection.execute("PRAGMA quick_check(1)").fetchone() == ("ok",)
    except sqlite3.DatabaseError as error:
        raise LedgerError(
            f"“{name}” is no ledger: {error}. Give the file runs.sqlite3 of another box."
        ) from error
    if not {"run", "measurement", "alembic_version"} <= set(made) or {"view", "trigger"} & set(made.values()):
        raise LedgerError(
            f"“{name}” is a database, but no run ledger. Give the file runs.sqlite3 of another box."
        )
    if not sound:
        raise LedgerError(f"“{name}” is damaged: copy it again while no worker writes to it.")


def _identity(row: RunRow) -> tuple[Any, ...]:
    """A worker does one run at a time, so its name and the moment of the claim tell a run from all others."""
    return row.owner, row.started_at, row.submitted_by, row.submitted_at, row.job


def _check(theirs: Session, row: RunRow, name: str) -> None:
    """Everything that a page would stumble over."""
    try:
        Spec.parse(run_of(row).spec.to_dict())
        for table in (PredictionRow, MeasurementRow):
            for quantity in theirs.scalars(select(table.quantity).where(table.run_id == row.id).distinct()):
                Quantity(quantity)
        for spans in theirs.scalars(select(TimelineRow.spans).where(TimelineRow.run_id == row.id)):
            for _start, _end, doing, _what in spans:
                Doing(doing)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise LedgerError(
            f"Run {row.id} of “{name}” cannot be read here: {reason}. Nothing was imported."
        ) from error


def _copied(theirs: Session, session: Session, row: RunRow, name: str) -> int:
    values = {
        column.key: getattr(row, column.key) for column in RunRow.__table__.columns if column.key != "id"
    }
    mine = RunRow(**{**values, "origin": row.origin or f"{name} #{row.id}"})
    session.add(mine)
    session.flush()
    for kind in _BY_RANK + _WITH_NUMBERS:
        _copy_rows(theirs, session, kind, row.id, mine.id)
    return mine.id


def _copy_rows(theirs: Session, session: Session, kind: type[Base], run_id: int, mine: int) -> None:
    table = cast(Table, kind.__table__)
    columns = [column for column in table.columns if column.key not in ("id", "run_id")]
    order = table.c.id if "id" in table.c else table.c.rank
    found = theirs.execute(select(*columns).where(table.c.run_id == run_id).order_by(order))
    for rows in found.mappings().partitions(_ROWS_AT_A_TIME):
        session.connection().execute(table.insert(), [{**row, "run_id": mine} for row in rows])
