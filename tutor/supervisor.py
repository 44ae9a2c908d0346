"""Keeps a few processes running side by side until a signal ends them all. Knows nothing of Django."""

import errno
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Protocol

from calculators.lab.lifeline import die_with_parent

TICK_SECONDS = 0.2
FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 30.0
HEALTHY_AFTER_SECONDS = 20.0
PATIENCE_SECONDS = 4.0
PORTS_TO_TRY = 50


class NoPortError(Exception):
    """No port can be listened on; the message says which were tried and why not."""


class Running(Protocol):
    """A process under way, as `subprocess.Popen` shows one."""

    def poll(self) -> int | None: ...
    def terminate(self) -> None: ...
    def kill(self) -> None: ...
    def wait(self) -> int: ...


@dataclass(frozen=True, kw_only=True)
class Service:
    """Something to keep running: its name in sentences, and how to begin it (`module`, `fork`)."""

    name: str
    begin: Callable[[], Running]


def module(name: str, *arguments: str, **environment: str) -> Running:
    """Begins `python -m name arguments…`, with `environment` added, as a process that ends with this one."""
    return subprocess.Popen(
        [sys.executable, "-m", "tutor.tethered", str(os.getpid()), name, *arguments],
        stdin=subprocess.DEVNULL,
        env={**os.environ, **environment},
    )


def fork(target: Callable[[], None]) -> Running:
    """Begins `target` in a copy of this process, with all that is loaded and open, that ends with this one."""
    return _Fork(target)


def listen(host: str, port: int, *, say: Callable[[str], None]) -> socket.socket:
    """A socket that listens on `port`, or on the next free one after it, which it then says."""
    if not 0 <= port <= 65535:
        raise NoPortError(f"The port is {port}; it must lie between 0 and 65535.")
    for candidate in range(port, min(port + PORTS_TO_TRY, 65536)):
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, candidate))
            listener.listen(128)  # two sockets may both bind a port that neither listens on yet
        except PermissionError:
            listener.close()
            raise NoPortError(f"Port {candidate} is not open to you. Choose one above 1023.") from None
        except OSError as error:
            listener.close()
            if error.errno != errno.EADDRINUSE:
                raise NoPortError(f"Nothing can listen on {host}:{candidate}: {error.strerror}.") from None
            continue
        if candidate != port:
            say(f"Port {port} is taken; using {candidate}.")
        return listener
    raise NoPortError(f"Ports {port} to {candidate} are all taken. Name another.")


class Supervisor:
    """Starts services, starts again those that end, and stops them all together."""

    def __init__(self, services: Sequence[Service], *, say: Callable[[str], None]) -> None:
        self._say = say
        self._kept = [_Kept(service) for service in services]
        self._signals = 0

    def start(self) -> None:
        """Starts every service and begins to heed Ctrl-C, SIGTERM and a closed terminal."""
        for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signum != signal.SIGHUP or signal.getsignal(signum) != signal.SIG_IGN:  # nohup means it
                signal.signal(signum, self._heed)
        for kept in self._kept:
            kept.start()

    def keep_running(self) -> None:
        """Returns once a signal came and every process is gone."""
        while not self.stopping:
            self.look_after()
        self.stop()

    def look_after(self) -> None:
        """Notices who ended, starts again who has waited long enough, and rests for a tick."""
        for kept in self._kept:
            self._look_after(kept)
        time.sleep(TICK_SECONDS)

    @property
    def stopping(self) -> bool:
        """Whether a signal has asked for the end."""
        return self._signals > 0

    def stop(self) -> None:
        """Asks every process to end, and makes those end that take too long or when asked twice."""
        running = [kept.process for kept in self._kept if kept.process and kept.process.poll() is None]
        for process in running:
            process.terminate()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while any(p.poll() is None for p in running) and time.monotonic() < deadline and self._signals < 2:
            time.sleep(TICK_SECONDS / 4)
        for process in running:
            process.kill()
            process.wait()

    def _heed(self, _signum: int, _frame: FrameType | None) -> None:
        self._signals += 1

    def _look_after(self, kept: "_Kept") -> None:
        now = time.monotonic()
        if kept.process is None:
            if now >= kept.due:
                kept.start()
        elif (status := kept.process.poll()) is not None:
            kept.lose(now)
            seconds = f"{kept.pause_seconds:.0f} s"
            self._say(f"{kept.service.name} {_ending(status)}. Starting it again in {seconds}.")


class _Kept:
    """A service with its process now, and when to try again if it has none."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.process: Running | None = None
        self.pause_seconds = FIRST_PAUSE_SECONDS / 2
        self.due = 0.0
        self._started = 0.0

    def start(self) -> None:
        self.process = self.service.begin()
        self._started = time.monotonic()

    def lose(self, now: float) -> None:
        """Notes that the process ended; each end soon after the start doubles the pause before the next."""
        lived_well = now - self._started >= HEALTHY_AFTER_SECONDS
        doubled = min(2 * self.pause_seconds, LONGEST_PAUSE_SECONDS)
        self.pause_seconds = FIRST_PAUSE_SECONDS if lived_well else doubled
        self.process, self.due = None, now + self.pause_seconds


class _Fork:
    def __init__(self, target: Callable[[], None]) -> None:
        context = multiprocessing.get_context("fork")
        self._process = context.Process(target=self._in_child, args=(target, os.getpid()))
        self._process.start()

    def poll(self) -> int | None:
        return self._process.exitcode

    def terminate(self) -> None:
        self._process.terminate()

    def kill(self) -> None:
        self._process.kill()

    def wait(self) -> int:
        self._process.join()
        return self._process.exitcode or 0

    @staticmethod
    def _in_child(target: Callable[[], None], parent: int) -> None:
        """Gives back the supervisor's handlers before anything else: they were copied, too."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # as in tutor.tethered
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        die_with_parent(parent=parent)
        target()


def _ending(status: int) -> str:
    if status >= 0:
        return f"ended with status {status}"
    return f"was ended by {signal.Signals(-status).name}"
