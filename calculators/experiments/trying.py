"""Trials of guided experiments in this site's ledger: which there were, how each fared, and starting another."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache

from django.http import HttpRequest
from sqlalchemy.orm import Session

from calculators.lab import store
from calculators.lab.devices import find_devices
from calculators.lab.guided import trials
from calculators.lab.guided.claims import Guided, Outcome, Verdict
from calculators.lab.guided.needs import why_not
from calculators.lab.measurements import Progress
from calculators.lab.store import Run, Worker
from calculators.runs.opening import ledger, looking
from calculators.runs.page import hash_of
from calculators.runs.submission import once

MOST_RUNS = 2_000
"""So many runs of the ledger are looked through for trials."""
KEPT_VERDICTS = 512


@dataclass(frozen=True, kw_only=True)
class Fared:
    """One trial: its runs, and its verdict once all have ended."""

    trial: str
    guided: Guided
    runs: tuple[Run, ...]
    verdict: Verdict | None
    progress: tuple[tuple[Progress, ...], ...] = ()

    @property
    def is_live(self) -> bool:
        return self.verdict is None

    @property
    def outcome(self) -> str:
        """How it ended, or that it has not."""
        return "at work" if self.verdict is None else str(self.verdict.outcome)

    @property
    def badge(self) -> str:
        """The class that colours the outcome."""
        if self.verdict is None:
            return "warn"
        return {Outcome.HELD: "good", Outcome.DID_NOT_HOLD: "bad"}.get(self.verdict.outcome, "warn")

    @property
    def at(self) -> datetime:
        """When it was asked for."""
        return min(run.submitted_at for run in self.runs)

    @property
    def by(self) -> str:
        return self.runs[0].submitted_by

    @property
    def machines(self) -> str:
        """Where its runs ran."""
        return "; ".join(dict.fromkeys(run.machine for run in self.runs if run.machine))

    @property
    def changed_mark(self) -> str:
        """Differs whenever a live page would."""
        said = [f"{run.id}{run.state}" for run in self.runs]
        done = [f"{p.rank}{p.part}{p.done}" for several in self.progress for p in several]
        return hash_of(".".join(said + done))


@dataclass(frozen=True, kw_only=True)
class Tried:
    """The trials of one experiment, the newest first; the chosen one has its progress."""

    trials: tuple[Fared, ...]
    chosen: Fared | None
    workers: tuple[Worker, ...]


def last_of_each(guided: Iterable[Guided], *, now: datetime) -> dict[str, Fared]:
    """The newest trial of every experiment that was tried."""
    known = {one.name: one for one in guided}
    with looking(now=now) as session:
        found = _trials(session, names=set(known))
        last: dict[str, str] = {}
        for trial, runs in found.items():
            last.setdefault(runs[0].experiment, trial)
        return {name: _fared(session, known[name], trial, found[trial]) for name, trial in last.items()}


def tried(guided: Guided, *, chosen: str, now: datetime, limit: int = 20) -> Tried:
    """The newest trials of one experiment; `chosen` is the id of the one to look at, the newest unless it is known."""
    with looking(now=now) as session:
        found = _trials(session, names={guided.name})
        ids = list(found)[:limit]
        if chosen in found and chosen not in ids:
            ids.append(chosen)
        fared = {trial: _fared(session, guided, trial, found[trial]) for trial in ids}
        workers = tuple(store.workers_alive(session, now=now))
        looked_at = fared.get(chosen) or next(iter(fared.values()), None)
        if looked_at is not None and looked_at.is_live:
            looked_at = Fared(
                trial=looked_at.trial,
                guided=guided,
                runs=looked_at.runs,
                verdict=None,
                progress=tuple(
                    () if run.is_final else tuple(store.progress_of(session, run.id))
                    for run in looked_at.runs
                ),
            )
        return Tried(trials=tuple(fared.values()), chosen=looked_at, workers=workers)


def try_once(request: HttpRequest, guided: Guided, *, nonce: str, now: datetime) -> str:
    """Put the runs of the experiment in the queue and give the trial's id; the same nonce again gives the same."""

    def make() -> str:
        with ledger().begin() as session:
            return trials.submit(session, guided, submitted_by=request.user.get_username(), now=now)

    return str(once(request, nonce=f"trial-{nonce}", make=make))


def why_not_here(guided: Guided, workers: Iterable[Worker]) -> str:
    """Why no worker that is there can run it; empty when one may. Another machine's worker may have what this lacks."""
    devices = find_devices()
    if any(worker.machine != devices.machine for worker in workers):
        return ""
    return _why_not(guided.name, devices.machine)


@lru_cache(maxsize=64)
def _why_not(name: str, machine: str) -> str:
    """Asked once for each experiment: what a machine offers does not change while a page is looked at."""
    from calculators.lab.guided import guided

    return why_not(guided(name), find_devices())


def _trials(session: Session, *, names: set[str]) -> dict[str, list[Run]]:
    """Runs by trial, the newest trial first; within each a run for each variant, the last where one was run again."""
    one = next(iter(names)) if len(names) == 1 else None
    found: dict[str, dict[str, Run]] = {}
    for run in store.runs_matching(session, experiment=one, limit=MOST_RUNS):
        if run.trial and run.experiment in names:
            found.setdefault(run.trial, {}).setdefault(run.variant, run)
    return {trial: sorted(runs.values(), key=lambda run: run.id) for trial, runs in found.items()}


def _fared(session: Session, guided: Guided, trial: str, runs: list[Run]) -> Fared:
    verdict = None
    if all(run.is_final for run in runs):
        key = (trial, *((run.id, run.ended_at) for run in runs))
        if key not in _VERDICTS:
            while len(_VERDICTS) >= KEPT_VERDICTS:
                del _VERDICTS[next(iter(_VERDICTS))]
            _VERDICTS[key] = trials.judge(guided, {run.variant: trials.result(session, run) for run in runs})
        verdict = _VERDICTS[key]
    return Fared(trial=trial, guided=guided, runs=tuple(runs), verdict=verdict)


_VERDICTS: dict[object, Verdict] = {}
"""Runs that have ended stay as they are, and judging one trial reads all that it measured."""
