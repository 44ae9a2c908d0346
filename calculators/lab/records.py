"""One run as the ledger knows it, and the states it can be in."""

from dataclasses import dataclass, fields
from datetime import datetime
from enum import StrEnum
from typing import get_type_hints

from calculators.lab.rows import RunRow
from calculators.lab.spec import Spec


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
    experiment: str = ""
    trial: str = ""
    variant: str = ""
    origin: str = ""

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


_KINDS = get_type_hints(Spec)


def run_of(row: RunRow) -> Run:
    """The run that a row of the ledger is."""
    # Not Spec.parse: a limit tightened since must not make an old run unreadable.
    spec = Spec(**{name: _KINDS[name](value) for name, value in row.spec.items() if name in _KINDS})
    kept = {f.name: getattr(row, f.name) for f in fields(Run)}
    return Run(**{**kept, "spec": spec, "state": RunState(row.state)})
