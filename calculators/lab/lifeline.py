"""Processes that end with the one that started them, whatever ended it."""

import ctypes
import multiprocessing
import os
import signal
import sys
import threading
import time

_PR_SET_PDEATHSIG = 1  # prctl(2)


def die_with_parent(*, parent: int | None = None, signum: int = signal.SIGKILL) -> None:
    """Arrange that this process gets `signum` as soon as its parent is gone.

    `parent` is the process id expected as parent; pass it when the parent may have died before this
    call, else the parent of this moment is meant. On Linux the kernel sends the signal; elsewhere a
    thread looks four times a second.

    Call it from the main thread and start children from a thread that lives as long as they should:
    Linux ties the signal to the *thread* that forked.
    """
    expected = os.getppid() if parent is None else parent
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(_PR_SET_PDEATHSIG, int(signum), 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) was refused")
    else:
        threading.Thread(target=_watch, args=(expected, signum), daemon=True).start()
    if os.getppid() != expected:  # it died between our start and the arrangement
        os.kill(os.getpid(), signum)


def die_with_launcher() -> None:
    """Arrange that this process, which a fork server started, is killed when that or its launcher is gone.

    Both may have died while this process was still being started, and then nobody would tell it.
    """
    die_with_parent()
    launcher = multiprocessing.parent_process()
    if launcher is not None and not launcher.is_alive():
        os.kill(os.getpid(), signal.SIGKILL)


def _watch(parent: int, signum: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.25)
    os.kill(os.getpid(), signum)
