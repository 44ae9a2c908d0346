"""What people do with runs: cancel, run again, put back, delete, import. Each is a POST that ends at a page."""

import tempfile
from pathlib import Path
from uuid import uuid4

from django.contrib import messages
from django.core.files.uploadedfile import UploadedFile
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.views.decorators.http import require_POST

from calculators.lab import store
from calculators.lab.problems import SpecError
from calculators.lab.store import Impossible, LedgerError
from calculators.runs import submission
from calculators.runs.opening import ledger
from calculators.runs.views import (
    LARGEST_IMPORT_BYTES,
    found_run,
    is_owner,
    over_the_ledger,
    page_address,
    to_sign_in,
)
from calculators.units import iec_bytes
from tutor.htmx import render_page


@require_POST
@over_the_ledger
def cancel(request: HttpRequest, run_id: int) -> HttpResponse:
    """Asks that a run stop; its page says what came of that."""
    if refused := _refused(request, run_id, "cancel"):
        return refused
    submission.cancel(run_id, now=timezone.now())
    return redirect(page_address(run_id))


@require_POST
@over_the_ledger
def run_again(request: HttpRequest, run_id: int) -> HttpResponse:
    """Puts the same spec in the queue once more, whoever's it was."""
    found_run(run_id)
    if not request.user.is_authenticated:
        return to_sign_in(page_address(run_id))
    nonce = request.POST.get("nonce", "")[:48] or uuid4().hex
    try:
        new = submission.again_once(request, run_id, nonce=nonce, now=timezone.now())
    except (Impossible, SpecError) as error:
        return _said(request, error, run_id)
    return redirect(page_address(new))


@require_POST
@over_the_ledger
def put_back(request: HttpRequest, run_id: int) -> HttpResponse:
    """Puts a lost run back in the queue, under its own number."""
    if refused := _refused(request, run_id, "put back"):
        return refused
    try:
        with ledger().begin() as session:
            store.put_back(session, run_id, by=request.user.get_username(), now=timezone.now())
    except (Impossible, SpecError) as error:
        return _said(request, error, run_id)
    return redirect(page_address(run_id))


@require_POST
@over_the_ledger
def delete(request: HttpRequest, run_id: int) -> HttpResponse:
    """Forgets a run that has ended, with all that it measured."""
    if refused := _refused(request, run_id, "delete"):
        return refused
    try:
        with ledger().begin() as session:
            store.delete_run(session, run_id)
    except Impossible as error:
        return _said(request, error, run_id)
    messages.success(request, f"Run {run_id} is deleted.")
    return redirect("calculators:runs")


@require_POST
@over_the_ledger
def import_runs(request: HttpRequest) -> HttpResponse:
    """Takes over the runs of another box's ledger; only for the site's staff, because it reads their file."""
    if not request.user.is_authenticated:
        return to_sign_in(request.path)
    if not request.user.is_staff:
        context = {"reason": "Only the owner of this site can import runs."}
        return render_page(request, "calculators/refused.html", context, status=403)
    given = request.FILES.get("ledger")
    if given is None:
        messages.error(request, "No file was chosen. Choose the file runs.sqlite3 of another box.")
    elif (given.size or 0) > LARGEST_IMPORT_BYTES:
        messages.error(
            request,
            f"“{given.name}” has {iec_bytes(given.size or 0)}, and this page takes {iec_bytes(LARGEST_IMPORT_BYTES)} "
            "at most. Delete what is not needed on the other box first.",
        )
    else:
        try:
            messages.success(request, _imported(given))
        except LedgerError as error:
            messages.error(request, str(error))
    return redirect("calculators:runs")


def _imported(given: UploadedFile) -> str:
    """What came of it, in a sentence."""
    with tempfile.TemporaryDirectory(prefix="sixfold-upload-") as folder:
        file = Path(folder) / "ledger.sqlite3"
        with file.open("wb") as out:
            for chunk in given.chunks():
                out.write(chunk)
        with ledger().begin() as session:
            return store.import_ledger(session, file, called=given.name or "an upload").sentence


def _refused(request: HttpRequest, run_id: int, verb: str) -> HttpResponse | None:
    """The page that says why this person may not `verb` this run; None where they may."""
    run = found_run(run_id)
    if not request.user.is_authenticated:
        return to_sign_in(page_address(run_id))
    if is_owner(request, run):
        return None
    context = {"reason": f"Run {run_id} was started by {run.submitted_by}; only they can {verb} it."}
    return render_page(request, "calculators/refused.html", context, status=403)


def _said(request: HttpRequest, error: Exception, run_id: int) -> HttpResponse:
    """The run's page, with the reason above it."""
    messages.error(request, str(error))
    return redirect(page_address(run_id))
