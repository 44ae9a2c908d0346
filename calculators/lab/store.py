"""The run ledger: every run asked for, its predictions, measurements and log; it is the queue, too.

All SQL of the lab is here. Functions take a `session` and say in their name what they ask or change; what
they return is frozen. Open a session with `with sessions.begin() as session` to change something, and with
`with sessions.reading() as session` to look: on SQLite a reader then never waits for a writer.
"""

import math
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol, get_type_hints

from sqlalchemy import (
    JSON,
    DateTime,
    ForeignKey,
    Index,
    MetaData,
    String,
    Text,
    create_engine,
    delete,
    event,
    func,
    insert,
    select,
    text,
    update,
)
from sqlalchemy.engine import URL, Connection, Dialect, Engine, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, sessionmaker
from sqlalchemy.pool import NullPool
from sqlalchemy.types import TypeDecorator

from calculators.lab.compare import Comparison, compare
from calculators.lab.devices import Placement
from calculators.lab.measurements import (
    Event,
    Failed,
    Log,
    Measurement,
    Prediction,
    Progress,
    Quantity,
    StepSeconds,
    Verified,
)
from calculators.lab.spec import Spec

LEASE = timedelta(seconds=6)
"""How long a claim holds without a heartbeat; after it the run is lost, as soon as anybody looks."""
HEARTBEAT_SECONDS = 1.5
"""How often a worker renews its leases: four chances in a lease."""
HEAD = "0001"
"""The revision of the tables below; the newest in migrations/versions."""
LONGEST_LOG_TEXT = 4_000


class RunState(StrEnum):
    """Where a run stands. The last four are final."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    LOST = "lost"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        return self not in (RunState.QUEUED, RunState.RUNNING)


class LedgerError(Exception):
    """The ledger cannot be opened or brought up to date; the text is the sentence to show."""


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
class Run:
    """One run as the ledger knows it at this moment. Times are UTC.

    `verified` is None until every rank has compared its sharded result with the unsharded one. `error` is a
    sentence for people; `traceback` belongs to whoever can read it, not in a page as it is.
    """

    id: int
    spec: Spec
    state: RunState
    verified: bool | None
    world_size: int
    device: str
    backend: str
    staged: bool
    placement_note: str
    machine: str
    submitted_by: str
    submitted_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    owner: str
    attempt: int
    lease_until: datetime | None
    cancel_requested: bool
    error: str
    error_rank: int | None
    traceback: str

    @property
    def seconds(self) -> float | None:
        """From the claim to the end [s]; None before it has ended, and for a run that never started."""
        if self.started_at is None or self.ended_at is None:
            return None
        return (self.ended_at - self.started_at).total_seconds()

    @property
    def is_final(self) -> bool:
        return self.state.is_final

    @property
    def succeeded(self) -> bool:
        """Ended as it should: done, and every rank's result equals the unsharded one."""
        return self.state is RunState.DONE and self.verified is True


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


