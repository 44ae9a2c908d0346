"""The guided experiments whose claims are about time: whether each holds on this machine, as quiet as it is now."""

import tempfile
import threading

from calculators.lab import store
from calculators.lab.devices import find_devices
from calculators.lab.guided import GUIDED
from calculators.lab.guided.claims import Level, Outcome
from calculators.lab.guided.running import perform
from calculators.lab.launch import LocalLauncher
from calculators.lab.worker import Worker, worker_name
from tests.bench.results import Result


def measure() -> list[Result]:
    """1 for an experiment that held, 0 for one that did not; one that could not run has no goal to miss."""
    devices, stop = find_devices(), threading.Event()
    results = []
    with tempfile.TemporaryDirectory(prefix="sixfold-bench-") as folder, LocalLauncher() as launcher:
        launcher.warm_up()
        url = f"sqlite:///{folder}/runs.sqlite3"
        store.migrate(url)
        sessions = store.open_ledger(url)
        worker = Worker(sessions, launcher, owner=worker_name(devices.host), devices=devices, stop=stop)
        for one in (one for one in GUIDED.values() if one.level is Level.TIME):
            verdict = perform(
                one, worker, sessions=sessions, devices=devices, submitted_by="bench", stop=stop
            )
            ran = verdict.outcome is not Outcome.COULD_NOT_RUN
            held = verdict.outcome is Outcome.HELD
            results.append(
                Result(
                    name=f"experiment {one.name}",
                    value=float(held),
                    unit="held",
                    goal="= 1" if ran else "",
                    met=held if ran else None,
                    note=verdict.sentence,
                )
            )
    return results
