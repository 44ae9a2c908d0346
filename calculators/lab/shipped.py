"""The runs that come with the project: each shipped experiment once, on CPU ranks, so that a new site has measurements.

`experiments/measured.sqlite3.gz` is a ledger as `run` writes it; docs/lab.md says how it was made.
"""

import gzip
import shutil
import tempfile
from pathlib import Path

from sqlalchemy import select
from sqlalchemy.orm import Session

from calculators.lab.importing import Imported, import_ledger
from calculators.lab.rows import RunRow

FILE = Path(__file__).parent / "experiments" / "measured.sqlite3.gz"
NAME = "runs that come with Sixfold"
"""What their `origin` begins with."""


def take_over_shipped_runs(session: Session) -> Imported | None:
    """Copy them into a ledger that has none of them yet; None where it has. Raises `LedgerError`."""
    if session.scalars(select(RunRow.id).where(RunRow.origin.startswith(NAME)).limit(1)).first() is not None:
        return None
    with tempfile.TemporaryDirectory(prefix="sixfold-shipped-") as folder:
        file = Path(folder) / "runs.sqlite3"
        with gzip.open(FILE) as packed, file.open("wb") as plain:
            shutil.copyfileobj(packed, plain)
        return import_ledger(session, file, called=NAME)
