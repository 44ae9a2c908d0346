"""Looking at runs: the list, one run, two beside each other, and the downloads."""

import csv
from collections.abc import Callable
from functools import wraps
from typing import Any
from urllib.parse import urlencode
from uuid import uuid4

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET
from django_htmx.http import HttpResponseStopPolling, replace_url
from sqlalchemy.exc import SQLAlchemyError

from calculators.lab.store import LedgerError, Run
from calculators.runs import downloads
from calculators.runs.comparing import compared
from calculators.runs.listing import ListForm, run_list
from calculators.runs.opening import WORK_COMMAND
from calculators.runs.page import get_run, run_page
from tutor.htmx import HtmxHttpRequest, render_page

View = Callable[..., HttpResponse]

LARGEST_IMPORT_BYTES = 512 * 2**20
"""Of another box's ledger that is uploaded."""


def over_the_ledger(view: View) -> View:
    """A view on the run ledger; one that cannot be opened is said in a sentence, never a traceback."""

    @never_cache
    @wraps(view)
    def wrapped(request: HtmxHttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        try:
            return view(request, *args, **kwargs)
        except LedgerError as error:
            reason = str(error)
        except SQLAlchemyError as error:
            reason = f"The run ledger does not answer: {type(error).__name__}."
        return render_page(request, "calculators/no_ledger.html", {"reason": reason}, status=503)

    return wrapped


@require_GET
@over_the_ledger
def list_runs(request: HtmxHttpRequest) -> HttpResponse:
    """Runs that fit what the address asks for, the newest first."""
    form = ListForm(request.GET)
    found = run_list(form, now=timezone.now())
    older = form.address_with(before=str(found.older)) if found.older and form.is_valid() else ""
    context = {
        "list": found,
        "form": form,
        "older": older,
        "command": WORK_COMMAND,
        "largest_import": LARGEST_IMPORT_BYTES,
    }
    response = render_page(request, "calculators/runs.html", context, fragment="runs")
    if request.htmx and form.is_valid():
        replace_url(response, address(reverse("calculators:runs"), form.address))
    return response


@require_GET
@over_the_ledger
def show_run(request: HtmxHttpRequest, run_id: int) -> HttpResponse:
    """One run: waiting, at work, or what came of it. htmx asks again until it has ended."""
    page = run_page(run_id, now=timezone.now())
    if page is None:
        raise Http404(f"There is no run {run_id}.")
    polled = bool(request.htmx) and request.htmx.target == "outcome"
    if polled and page.is_live and request.GET.get("seen") == page.changed_mark:
        return HttpResponse(status=204)  # nothing new: the page stays as it is
    context = {
        "page": page,
        "run": page.run,
        "command": WORK_COMMAND,
        "is_owner": is_owner(request, page.run),
        "nonce": uuid4().hex,
    }
    response = render_page(request, "calculators/run.html", context, fragment="outcome")
    if polled and not page.is_live:
        response.status_code = HttpResponseStopPolling.status_code
    return response


@require_GET
@over_the_ledger
def compare_runs(request: HtmxHttpRequest) -> HttpResponse:
    """Two runs beside each other; boxes that were ticked in the list become an address with both numbers."""
    ticked = request.GET.getlist("run")
    if len(ticked) == 2:
        return redirect(address(reverse("calculators:compare"), urlencode({"a": ticked[0], "b": ticked[1]})))
    numbers = [_number(request.GET.get(name, "")) for name in ("a", "b")]
    problem, pair = "", None
    if ticked:
        problem = f"You ticked {len(ticked)} runs. Tick exactly two to see them beside each other."
    elif None in numbers or len(set(numbers)) == 1:
        problem = "Say which two runs: go back to the list and tick two of them."
    else:
        found = compared(*(n for n in numbers if n is not None), now=timezone.now())
        if isinstance(found, tuple):
            problem = f"There is no run {' and no run '.join(map(str, found))} in this ledger."
        else:
            pair = found
    return render_page(
        request, "calculators/compare.html", {"pair": pair, "problem": problem}, status=200 if pair else 404
    )


@require_GET
@over_the_ledger
def run_json(request: HttpRequest, run_id: int) -> HttpResponse:
    """The run for other programs."""
    found = downloads.download(run_id)
    if found is None:
        raise Http404(f"There is no run {run_id}.")
    return _attached(JsonResponse(found, json_dumps_params={"indent": 2}), f"run-{run_id}.json")


@require_GET
@over_the_ledger
def run_csv(request: HttpRequest, run_id: int) -> HttpResponse:
    """The numbers of the run for a spreadsheet."""
    rows = downloads.csv_rows(run_id)
    if rows is None:
        raise Http404(f"There is no run {run_id}.")
    response = HttpResponse(content_type="text/csv; charset=utf-8")
    writer = csv.writer(response)
    writer.writerow(downloads.COLUMNS)
    writer.writerows(rows)
    return _attached(response, f"run-{run_id}.csv")


@require_GET
@over_the_ledger
def run_toml(request: HttpRequest, run_id: int) -> HttpResponse:
    """The run's spec as a file that `python -m calculators.lab run` takes."""
    run = found_run(run_id)
    text = run.spec.to_toml()
    return _attached(HttpResponse(text, content_type="application/toml; charset=utf-8"), f"run-{run_id}.toml")


def found_run(run_id: int) -> Run:
    """The run of this number, or the page that says there is none."""
    run = get_run(run_id, now=timezone.now())
    if run is None:
        raise Http404(f"There is no run {run_id}.")
    return run


def is_owner(request: HttpRequest, run: Run) -> bool:
    """Whoever started a run, and the site's staff."""
    return request.user.is_staff or (
        request.user.is_authenticated and run.submitted_by == request.user.get_username()
    )


def page_address(run_id: int) -> str:
    """The address of a run's page."""
    return reverse("calculators:run", args=[run_id])


def to_sign_in(then: str) -> HttpResponse:
    """Signing in first, and then on to where one was going."""
    return HttpResponseRedirect(address(reverse("tutor:sign-in"), urlencode({"next": then})))


def address(path: str, query: str) -> str:
    """A path with its query, if it has one."""
    return f"{path}?{query}" if query else path


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 10 else None


def _attached(response: HttpResponse, name: str) -> HttpResponse:
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    return response
