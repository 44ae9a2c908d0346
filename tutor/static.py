"""Static files that come out of installed packages, and collecting them all only when one has changed."""

import hashlib
from collections.abc import Iterable
from pathlib import Path

import plotly
from django.conf import settings
from django.contrib.staticfiles.finders import BaseFinder, get_finders
from django.core.files.storage import FileSystemStorage
from django.core.management import call_command

PLOTLY = "plotly.min.js"


class PlotlyFinder(BaseFinder):
    """Finds `plotly.min.js` in the installed plotly package, and nothing else of the 10 MB beside it."""

    storage = FileSystemStorage(location=Path(plotly.__file__).parent / "package_data")

    def find(self, path: str, find_all: bool = False, **ignored: object) -> list[str] | str:
        found = self.storage.path(PLOTLY) if path == PLOTLY else ""
        return [found] if find_all and found else found or []

    def list(self, ignore_patterns: Iterable[str] | None) -> Iterable[tuple[str, FileSystemStorage]]:
        yield PLOTLY, self.storage


def collect_if_changed() -> bool:
    """Collects the static files unless the last time saw the very same ones; whether it did."""
    stamp = settings.STATIC_ROOT / ".collected"
    state = _state()
    if stamp.exists() and stamp.read_text() == state:
        return False
    stamp.unlink(missing_ok=True)
    call_command("collectstatic", interactive=False, clear=True, verbosity=0)
    stamp.write_text(state)
    return True


def _state() -> str:
    """Name, size and time of every file that there is to collect, as one hash."""
    digest = hashlib.sha256(settings.STORAGES["staticfiles"]["BACKEND"].encode())
    for finder in get_finders():
        for path, storage in finder.list(None):
            status = Path(storage.path(path)).stat()
            digest.update(f"{path} {status.st_size} {status.st_mtime_ns}\n".encode())
    return digest.hexdigest()
