"""The run ledger: every run asked for, its predictions, measurements and log; it is the queue, too.

All queries of the lab are here, or offered here: `rows` has the tables, `database` opens them, `records` says what
a run is, `finding` looks for runs, `ended` does what people do with those that have ended, and `importing` takes over
another box's. Functions take a `session` and say in their name what they ask or change; what they return is
frozen. Use `with sessions.begin() as session` to change something and `with sessions.reading() as session` to
look: on SQLite a reader then never waits for a writer.
"""

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol, cast

from sqlalchemy import Table, delete, func, select, update
from sqlalchemy.orm import Session

from calculators.lab.compare import Comparison, compare
from calculators.lab.database import HEAD as HEAD
from calculators.lab.database import LedgerError as LedgerError
from calculators.lab.database import Sessions as Sessions
from calculators.lab.database import default_url as default_url
from calculators.lab.database import migrate as migrate
from calculators.lab.database import open_ledger as open_ledger
from calculators.lab.devices import Placement
from calculators.lab.ended import Impossible as Impossible
from calculators.lab.ended import delete_run as delete_run
from calculators.lab.ended import put_back as put_back
from calculators.lab.finding import runs_by_state as runs_by_state
from calculators.lab.finding import runs_matching as runs_matching
from calculators.lab.importing import Imported as Imported
from calculators.lab.importing import import_ledger as import_ledger
from calculators.lab.measurements import (
    Doing,
    Event,
    Failed,
    Log,
    Measurement,
    Prediction,
    Progress,
    Quantity,
    Series,
    Span,
    StepSeconds,
    Timeline,
    Verified,
)
from calculators.lab.quota import OverQuota as OverQuota
from calculators.lab.quota import Quota
from calculators.lab.records import Run as Run
from calculators.lab.records import RunState as RunState
from calculators.lab.records import run_of
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
    WorkerRow,
)
from calculators.lab.spec import Job, Spec

LEASE = timedelta(seconds=6)
"""How long a claim holds without a heartbeat; after it the run is lost, as soon as anybody looks."""
HEARTBEAT_SECONDS = 1.5
"""How often a worker renews its leases: four chances in a lease."""
LONGEST_LOG_TEXT = 4_000


class NotYours(Exception):
    """An event came from somebody who does not hold the run (any more); nothing of it was stored."""


class Planned(Protocol):
    """What the ledger keeps of a plan."""

    @property
    def placement(self) -> Placement: ...
    @property
    def world_size(self) -> int: ...
    @property
    def predictions(self) -> Sequence[Prediction]: ...


# What readers get.


@dataclass(frozen=True, kw_only=True)
class LogLine:
    """A line of a run's log; `id` grows, so that a page can ask for those after the last it has."""

    id: int
    rank: int | None
    text: str
    at: datetime


@dataclass(frozen=True, kw_only=True)
class Worker:
    """A worker that has been heard from lately."""

    owner: str
    machine: str
    started_at: datetime
    seen_at: datetime


# The queue.


def submit(
    session: Session,
    spec: Spec,
    *,
    submitted_by: str,
    now: datetime,
    experiment: str = "",
    trial: str = "",
    variant: str = "",
    quota: Quota | None = None,
) -> Run:
    """Put `spec` at the end of the queue; a guided experiment's runs say which, in which trial, as what.

    Raises `OverQuota` when `quota` (left out: that of the environment) does not allow it. The count and the new run
    are one transaction, so of two clicks that arrive together only one can be the last that is allowed.
    """
    quota = quota or Quota.from_environment()
    quota.require(spec)
    quota.require_place(session, person=submitted_by)
    row = RunRow(
        spec=spec.to_dict(),
        job=str(spec.job),
        state=RunState.QUEUED,
        world_size=spec.ranks,
        submitted_by=submitted_by,
        submitted_at=now,
        experiment=experiment,
        trial=trial,
        variant=variant,
    )
    session.add(row)
    session.flush()
    return run_of(row)


def run_again(
    session: Session, run_id: int, *, submitted_by: str, now: datetime, quota: Quota | None = None
) -> Run:
    """A new run of the same spec, as the same variant of the same trial if it was in one.

    Raises `Impossible` for a run that is not there, and what `submit` raises; `put_back` takes up a lost run itself.
    """
    run = get_run(session, run_id)
    if run is None:
        raise Impossible(f"There is no run {run_id} in this ledger.")
    return submit(
        session,
        Spec.parse(run.spec.to_dict()),  # it may be from a time with other limits
        submitted_by=submitted_by,
        now=now,
        experiment=run.experiment,
        trial=run.trial,
        variant=run.variant,
        quota=quota,
    )


