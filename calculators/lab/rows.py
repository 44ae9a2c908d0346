"""The tables of the run ledger, one class a table; `store` is the only module that asks or changes them."""

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import JSON, DateTime, ForeignKey, Index, MetaData, String, Text
from sqlalchemy.engine import Dialect
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.types import TypeDecorator


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
    type_annotation_map = {datetime: UtcDateTime, list[float]: JSON, list[Any]: JSON, dict[str, Any]: JSON}  # noqa: RUF012


class RunRow(Base):
    """One run: what was asked, where it stands, who works on it until when, how it ended.

    A guided experiment's runs share its name and the `trial` in which they were asked for; `variant` tells them
    apart. `origin` names the ledger that a run was imported from, and its number there.
    """

    __tablename__ = "run"
    __table_args__ = (
        Index(None, "state", "id"),
        Index(None, "submitted_by", "id"),
        Index(None, "trial", "id"),
    )

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
    experiment: Mapped[str] = mapped_column(String(80), default="", server_default="")
    trial: Mapped[str] = mapped_column(String(40), default="", server_default="")
    variant: Mapped[str] = mapped_column(String(80), default="", server_default="")
    origin: Mapped[str] = mapped_column(String(300), default="", server_default="")


class PredictionRow(Base):
    """One predicted quantity of a rank, or of an ordered pair when `peer` is given, in the plan's order."""

    __tablename__ = "prediction"
    __table_args__ = (Index(None, "run_id", "quantity"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[int] = mapped_column(ForeignKey("run.id", ondelete="CASCADE"))
    quantity: Mapped[str] = mapped_column(String(40))
    detail: Mapped[str] = mapped_column(String(80), default="", server_default="")
    rank: Mapped[int]
    peer: Mapped[int | None]
    formula: Mapped[float]
    backend_excess: Mapped[float]
    framing: Mapped[float]
    control: Mapped[float]


class MeasurementRow(Base):
    """One measured quantity of a rank or an ordered pair."""

    __tablename__ = "measurement"
    __table_args__ = (Index(None, "run_id", "quantity"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[int] = mapped_column(ForeignKey("run.id", ondelete="CASCADE"))
    quantity: Mapped[str] = mapped_column(String(40))
    detail: Mapped[str] = mapped_column(String(80), default="", server_default="")
    rank: Mapped[int]
    peer: Mapped[int | None]
    value: Mapped[float]
    steps: Mapped[int]


class LogRow(Base):
    """One line of a run's log."""

    __tablename__ = "log"
    __table_args__ = (Index(None, "run_id", "id"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[int] = mapped_column(ForeignKey("run.id", ondelete="CASCADE"))
    rank: Mapped[int | None]
    text: Mapped[str] = mapped_column(Text)
    at: Mapped[datetime]


class ProgressRow(Base):
    """How far a rank is; one row a rank, written over."""

    __tablename__ = "progress"

    run_id: Mapped[int] = mapped_column(ForeignKey("run.id", ondelete="CASCADE"), primary_key=True)
    rank: Mapped[int] = mapped_column(primary_key=True)
    part: Mapped[str] = mapped_column(String(100))
    done: Mapped[int]
    total: Mapped[int]


class VerificationRow(Base):
    """A rank's sharded result against the unsharded one; `worst` NULL is nan."""

    __tablename__ = "verification"

    run_id: Mapped[int] = mapped_column(ForeignKey("run.id", ondelete="CASCADE"), primary_key=True)
    rank: Mapped[int] = mapped_column(primary_key=True)
    worst: Mapped[float | None]
    tolerance: Mapped[float]


class StepSecondsRow(Base):
    """The seconds of each measured step on one rank."""

    __tablename__ = "step_seconds"

    run_id: Mapped[int] = mapped_column(ForeignKey("run.id", ondelete="CASCADE"), primary_key=True)
    rank: Mapped[int] = mapped_column(primary_key=True)
    seconds: Mapped[list[float]]


class SeriesRow(Base):
    """A number that a rank followed, one value for each measured step."""

    __tablename__ = "series"

    run_id: Mapped[int] = mapped_column(ForeignKey("run.id", ondelete="CASCADE"), primary_key=True)
    rank: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(String(80), primary_key=True)
    values: Mapped[list[float]]


class TimelineRow(Base):
    """What a rank did in the last measured steps: [start, end, doing, what] of each span."""

    __tablename__ = "timeline"

    run_id: Mapped[int] = mapped_column(ForeignKey("run.id", ondelete="CASCADE"), primary_key=True)
    rank: Mapped[int] = mapped_column(primary_key=True)
    spans: Mapped[list[Any]]


class WorkerRow(Base):
    """A worker that is there, or was a day ago at most."""

    __tablename__ = "worker"

    owner: Mapped[str] = mapped_column(String(200), primary_key=True)
    machine: Mapped[str] = mapped_column(String(300))
    started_at: Mapped[datetime]
    seen_at: Mapped[datetime]
