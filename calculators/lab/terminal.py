"""How plans, runs and comparisons look on a terminal: plain text, numbers right-aligned, units said."""

import statistics
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

from calculators.lab.calls import Call
from calculators.lab.compare import TOLERATED_SHARE, Comparison, matrix
from calculators.lab.measurements import Event, Log, Prediction, Progress, Quantity, StepSeconds, Verified
from calculators.lab.plan import Plan
from calculators.lab.recognise import recognise
from calculators.lab.spec import Job, Spec
from calculators.lab.splits import calls_of

if TYPE_CHECKING:  # a dry run does without SQLAlchemy
    from calculators.lab.store import LogLine, Run


_Told = TypeVar("_Told", Prediction, Comparison)


def table(header: Sequence[str], rows: Iterable[Sequence[str]], *, left: int = 1) -> str:
    """Columns as wide as their widest cell; the first `left` are left-aligned, the others right-aligned."""
    lines = [list(header), *map(list, rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column < left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def plan_text(plan: Plan) -> str:
    """What a run would do and what it should move."""
    spec, placement = plan.spec, plan.placement
    where = _where(placement.device, placement.backend, placement.staged)
    part = "a slice of " if spec.job is Job.TENSOR else ""
    held = [f"  rank {rank}: {part}{_layers(held)}" for rank, held in enumerate(plan.layers_by_rank)]
    together = "Ranks of the mesh" if spec.job is Job.MESH else "One group of all ranks"
    group = f"{together}:\n" + "\n".join(held) if held else ""
    calls = [
        [
            f"  {call.times:,} ×",
            str(call.op),
            _callers(call),
            f"{call.payload_bytes:,} B",
            call.what + (" (control)" if call.is_control else ""),
        ]
        for call in plan.calls
    ]
    widths = [max((len(row[column]) for row in calls), default=0) for column in range(4)]
    listed = ["  ".join([*(c.rjust(w) for c, w in zip(row, widths, strict=False)), row[4]]) for row in calls]
    pieces = [
        f"{title(spec)}: {plan.world_size} ranks on {where}",
        placement.note,
        spec.caveat,
        plan.about_time,
        group,
        "Calls of one step:\n" + "\n".join(listed or ["  none"]),
        f"Predicted over {spec.steps:,} steps:\n" + predictions_table(plan.predictions),
    ]
    pairs = [p for p in plan.predictions if p.quantity is Quantity.PAIR and p.peer is not None]
    if pairs:
        cells = [[0.0] * plan.world_size for _ in range(plan.world_size)]
        for p in pairs:
            cells[p.rank][p.peer or 0] = p.predicted
        pieces.append("Predicted wire bytes, from each rank (row) to each other (column):\n" + _matrix(cells))
    return "\n\n".join(filter(None, pieces))


def predictions_table(predictions: Iterable[Prediction]) -> str:
    """Each quantity of each rank in its named parts; pairs are left to the matrix."""
    header = ["rank", "quantity", "formula", "backend", "framing", "control", "predicted"]
    rows = [
        [str(p.rank), _named(p), *map(_number, _parts(p)), _number(p.predicted)]
        for p in _worth_a_line(predictions)
    ]
    return table(header, rows, left=2)


def comparisons_table(comparisons: Iterable[Comparison]) -> str:
    """Each quantity of each rank: predicted in its named parts, measured, unexplained and its share."""
    header = [
        *("rank", "quantity", "formula", "backend", "framing", "control"),
        *("predicted", "measured", "unexplained", "share"),
    ]
    rows = [
        [
            str(c.rank),
            _named(c.prediction),
            *map(_number, _parts(c.prediction)),
            _number(c.predicted),
            _number(c.measured),
            _number(c.unexplained, signed=True),
            _share(c),
        ]
        for c in _worth_a_line(comparisons)
    ]
    return table(header, rows, left=2)


def verdicts(comparisons: Iterable[Comparison]) -> list[str]:
    """What a reader must not overlook, a sentence each."""
    said = []
    for c in comparisons:
        if c.quantity is Quantity.IDLE and c.measured:
            said.append(
                f"✗ The idle control of rank {c.rank} read {_number(c.measured)} B, not 0: something else "
                "used its sockets, so its wire bytes cannot be trusted."
            )
        elif c.peer is None and c.quantity.is_counted and not c.is_explained:
            said.append(
                f"✗ {_named(c.prediction).capitalize()} of rank {c.rank}: {_share(c)} is unexplained. "
                f"{TOLERATED_SHARE:.0%} or more unexplained is a failure of the model."
            )
    return said


def run_text(
    run: "Run",
    comparisons: Sequence[Comparison],
    *,
    verifications: Sequence[Verified],
    step_seconds: Sequence[StepSeconds] = (),
    with_pairs: bool = False,
) -> str:
    """A run from its heading to its numbers."""
    heading = f"Run {run.id} · {title(run.spec)} · {_ended(run)}"
    pieces = [heading, run.spec.caveat, f"{_placed(run)}\n{run.placement_note}".strip()]
    if run.error:
        by = f"Rank {run.error_rank}: " if run.error_rank is not None else ""
        pieces.append(f"✗ {by}{run.error}" + (f"\n\n{run.traceback.rstrip()}" if run.traceback else ""))
    pieces.append("\n".join(_verified(run, verifications)))
    if comparisons:
        steps = comparisons[0].steps
        pieces.append(
            f"Over {steps:,} measured steps; calls are counts, seconds are seconds, everything else is bytes:\n\n"
            + comparisons_table(comparisons)
        )
        pieces.append("\n".join(verdicts(comparisons)))
        pieces.append("\n".join(one.sentence for one in recognise(run.spec, calls_of(run.spec), comparisons)))
    if with_pairs and any(c.quantity is Quantity.PAIR for c in comparisons):
        for word in ("predicted", "measured"):
            cells = matrix(comparisons, world_size=run.world_size, measured=word == "measured")
            said = f"Wire bytes {word}, from each rank (row) to each other (column):\n"
            pieces.append(said + _matrix(cells))
    if step_seconds:
        medians = [f"{statistics.median(s.seconds) * 1e3:,.2f} ms on rank {s.rank}" for s in step_seconds]
        pieces.append(f"Median time of a step: {', '.join(medians)}.")
    return "\n\n".join(filter(None, pieces))


def log_text(log: Sequence["LogLine"]) -> str:
    """A run's log with the time of each line; empty when nothing was said."""
    lines = [f"{line.at:%H:%M:%S}  {_log_line(line)}" for line in log]
    return "\n".join(["Log (UTC):", *lines]) if lines else ""


def runs_table(runs: Iterable["Run"]) -> str:
    """The list of runs, one a line."""
    header = [
        "run",
        "job",
        "ranks",
        "backend",
        "status",
        "verified",
        "seconds",
        "submitted (UTC)",
        "by",
        "note",
    ]
    rows = [
        [
            str(run.id),
            title(run.spec),
            str(run.world_size),
            run.backend or "–",
            str(run.state),
            {True: "yes", False: "NO", None: "–"}[run.verified],
            "–" if run.seconds is None else f"{run.seconds:,.2f}",
            f"{run.submitted_at:%Y-%m-%d %H:%M:%S}",
            run.submitted_by,
            run.spec.note,
        ]
        for run in runs
    ]
    return table(header, rows, left=len(header))


def title(spec: Spec) -> str:
    """What a run is, in two words."""
    return f"{spec.job} {spec.pattern if spec.is_exchange else spec.phase}"


class Watcher(Protocol):
    """Shows a run while it goes on."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def __call__(self, plan: Plan, event: Event) -> None: ...


class Silence:
    """Shows nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __call__(self, plan: Plan, event: Event) -> None:
        pass


class PlainLines(Silence):
    """A line when a rank enters another part of its work, and its log."""

    def __init__(self) -> None:
        self._parts: dict[int, str] = {}

    def __call__(self, plan: Plan, event: Event) -> None:
        if isinstance(event, Progress) and self._parts.get(event.rank) != event.part:
            self._parts[event.rank] = event.part
            print(f"rank {event.rank}: {event.part}", file=sys.stderr, flush=True)
        if isinstance(event, Log):
            print(_log_line(event), file=sys.stderr, flush=True)


class Bars:
    """A bar for each rank, gone when the run has ended. rich is imported only here."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
        from rich.progress import Progress as RichProgress

        self._bars = RichProgress(
            TextColumn("{task.fields[who]}"),
            TextColumn("{task.description:<8}"),
            BarColumn(bar_width=40),
            MofNCompleteColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._tasks: dict[int, Any] = {}

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def __call__(self, plan: Plan, event: Event) -> None:
        if isinstance(event, Progress):
            if event.rank not in self._tasks:
                self._tasks[event.rank] = self._bars.add_task("", who=f"rank {event.rank}")
            self._bars.update(
                self._tasks[event.rank], description=event.part, completed=event.done, total=event.total
            )
        if isinstance(event, Log):
            self._bars.console.print(_log_line(event), markup=False, highlight=False)


def _log_line(event: "Log | LogLine") -> str:
    return event.text if event.rank is None else f"rank {event.rank}: {event.text}"


def _callers(call: Call) -> str:
    """Who makes a call: “all ranks”, “2 groups of 4”, “0 → 1”."""
    if not call.is_collective:
        return f"{call.source} → {call.destination}"
    number = len(call.groups)
    return f"{number} group{'s' * (number > 1)} of {len(call.groups[0])}" if number else "all ranks"


def _layers(held: Sequence[int]) -> str:
    """Layers by number, neighbours as “2 to 5”."""
    runs: list[list[int]] = []
    for layer in held:
        if runs and layer == runs[-1][-1] + 1:
            runs[-1].append(layer)
        else:
            runs.append([layer])
    said = [f"{run[0]} to {run[-1]}" if len(run) > 1 else str(run[0]) for run in runs]
    return f"{'layers' if len(held) > 1 else 'layer'} {' and '.join(said)}"


def _where(device: str, backend: str, staged: bool) -> str:
    by = f"{backend}, staged through host memory" if staged else backend
    return f"{device}, talking through {by}" if device else "a machine not chosen yet"


def _placed(run: "Run") -> str:
    ranks = f"{run.world_size} ranks on {_where(run.device, run.backend, run.staged)}"
    return f"{ranks} · {run.machine}" if run.machine else ranks


def _ended(run: "Run") -> str:
    if run.state == "running":
        return f"running since {run.started_at:%H:%M:%S} UTC"
    return str(run.state) if run.seconds is None else f"{run.state} in {run.seconds:,.2f} s"


def _verified(run: "Run", verifications: Sequence[Verified]) -> list[str]:
    what, other = run.spec.compared
    said = [f"{'✓' if v.holds else '✗'} rank {v.rank}: {v.sentence(what, other)}" for v in verifications]
    if not said and run.is_final:
        said = [f"– No rank has said whether {what} equals {other}."]
    return said


def _worth_a_line(given: Iterable[_Told]) -> list[_Told]:
    """Rank by rank, without pairs, and without a kind of call that is all there is of its total."""
    lines = [one for one in given if one.peer is None]
    kinds = Counter((one.quantity, one.rank) for one in lines)
    alone = {Quantity.CALLS, Quantity.HANDED}
    return sorted(
        (
            one
            for one in lines
            if not (one.detail and one.quantity in alone and kinds[one.quantity, one.rank] == 2)
        ),
        key=lambda one: one.rank,
    )


def _named(prediction: Prediction) -> str:
    """The quantity and, where it has several, which of them: “bytes held: weights”."""
    return f"{prediction.quantity}: {prediction.detail}" if prediction.detail else str(prediction.quantity)


def _parts(prediction: Prediction) -> tuple[float, float, float, float]:
    return prediction.formula, prediction.backend_excess, prediction.framing, prediction.control


def _matrix(cells: Sequence[Sequence[float]]) -> str:
    header = ["from \\ to", *(str(peer) for peer in range(len(cells)))]
    rows = [
        [str(rank), *("·" if rank == peer else _number(value) for peer, value in enumerate(row))]
        for rank, row in enumerate(cells)
    ]
    return table(header, rows)


def _share(comparison: Comparison) -> str:
    share = comparison.unexplained_share
    return "all" if share == float("inf") else f"{share:.2%}"


def _number(value: float, *, signed: bool = False) -> str:
    """Whole numbers as such; a part of a byte (a formula that does not divide) to one place, seconds to five."""
    digits = "0" if float(value).is_integer() else "1" if abs(value) >= 100 else "5"
    return f"{value:{'+' if signed and value else ''},.{digits}f}"