def anything_queued(session: Session) -> bool:
    """Whether a run waits; cheap enough to ask ten times a second."""
    return session.scalar(select(RunRow.id).where(RunRow.state == RunState.QUEUED).limit(1)) is not None


def claim(session: Session, *, owner: str, now: datetime, run_id: int | None = None) -> Run | None:
    """The longest-waiting run (or the one named), now `owner`'s for one lease; None: nothing to have.

    Two claimers never get the same run: the change is made only while the row still says “queued”.
    """
    waiting = select(RunRow.id).where(RunRow.state == RunState.QUEUED).order_by(RunRow.id).limit(1)
    if run_id is not None:
        waiting = waiting.where(RunRow.id == run_id)
    if session.get_bind().dialect.name in ("postgresql", "mysql", "mariadb", "oracle"):
        waiting = waiting.with_for_update(skip_locked=True)  # SQLite's writers come one at a time anyway
    found = session.scalar(waiting)
    if found is None:
        return None
    taken = _change(
        session,
        RunRow.id == found,
        RunRow.state == RunState.QUEUED,
        state=RunState.RUNNING,
        owner=owner,
        attempt=RunRow.attempt + 1,
        started_at=now,
        lease_until=now + LEASE,
    )
    return get_run(session, found) if taken else None  # not taken: somebody was quicker, ask again


def is_to_stop(session: Session, run_id: int, *, owner: str) -> bool:
    """Whether to stop working on a run: it is to be cancelled, or no longer `owner`'s. A cheap look."""
    mine = select(RunRow.id).where(*_held(run_id, owner), RunRow.cancel_requested.is_(False))
    return session.scalar(mine) is None


def heartbeat(session: Session, run_id: int, *, owner: str, now: datetime) -> bool:
    """Renew the lease; False when the run is to be cancelled or no longer `owner`'s: stop working on it."""
    return _change(
        session, *_held(run_id, owner), RunRow.cancel_requested.is_(False), lease_until=now + LEASE
    )


def overdue(session: Session, *, now: datetime) -> list[int]:
    """Runs whose lease has run out: `reap` would mark them lost. A cheap look, for a reading session."""
    query = select(RunRow.id).where(RunRow.state == RunState.RUNNING, RunRow.lease_until < now)
    return list(session.scalars(query))


def reap(session: Session, *, now: datetime) -> list[int]:
    """Mark the runs whose worker has gone silent as lost; any reader may. Gives their ids."""
    lost = []
    for run_id in overdue(session, now=now):
        owner = session.scalar(select(RunRow.owner).where(RunRow.id == run_id))
        error = (
            f"The worker {owner} was not heard from for {LEASE.total_seconds():g} s: "
            "it was killed, or its machine stopped. Run it again once a worker is there."
        )
        if _change(
            session,
            RunRow.id == run_id,
            RunRow.state == RunState.RUNNING,
            RunRow.lease_until < now,
            state=RunState.LOST,
            ended_at=now,
            error=error,
        ):
            lost.append(run_id)
    return lost


def request_cancel(session: Session, run_id: int, *, now: datetime) -> bool:
    """Ask that a run stop: at once when it waits, at its worker's next heartbeat when it runs.

    False when it has ended already, or never was.
    """
    if not _can_be(run_id):
        return False
    here = RunRow.id == run_id
    stop_waiting = {"state": RunState.CANCELLED, "cancel_requested": True, "ended_at": now}
    return _change(session, here, RunRow.state == RunState.QUEUED, **stop_waiting) or _change(
        session, here, RunRow.state == RunState.RUNNING, cancel_requested=True
    )


def queue_position(session: Session, run_id: int) -> int | None:
    """1 for the run that is claimed next; None when it does not wait."""
    if not _can_be(run_id):
        return None
    state = session.scalar(select(RunRow.state).where(RunRow.id == run_id))
    if state != RunState.QUEUED:
        return None
    ahead = select(func.count()).where(RunRow.state == RunState.QUEUED, RunRow.id <= run_id)
    return session.scalar(ahead)


