"""What an installation lets a run use, and how many runs may wait: from the environment, checked before a run starts.

`limits` has what no run may ever exceed; these are the owner's own, lower limits (docs/deploy.md has the table).
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from calculators.lab import limits
from calculators.lab.limits import shown_bytes
from calculators.lab.problems import Problem, SpecError
from calculators.lab.spec import Spec

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

_PREFIX = "SIXFOLD_LAB_"
_UNITS = {
    "max_ranks": "ranks",
    "max_bytes": "bytes",
    "max_seconds": "seconds",
    "max_memory_bytes": "bytes",
    "max_runs_per_person": "runs",
    "max_runs": "runs",
}
_QUEUE_LOCK = 6016
"""PostgreSQL's advisory lock of those who count the queue; any number that nobody else takes."""
SHARE_OF_MEMORY = 0.8
"""So much of a machine's memory is for ranks; the rest is for the system, the worker and the site."""


class QuotaError(ValueError):
    """A limit in the environment that cannot be read; the text is the sentence to show."""


class OverQuota(SpecError):
    """More was asked for than this installation gives; the problems name the fields to change, if it is a field."""


@dataclass(frozen=True, kw_only=True)
class Quota:
    """The limits of one run, and of the runs that wait or run. A count that is None has no limit.

    `max_bytes` is what a run is predicted to put on the wire in all its steps; `max_memory_bytes` is of all ranks
    together: predicted before a run starts, and watched while it runs.
    """

    max_ranks: int = limits.MAX_RANKS
    max_bytes: int = 64 * 2**30
    max_seconds: int = 600
    max_memory_bytes: int = 16 * 2**30
    max_runs_per_person: int | None = 100
    max_runs: int | None = 500

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Self:
        """The limits that the variables SIXFOLD_LAB_MAX_… set, and the usual ones where they set none.

        Raises `QuotaError` for a value that is no limit.
        """
        given = {name: environment.get(_variable(name), "").strip() for name in _UNITS}
        return cls(**{name: _read(name, text) for name, text in given.items() if text})

    def within(self, memory_bytes: int) -> Self:
        """The same on a machine of so much memory, which may not have what the limits would give."""
        return replace(self, max_memory_bytes=min(self.max_memory_bytes, int(SHARE_OF_MEMORY * memory_bytes)))

    def without_counts(self) -> Self:
        """The same for somebody who keeps nobody waiting: limits of a run, none on how many."""
        return replace(self, max_runs_per_person=None, max_runs=None)

    def require(self, spec: Spec) -> None:
        """Raises `OverQuota` with every limit that `spec` exceeds."""
        if problems := [*self.problems(spec)]:
            raise OverQuota(problems)

    def problems(self, spec: Spec) -> Iterator[Problem]:
        """Every limit of a single run that `spec` exceeds, in sentences."""
        if spec.ranks > self.max_ranks:
            yield Problem(
                "ranks",
                f"This run asks for {spec.ranks} ranks, and the limit is {self.max_ranks} "
                f"({_variable('max_ranks')}). Take {self.max_ranks} or fewer.",
            )
        if spec.time_limit_seconds > self.max_seconds:
            yield Problem(
                "time_limit_seconds",
                f"This run may take {spec.time_limit_seconds:g} s, and the limit is {self.max_seconds} s "
                f"({_variable('max_seconds')}). Give it a time limit of {self.max_seconds} s or less.",
            )
        if (memory := limits.memory_bytes(spec)) > self.max_memory_bytes:
            yield Problem(
                "hidden_size" if spec.has_model else "call_bytes",
                f"The ranks of this run would need about {shown_bytes(memory)} of memory together, and the limit is "
                f"{shown_bytes(self.max_memory_bytes)} ({_variable('max_memory_bytes')}). "
                + (
                    "Take a smaller model or batch."
                    if spec.has_model
                    else "Take smaller calls or fewer ranks."
                ),
            )
        if (sent := wire_bytes(spec)) > self.max_bytes:
            yield Problem(
                "steps",
                f"This run would put about {shown_bytes(sent)} on the wire, and the limit is "
                f"{shown_bytes(self.max_bytes)} ({_variable('max_bytes')}). Take fewer steps, "
                + ("or a smaller batch or model." if spec.has_model else "or smaller or fewer calls."),
            )

    def require_place(self, session: "Session", *, person: str) -> None:
        """Raises `OverQuota` unless one more run may wait; nobody else can take that place in this transaction."""
        if self.max_runs is None and self.max_runs_per_person is None:
            return
        from sqlalchemy import func, select  # a dry run does without a database

        from calculators.lab.records import RunState
        from calculators.lab.rows import RunRow

        if session.get_bind().dialect.name == "postgresql":
            session.execute(
                select(func.pg_advisory_xact_lock(_QUEUE_LOCK))
            )  # SQLite has one writer at a time
        there = select(func.count()).where(RunRow.state.in_([RunState.QUEUED, RunState.RUNNING]))
        of_person = session.scalar(there.where(RunRow.submitted_by == person)) or 0
        of_all = session.scalar(there) or 0
        if self.max_runs_per_person is not None and of_person >= self.max_runs_per_person:
            sentence = (
                f"{person} has {_counted(of_person)} waiting or running, and the limit is "
                f"{self.max_runs_per_person} for each person ({_variable('max_runs_per_person')}). "
                "Wait until one has ended, or cancel one."
            )
            raise OverQuota([Problem("", sentence)])
        if self.max_runs is not None and of_all >= self.max_runs:
            sentence = (
                f"There are {_counted(of_all)} waiting or running, and the limit is {self.max_runs} for "
                f"everybody together ({_variable('max_runs')}). Try again when some have ended."
            )
            raise OverQuota([Problem("", sentence)])


def wire_bytes(spec: Spec) -> float:
    """What all ranks together are predicted to send in the steps of a run, the first ones that warm up included."""
    from calculators.lab import forecast  # NumPy, which reading a setting does without
    from calculators.lab.measurements import Quantity
    from calculators.lab.splits import calls_of

    predicted = forecast.wire_on_gloo(spec, calls_of(spec))
    measured = sum(p.predicted for p in predicted if p.quantity is Quantity.WIRE)
    return measured * (1 + spec.warmup_steps / spec.steps)


def _variable(name: str) -> str:
    return _PREFIX + name.upper()


def _read(name: str, text: str) -> int:
    if text.isascii() and text.replace("_", "").isdigit() and int(text) > 0:
        return int(text)
    usual = getattr(Quota, name)
    raise QuotaError(
        f"{_variable(name)} is “{text}”, but a limit is a whole number of {_UNITS[name]} from 1 up. "
        f"Write a number, or unset it for the usual {usual}."
    )


def _counted(runs: int) -> str:
    return f"{runs} run" if runs == 1 else f"{runs} runs"
