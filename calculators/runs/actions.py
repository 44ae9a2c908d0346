"""What people do with runs: cancel one, run it again. Each is a POST that ends at a page."""

from uuid import uuid4

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.views.decorators.http import require_POST

from calculators.runs import submission
from calculators.runs.views import found_run, is_owner, over_the_ledger, page_address, to_sign_in
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
    run = found_run(run_id)
    if not request.user.is_authenticated:
        return to_sign_in(page_address(run_id))
    nonce = request.POST.get("nonce", "")[:64] or uuid4().hex
    return redirect(page_address(submission.submit_once(request, run.spec, nonce=nonce, now=timezone.now())))


def _refused(request: HttpRequest, run_id: int, verb: str) -> HttpResponse | None:
    """The page that says why this person may not `verb` this run; None where they may."""
    run = found_run(run_id)
    if not request.user.is_authenticated:
        return to_sign_in(page_address(run_id))
    if is_owner(request, run):
        return None
    context = {"reason": f"Run {run_id} was started by {run.submitted_by}; only they can {verb} it."}
    return render_page(request, "calculators/refused.html", context, status=403)
