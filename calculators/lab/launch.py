"""Starts the ranks of a plan on this machine, from a fork server that has torch imported already.

A plan in, a stream of events out. Ranks live exactly as long as the stream is read: when it ends, when it is
closed, when one of them fails, when time is up or when this process dies, none is left.
"""

import multiprocessing
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from multiprocessing import forkserver, util
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext, ForkServerProcess
from types import TracebackType
from typing import Self, cast

from calculators.lab.emulation.homes import CannotEmulate, Home, Homes, homes
from calculators.lab.lifeline import die_with_launcher
from calculators.lab.limits import shown_bytes
from calculators.lab.measurements import Event, Failed, Log, Progress
from calculators.lab.opening import Opening
from calculators.lab.plan import Plan
from calculators.lab.resident import Resident

TICK_SECONDS = 0.1
"""At least this often the stream yields, an event or None."""
_BLAME_SECONDS = 0.3
"""After the first sign of failure, how long to listen for the rank that failed first."""
_NO_FORK_SERVER = (
    "The fork server, from which all ranks come, was killed, and the ranks ended with it. "
    "Run it again: a new one is started."
)


class LocalLauncher:
    """Runs plans on this machine. Warm it up once; a context manager closes it.

    `work` is what each rank does, a function of a module; left out, it is `ranks.run_rank`. Ranks that together hold
    more than `max_memory_bytes` are ended.
    """

    def __init__(
        self, *, work: Callable[..., None] | None = None, max_memory_bytes: int | None = None
    ) -> None:
        self._work = work
        self._max_memory_bytes = max_memory_bytes
        self._context: ForkServerContext = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["calculators.lab.preload"])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def warm_up(self) -> None:
        """Start the fork server and wait until a process forked from it has answered.

        Call it from a thread that lives as long as the launcher: the fork server ends with that thread.
        """
        _start_fork_server()
        process = self._context.Process(target=_nothing, args=(os.getpid(),))
        process.start()
        process.join()

    def close(self) -> None:
        """Nothing to release between runs: the fork server ends with this process."""

    def run(self, plan: Plan) -> Iterator[Event | None]:
        """Start the ranks and yield what they say, in the order it came; None when nothing came for a tick.

        A `Failed` is the last event of a run that did not end well: the rank that failed first, or no rank
        when the time limit ended it.
        """
        deadline = time.monotonic() + plan.spec.time_limit_seconds
        _start_fork_server()  # here, since it ends with the thread that started it
        try:
            with Opening(lambda stack, check: self._set_up(plan, stack, check)) as opening:
                while not opening.is_over(TICK_SECONDS):
                    if time.monotonic() > deadline:
                        yield Failed(rank=None, reason=_too_slow(plan, "no rank had begun"))
                        return
                    yield None
                where, ranks = opening.result
                if where.remark:
                    yield Log(rank=None, text=where.remark)
                yield from self._live(plan, ranks, deadline)
        except CannotEmulate as error:
            yield Failed(rank=None, reason=str(error))

    def _set_up(self, plan: Plan, stack: ExitStack, check: Callable[[], None]) -> tuple[Homes, "_Ranks"]:
        where = stack.enter_context(homes(plan, self._context, check=check))
        return where, stack.enter_context(_Ranks(self._context, plan, where, self._work, check))

    def _live(self, plan: Plan, ranks: "_Ranks", deadline: float) -> Iterator[Event | None]:
        while ranks.are_talking:
            events = ranks.listen(TICK_SECONDS)
            yield from events
            if ranks.first_failure is not None:
                yield ranks.blame()
                return
            if self._max_memory_bytes and (too_large := ranks.above(self._max_memory_bytes)):
                yield too_large
                return
            if time.monotonic() > deadline:
                yield Failed(rank=None, reason=_too_slow(plan, ranks.whereabouts))
                return
            if not events:
                yield None


