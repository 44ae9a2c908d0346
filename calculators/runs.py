"""The lab's ledger for pages: opening it, one run as its page shows it, one submission for one click."""

import statistics
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, lru_cache
from typing import Any

from django.conf import settings
from django.contrib.sessions.models import Session as BrowserSession
from django.db import transaction
from django.http import HttpRequest
from sqlalchemy.orm import Session

from calculators.lab import store
from calculators.lab.compare import TOLERATED_SHARE, Comparison, matrix
from calculators.lab.measurements import Measurement, Progress, Quantity, StepSeconds, Verified
from calculators.lab.spec import Family, Pattern, Spec
from calculators.lab.splits import calls_of
from calculators.lab.splits.exchange import routed_rows
from calculators.lab.store import LogLine, Run, RunState, Worker
from calculators.predict.collectives import Kind
from calculators.units import both_bytes, counted, exact_bytes, plain

KEPT_NONCES = 50
WORK_COMMAND = "python -m calculators.lab work"


def ledger() -> store.Sessions:
    """Sessions on this site's ledger, whose tables are brought up to date at first use."""
    return _opened(settings.LEDGER_URL)


@lru_cache(maxsize=8)
def _opened(url: str) -> store.Sessions:
    store.migrate(url)
    return store.open_ledger(url)


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One ordered pair of ranks in a matrix; `level` 0 to 5 shades it by its share of the largest."""

    value: float
    level: int


@dataclass(frozen=True, kw_only=True)
class StepTimes:
    """Seconds of the measured steps on one rank."""

    rank: int
    median: float
    fastest: float
    slowest: float


@dataclass(frozen=True, kw_only=True)
class RunPage:
    """One run, at one moment, in the words of its page."""

    run: Run
    position: int | None = None
    workers: tuple[Worker, ...] = ()
    progress: tuple[Progress, ...] = ()
    log: tuple[LogLine, ...] = ()
    comparisons: tuple[Comparison, ...] = ()
    verifications: tuple[Verified, ...] = ()
    idle: tuple[Measurement, ...] = ()
    step_seconds: tuple[StepSeconds, ...] = ()

    @property
    def family(self) -> Family:
        return self.run.spec.family

    @property
    def title(self) -> str:
        """What ran, in one line."""
        return f"{title_of(self.run.spec)}, on {counted(self.run.world_size, 'rank')}"

    @property
    def size(self) -> str:
        return size_of(self.run.spec)

    @property
    def remarks(self) -> list[str]:
        return remarks_on(self.run.spec, backend=self.run.backend)

    @property
    def unit(self) -> str:
        """What one measured step is."""
        return self.run.spec.unit

    @property
    def is_live(self) -> bool:
        return not self.run.is_final

    @property
    def is_cancelling(self) -> bool:
        return self.run.state is RunState.RUNNING and self.run.cancel_requested

    @property
    def no_worker(self) -> bool:
        """Whether it waits for a worker that is not there."""
        return self.run.state is RunState.QUEUED and not self.workers

    @property
    def verdict(self) -> str:
        """What verification found, as a sentence's subject and verb; the page says how far off it was."""
        if self.run.spec.is_exchange:
            return (
                "Each call gave what it must."
                if self.run.verified
                else "A call gave something else than it must,"
            )
        if self.run.verified:
            return "The split model computes what the whole one does."
        return "The split model does not compute what the whole one does,"

    @property
    def worst_difference(self) -> Verified | None:
        """The rank whose result is furthest from what it must be."""
        return max(self.verifications, key=lambda v: (not v.holds, v.worst), default=None)

    @property
    def worst_sentence(self) -> str:
        """The same, said."""
        worst = self.worst_difference
        return f"Rank {worst.rank}: {worst.sentence(*self.run.spec.compared)}." if worst else ""

    @property
    def steps(self) -> int:
        """Steps that were measured."""
        return max((c.steps for c in self.comparisons), default=self.run.spec.steps)

    @property
    def wire(self) -> tuple[Comparison, ...]:
        """Bytes that each rank's sockets sent."""
        return self._of(Quantity.WIRE)

    @property
    def calls(self) -> tuple[Comparison, ...]:
        return self._of(Quantity.CALLS)

    @property
    def handed(self) -> tuple[Comparison, ...]:
        return self._of(Quantity.HANDED)

    @property
    def calls_and_handed(self) -> list[tuple[Comparison, Comparison]]:
        """What each rank asked for: how often, and how much."""
        return list(zip(self.calls, self.handed, strict=True))

    @property
    def worst(self) -> Comparison | None:
        """The rank with the largest share of its wire bytes unexplained."""
        return max(self.wire, key=lambda c: abs(c.unexplained_share), default=None)

    @property
    def outcome(self) -> str:
        """What the busiest rank sent, in a sentence; empty where the wire was not measured."""
        if not self.wire:
            return ""
        busiest = max(self.wire, key=lambda c: c.measured)
        return (
            f"Rank {busiest.rank} sent {exact_bytes(busiest.measured)} "
            f"for {counted(busiest.steps, self.unit)}, "
            f"{both_bytes(busiest.measured / busiest.steps)} a {self.unit}; "
            f"{exact_bytes(busiest.predicted)} were predicted."
        )

    @property
    def is_explained(self) -> bool:
        """Whether what was predicted is, within the tolerated share, what came: on every rank."""
        return all(c.is_explained for c in self.wire)

    @property
    def tolerated_share(self) -> float:
        return TOLERATED_SHARE

    @property
    def idle_is_silent(self) -> bool:
        return bool(self.idle) and all(m.value == 0 for m in self.idle)

    @cached_property
    def predicted_matrix(self) -> list[list[Cell | None]]:
        return self._matrix(measured=False)

    @cached_property
    def measured_matrix(self) -> list[list[Cell | None]]:
        return self._matrix(measured=True)

    @property
    def has_matrix(self) -> bool:
        return bool(self._of(Quantity.PAIR))

    @property
    def step_times(self) -> list[StepTimes]:
        return [
            StepTimes(
                rank=s.rank,
                median=statistics.median(s.seconds),
                fastest=min(s.seconds),
                slowest=max(s.seconds),
            )
            for s in self.step_seconds
            if s.seconds
        ]

    @property
    def changed_mark(self) -> str:
        """Differs whenever a live page would: it lets a poll answer “nothing new”."""
        parts = "".join(f"{p.rank}{p.part}{p.done}/{p.total}." for p in self.progress)
        last_line = self.log[-1].id if self.log else 0
        return (
            f"{self.run.state}-{self.position}-{len(self.workers)}-{self.run.cancel_requested:d}"
            f"-{last_line}-{hash_of(parts)}"
        )

    def _of(self, quantity: Quantity) -> tuple[Comparison, ...]:
        return tuple(c for c in self.comparisons if c.quantity is quantity and not c.detail)

    def _matrix(self, *, measured: bool) -> list[list[Cell | None]]:
        pairs = self._of(Quantity.PAIR)
        most = max((max(c.predicted, c.measured) for c in pairs), default=0)  # one scale for both pictures
        values = matrix(pairs, world_size=self.run.world_size, measured=measured)
        return [
            [None if i == j else Cell(value=v, level=_level(v, most)) for j, v in enumerate(row)]
            for i, row in enumerate(values)
        ]


