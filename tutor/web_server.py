"""gunicorn's settings: `gunicorn --config python:tutor.web_server tutor.wsgi` (numbers: docs/deploy.md)."""

import os
import sys
from typing import Any

from gunicorn.app.wsgiapp import WSGIApplication

from calculators.lab.lifeline import die_with_parent

workers = int(os.environ.get("SIXFOLD_WEB_PROCESSES", "1"))
worker_class = "gthread"
threads = int(os.environ.get("SIXFOLD_WEB_THREADS", "8"))
timeout = 60
graceful_timeout = 3  # a page takes milliseconds; nobody waits longer for Ctrl-C
loglevel = "warning"
control_socket_disable = True


def post_fork(server: Any, worker: Any) -> None:
    """Each web process ends with gunicorn's own, even if that one was killed outright."""
    die_with_parent(parent=server.pid)


def serve(descriptor: int) -> None:
    """Serves the site on the listening socket `descriptor` until a signal ends it."""
    here = ["--config", f"python:{__name__}", "--bind", f"fd://{descriptor}", "tutor.wsgi"]
    sys.argv = ["gunicorn", *here]  # where gunicorn reads them from
    WSGIApplication("%(prog)s", prog="gunicorn").run()