class _Ranks:
    """The processes of one run and the pipes they speak through."""

    def __init__(
        self,
        context: ForkServerContext,
        plan: Plan,
        where: Homes,
        work: Callable[..., None] | None,
        check: Callable[[], None],
    ) -> None:
        self._plan = plan
        self._processes: dict[int, ForkServerProcess] = {}
        self._pipes: dict[int, Connection] = {}
        self._ends: dict[int, Connection] = {}
        self._failures: list[tuple[float, Failed]] = []
        self._progress: dict[int, Progress] = {}
        self._through: set[int] = set()
        self.first_failure: float | None = None
        try:
            for rank in range(plan.world_size):
                receiver, sender = context.Pipe(duplex=False)
                self._pipes[rank], self._ends[rank] = receiver, sender
                # Rank 0 serves the rendezvous on the socket that listens already.
                listener = where.listener if rank == 0 else None
                process = context.Process(
                    target=_rank_process,
                    args=(plan, rank, where.of_rank[rank], where.meeting_point, listener, sender, work),
                    name=f"rank-{rank}",
                    daemon=True,
                )
                process.start()
                self._processes[rank] = process
                sender.close()
                check()
        except BaseException:
            self.kill()
            raise
        self._memory = Resident({rank: process.pid or 0 for rank, process in self._processes.items()})

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    @property
    def are_talking(self) -> bool:
        return bool(self._pipes)

    def listen(self, seconds: float) -> list[Event]:
        """What the ranks said within `seconds`; returns as soon as there is something."""
        by_pipe = {pipe: rank for rank, pipe in self._pipes.items()}
        events: list[Event] = []
        for pipe in wait(list(by_pipe), seconds):
            self._drain(by_pipe[cast(Connection, pipe)], events)
        self._memory.look()
        return events

    def blame(self) -> Failed:
        """The rank that failed first; the others only lost their peer.

        A rank that vanished without a word was killed, and is the cause whenever there is one.
        """
        patience = (self.first_failure or 0.0) + _BLAME_SECONDS
        while self._pipes and (left := patience - time.monotonic()) > 0:
            self.listen(left)
        self._failures.sort(key=lambda failure: (bool(failure[1].traceback), failure[0]))
        return self._failures[0][1]

    @property
    def whereabouts(self) -> str:
        """Where each rank was when it was last heard from."""
        where = ", ".join(
            f"rank {rank} at “{at.part}” {at.done} of {at.total}"
            for rank, at in sorted(self._progress.items())
        )
        return where or "no rank had begun"

    def above(self, limit: int) -> Failed | None:
        """The end of a run whose ranks hold more memory than they may."""
        memory = self._memory
        if memory.total_bytes <= limit:
            return None
        largest = memory.largest
        return Failed(
            rank=largest,
            reason=f"The ranks held {shown_bytes(memory.total_bytes)} of memory together, rank {largest} "
            f"{shown_bytes(memory.bytes_of[largest])} of it, and the limit is {shown_bytes(limit)} "
            "(SIXFOLD_LAB_MAX_MEMORY_BYTES): the run was ended. Take a smaller model or batch.",
        )

    def kill(self) -> None:
        """End every rank now, and wait until it is gone."""
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.join()
        for pipe in (*self._pipes.values(), *self._ends.values()):
            pipe.close()

    def _drain(self, rank: int, events: list[Event]) -> None:
        """Everything that waits in a rank's pipe; at its end, how the rank ended."""
        pipe = self._pipes[rank]
        try:
            while pipe.poll():
                at, event = pipe.recv()
                if event is None:
                    self._through.add(rank)
                    continue
                if isinstance(event, Failed):
                    self._fail(at, event)
                    continue
                if isinstance(event, Progress):
                    self._progress[rank] = event
                events.append(event)
        except (EOFError, OSError):
            del self._pipes[rank]
            pipe.close()
            self._bury(rank, events)

    def _bury(self, rank: int, events: list[Event]) -> None:
        process = self._processes[rank]
        process.join()
        code = process.exitcode
        if code == -signal.SIGKILL and self._plan.expects_loss_of(rank) and self._is_measuring(rank):
            events.append(Log(rank=None, text=self._plan.loss_sentence))
        elif rank not in self._through and not any(failed.rank == rank for _, failed in self._failures):
            reason = _how_it_ended(code or 0, self._memory.bytes_of.get(rank))
            failed = Failed(rank=rank, reason=reason)
            if self._memory.parent_is_gone:
                failed = Failed(rank=None, reason=_NO_FORK_SERVER)
            self._fail(time.monotonic(), failed)

    def _is_measuring(self, rank: int) -> bool:
        return rank in self._progress and self._progress[rank].part == "measure"

    def _fail(self, at: float, failed: Failed) -> None:
        self._failures.append((at, failed))
        self.first_failure = self.first_failure or time.monotonic()


def _start_fork_server() -> None:
    """If it is not there. It is told which folder to remove should this process be killed."""
    os.environ["SIXFOLD_FORK_SERVER_FOLDER"] = util.get_temp_dir()
    forkserver.ensure_running()


def _too_slow(plan: Plan, where: str) -> str:
    """The sentence for a run that its time limit ended."""
    return f"The time limit of {plan.spec.time_limit_seconds:g} s ended the run: {where}."


def _how_it_ended(code: int, held_bytes: int | None) -> str:
    """The sentence for a rank that ended before its work was done, and said nothing."""
    if code == -signal.SIGKILL:
        held = "" if held_bytes is None else f" (it held {shown_bytes(held_bytes)} when last looked at)"
        return (
            "The process was killed by SIGKILL and could say nothing. Somebody did that, or the kernel, which "
            f"ends processes so when memory runs out{held}."
        )
    if code < 0:
        return f"The process was killed by {signal.Signals(-code).name}."
    return f"The process ended with exit code {code} before its work was done, and said nothing."


def _nothing(parent: int) -> None:
    """What a process does that only shows the fork server is there."""


def _rank_process(
    plan: Plan,
    rank: int,
    home: Home,
    meeting_point: tuple[str, int],
    listener: socket.socket | None,
    pipe: Connection,
    work: Callable[..., None] | None,
) -> None:
    """The life of a rank's process: rendezvous, run, and a last word if it fails."""
    die_with_launcher()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the launcher's to answer
    home.enter()
    import torch.distributed as dist

    from calculators.lab import groups, ranks

    try:
        groups.talk_from(home.address)
        store = dist.TCPStore(
            *meeting_point,
            plan.world_size,
            is_master=listener is not None,
            timeout=timedelta(seconds=plan.spec.time_limit_seconds),
            wait_for_workers=False,
            **({} if listener is None else {"master_listen_fd": listener.detach()}),
        )
        run = work or ranks.run_rank
        run(plan, rank=rank, store=store, say=lambda event: pipe.send((time.monotonic(), event)))
    except BaseException:
        # The clock is one for all processes of this machine, so the first failure is known by its time.
        pipe.send((time.monotonic(), ranks.failure(rank)))
        pipe.close()
        os._exit(1)
    pipe.send((time.monotonic(), None))  # all is said: an end without this came too early
    pipe.close()
    os._exit(0)  # what is left is interpreter shutdown, and gloo's threads do not always like it
