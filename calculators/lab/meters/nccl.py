"""Has NCCL write down how it makes each call, and reads that when a run is over."""

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from calculators.lab.nccl_log import environment, name_calls, read_log, why_unnamed


class NcclNames:
    """A folder for NCCL's log; make it before the first communicator, and `tell` after the measured steps.

    Only rank 0 of a communicator writes what it chose, so rank 0 of the run has this.
    """

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="sixfold-nccl-"))
        os.environ.update(environment(self._folder))

    def tell(self, say: Callable[[str], None]) -> None:
        """Say each kind of call with its algorithm and protocol, or why they cannot be named; forget the log."""
        try:
            lines = [line for path in sorted(self._folder.iterdir()) for line in _lines(path)]
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)
        log = read_log(lines)
        for named in name_calls(log):
            size = "" if named.handed_bytes is None else f" of {named.handed_bytes:,} B"
            say(f"NCCL made {named.times:,} × {named.call}{size} by {named}")
        if reason := why_unnamed(log):
            say(reason)


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8", errors="replace").splitlines()