PATTERNS = {
    Pattern.GRADIENTS: "gradients",
    Pattern.ZERO_1: "ZeRO-1",
    Pattern.ZERO_2: "ZeRO-2",
    Pattern.ZERO_3: "ZeRO-3",
    Pattern.RING: "ring",
    Pattern.KEY_VALUE_GATHER: "gathered keys and values",
    Pattern.ULYSSES: "Ulysses",
    Pattern.EXPERTS: "dispatch and combine",
}
"""What an exchange's pattern is called in a heading."""
_FAMILIES: dict[Family, str] = {
    "dp": "data",
    "tp": "tensor",
    "pp": "pipeline",
    "cp": "context",
    "ep": "expert",
}


def title_of(spec: Spec) -> str:
    """The family and the phase, or whose calls an exchange makes, as a heading has them."""
    if spec.is_exchange:
        return f"Calls of {_FAMILIES[spec.family]} parallelism, {PATTERNS[spec.pattern]}"
    return f"{_FAMILIES[spec.family].capitalize()} parallelism, {spec.phase}"


def remarks_on(spec: Spec, *, backend: str) -> list[str]:
    """What its bytes show that a reader might take for a mistake, a sentence each."""
    remarks = []
    if spec.is_exchange and spec.pattern is Pattern.EXPERTS:
        loads = [sum(column) for column in zip(*routed_rows(spec), strict=True)]
        most, rows = max(loads), sum(loads)
        remarks.append(
            f"Each rank holds one expert, wanted with skew {plain(spec.skew)}. Rank {loads.index(most)}'s gets "
            f"{plain(most)} of the {plain(rows)} rows of each dispatch, {plain(most * spec.ranks / rows)} times an "
            "equal share, and sends as many back in the combine."
        )
    if backend == "gloo" and any(call.op is Kind.REDUCE_SCATTER for call in calls_of(spec)):
        remarks.append(
            "gloo has no reduce-scatter of its own: PyTorch all-reduces the whole tensor, which sends twice the "
            "formula's bytes. The second half is the backend's."
        )
    return remarks


def size_of(spec: Spec) -> str:
    """How large it is, in one line."""
    call = f"{both_bytes(spec.bytes_per_call)} in a call"
    if spec.is_exchange:
        return f"{counted(spec.repeats, 'repeat')} of the calls a step; {call}"
    of_tokens = f" of {counted(spec.tokens, 'token')}" if spec.is_training else ""
    cut = f", cut into {spec.microbatches} micro-batches" if spec.microbatches > 1 else ""
    layers, sequences = counted(spec.layers, "layer"), counted(spec.batch, "sequence")
    return f"{layers}, {plain(spec.hidden_size)} wide, {sequences}{of_tokens}{cut}; {call}"