# What a worker writes. Each raises `NotYours` unless `owner` holds the run, and then stores nothing.


def record_plan(
    session: Session, run_id: int, plan: Planned, *, owner: str, machine: str, now: datetime
) -> None:
    """Keep what was predicted, and where it runs, before anything is measured."""
    _renew(
        session,
        run_id,
        owner=owner,
        now=now,
        world_size=plan.world_size,
        device=plan.placement.device,
        backend=plan.placement.backend,
        staged=plan.placement.staged,
        placement_note=plan.placement.note,
        machine=machine,
    )
    session.execute(delete(PredictionRow).where(PredictionRow.run_id == run_id))
    _insert(
        session,
        PredictionRow,
        [
            {
                "run_id": run_id,
                "quantity": str(p.quantity),
                "rank": p.rank,
                "peer": p.peer,
                "detail": p.detail,
                "formula": p.formula,
                "backend_excess": p.backend_excess,
                "framing": p.framing,
                "control": p.control,
            }
            for p in plan.predictions
        ],
    )


def record_events(
    session: Session, run_id: int, events: Iterable[Event], *, owner: str, now: datetime
) -> None:
    """Keep what a launcher reported, all of it or nothing; renews the lease.

    Of several `Progress` of one rank the last counts. The first `Failed` is why the run failed.
    """
    events = list(events)
    _renew(session, run_id, owner=owner, now=now)
    ranks = {e.rank: e for e in events if isinstance(e, Progress)}
    known = {row.rank: row for row in session.scalars(_of_run(ProgressRow, run_id))} if ranks else {}
    for rank, progress in ranks.items():
        row = known.get(rank) or ProgressRow(run_id=run_id, rank=rank)
        row.part, row.done, row.total = progress.part, progress.done, progress.total
        session.add(row)
    session.flush()
    rows: dict[type[Base], list[dict[str, Any]]] = {}
    row_of: type[Base]
    for item in events:
        match item:
            case Log():
                row_of, said = LogRow, {"text": item.text[:LONGEST_LOG_TEXT], "at": now}
            case Verified():
                worst = None if math.isnan(item.worst) else item.worst  # SQLite has no nan
                row_of, said = VerificationRow, {"worst": worst, "tolerance": item.tolerance}
            case StepSeconds():
                row_of, said = StepSecondsRow, {"seconds": list(item.seconds)}
            case Series():
                row_of, said = SeriesRow, {"name": item.name, "values": list(item.values)}
            case Timeline():
                row_of, said = TimelineRow, {"spans": [list(span) for span in item.spans]}
            case Measurement():
                row_of, said = (
                    MeasurementRow,
                    {
                        "quantity": str(item.quantity),
                        "detail": item.detail,
                        "peer": item.peer,
                        "value": item.value,
                        "steps": item.steps,
                    },
                )
            case Failed():
                _change(session, *_held(run_id, owner), RunRow.error == "", **_failure(item))
                continue
            case Progress():
                continue
        rows.setdefault(row_of, []).append({"run_id": run_id, "rank": item.rank, **said})
    for table, several in rows.items():
        _insert(session, table, several)


def finish(
    session: Session,
    run_id: int,
    *,
    owner: str,
    state: RunState,
    verified: bool | None,
    failed: Failed | None,
    now: datetime,
) -> None:
    """End the run in `state`, which is final; `failed` says why when it did not go well."""
    if not state.is_final:
        raise ValueError(f"a run cannot finish as “{state}”, which is not a final state.")
    why = _failure(failed) if failed else {}
    _renew(session, run_id, owner=owner, now=now, state=state, verified=verified, ended_at=now, **why)


def worker_seen(session: Session, *, owner: str, machine: str, now: datetime) -> None:
    """A worker says that it is there (on a laptop and on a GPU box alike, with or without a run)."""
    if not _change_in(session, WorkerRow, WorkerRow.owner == owner, seen_at=now):
        session.add(WorkerRow(owner=owner, machine=machine, started_at=now, seen_at=now))
        session.flush()


def worker_gone(session: Session, *, owner: str, now: datetime) -> None:
    """A worker says that it leaves; forgets those that left without a word a day ago, too."""
    old = WorkerRow.seen_at < now - timedelta(days=1)
    session.execute(delete(WorkerRow).where((WorkerRow.owner == owner) | old))


# What readers ask.


