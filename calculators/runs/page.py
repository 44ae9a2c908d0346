"""One run as its page shows it, at one moment: where it stands, or what came of it."""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

from django.utils.safestring import SafeString

from calculators.lab import store
from calculators.lab.choices import Job
from calculators.lab.clock import StepTime
from calculators.lab.compare import TOLERATED_SHARE, Comparison
from calculators.lab.measurements import (
    Measurement,
    Prediction,
    Progress,
    Quantity,
    Series,
    StepSeconds,
    Timeline,
    Verified,
)
from calculators.lab.recognise import recognise
from calculators.lab.spec import Family
from calculators.lab.splits import calls_of
from calculators.lab.store import LogLine, Run, RunState, Worker
from calculators.plots import wire_figure
from calculators.runs.calibrating import Calibrated
from calculators.runs.charts import SWATCHES, Drawn
from calculators.runs.counters import COUNTERS, counters_table, unseen
from calculators.runs.layout_map import LayoutMap
from calculators.runs.levels import Levels, with_nothing_expected
from calculators.runs.matrices import Matrices
from calculators.runs.memory import Memory
from calculators.runs.opening import looking
from calculators.runs.series import Lines, followed, step_times
from calculators.runs.timeline import Timelines
from calculators.runs.timing import step_time
from calculators.runs.wire import wire_table
from calculators.runs.words import place_of, remarks_on, size_of, title_of
from calculators.tables import Table
from calculators.units import both_bytes, counted, exact_bytes

_SHOWN = {
    Quantity.CALLS,
    Quantity.HANDED,
    Quantity.WIRE,
    Quantity.PAIR,
    Quantity.IDLE,
    Quantity.MEMORY,
    Quantity.SECONDS,
    Quantity.STEP_SECONDS,
    *COUNTERS,
}
"""What the page asks the ledger for. A run may have a million times of single calls; no page shows those."""