# Opening.


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

        SQLite folds its write-ahead log into the file whenever the last connection closes; without somebody who
        stays, every short transaction pays for that (half the time of a run's bookkeeping when we measured).
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


# The queue.


def submit(session: Session, spec: Spec, *, submitted_by: str, now: datetime) -> Run:
    """Put `spec` at the end of the queue."""
    row = RunRow(
        spec=spec.to_dict(),
        job=str(spec.job),
        state=RunState.QUEUED,
        world_size=spec.ranks,
        submitted_by=submitted_by,
        submitted_at=now,
    )
    session.add(row)
    session.flush()
    return _run(row)


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
            case Measurement():
                row_of, said = (
                    MeasurementRow,
                    {
                        "quantity": str(item.quantity),
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
    return _run(row) if row else None


def latest_runs(session: Session, *, limit: int, submitted_by: str | None = None) -> list[Run]:
    """The newest runs first, everybody's or one person's."""
    query = select(RunRow).order_by(RunRow.id.desc()).limit(limit)
    query = query.execution_options(populate_existing=True)
    if submitted_by is not None:
        query = query.where(RunRow.submitted_by == submitted_by)
    return [_run(row) for row in session.scalars(query)]


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


def predictions_of(session: Session, run_id: int) -> list[Prediction]:
    """What was predicted before the run, in the plan's order."""
    rows = session.scalars(_of_run(PredictionRow, run_id).order_by(PredictionRow.id))
    return [
        Prediction(
            quantity=Quantity(row.quantity),
            rank=row.rank,
            peer=row.peer,
            formula=row.formula,
            backend_excess=row.backend_excess,
            framing=row.framing,
            control=row.control,
        )
        for row in rows
    ]


def measurements_of(session: Session, run_id: int) -> list[Measurement]:
    """What the meters saw, in the order in which it came."""
    rows = session.scalars(_of_run(MeasurementRow, run_id).order_by(MeasurementRow.id))
    return [
        Measurement(
            quantity=Quantity(row.quantity), rank=row.rank, peer=row.peer, value=row.value, steps=row.steps
        )
        for row in rows
    ]


def comparisons_of(session: Session, run_id: int) -> list[Comparison]:
    """Predicted beside measured: every quantity of every rank, and every ordered pair, that has both."""
    return compare(predictions_of(session, run_id), measurements_of(session, run_id))


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


# The tables.


class UtcDateTime(TypeDecorator[datetime]):
    """A moment, timezone-aware and UTC on both sides, whatever the database makes of time zones."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"the time {value} has no time zone; the ledger keeps UTC (datetime.now(UTC)).")
        value = value.astimezone(UTC)
        return value if dialect.name == "postgresql" else value.replace(tzinfo=None)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class Base(DeclarativeBase):
    """Every table of the ledger. Names of constraints are fixed, so that migrations can speak of them."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {datetime: UtcDateTime, list[float]: JSON, dict[str, Any]: JSON}  # noqa: RUF012


class RunRow(Base):
    """One run: what was asked, where it stands, who works on it until when, how it ended."""

    __tablename__ = "run"
    __table_args__ = (Index(None, "state", "id"), Index(None, "submitted_by", "id"))

    id: Mapped[int] = mapped_column(primary_key=True)
    spec: Mapped[dict[str, Any]]
    job: Mapped[str] = mapped_column(String(40))
    state: Mapped[str] = mapped_column(String(20))
    verified: Mapped[bool | None]
    world_size: Mapped[int]
    device: Mapped[str] = mapped_column(String(20), default="")
    backend: Mapped[str] = mapped_column(String(20), default="")
    staged: Mapped[bool] = mapped_column(default=False)
    placement_note: Mapped[str] = mapped_column(Text, default="")
    machine: Mapped[str] = mapped_column(String(300), default="")
    submitted_by: Mapped[str] = mapped_column(String(200))
    submitted_at: Mapped[datetime]
    started_at: Mapped[datetime | None]
    ended_at: Mapped[datetime | None]
    owner: Mapped[str] = mapped_column(String(200), default="")
    attempt: Mapped[int] = mapped_column(default=0)
    lease_until: Mapped[datetime | None]
    cancel_requested: Mapped[bool] = mapped_column(default=False)
    error: Mapped[str] = mapped_column(Text, default="")
    error_rank: Mapped[int | None]
    traceback: Mapped[str] = mapped_column(Text, default="")


class PredictionRow(Base):
    __tablename__ = "prediction"

    id: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[int] = mapped_column(ForeignKey("run.id", ondelete="CASCADE"), index=True)
    quantity: Mapped[str] = mapped_column(String(40))
    rank: Mapped[int]
    peer: Mapped[int | None]
    formula: Mapped[float]
    backend_excess: Mapped[float]
    framing: Mapped[float]
    control: Mapped[float]


class MeasurementRow(Base):
    __tablename__ = "measurement"

    id: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[int] = mapped_column(ForeignKey("run.id", ondelete="CASCADE"), index=True)
    quantity: Mapped[str] = mapped_column(String(40))
    rank: Mapped[int]
    peer: Mapped[int | None]
    value: Mapped[float]
    steps: Mapped[int]


class LogRow(Base):
    __tablename__ = "log"
    __table_args__ = (Index(None, "run_id", "id"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[int] = mapped_column(ForeignKey("run.id", ondelete="CASCADE"))
    rank: Mapped[int | None]
    text: Mapped[str] = mapped_column(Text)
    at: Mapped[datetime]


class ProgressRow(Base):
    __tablename__ = "progress"

    run_id: Mapped[int] = mapped_column(ForeignKey("run.id", ondelete="CASCADE"), primary_key=True)
    rank: Mapped[int] = mapped_column(primary_key=True)
    part: Mapped[str] = mapped_column(String(100))
    done: Mapped[int]
    total: Mapped[int]


class VerificationRow(Base):
    __tablename__ = "verification"

    run_id: Mapped[int] = mapped_column(ForeignKey("run.id", ondelete="CASCADE"), primary_key=True)
    rank: Mapped[int] = mapped_column(primary_key=True)
    worst: Mapped[float | None]
    tolerance: Mapped[float]


class StepSecondsRow(Base):
    __tablename__ = "step_seconds"

    run_id: Mapped[int] = mapped_column(ForeignKey("run.id", ondelete="CASCADE"), primary_key=True)
    rank: Mapped[int] = mapped_column(primary_key=True)
    seconds: Mapped[list[float]]


class WorkerRow(Base):
    __tablename__ = "worker"

    owner: Mapped[str] = mapped_column(String(200), primary_key=True)
    machine: Mapped[str] = mapped_column(String(300))
    started_at: Mapped[datetime]
    seen_at: Mapped[datetime]


# Helpers.


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
            engine = create_engine(address, poolclass=NullPool)
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
    for pragma in ("busy_timeout = 20000", "journal_mode = WAL", "synchronous = NORMAL", "foreign_keys = ON"):
        connection.execute(f"PRAGMA {pragma}")


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
    """Insert rows in one statement, without an object for each: a run has up to some hundreds."""
    if rows:
        session.execute(insert(table), rows)


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


_KINDS = get_type_hints(Spec)


def _run(row: RunRow) -> Run:
    # Not Spec.parse: a limit tightened since must not make an old run unreadable.
    spec = Spec(**{name: _KINDS[name](value) for name, value in row.spec.items() if name in _KINDS})
    kept = {f.name: getattr(row, f.name) for f in fields(Run)}
    return Run(**{**kept, "spec": spec, "state": RunState(row.state)})