def get_run(session: Session, run_id: int) -> Run | None:
    """The run of this number; None when there is none, however absurd the number."""
    if not _can_be(run_id):
        return None
    row = session.get(RunRow, run_id, populate_existing=True)
    return run_of(row) if row else None


def latest_runs(session: Session, *, limit: int, submitted_by: str | None = None) -> list[Run]:
    """The newest runs first, everybody's or one person's."""
    query = select(RunRow).order_by(RunRow.id.desc()).limit(limit)
    query = query.execution_options(populate_existing=True)
    if submitted_by is not None:
        query = query.where(RunRow.submitted_by == submitted_by)
    return [run_of(row) for row in session.scalars(query)]


def verified_runs(session: Session, job: Job, *, machine: str, backend: str, world_size: int) -> list[Run]:
    """The runs of a job that ended well on one machine, over one backend and so many ranks, newest first."""
    query = select(RunRow).where(
        RunRow.job == str(job),
        RunRow.state == RunState.DONE,
        RunRow.verified.is_(True),
        RunRow.machine == machine,
        RunRow.backend == backend,
        RunRow.world_size == world_size,
    )
    return [run_of(row) for row in session.scalars(query.order_by(RunRow.id.desc()))]


def runs_of_trial(session: Session, trial: str) -> list[Run]:
    """The runs of one trial of a guided experiment, in the order in which they were asked for."""
    query = select(RunRow).where(RunRow.trial == trial).order_by(RunRow.id)
    return [run_of(row) for row in session.scalars(query.execution_options(populate_existing=True))]


def progress_of(session: Session, run_id: int) -> list[Progress]:
    """How far each rank is, in rank order; ranks that have said nothing yet are not listed."""
    rows = session.scalars(_of_run(ProgressRow, run_id).order_by(ProgressRow.rank))
    return [Progress(rank=row.rank, part=row.part, done=row.done, total=row.total) for row in rows]


def log_of(session: Session, run_id: int, *, after: int = 0, limit: int = 1_000) -> list[LogLine]:
    """The log's lines after the one with the id `after`, oldest first."""
    query = (
        _of_run(LogRow, run_id).where(LogRow.id > min(after, _LARGEST_ID)).order_by(LogRow.id).limit(limit)
    )
    rows = session.scalars(query)
    return [LogLine(id=row.id, rank=row.rank, text=row.text, at=row.at) for row in rows]


def predictions_of(
    session: Session, run_id: int, *, quantities: Collection[Quantity] | None = None
) -> list[Prediction]:
    """What was predicted before the run, in the plan's order; of all quantities, or of those named."""
    rows = session.execute(_of_quantities(PredictionRow, run_id, quantities))
    return [
        Prediction(
            quantity=Quantity(row.quantity),
            rank=row.rank,
            peer=row.peer,
            detail=row.detail,
            formula=row.formula,
            backend_excess=row.backend_excess,
            framing=row.framing,
            control=row.control,
        )
        for row in rows
    ]


def measurements_of(
    session: Session, run_id: int, *, quantities: Collection[Quantity] | None = None
) -> list[Measurement]:
    """What the meters saw, in the order in which it came; of all quantities, or of those named."""
    rows = session.execute(_of_quantities(MeasurementRow, run_id, quantities))
    return [
        Measurement(
            quantity=Quantity(row.quantity),
            rank=row.rank,
            peer=row.peer,
            detail=row.detail,
            value=row.value,
            steps=row.steps,
        )
        for row in rows
    ]


def comparisons_of(
    session: Session, run_id: int, *, quantities: Collection[Quantity] | None = None
) -> list[Comparison]:
    """Predicted beside measured: every quantity of every rank, and every ordered pair, that has both."""
    return compare(
        predictions_of(session, run_id, quantities=quantities),
        measurements_of(session, run_id, quantities=quantities),
    )


def idle_control_of(session: Session, run_id: int) -> list[Measurement]:
    """What each rank's sockets sent while nothing was asked of them; a sound reading is 0 for every rank."""
    return [m for m in measurements_of(session, run_id) if m.quantity is Quantity.IDLE]


def verifications_of(session: Session, run_id: int) -> list[Verified]:
    """Each rank's sharded result against the unsharded one, in rank order."""
    rows = session.scalars(_of_run(VerificationRow, run_id).order_by(VerificationRow.rank))
    return [
        Verified(rank=row.rank, worst=math.nan if row.worst is None else row.worst, tolerance=row.tolerance)
        for row in rows
    ]


