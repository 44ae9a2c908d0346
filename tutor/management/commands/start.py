"""`manage.py start`: the whole site on this machine, with one address to open."""

import contextlib
import http.client
import importlib
import signal
import socket
from argparse import ArgumentParser
from functools import partial
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError
from django.db import connections

from calculators.lab import store
from calculators.lab.lifeline import die_with_parent
from calculators.lab.shipped import take_over_shipped_runs
from quizzes.bank import load_builtin_packs
from tutor.static import collect_if_changed
from tutor.supervisor import NoPortError, Service, Supervisor, fork, listen, module
from tutor.web_server import serve


class Command(BaseCommand):
    help = "Bring the databases up to date, serve the site with a lab worker, and print the owner's address."
    requires_system_checks = ()  # the tests and `manage.py check` do; here a second counts

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--host", default="127.0.0.1", help="address to listen on (127.0.0.1)")
        parser.add_argument("--port", type=int, default=8000, help="the first port to try (default 8000)")
        parser.add_argument("--no-worker", action="store_true", help="run no labs here; another machine does")

    def handle(self, **options: Any) -> None:
        # If `make` above us is killed outright, we hear SIGTERM and take the others along.
        die_with_parent(signum=signal.SIGTERM)
        try:
            self._serve(options["host"], options["port"], services_here=1 if options["no_worker"] else 2)
        except NoPortError as error:
            raise CommandError(str(error)) from None
        except KeyboardInterrupt:  # before there was anything to stop
            pass
        self._say("Stopped.")

    def _serve(self, host: str, port: int, *, services_here: int) -> None:
        with listen(host, port, say=self._say) as listener:
            prepare()
            supervisor = Supervisor(services(listener)[:services_here], say=self._say)
            supervisor.start()
            self._greet(*listener.getsockname(), supervisor)
            supervisor.keep_running()

    def _greet(self, host: str, port: int, supervisor: Supervisor) -> None:
        """Prints the owner's address once the first page answers there."""
        here = "127.0.0.1" if host == "0.0.0.0" else host  # noqa: S104 -- compared, not listened on
        while not first_page_answers(here, port):
            supervisor.look_after()
            if supervisor.stopping:
                return
        self._say(f"Sixfold: http://{here}:{port}/enter?token={settings.ENTRY_TOKEN}")
        self._say("Open that address: it signs you in as the owner. Ctrl-C stops everything.")

    def _say(self, sentence: str) -> None:
        with contextlib.suppress(OSError):  # the terminal may be gone
            self.stdout.write(sentence)
            self.stdout.flush()


def services(listener: socket.socket) -> list[Service]:
    """What runs: the web server on the open `listener`, and a worker for the lab's runs."""
    # The web server is a copy of this process, so that the site is loaded once; the lab is no part of it.
    serve_here = partial(serve, listener.fileno())
    # The ledger's address may hold a password: it is passed where `ps` does not show it.
    work = partial(module, "calculators.lab", "work", SIXFOLD_LEDGER_URL=settings.LEDGER_URL)
    return [
        Service(name="The web server", begin=partial(fork, serve_here)),
        Service(name="The lab worker", begin=work),
    ]


def first_page_answers(host: str, port: int) -> bool:
    """Whether the site serves its first page; waits a moment for it. (Also warms it up.)"""
    connection = http.client.HTTPConnection(host, port, timeout=2)
    try:
        connection.request("GET", "/", headers={"Connection": "close"})
        return connection.getresponse().status < 500
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def prepare() -> None:
    """Brings both databases, the built-in packs and the static files up to date, and loads the site."""
    settings.HOME.mkdir(parents=True, exist_ok=True)
    call_command("migrate", interactive=False, verbosity=0)
    store.migrate(settings.LEDGER_URL)
    with store.open_ledger(settings.LEDGER_URL).begin() as session:
        take_over_shipped_runs(session)
    load_builtin_packs()
    collect_if_changed()
    importlib.import_module("tutor.wsgi")
    connections.close_all()  # a connection must not be shared with the copy that serves