@dataclass(frozen=True, kw_only=True)
class RunPage:
    """One run, at one moment, in the words of its page."""

    run: Run
    position: int | None = None
    workers: tuple[Worker, ...] = ()
    progress: tuple[Progress, ...] = ()
    log: tuple[LogLine, ...] = ()
    predictions: tuple[Prediction, ...] = ()
    measurements: tuple[Measurement, ...] = ()
    verifications: tuple[Verified, ...] = ()
    step_seconds: tuple[StepSeconds, ...] = ()
    series: tuple[Series, ...] = ()
    timelines: tuple[Timeline, ...] = ()
    time_said: StepTime | None = None
    why_untimed: str = ""

    @property
    def family(self) -> Family:
        return self.run.spec.family

    @property
    def title(self) -> str:
        """What ran, in one line."""
        return f"{title_of(self.run.spec)}, {place_of(self.run.spec)}"

    @property
    def file(self) -> str:
        """What pictures and downloads of it are called."""
        return f"run-{self.run.id}"

    @cached_property
    def comparisons(self) -> tuple[Comparison, ...]:
        """Predicted beside measured, whatever has both."""
        return tuple(with_nothing_expected(self.predictions, self.measurements))

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
        if not self.run.spec.has_model:
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
    def calls_and_handed(self) -> list[tuple[Comparison, Comparison]]:
        """What each rank asked for: how often, and how much."""
        handed = {c.rank: c for c in self._of(Quantity.HANDED)}
        return [(c, handed[c.rank]) for c in self.calls if c.rank in handed]

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
    def idle(self) -> tuple[Measurement, ...]:
        """What each rank's sockets sent while nothing was asked of them."""
        return tuple(m for m in self.measurements if m.quantity is Quantity.IDLE)

    @property
    def idle_is_silent(self) -> bool:
        return bool(self.idle) and all(m.value == 0 for m in self.idle)

    # Its pictures and tables; each is None where there is nothing to show.

    @cached_property
    def wire_chart(self) -> Drawn | None:
        """Bytes on the wire by rank."""
        if not self.wire or self.is_silent:
            return None
        return Drawn(
            name="wire",
            figure=wire_figure(self.wire, family=self.family, steps=self.steps, unit=self.unit),
            caption=SWATCHES,
            table=self.wire_table,
            family=self.family,
            file=f"{self.file}-wire",
        )

    @property
    def is_silent(self) -> bool:
        """Whether nothing was to be sent and nothing was: there is no picture of that."""
        return bool(self.wire) and not any(c.predicted or c.measured for c in self.wire)

    @cached_property
    def wire_table(self) -> SafeString:
        return wire_table(self.wire, steps=self.steps, unit=self.unit)

    @cached_property
    def recognised(self) -> list[str]:
        """Which algorithm the backend ran for each kind of call, a sentence each."""
        if not self.wire or self.is_silent:
            return []
        return [
            found.sentence for found in recognise(self.run.spec, calls_of(self.run.spec), self.comparisons)
        ]

    @cached_property
    def levels(self) -> Levels:
        return Levels(comparisons=self.comparisons)

    @cached_property
    def matrices(self) -> Matrices | None:
        """Who sent to whom."""
        return Matrices.of(self.run.spec, self.comparisons)

    @cached_property
    def memory(self) -> Memory | None:
        return Memory.of(
            self.predictions,
            self.measurements,
            device=self.run.device,
            family=self.family,
            file=self.file,
        )

    @cached_property
    def timeline(self) -> Timelines | None:
        return Timelines.of(self.timelines, self.measurements)

    @cached_property
    def lines(self) -> Sequence[Lines]:
        """What ranks followed from step to step."""
        if self.calibrated:
            return ()
        return followed(self.series, family=self.family, unit=self.unit, file=self.file)

    @cached_property
    def calibrated(self) -> Calibrated | None:
        """What a calibration found."""
        if self.run.spec.job is not Job.CALIBRATION or not self.run.succeeded:
            return None
        return Calibrated.of(self.run, self.series, file=self.file)

    @cached_property
    def step_times(self) -> Lines | None:
        return step_times(
            self.step_seconds,
            self.predictions,
            said=self.time_said,
            family=self.family,
            unit=self.unit,
            file=self.file,
        )

    @cached_property
    def layout_map(self) -> LayoutMap | None:
        """Who held what, and what travelled."""
        return LayoutMap.of(self.run.spec)

    @cached_property
    def counters(self) -> Table | None:
        return counters_table(self.measurements)

    @property
    def contents(self) -> list[tuple[str, str]]:
        """Its parts by their anchors, where there are enough of them to jump between."""
        parts = (
            (self.calibrated, "link", "The link"),
            (self.wire, "on-the-wire", "On the wire"),
            (self.matrices and not self.is_silent, "pairs", "Who sent to whom"),
            (self.calls, "handed", "Handed"),
            (self.memory, "held", "Memory"),
            (self.timeline, "time", "Who waited"),
            (self.lines or self.step_times, "steps", "Step by step"),
            (self.counters, "of-the-machine", "Counters"),
            (self.comparisons or self.step_times, "how", "How it was measured"),
        )
        found = [(anchor, name) for is_there, anchor, name in parts if is_there]
        return found if len(found) > 2 else []

    @property
    def unseen(self) -> tuple[str, ...]:
        """What no meter could see, in the log's words."""
        return unseen(self.log)

    @property
    def draws(self) -> bool:
        """Whether any figure is drawn by Plotly, or will be once it has ended."""
        return self.is_live or bool(self.wire or self.lines or self.step_times or self.memory)

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


def hash_of(text: str) -> str:
    """A short mark of `text`, the same in every process."""
    return f"{zlib.crc32(text.encode()):x}"


def run_page(run_id: int, *, now: datetime) -> RunPage | None:
    """The run of this number as its page shows it, or None. Marks lost runs as lost first."""
    with looking(now=now) as session:
        run = store.get_run(session, run_id)
        if run is None:
            return None
        measured: dict[str, Any] = {}
        if run.is_final:
            said, reason = step_time(session, run)
            measured = {
                "predictions": tuple(store.predictions_of(session, run_id, quantities=_SHOWN)),
                "measurements": tuple(store.measurements_of(session, run_id, quantities=_SHOWN)),
                "verifications": tuple(store.verifications_of(session, run_id)),
                "step_seconds": tuple(store.step_seconds_of(session, run_id)),
                "series": tuple(store.series_of(session, run_id)),
                "timelines": tuple(store.timelines_of(session, run_id)),
                "time_said": said,
                "why_untimed": reason,
            }
        return RunPage(
            run=run,
            position=store.queue_position(session, run_id) if run.state is RunState.QUEUED else None,
            workers=() if run.is_final else tuple(store.workers_alive(session, now=now)),
            progress=() if run.is_final else tuple(store.progress_of(session, run_id)),
            log=tuple(store.log_of(session, run_id)),
            **measured,
        )


def get_run(run_id: int, *, now: datetime) -> Run | None:
    """The run of this number without what it measured."""
    with looking(now=now) as session:
        return store.get_run(session, run_id)
