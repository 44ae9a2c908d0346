"""The ledger: how fast measurements go in, and how long the page of a run with a million of them takes."""

import json
import os
import subprocess
import sys
import tempfile
import time

from tests.bench import reference
from tests.bench.results import Result, rate, within

ROWS_A_SECOND = 50_000
PAGE_MILLISECONDS = 300.0
BULK = 200_000
MANY = 1_000_000


def measure() -> list[Result]:
    """Rows a second in bulk, and the page of a run with a million rows."""
    with tempfile.TemporaryDirectory(prefix="sixfold-bench-") as home:
        # A process of its own: settings read their home once.
        environment = {**os.environ, "SIXFOLD_HOME": home, "DJANGO_SETTINGS_MODULE": "tutor.settings"}
        command = [sys.executable, "-m", "tests.bench.ledger"]
        done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    seen = json.loads(done.stdout.splitlines()[-1])
    return [
        rate(
            "measurements into the ledger, in bulk",
            seen["rows_a_second"],
            ROWS_A_SECOND,
            "rows/s",
            note=f"{BULK:,} rows in one transaction, SQLite",
        ).judged_at(seen["slowness"]),
        within(
            "server time of the page of a run with a million rows",
            seen["milliseconds"],
            PAGE_MILLISECONDS,
            "ms",
            note=f"{seen['rows']:,} measurements",
        ).judged_at(seen["slowness"]),
    ]


def _work() -> None:
    """Fill a ledger of a home of its own, as the worker does, and ask for the page as the owner."""
    import statistics

    import django

    django.setup()

    from django.contrib.auth import get_user_model
    from django.test import Client
    from django.utils import timezone

    from calculators import runs
    from calculators.lab import store
    from calculators.lab.devices import Placement
    from calculators.lab.measurements import Measurement, Verified
    from calculators.lab.plan import make_plan
    from calculators.lab.spec import Spec
    from tutor.management.commands.start import prepare

    prepare()
    sessions, now = runs.ledger(), timezone.now()
    spec = Spec.parse({"job": "tensor", "ranks": 2, "steps": 10})
    plan = make_plan(spec, Placement(device="cpu", backend="gloo"))
    with sessions.begin() as session:
        run = store.submit(session, spec, submitted_by="owner", now=now)
        store.claim(session, owner="bench", now=now)
        store.record_plan(session, run.id, plan, owner="bench", machine="this one", now=now)

    def put(events: list) -> float:
        started = time.perf_counter()
        with sessions.begin() as session:
            store.record_events(session, run.id, events, owner="bench", now=now)
        return time.perf_counter() - started

    seconds = put(_timed_calls(BULK))
    for _ in range(MANY // BULK - 1):
        put(_timed_calls(BULK))
    measured = [
        Measurement(
            quantity=p.quantity,
            rank=p.rank,
            peer=p.peer,
            detail=p.detail,
            value=p.predicted,
            steps=spec.steps,
        )
        for p in plan.predictions
    ]
    put([*measured, *(Verified(rank=rank, worst=0.0, tolerance=1e-5) for rank in range(spec.ranks))])
    with sessions.begin() as session:
        store.finish(
            session, run.id, owner="bench", state=store.RunState.DONE, verified=True, failed=None, now=now
        )

    client = Client(headers={"host": "localhost"})
    client.force_login(get_user_model().objects.create_user("owner"))
    times, loops = [], []
    for _ in range(9):
        started = time.perf_counter()
        response = client.get(f"/runs/{run.id}/")
        times.append(time.perf_counter() - started)
        loops.append(reference.once())
        assert response.status_code == 200, response.status_code
    print(
        json.dumps(
            {
                "rows_a_second": BULK / seconds,
                "milliseconds": 1e3 * statistics.median(times),
                "slowness": 1e3 * statistics.median(loops) / reference.GOAL_MS,
                "rows": MANY + len(measured),
            }
        )
    )


def _timed_calls(number: int) -> list:
    from calculators.lab.measurements import Measurement, Quantity

    return [
        Measurement(
            quantity=Quantity.CALL_SECONDS,
            rank=index % 2,
            detail=f"all-reduce {2 ** (10 + index % 12)}",
            value=1e-3 + 1e-9 * index,
            steps=1,
        )
        for index in range(number)
    ]


if __name__ == "__main__":
    _work()
