"""A worker that is killed at one moment: `python -m tests.lab.dying_worker LEDGER-URL set-up|writing`."""

import os
import signal
import sys


def main(url: str, moment: str) -> None:
    """Work through the queue until that moment comes."""
    from calculators.lab import launch, store, worker
    from calculators.lab.measurements import Measurement
    from tests.lab.ledgers import A_BOX

    def die(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    record = store.record_events

    def record_and_die(session, run_id, events, **who):
        record(session, run_id, events, **who)
        if any(isinstance(event, Measurement) for event in events):
            die()  # all is written, and nothing committed

    if moment == "writing":
        store.record_events = record_and_die
    else:
        launch._Ranks.listen = die  # all ranks are started, and nobody has listened yet
    with launch.LocalLauncher() as launcher:
        worker.work(store.open_ledger(url), launcher, owner="dying", devices=A_BOX)


if __name__ == "__main__":
    main(*sys.argv[1:])