def hash_of(text: str) -> str:
    """A short mark of `text`, the same in every process."""
    return f"{zlib.crc32(text.encode()):x}"


def run_page(run_id: int, *, now: datetime) -> RunPage | None:
    """The run of this number as its page shows it, or None. Marks lost runs as lost first."""
    with _looking(now=now) as session:
        run = store.get_run(session, run_id)
        if run is None:
            return None
        measured: dict[str, Any] = {}
        if run.is_final:
            comparisons = store.comparisons_of(session, run_id)
            measured = {
                "comparisons": tuple(comparisons),
                "idle": tuple(c.measurement for c in comparisons if c.quantity is Quantity.IDLE),
                "verifications": tuple(store.verifications_of(session, run_id)),
                "step_seconds": tuple(store.step_seconds_of(session, run_id)),
            }
        return RunPage(
            run=run,
            position=store.queue_position(session, run_id) if run.state is RunState.QUEUED else None,
            workers=() if run.is_final else tuple(store.workers_alive(session, now=now)),
            progress=() if run.is_final else tuple(store.progress_of(session, run_id)),
            log=tuple(store.log_of(session, run_id)),
            **measured,
        )


@contextmanager
def _looking(*, now: datetime) -> Iterator[Session]:
    """A session that only looks, at a ledger in which no run counts as running whose worker is gone."""
    sessions = ledger()
    with sessions.reading() as session:
        late = store.overdue(session, now=now)
        if not late:
            yield session
            return
    with sessions.begin() as session:
        store.reap(session, now=now)
    with sessions.reading() as session:
        yield session


@dataclass(frozen=True, kw_only=True)
class RunList:
    """The newest runs, and whether somebody is there to take the waiting ones."""

    runs: tuple[Run, ...]
    workers: tuple[Worker, ...]

    @property
    def waits_for_a_worker(self) -> bool:
        return not self.workers and any(run.state is RunState.QUEUED for run in self.runs)


def run_list(*, now: datetime, limit: int = 100) -> RunList:
    """The newest runs first."""
    with _looking(now=now) as session:
        return RunList(
            runs=tuple(store.latest_runs(session, limit=limit)),
            workers=tuple(store.workers_alive(session, now=now)),
        )


def submit_once(request: HttpRequest, spec: Spec, *, nonce: str, now: datetime) -> int:
    """Put `spec` in the queue and give the run's number; the same nonce again gives the same number.

    The row of the browser's session is locked meanwhile, so that two clicks that arrive together, in two
    processes, make one run.
    """
    with transaction.atomic():
        row = BrowserSession.objects.select_for_update().get(session_key=request.session.session_key)
        made: dict[str, int] = row.get_decoded().get("runs_made", {})
        if nonce in made:
            return made[nonce]
        with ledger().begin() as session:
            run = store.submit(session, spec, submitted_by=request.user.get_username(), now=now)
        newest = list(made.items())[1 - KEPT_NONCES :]
        request.session["runs_made"] = dict([*newest, (nonce, run.id)])
        request.session.save()
    return run.id


def cancel(run_id: int, *, now: datetime) -> bool:
    """Ask that the run stop; False when it has ended already."""
    with ledger().begin() as session:
        return store.request_cancel(session, run_id, now=now)


def download(run_id: int) -> dict[str, Any] | None:
    """The run as JSON: result, spec, both matrices (sender by receiver) and seconds of each step."""
    with ledger().reading() as session:
        run = store.get_run(session, run_id)
        if run is None:
            return None
        comparisons = store.comparisons_of(session, run_id)
        return store.result_of(session, run_id) | {
            "spec": run.spec.to_dict(),
            "matrix": {
                "predicted": matrix(comparisons, world_size=run.world_size, measured=False),
                "measured": matrix(comparisons, world_size=run.world_size, measured=True),
            },
            "step_seconds": {s.rank: list(s.seconds) for s in store.step_seconds_of(session, run_id)},
        }


COLUMNS = (
    "run",
    "quantity",
    "rank",
    "peer",
    "steps",
    "formula",
    "backend_excess",
    "framing",
    "control",
    "predicted",
    "measured",
    "unexplained",
)


def csv_rows(run_id: int) -> list[list[object]] | None:
    """Every comparison of the run, ranks and pairs, a row each under `COLUMNS`; None where there is no run."""
    with ledger().reading() as session:
        if store.get_run(session, run_id) is None:
            return None
        comparisons = store.comparisons_of(session, run_id)
    rows = [c.to_dict() | {"run": run_id, "peer": c.peer, "steps": c.steps} for c in comparisons]
    return [[plain_cell(row[column]) for column in COLUMNS] for row in rows]


def plain_cell(value: object) -> object:
    """Numbers as they are (whole ones without “.0”); text so that no spreadsheet takes it for a formula."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return f"'{value}"
    return "" if value is None else value


def _level(value: float, most: float) -> int:
    return 0 if value <= 0 or most <= 0 else 1 + min(4, int(5 * value / most))
