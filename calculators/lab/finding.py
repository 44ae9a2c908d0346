"""Runs found by what somebody remembers of them, and how many there are in each state."""

from collections.abc import Iterator

from sqlalchemy import Select, func, or_, select
from sqlalchemy.orm import Session

from calculators.lab.records import Run, RunState, run_of
from calculators.lab.rows import RunRow

_AT_A_TIME = 200


def runs_matching(
    session: Session,
    *,
    family: str | None = None,
    job: str | None = None,
    phase: str | None = None,
    state: RunState | None = None,
    person: str | None = None,
    experiment: str | None = None,
    text: str | None = None,
    before_id: int | None = None,
    limit: int,
) -> list[Run]:
    """The newest runs that fit everything that is given.

    `text` is words, each of which must be in the note, the experiment's names, the machine, the reason of a failure
    or the ledger that the run came from.
    """
    query = select(RunRow).order_by(RunRow.id.desc())
    plain = {RunRow.job: job, RunRow.state: state, RunRow.submitted_by: person, RunRow.experiment: experiment}
    query = query.where(*(column == str(value) for column, value in plain.items() if value))
    if before_id is not None:
        query = query.where(RunRow.id < min(before_id, 2**31 - 1))
    for word in (text or "").split():
        said = (
            RunRow.spec["note"].as_string(),
            RunRow.job,
            RunRow.experiment,
            RunRow.variant,
            RunRow.machine,
            RunRow.error,
            RunRow.origin,
        )
        query = query.where(or_(*(column.icontains(word, autoescape=True) for column in said)))
    found = []
    for run in _one_by_one(session, query):
        if (family and family not in run.spec.families) or (
            phase and not (run.spec.has_model and run.spec.phase == phase)
        ):
            continue
        found.append(run)
        if len(found) == limit:
            break
    return found


def runs_by_state(session: Session) -> dict[RunState, int]:
    """How many runs are in each state, 0 included."""
    counted = session.execute(select(RunRow.state, func.count()).group_by(RunRow.state))
    return dict.fromkeys(RunState, 0) | {RunState(state): number for state, number in counted}


def _one_by_one(session: Session, query: Select[RunRow]) -> Iterator[Run]:
    """A page at a time, so that a few hits at the top of a large ledger do not read all of it."""
    after = None
    while True:
        page = query if after is None else query.where(RunRow.id < after)
        rows = session.scalars(page.limit(_AT_A_TIME).execution_options(populate_existing=True)).all()
        yield from map(run_of, rows)
        if len(rows) < _AT_A_TIME:
            return
        after = rows[-1].id
