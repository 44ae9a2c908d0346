"""Runs at every stage, made through the store's own functions as a worker makes them."""

from django.utils import timezone

from calculators.lab import store
from calculators.lab.measurements import (
    Failed,
    Log,
    Measurement,
    Progress,
    Quantity,
    StepSeconds,
    Verified,
)
from calculators.lab.store import RunState
from tests.lab.ledgers import make_spec, plan_of

WORKER = "box-1"


def waiting_run(sessions, *, by="ada", now=None, **given):
    with sessions.begin() as session:
        run = store.submit(session, make_spec(**given), submitted_by=by, now=now or timezone.now())
    return run.id


def running_run(sessions, *, by="ada", now=None, events=(), **given):
    run_id = waiting_run(sessions, by=by, now=now or timezone.now(), **given)
    start(sessions, run_id, now=now, events=events)
    return run_id


def start(sessions, run_id, *, now=None, events=()):
    """A worker takes the run that waits."""
    now = now or timezone.now()
    with sessions.begin() as session:
        run = store.claim(session, owner=WORKER, now=now, run_id=run_id)
        store.record_plan(session, run_id, plan_of(run.spec), owner=WORKER, machine="box (2 cores)", now=now)
        store.record_events(session, run_id, events, owner=WORKER, now=now)


def measured_run(sessions, *, wire_off_by=0, verified=True, idle=0, by="ada", events=(), **given):
    """A run that is done, whose meters read what was predicted, give or take `wire_off_by` bytes, and `events` more."""
    run_id = running_run(sessions, by=by, **given)
    end(sessions, run_id, wire_off_by=wire_off_by, verified=verified, idle=idle, events=events)
    return run_id


def end(sessions, run_id, *, wire_off_by=0, verified=True, idle=0, events=()):
    """The run that is at work comes to its end as `measured_run` says."""
    now = timezone.now()
    with sessions.begin() as session:
        spec = store.get_run(session, run_id).spec
        off = {Quantity.WIRE: wire_off_by, Quantity.IDLE: idle}
        told = [
            Measurement(
                quantity=p.quantity,
                rank=p.rank,
                peer=p.peer,
                detail=p.detail,
                value=p.predicted + off.get(p.quantity, 0),
                steps=spec.steps,
            )
            for p in plan_of(spec).predictions
        ]
        for rank in range(spec.ranks):
            worst = 1e-7 if verified else 0.5
            told += [
                Verified(rank=rank, worst=worst, tolerance=1e-5),
                StepSeconds(rank=rank, seconds=(0.002,) * spec.steps),
                Progress(rank=rank, part="measure", done=spec.steps, total=spec.steps),
            ]
        told += [Log(rank=0, text="all quiet"), *events]
        store.record_events(session, run_id, told, owner=WORKER, now=now)
        store.finish(
            session, run_id, owner=WORKER, state=RunState.DONE, verified=verified, failed=None, now=now
        )


def failed_run(sessions, *, reason="out of memory", rank=1, traceback="Traceback: a secret path", **given):
    run_id = running_run(sessions, **given)
    now = timezone.now()
    failed = Failed(rank=rank, reason=reason, traceback=traceback)
    with sessions.begin() as session:
        store.record_events(
            session, run_id, [Log(rank=1, text="about to fail"), failed], owner=WORKER, now=now
        )
        store.finish(
            session, run_id, owner=WORKER, state=RunState.FAILED, verified=None, failed=failed, now=now
        )
    return run_id


def working_here(sessions):
    with sessions.begin() as session:
        store.worker_seen(session, owner=WORKER, machine="box (2 cores)", now=timezone.now())
