"""What the ledger's tests share: a fresh ledger, a clock to turn, and a launcher that says what it is told."""

import tempfile
import time
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

from calculators.lab import store
from calculators.lab.devices import Devices, Placement, Torch
from calculators.lab.plan import make_plan
from calculators.lab.spec import Spec

NOON = datetime(2026, 12, 1, 12, tzinfo=UTC)
A_BOX = Devices(
    host="box", cpu="a CPU", cores=2, memory_bytes=8 * 2**30, torch=Torch(version="2.13.0", cuda="")
)


def make_spec(**given):
    return Spec.parse({"job": "tensor", "ranks": 2, "layers": 2, "steps": 10, **given})


def plan_of(spec):
    return make_plan(spec, Placement(device="cpu", backend="gloo", note="on the CPU"))


def fresh_ledger(folder):
    """A ledger of its own in `folder`: a copy of one that was migrated once, which takes a while."""
    file = folder / "runs.sqlite3"
    file.write_bytes(_migrated())
    return store.open_ledger(f"sqlite:///{file}")


@cache
def _migrated():
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "runs.sqlite3"
        store.migrate(f"sqlite:///{file}")
        return file.read_bytes()


def submitted(sessions, *, by="ada", now=NOON, **given):
    with sessions.begin() as session:
        return store.submit(session, make_spec(**given), submitted_by=by, now=now)


def claimed(sessions, *, owner="worker", now=NOON, **given):
    submitted(sessions, now=now, **given)
    with sessions.begin() as session:
        return store.claim(session, owner=owner, now=now)


def found(sessions, run_id):
    with sessions.reading() as session:
        return store.get_run(session, run_id)


class Clock:
    """A clock that stands still until it is turned."""

    def __init__(self, now=NOON):
        self.now = now

    def __call__(self):
        return self.now

    def turn(self, seconds):
        self.now += timedelta(seconds=seconds)


class Script:
    """A launcher that yields the events it is given; a number in between is a pause [s], full of ticks."""

    def __init__(self, *events):
        self.events = events
        self.plans = []
        self.was_closed_early = False

    def warm_up(self):
        pass

    def run(self, plan):
        self.plans.append(plan)
        try:
            for event in self.events:
                if callable(event):
                    event = event()
                if isinstance(event, int | float):
                    until = time.monotonic() + event
                    while time.monotonic() < until:
                        time.sleep(0.02)
                        yield None
                else:
                    yield event
        except GeneratorExit:
            self.was_closed_early = True
            raise


@contextmanager
def eventually(seconds):
    """Waits: `with eventually(5) as wait: wait(lambda: condition)` fails after that many seconds."""

    def wait(condition):
        until = time.monotonic() + seconds
        while not (value := condition()):
            assert time.monotonic() < until, f"did not happen within {seconds} s"
            time.sleep(0.05)
        return value

    yield wait
