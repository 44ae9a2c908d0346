"""A trial: one time that a guided experiment was asked for, and what its runs in the ledger say."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import uuid4

from sqlalchemy.orm import Session

from calculators.lab import store
from calculators.lab.guided.claims import Guided, Outcome, Result, Unmeasured, Verdict
from calculators.lab.store import Run, RunState


@dataclass(frozen=True, kw_only=True)
class Trial:
    """The runs of one trial by variant; `verdict` once all have ended."""

    id: str
    guided: Guided
    runs: Mapping[str, Run]
    verdict: Verdict | None

    @property
    def is_over(self) -> bool:
        return self.verdict is not None


def submit(session: Session, guided: Guided, *, submitted_by: str, now: datetime) -> str:
    """Put every run of the experiment at the end of the queue; gives the trial's id."""
    trial = uuid4().hex
    for variant in guided.variants:
        store.submit(
            session,
            variant.spec,
            submitted_by=submitted_by,
            now=now,
            experiment=guided.name,
            trial=trial,
            variant=variant.name,
        )
    return trial


def read(session: Session, guided: Guided, trial: str) -> Trial | None:
    """The trial as the ledger has it at this moment; None when there is none of this id."""
    runs = {run.variant: run for run in store.runs_of_trial(session, trial)}
    if not runs:
        return None
    over = all(run.is_final for run in runs.values())
    verdict = judge(guided, {name: result(session, run) for name, run in runs.items()}) if over else None
    return Trial(id=trial, guided=guided, runs=runs, verdict=verdict)


def result(session: Session, run: Run) -> Result:
    """Everything that a judge may ask of a run."""
    return Result(
        run=run,
        comparisons=tuple(store.comparisons_of(session, run.id)),
        measurements=tuple(store.measurements_of(session, run.id)),
        verifications=tuple(store.verifications_of(session, run.id)),
        step_seconds=tuple(store.step_seconds_of(session, run.id)),
        series=tuple(store.series_of(session, run.id)),
        timelines=tuple(store.timelines_of(session, run.id)),
    )


def judge(guided: Guided, results: Mapping[str, Result]) -> Verdict:
    """The experiment's verdict; *could not run here* when a run failed, is not verified, or lacks a number."""
    for variant in guided.variants:
        found = results.get(variant.name)
        if found is None:
            return _could_not(f"the run “{variant.title}” is missing")
        if found.run.state is not RunState.DONE:
            reason = found.run.error or f"it was {found.run.state}"
            return _could_not(f"“{variant.title}” (run {found.run.id}) did not end well: {reason}")
        if found.run.verified is not True:
            return Verdict(
                outcome=Outcome.DID_NOT_HOLD,
                sentence=f"“{variant.title}” (run {found.run.id}) is not verified: its split result differs "
                "from the whole one, so its numbers say nothing.",
            )
    try:
        return guided.judge(results)
    except Unmeasured as reason:
        return _could_not(str(reason))


def _could_not(reason: str) -> Verdict:
    return Verdict(outcome=Outcome.COULD_NOT_RUN, sentence=f"Could not run here: {reason}.")
