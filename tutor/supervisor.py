"""Keeps a few processes running side by side until a signal ends them all. Knows nothing of Django."""

import errno
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import FrameType

TICK_SECONDS = 0.2
FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 30.0
HEALTHY_AFTER_SECONDS = 20.0
PATIENCE_SECONDS = 4.0
PORTS_TO_TRY = 50


class NoPortError(Exception):
    """No port can be listened on; the message says which were tried and why not."""


@dataclass(frozen=True, kw_only=True)
class Service:
    """A Python module to keep running, with what it inherits: open `descriptors`, and `environment` added."""

    name: str
    module: str
    arguments: Sequence[str] = ()
    descriptors: Sequence[int] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


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
        self.process: subprocess.Popen[bytes] | None = None
        self.pause_seconds = FIRST_PAUSE_SECONDS / 2
        self.due = 0.0
        self._started = 0.0

    def start(self) -> None:
        command = [sys.executable, "-m", "tutor.tethered", str(os.getpid()), self.service.module]
        self.process = subprocess.Popen(
            [*command, *self.service.arguments],
            stdin=subprocess.DEVNULL,
            pass_fds=self.service.descriptors,
            env={**os.environ, **self.service.environment},
        )
        self._started = time.monotonic()

    def lose(self, now: float) -> None:
        """Notes that the process ended; each end soon after the start doubles the pause before the next."""
        lived_well = now - self._started >= HEALTHY_AFTER_SECONDS
        doubled = min(2 * self.pause_seconds, LONGEST_PAUSE_SECONDS)
        self.pause_seconds = FIRST_PAUSE_SECONDS if lived_well else doubled
        self.process, self.due = None, now + self.pause_seconds


def _ending(status: int) -> str:
    if status >= 0:
        return f"ended with status {status}"
    return f"was ended by {signal.Signals(-status).name}"
