"""The whole site, started as people start it, for tests that end it in every way there is."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[2]
MANAGE_START = [sys.executable, "manage.py", "start"]
# `true` stands in for the set-up, which has its own tests: this Python is set up already.
MAKE_RUN = ["make", "--no-print-directory", "run", "PYTHON=true", f"VENV={Path(sys.executable).parent}"]


class Site:
    """A started site: its first process, its home, and what it has printed."""

    def __init__(self, command: list[str], home: Path) -> None:
        self.home = home
        self._log = home / "printed.txt"
        environment = {**os.environ, "SIXFOLD_HOME": str(home), "DJANGO_SETTINGS_MODULE": "tutor.settings"}
        # Its own databases and token; and if a make started us, its variables are not for the make that we start.
        for name in (
            *("DATABASE_URL", "SIXFOLD_LEDGER_URL", "SIXFOLD_ENTRY_TOKEN"),
            *("MAKEFLAGS", "MAKEOVERRIDES", "MFLAGS", "MAKELEVEL", "ARGS"),
        ):
            environment.pop(name, None)
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def printed(self) -> str:
        return self._log.read_text()

    def wait_for(self, pattern: str, *, seconds: float = 90) -> re.Match[str]:
        """The first match of `pattern` in what is printed; fails with all of it if none comes."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if found := re.search(pattern, self.printed):
                return found
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        raise AssertionError(f"{pattern!r} was not printed in {seconds} s, but:\n{self.printed}")

    def address(self) -> str:
        return self.wait_for(r"http://127\.0\.0\.1:\d+/enter\?token=\S+")[0]

    def processes(self) -> list[psutil.Process]:
        """Every living process that was started with this home, whoever its parent is now."""
        return [process for process in psutil.process_iter() if self._is_ours(process)]

    def web_server(self) -> psutil.Process:
        """gunicorn's first process: a copy of `manage.py start`, whose child it is."""
        pages = [p for p in self.processes() if p.cmdline()[1:3] == ["manage.py", "start"]]
        start = min(pages, key=lambda process: process.create_time())
        (found,) = (process for process in pages if process.ppid() == start.pid)
        return found

    def left_over(self, *, seconds: float) -> list[str]:
        """Command lines of what still lives after at most `seconds`."""
        deadline = time.monotonic() + seconds
        while self.processes() and time.monotonic() < deadline:
            self.process.poll()  # collect it, or it stays a zombie of this test
            time.sleep(0.05)
        return [" ".join(process.cmdline()) for process in self.processes()]

    def _is_ours(self, process: psutil.Process) -> bool:
        with contextlib.suppress(psutil.Error):
            return process.status() != psutil.STATUS_ZOMBIE and process.environ().get("SIXFOLD_HOME") == str(
                self.home
            )
        return False


@contextlib.contextmanager
def started(command: list[str], home: Path) -> Iterator[Site]:
    """A site that is gone afterwards, whatever the test did."""
    site = Site(command, home)
    try:
        yield site
    finally:
        for process in site.processes():
            with contextlib.suppress(psutil.Error):
                process.kill()
        site.process.wait()


def free_port() -> int:
    """A port that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def end_group(site: Site, signum: int = signal.SIGINT) -> None:
    """What a terminal does with Ctrl-C (or, with SIGHUP, when it is closed): tells the whole group."""
    os.killpg(site.process.pid, signum)
