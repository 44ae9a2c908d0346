"""Runs guided experiments in this process, one run after another, by way of the ledger."""

import threading
from collections.abc import Callable

from calculators.lab import store
from calculators.lab.devices import Devices
from calculators.lab.guided import trials
from calculators.lab.guided.claims import Guided, Outcome, Verdict
from calculators.lab.guided.needs import why_not
from calculators.lab.measurements import Event
from calculators.lab.plan import Plan
from calculators.lab.store import Sessions
from calculators.lab.worker import Worker, ignore, utc_now


def perform(
    guided: Guided,
    worker: Worker,
    *,
    sessions: Sessions,
    devices: Devices,
    submitted_by: str,
    stop: threading.Event,
    watch: Callable[[Plan, Event], None] = ignore,
) -> Verdict:
    """The verdict on `guided`, from runs made now; the runs stay in the ledger.

    Once `stop` is set no further run is begun, and those that wait are cancelled.
    """
    if reason := why_not(guided, devices):
        return Verdict(outcome=Outcome.COULD_NOT_RUN, sentence=f"Could not run here: {reason}.")
    with sessions.begin() as session:
        # Submitted and claimed one by one below; until then no worker may have them.
        trial = trials.submit(session, guided, submitted_by=submitted_by, now=utc_now())
        waiting = [run.id for run in store.runs_of_trial(session, trial)]
    for run_id in waiting:
        with sessions.begin() as session:
            if stop.is_set():
                store.request_cancel(session, run_id, now=utc_now())
                continue
            claimed = store.claim(session, owner=worker.owner, now=utc_now(), run_id=run_id)
        if claimed is not None:
            worker.perform(claimed, watch=watch)
    with sessions.reading() as session:
        read = trials.read(session, guided, trial)
    if read is None or read.verdict is None:
        # Another worker took one of the runs and is still at it.
        return Verdict(
            outcome=Outcome.COULD_NOT_RUN,
            sentence=f"Could not run here: another worker took a run of the trial {trial}. Look at its page.",
        )
    return read.verdict
