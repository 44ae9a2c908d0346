"""Takes runs from the ledger one after another and has them done; it outlives whatever a run does."""

import logging
import os
import threading
import time
import traceback
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Protocol, cast

from sqlalchemy.exc import InterfaceError, OperationalError, SQLAlchemyError

from calculators.lab import calibrations, store
from calculators.lab.devices import Devices, place
from calculators.lab.measurements import Event, Failed, Log, Verified
from calculators.lab.plan import Plan, make_plan
from calculators.lab.problems import Problem
from calculators.lab.quota import Quota
from calculators.lab.spec import SpecError
from calculators.lab.store import NotYours, Run, RunState, Sessions

POLL_SECONDS = 0.1
"""How often an idle worker looks for a run: a click waits half of this on average."""
_REAP_SECONDS = 1.0
_BATCH_SECONDS = 0.4
"""What ranks say in this time goes to the ledger in one transaction; a run's end does not wait for it."""
_LOOK_SECONDS = 0.3
"""How often a worker asks whether its run is to be cancelled: well within a second of the click."""
_RETRY_SECONDS = 1.0
_TRIES = 3
"""So often the end of a run is offered to the ledger with all that came last; from then on, without."""

log = logging.getLogger(__name__)


class Launcher(Protocol):
    """What a worker needs of a launcher; closing what `run` gives ends every rank."""

    def warm_up(self) -> None: ...

    def run(self, plan: Plan) -> Iterator[Event | None]: ...


def utc_now() -> datetime:
    """This moment, timezone-aware."""
    return datetime.now(UTC)


def require_torch(devices: Devices) -> None:
    """Raises `SpecError` where ranks would have nothing to compute with."""
    if devices.torch is None:
        sentence = (
            f"torch is not installed on {devices.host}, and ranks compute with it. "
            "Install the extra “lab”: pip install 'sixfold[lab]'."
        )
        raise SpecError([Problem("", sentence)])


def worker_name(host: str) -> str:
    """A name that no other worker has: machine, process id (they come again) and the second it started."""
    return f"{host}-{os.getpid()}-{int(time.time())}"


def work(
    sessions: Sessions,
    launcher: Launcher,
    *,
    owner: str,
    devices: Devices,
    once: bool = False,
    stop: threading.Event | None = None,
    clock: Callable[[], datetime] = utc_now,
    quota: Quota | None = None,
) -> None:
    """Claim runs and perform them until `stop` is set; with `once`, one run if one waits.

    A run that exceeds `quota` (left out: that of the environment) is refused with the reason, and one that `stop`
    interrupts is marked lost. No failure of a run ends the worker, and while the ledger does not answer it tries
    again.
    """
    stop = stop or threading.Event()
    quota = quota or Quota.from_environment()
    worker = Worker(sessions, launcher, owner=owner, devices=devices, stop=stop, clock=clock, quota=quota)
    presence = _Presence(sessions, owner=owner, machine=devices.machine, clock=clock)
    with sessions.held_open(), presence:
        launcher.warm_up()
        log.info("%s is ready: %s", owner, devices.machine)
        next_reap = 0.0
        while not stop.is_set():
            try:
                if time.monotonic() >= next_reap:
                    worker.reap()
                    next_reap = time.monotonic() + _REAP_SECONDS
                if run := worker.claim():
                    worker.perform(run)
            except SQLAlchemyError as error:
                log.error("The ledger does not answer (%s); trying again.", _first_line(error))
                stop.wait(_RETRY_SECONDS)
                continue
            if once:
                return
            if run is None:
                stop.wait(POLL_SECONDS)


def ignore(plan: Plan, event: Event) -> None:
    """What nobody watches."""


