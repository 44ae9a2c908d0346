"""Putting runs in the queue from a page, one submission for one click, and taking them back."""

from collections.abc import Callable
from datetime import datetime

from django.contrib.sessions.models import Session as BrowserSession
from django.db import transaction
from django.http import HttpRequest

from calculators.lab import store
from calculators.lab.spec import Spec
from calculators.runs.opening import ledger

KEPT_NONCES = 50


def once(request: HttpRequest, *, nonce: str, make: Callable[[], int | str]) -> int | str:
    """What `make` gives; the same nonce again gives the same and makes nothing.

    The row of the browser's session is locked meanwhile, so that two clicks that arrive together, in two
    processes, make one run.
    """
    with transaction.atomic():
        row = BrowserSession.objects.select_for_update().get(session_key=request.session.session_key)
        made: dict[str, int | str] = row.get_decoded().get("runs_made", {})
        if nonce in made:
            return made[nonce]
        result = make()
        newest = list(made.items())[1 - KEPT_NONCES :]
        request.session["runs_made"] = dict([*newest, (nonce, result)])
        request.session.save()
    return result


def submit_once(request: HttpRequest, spec: Spec, *, nonce: str, now: datetime) -> int:
    """Put `spec` in the queue and give the run's number; the same nonce again gives the same number."""

    def make() -> int:
        with ledger().begin() as session:
            return store.submit(session, spec, submitted_by=request.user.get_username(), now=now).id

    return int(once(request, nonce=nonce, make=make))


def again_once(request: HttpRequest, run_id: int, *, nonce: str, now: datetime) -> int:
    """Put the spec of a run in the queue again and give the new run's number; the same nonce again gives the same."""

    def make() -> int:
        with ledger().begin() as session:
            return store.run_again(session, run_id, submitted_by=request.user.get_username(), now=now).id

    return int(once(request, nonce=nonce, make=make))


def cancel(run_id: int, *, now: datetime) -> bool:
    """Ask that the run stop; False when it has ended already."""
    with ledger().begin() as session:
        return store.request_cancel(session, run_id, now=now)
