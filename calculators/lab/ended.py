"""What people do with runs that have ended: delete one, put a lost one back in the queue."""

from datetime import datetime
from typing import Any

from sqlalchemy import delete, update
from sqlalchemy.orm import Session

from calculators.lab.quota import Quota
from calculators.lab.records import Run, RunState, run_of
from calculators.lab.rows import (
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

_OF_AN_ATTEMPT = (
    PredictionRow,
    MeasurementRow,
    ProgressRow,
    VerificationRow,
    StepSecondsRow,
    SeriesRow,
    TimelineRow,
)
"""What an attempt leaves, and the next one writes anew; the log is of all attempts."""
_FINAL = [state for state in RunState if state.is_final]


class Impossible(Exception):
    """What was asked cannot be done with this run; the text is the sentence to show, and nothing was changed."""


def delete_run(session: Session, run_id: int) -> None:
    """Forget a run that has ended, with everything that it measured. Raises `Impossible`."""
    row = _row(session, run_id)
    # Only while it still is final: somebody may have put it back in the queue since we looked.
    gone = delete(RunRow).where(RunRow.id == row.id, RunRow.state.in_(_FINAL))
    if session.connection().execute(gone).rowcount != 1:
        raise Impossible(
            f"Run {run_id} is {row.state}, and only what has ended can be deleted. Cancel it first."
        )
    session.expunge(row)


def put_back(session: Session, run_id: int, *, by: str, now: datetime, quota: Quota | None = None) -> Run:
    """Put a lost run back in the queue, under its number; what the lost attempt left is removed, but for its log.

    Raises `Impossible`, and `OverQuota` when there is no place in the queue (`quota` as in `submit`).
    """
    row = _row(session, run_id)
    (quota or Quota.from_environment()).require_place(session, person=row.submitted_by)
    fresh: dict[str, Any] = {
        "state": RunState.QUEUED,
        "verified": None,
        "owner": "",
        "lease_until": None,
        "started_at": None,
        "ended_at": None,
        "cancel_requested": False,
        "error": "",
        "error_rank": None,
        "traceback": "",
    }
    lost = update(RunRow).where(RunRow.id == row.id, RunRow.state == RunState.LOST)
    if session.connection().execute(lost.values(**fresh)).rowcount != 1:
        raise Impossible(
            f"Run {run_id} is {row.state}, and only a lost run can be put back in the queue. "
            "Run its spec again as a new run."
        )
    for table in _OF_AN_ATTEMPT:
        session.execute(delete(table).where(table.run_id == row.id))
    said = f"Attempt {row.attempt} was lost. {row.error} {by} put the run back in the queue."
    session.add(LogRow(run_id=row.id, rank=None, text=said, at=now))
    session.flush()
    session.refresh(row)
    return run_of(row)


def _row(session: Session, run_id: int) -> RunRow:
    row = session.get(RunRow, run_id, populate_existing=True) if 0 < run_id < 2**31 else None
    if row is None:
        raise Impossible(f"There is no run {run_id} in this ledger.")
    return row