@dataclass(frozen=True)
class Worker:
    """One claimer of runs: what it works with, and `perform`, which takes a claimed run to its end.

    When `stop` is set the ranks are ended, and the run too: in the state and for the reason of `stopped`.
    """

    sessions: Sessions
    launcher: Launcher
    owner: str = field(kw_only=True)
    devices: Devices = field(kw_only=True)
    stop: threading.Event = field(kw_only=True)
    stopped: tuple[RunState, str] = field(
        kw_only=True, default=(RunState.LOST, "The worker was stopped before the run had ended.")
    )
    clock: Callable[[], datetime] = field(kw_only=True, default=utc_now)
    quota: Quota = field(kw_only=True, default_factory=Quota.from_environment)

    def claim(self) -> Run | None:
        """The run that has waited longest, if one waits."""
        with self.sessions.reading() as session:  # takes no lock: an idle worker is in nobody's way
            if not store.anything_queued(session):
                return None
        with self.sessions.begin() as session:
            return store.claim(session, owner=self.owner, now=self.clock())

    def reap(self) -> None:
        """Mark the runs of silent workers as lost."""
        with self.sessions.reading() as session:
            if not store.overdue(session, now=self.clock()):
                return
        with self.sessions.begin() as session:
            for run_id in store.reap(session, now=self.clock()):
                log.warning("Run %d is lost: its worker went silent.", run_id)

    def perform(self, run: Run, *, watch: Callable[[Plan, Event], None] = ignore) -> None:
        """Do a claimed run from plan to end; how it went is in the ledger. `watch` is shown every event.

        Should the run be taken away meanwhile (lost, because this machine slept), its ranks are ended and
        nothing more is stored.
        """
        seen: list[Verified] = []
        unsaid: list[Event] = []
        try:
            try:
                state, failed = self._follow(run, seen=seen, unsaid=unsaid, watch=watch)
            except SpecError as error:
                state, failed = RunState.FAILED, Failed(rank=None, reason=str(error))
            except NotYours:
                raise
            except Exception as error:
                failed = _the_lab_failed(error)
                state = RunState.FAILED
                if isinstance(error, SQLAlchemyError) and not isinstance(error, _AWAY):
                    unsaid.clear()  # perhaps the very thing that the ledger could not take
            failed = self._end(run, unsaid, seen=seen, state=state, failed=failed)
        except NotYours as error:
            log.warning("%s", error)
            return
        log.info("Run %d (%s): %s", run.id, run.spec.job, failed.reason if failed else state)

    def _end(
        self, run: Run, unsaid: list[Event], *, seen: list[Verified], state: RunState, failed: Failed | None
    ) -> Failed | None:
        """Write the end of the run, as soon as the ledger takes it; gives why the run failed, if it did.

        A ledger that stays without room for what came last gets the end alone: the run failed, and why.
        """
        tries = 0
        while True:
            try:
                with self.sessions.begin() as session:
                    owner, now, verified = self.owner, self.clock(), _verdict(seen, state)
                    store.record_events(session, run.id, unsaid, owner=owner, now=now)
                    store.finish(
                        session, run.id, owner=owner, state=state, verified=verified, failed=failed, now=now
                    )
                return failed
            except SQLAlchemyError as error:
                tries += 1
                is_away = isinstance(error, _AWAY)
                log.error(
                    "Run %d has ended, but the ledger does not take it (%s).", run.id, _first_line(error)
                )
                if unsaid and (tries == _TRIES or not is_away):
                    unsaid, state = [], RunState.FAILED
                    failed = failed or Failed(rank=None, reason=_lost(error))
                elif not is_away:
                    raise
                if is_away and self.stop.wait(_RETRY_SECONDS):
                    raise

    def _follow(
        self, run: Run, *, seen: list[Verified], unsaid: list[Event], watch: Callable[[Plan, Event], None]
    ) -> tuple[RunState, Failed | None]:
        """Read the launcher to its end, or end it; `unsaid` is left with what the ledger lacks."""
        self._require_room(run)
        machine, placement = self.devices.machine, place(run.spec, self.devices)
        with self.sessions.reading() as session:
            calibration = calibrations.latest(
                session, run.spec, machine=machine, backend=placement.backend, device=placement.device
            )
        plan = make_plan(run.spec, placement, calibration)
        if calibration is not None and plan.about_time:
            unsaid.append(Log(rank=None, text=plan.about_time))
        with self.sessions.begin() as session:
            store.record_plan(session, run.id, plan, owner=self.owner, machine=machine, now=self.clock())
        next_batch, next_look, next_beat = 0.0, 0.0, time.monotonic() + store.HEARTBEAT_SECONDS
        with closing(cast(Generator[Event | None, None, None], self.launcher.run(plan))) as events:
            for event in events:
                if isinstance(event, Failed):
                    return RunState.FAILED, event
                if event is not None:
                    unsaid.append(event)
                    watch(plan, event)
                if isinstance(event, Verified):
                    seen.append(event)
                if self.stop.is_set():
                    state, reason = self.stopped
                    return state, Failed(rank=None, reason=reason)
                if time.monotonic() >= next_look:
                    if self._is_to_stop(run):
                        return RunState.CANCELLED, None  # or taken from us: then `finish` says so
                    next_look = time.monotonic() + _LOOK_SECONDS
                if time.monotonic() >= next_beat:
                    if not self._heartbeat(run):
                        return RunState.CANCELLED, None
                    next_beat = time.monotonic() + store.HEARTBEAT_SECONDS
                if unsaid and time.monotonic() >= next_batch:
                    with self.sessions.begin() as session:
                        now = self.clock()
                        store.record_events(session, run.id, unsaid, owner=self.owner, now=now)
                    unsaid.clear()
                    next_batch = time.monotonic() + _BATCH_SECONDS
        return RunState.DONE, None

    def _require_room(self, run: Run) -> None:
        """Raises `SpecError` with what this worker has no room for, though the queue took it."""
        require_torch(self.devices)
        problems = self.quota.within(self.devices.memory_bytes).problems(run.spec)
        refused = f"The worker on {self.devices.host} refuses this run."
        if found := [Problem(field, f"{refused} {message}") for field, message in problems]:
            raise SpecError(found)

    def _is_to_stop(self, run: Run) -> bool:
        with self.sessions.reading() as session:
            return store.is_to_stop(session, run.id, owner=self.owner)

    def _heartbeat(self, run: Run) -> bool:
        with self.sessions.begin() as session:
            return store.heartbeat(session, run.id, owner=self.owner, now=self.clock())