def step_seconds_of(session: Session, run_id: int) -> list[StepSeconds]:
    """How long each measured step took on each rank, in rank order."""
    rows = session.scalars(_of_run(StepSecondsRow, run_id).order_by(StepSecondsRow.rank))
    return [StepSeconds(rank=row.rank, seconds=tuple(row.seconds)) for row in rows]


def series_of(session: Session, run_id: int) -> list[Series]:
    """The numbers that ranks followed through the run, by name and rank."""
    rows = session.scalars(_of_run(SeriesRow, run_id).order_by(SeriesRow.name, SeriesRow.rank))
    return [Series(rank=row.rank, name=row.name, values=tuple(row.values)) for row in rows]


def timelines_of(session: Session, run_id: int) -> list[Timeline]:
    """What each rank did in the last measured steps, in rank order."""
    rows = session.scalars(_of_run(TimelineRow, run_id).order_by(TimelineRow.rank))
    return [
        Timeline(
            rank=row.rank,
            spans=tuple(Span(start, end, Doing(doing), what) for start, end, doing, what in row.spans),
        )
        for row in rows
    ]


def result_of(session: Session, run_id: int) -> dict[str, Any]:
    """The run as other programs read it; raises `KeyError` when there is none of this number.

    The comparisons are those of single ranks; the pairs are in `comparisons_of`.
    """
    run = get_run(session, run_id)
    if run is None:
        raise KeyError(run_id)
    return {
        "run": run.id,
        "job": str(run.spec.job),
        "status": str(run.state),
        "verified": run.verified,
        "world_size": run.world_size,
        "backend": run.backend,
        "comparisons": [c.to_dict() for c in comparisons_of(session, run_id) if c.peer is None],
        "seconds": run.seconds,
        "machine": run.machine,
    }


def workers_alive(session: Session, *, now: datetime) -> list[Worker]:
    """The workers heard from within one lease, the longest-serving first."""
    query = select(WorkerRow).where(WorkerRow.seen_at >= now - LEASE).order_by(WorkerRow.started_at)
    return [
        Worker(owner=row.owner, machine=row.machine, started_at=row.started_at, seen_at=row.seen_at)
        for row in session.scalars(query)
    ]


# Helpers.


def _change(session: Session, *where: Any, **values: Any) -> bool:
    return _change_in(session, RunRow, *where, **values)


def _change_in(session: Session, table: type[Base], *where: Any, **values: Any) -> bool:
    """Change the one row that still fits `where`; whether it did."""
    statement = update(table).where(*where).values(**values).execution_options(synchronize_session=False)
    return session.connection().execute(statement).rowcount == 1


_LARGEST_ID = 2**31 - 1


def _can_be(run_id: int) -> bool:
    """Whether a number from outside can be a run's at all; the database would choke on some."""
    return 0 < run_id <= _LARGEST_ID


def _insert(session: Session, table: type[Base], rows: list[dict[str, Any]]) -> None:
    """Insert rows in one statement, past the ORM, which would look at each: a run may have a million."""
    if rows:
        session.connection().execute(cast(Table, table.__table__).insert(), rows)


def _held(run_id: int, owner: str) -> tuple[Any, ...]:
    return RunRow.id == run_id, RunRow.owner == owner, RunRow.state == RunState.RUNNING


def _renew(session: Session, run_id: int, *, owner: str, now: datetime, **values: Any) -> None:
    if not _change(session, *_held(run_id, owner), lease_until=now + LEASE, **values):
        run = get_run(session, run_id)
        stands = f"is {run.state} and belongs to “{run.owner}”" if run else "does not exist"
        raise NotYours(f"{owner} reported on run {run_id}, but that run {stands}. Nothing was stored.")


def _failure(failed: Failed) -> dict[str, Any]:
    return {"error": failed.reason, "error_rank": failed.rank, "traceback": failed.traceback}


def _of_run(table: Any, run_id: int) -> Any:
    return select(table).where(table.run_id == run_id)


def _of_quantities(table: Any, run_id: int, quantities: Collection[Quantity] | None) -> Any:
    """Plain columns, not objects of the ORM: a run may have a million rows."""
    query = select(*table.__table__.columns).where(table.run_id == run_id).order_by(table.id)
    return query if quantities is None else query.where(table.quantity.in_(map(str, quantities)))
