"""Starts somebody else's program under the meter, waits for it, and collects what its ranks wrote."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from calculators.lab.foreign.hook import RECORDS
from calculators.lab.foreign.records import Record, read_all

_STARTUP = Path(__file__).resolve().parent / "startup"
_PASSED_ON = (signal.SIGTERM, signal.SIGHUP)


class CannotStart(RuntimeError):
    """The program could not be started; the text says why, as a sentence."""


@dataclass(frozen=True, kw_only=True)
class Ran:
    """How the program ended, and what its ranks had written by then."""

    command: tuple[str, ...]
    exit_code: int
    seconds: float
    ended: float
    """When, in seconds since 1970."""
    records: tuple[Record, ...]


def run_metered(command: Sequence[str]) -> Ran:
    """Run `command` to its end with its own input, output and exit code; 128 + n where signal n ended it."""
    with tempfile.TemporaryDirectory(prefix="sixfold-meter-") as folder:
        before = os.environ.get("PYTHONPATH")
        paths = [str(_STARTUP), *([before] if before else [])]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), RECORDS: folder}
        started = time.monotonic()
        try:
            process = subprocess.Popen([_found(command[0]), *command[1:]], env=environment)
        except OSError as error:
            raise CannotStart(
                f"“{command[0]}” cannot be started: {error.strerror}. Give a command as you would in a shell, "
                "behind “--”."
            ) from error
        with _signals_go_to(process):
            code = process.wait()
        seconds, ended = time.monotonic() - started, time.time()
        records = tuple(read_all(Path(folder)))
    return Ran(
        command=tuple(command),
        exit_code=code if code >= 0 else 128 - code,
        seconds=seconds,
        ended=ended,
        records=records,
    )


def _found(program: str) -> str:
    """The program, or the one beside this Python where the shell would find none: torchrun of this environment."""
    beside = Path(sys.executable).parent / program
    return str(beside) if shutil.which(program) is None and beside.is_file() else program


@contextmanager
def _signals_go_to(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Ctrl-C reaches the program by itself, which decides; what is sent to the meter alone is passed on."""

    def pass_on(signum: int, frame: object) -> None:
        process.send_signal(signum)

    before = {signum: signal.signal(signum, pass_on) for signum in _PASSED_ON}
    before[signal.SIGINT] = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)
