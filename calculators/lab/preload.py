"""What the fork server imports before it forks ranks: a tie to its launcher, then torch and all jobs,
and what makes emulated hosts.

The ranks of a run hold the fork server's own lifeline open, so without the tie a killed launcher would leave the
fork server waiting for ranks that wait for it.
"""

import contextlib
import os
import shutil
import signal
import time

from calculators.lab.lifeline import die_with_parent

FOLDER_VARIABLE = "SIXFOLD_FORK_SERVER_FOLDER"
"""Says where the launcher's socket to the fork server lies: who is killed cannot remove it."""
_SERVER, _LAUNCHER = os.getpid(), os.getppid()
_PATIENCE_SECONDS = 1.0


def _end(signum: int, frame: object) -> None:
    """End; and if that is because the launcher is gone, remove its folder. A rank, which inherits this, just ends."""
    if os.getpid() == _SERVER and (folder := os.environ.get(FOLDER_VARIABLE)):
        until = time.monotonic() + _PATIENCE_SECONDS
        # The signal comes with the end of the thread that started us; the others may be ending still.
        while os.getppid() == _LAUNCHER and time.monotonic() < until:
            time.sleep(0.01)
        if os.getppid() != _LAUNCHER:
            shutil.rmtree(folder, ignore_errors=True)
    signal.signal(signum, signal.SIG_DFL)
    os.kill(os.getpid(), signum)


# Ctrl-C reaches this process too; it is the launcher's to answer.
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGTERM, _end)
# First: on a busy machine torch takes many seconds, in which the launcher may be killed.
die_with_parent(signum=signal.SIGTERM)

# Emulated hosts know no name server, and c10d warns of every address that it cannot name; errors are still shown.
os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")

from calculators.lab import ranks as ranks  # noqa: E402

with contextlib.suppress(ImportError):  # Linux only
    import pyroute2 as pyroute2  # type: ignore[import-untyped]
