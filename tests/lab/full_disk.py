"""A worker whose ledger lies on a disk that is full when a run ends.

`unshare -Urm python -m tests.lab.full_disk FOLDER SECONDS`: in a mount namespace of its own a disk of 2 MiB is mounted
on FOLDER, and is full for so long. Prints what became of each run.
"""

import contextlib
import os
import subprocess
import sys
import threading
from pathlib import Path


def main(folder: Path) -> None:
    """One run that goes well, one that ends while the disk is full, and one after there is room again."""
    from calculators.lab import store, worker
    from calculators.lab.measurements import Log, Verified
    from tests.lab.ledgers import A_BOX, Script, found, fresh_ledger, submitted

    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", str(folder)], check=True)
    sessions = fresh_ledger(folder)
    filler = folder / "filler"

    def fill() -> None:
        with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(4096))
        threading.Timer(float(sys.argv[2]), filler.unlink).start()

    worker._RETRY_SECONDS = 0.2
    well = Verified(rank=0, worst=0.0, tolerance=1e-5)
    for events in (
        [well, Log(rank=0, text="before")],
        [well, fill, *(Log(rank=0, text="x" * 4000) for _ in range(40))],
        [well, Log(rank=0, text="after")],
    ):
        run = submitted(sessions)
        worker.work(sessions, Script(*events), owner="worker", devices=A_BOX, once=True)
        back = found(sessions, run.id)
        with sessions.reading() as session:
            print(
                back.state, back.verified, len(store.log_of(session, run.id)), back.error, sep="|", flush=True
            )
    print(sorted(os.listdir(folder)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