def _verdict(seen: list[Verified], state: RunState) -> bool | None:
    """False when a rank's result does not hold; True when the run is done and all hold; None else.

    Not every rank need say something: in a pipeline that decodes only the last stage has logits to compare.
    """
    if not all(verified.holds for verified in seen):
        return False
    return True if seen and state is RunState.DONE else None


_AWAY = OperationalError, InterfaceError
"""A ledger that is locked, full or out of reach: it may take later what it did not take now."""


def _the_lab_failed(error: Exception) -> Failed:
    """What a run says that no rank brought down."""
    if isinstance(error, _AWAY):
        reason = (
            f"The ledger could not be written while the run went on: {_first_line(error)}. "
            "Its ranks were ended. Run it again."
        )
        return Failed(rank=None, reason=reason)
    reason = f"The lab failed, not a rank: {type(error).__name__}: {_first_line(error)}"
    return Failed(rank=None, reason=reason, traceback=traceback.format_exc())


def _lost(error: SQLAlchemyError) -> str:
    return (
        f"The run went well, but the ledger could not take what it measured: {_first_line(error)}. "
        "Make room for it and run it again."
    )


def _first_line(error: BaseException) -> str:
    reason = str(getattr(error, "orig", None) or error).strip()
    return reason.splitlines()[0] if reason else type(error).__name__


class _Presence:
    """Says in the ledger that this worker is there; a thread, because importing torch takes a while."""

    def __init__(
        self, sessions: Sessions, *, owner: str, machine: str, clock: Callable[[], datetime]
    ) -> None:
        self._sessions, self._owner, self._machine, self._clock = sessions, owner, machine, clock
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="presence", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        try:
            with self._sessions.begin() as session:
                store.worker_gone(session, owner=self._owner, now=self._clock())
        except SQLAlchemyError as error:
            log.error("The ledger does not answer (%s); left without a word.", _first_line(error))

    def _beat(self) -> None:
        while True:
            try:
                with self._sessions.begin() as session:
                    store.worker_seen(session, owner=self._owner, machine=self._machine, now=self._clock())
            except SQLAlchemyError as error:
                log.error("The ledger does not answer (%s); trying again.", _first_line(error))
            if self._over.wait(store.HEARTBEAT_SECONDS):
                return
