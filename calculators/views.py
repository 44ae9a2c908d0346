"""The calculator and run pages: read the request, ask one function, render."""

import csv
from collections.abc import Callable
from functools import wraps
from typing import Any
from urllib.parse import urlencode
from uuid import uuid4

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse, QueryDict
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_http_methods, require_POST
from django_htmx.http import HttpResponseStopPolling, replace_url
from sqlalchemy.exc import SQLAlchemyError

from calculators import inline, runs
from calculators.families import WAYS
from calculators.forecast import forecast as forecast_of
from calculators.forms import SpecForm, SplitMapForm
from calculators.lab.spec import Spec, SpecError, experiment, experiment_names
from calculators.lab.store import LedgerError
from calculators.pages import CALCULATORS
from calculators.pages.traffic import TrafficForm
from calculators.plots import wire_figure
from calculators.workbench import Calculator, show
from tutor.htmx import HtmxHttpRequest, render_page

View = Callable[..., HttpResponse]


@require_GET
def index(request: HtmxHttpRequest) -> HttpResponse:
    """Every calculator, and what each is for."""
    return render_page(request, "calculators/index.html", {"calculators": CALCULATORS})


@require_GET
def calculator(request: HtmxHttpRequest, calculator: Calculator) -> HttpResponse:
    """One calculator; the address is its state."""
    return show(request, calculator)


@require_GET
def split_map(request: HtmxHttpRequest) -> HttpResponse:
    """The picture of a layout, and one token's way through it step by step."""
    form = SplitMapForm(request.GET)
    context = {"form": form, "picture": inline.picture(form) if form.is_valid() else None}
    response = render_page(request, "calculators/split_map.html", context, fragment="picture")
    if form.is_valid():
        replace_url(response, _address(reverse("calculators:split-map"), form.address))
    return response


@require_GET
def inline_traffic(request: HtmxHttpRequest) -> HttpResponse:
    """The small calculator of a lesson, alone, for htmx to swap."""
    return HttpResponse(inline.traffic_fragment(request))


@require_GET
def inline_map(request: HtmxHttpRequest) -> HttpResponse:
    """The small split map of a lesson, alone, for htmx to swap."""
    return HttpResponse(inline.map_fragment(request))


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
def run_list(request: HtmxHttpRequest) -> HttpResponse:
    """Every run, the newest first."""
    context = {"list": runs.run_list(now=timezone.now()), "command": runs.WORK_COMMAND}
    return render_page(request, "calculators/runs.html", context, fragment="runs")


@require_http_methods(["GET", "HEAD", "POST"])
@over_the_ledger
def new_run(request: HtmxHttpRequest) -> HttpResponse:
    """What will run, before it runs; a POST puts it in the queue, once for each nonce."""
    if request.method == "POST":
        return _submit(request)
    try:
        asked = _asked(request)
    except InvalidCalculation as error:
        return redirect(error.address)
    return _confirm(request, **asked)


@require_GET
def forecast(request: HtmxHttpRequest) -> HttpResponse:
    """What the spec in the form would move, for htmx to swap as its fields change."""
    form = SpecForm(request.GET)
    context = {"form": form, "forecast": forecast_of(form.spec) if form.is_valid() and form.spec else None}
    return render_page(request, "calculators/new_run.html#forecast", context)


@require_GET
@over_the_ledger
def run(request: HtmxHttpRequest, run_id: int) -> HttpResponse:
    """One run: waiting, at work, or what came of it. htmx asks again until it has ended."""
    page = runs.run_page(run_id, now=timezone.now())
    if page is None:
        raise Http404(f"There is no run {run_id}.")
    polled = bool(request.htmx) and request.htmx.target == "outcome"
    if polled and page.is_live and request.GET.get("seen") == page.changed_mark:
        return HttpResponse(status=204)  # nothing new: the page stays as it is
    figure = None
    if page.wire:
        figure = wire_figure(page.wire, family=page.family, steps=page.steps, unit=page.unit)
    context = {
        "page": page,
        "run": page.run,
        "figure": figure,
        "command": runs.WORK_COMMAND,
        "may_cancel": _may_cancel(request, page),
    }
    response = render_page(request, "calculators/run.html", context, fragment="outcome")
    if polled and not page.is_live:
        response.status_code = HttpResponseStopPolling.status_code
    return response


@require_POST
@over_the_ledger
def cancel(request: HttpRequest, run_id: int) -> HttpResponse:
    """Asks that a run stop; its page says what came of that."""
    page = runs.run_page(run_id, now=timezone.now())
    if page is None:
        raise Http404(f"There is no run {run_id}.")
    if not request.user.is_authenticated:
        return _to_sign_in(page_address(run_id))
    if not _may_cancel(request, page):
        context = {"reason": f"Run {run_id} was started by {page.run.submitted_by}; only they can cancel it."}
        return render_page(request, "calculators/refused.html", context, status=403)
    runs.cancel(run_id, now=timezone.now())
    return redirect(page_address(run_id))


@require_GET
@over_the_ledger
def run_json(request: HttpRequest, run_id: int) -> HttpResponse:
    """The run for other programs."""
    found = runs.download(run_id)
    if found is None:
        raise Http404(f"There is no run {run_id}.")
    return _attached(JsonResponse(found, json_dumps_params={"indent": 2}), f"run-{run_id}.json")


@require_GET
@over_the_ledger
def run_csv(request: HttpRequest, run_id: int) -> HttpResponse:
    """The comparisons of the run for a spreadsheet."""
    rows = runs.csv_rows(run_id)
    if rows is None:
        raise Http404(f"There is no run {run_id}.")
    response = HttpResponse(content_type="text/csv; charset=utf-8")
    writer = csv.writer(response)
    writer.writerow(runs.COLUMNS)
    writer.writerows(rows)
    return _attached(response, f"run-{run_id}.csv")


@require_GET
@over_the_ledger
def run_toml(request: HttpRequest, run_id: int) -> HttpResponse:
    """The run's spec as a file that `python -m calculators.lab run` takes."""
    page = runs.run_page(run_id, now=timezone.now())
    if page is None:
        raise Http404(f"There is no run {run_id}.")
    text = page.run.spec.to_toml()
    return _attached(HttpResponse(text, content_type="application/toml; charset=utf-8"), f"run-{run_id}.toml")


def page_address(run_id: int) -> str:
    """The address of a run's page."""
    return reverse("calculators:run", args=[run_id])


class InvalidCalculation(Exception):
    """A run was asked for from sizes that cannot be calculated; `address` is the page that says why."""

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self.address = address


def _may_cancel(request: HttpRequest, page: runs.RunPage) -> bool:
    """Whoever started a run, and the site's staff."""
    return request.user.is_staff or page.run.submitted_by == request.user.get_username()


def _asked(request: HttpRequest) -> dict[str, Any]:
    """The spec that a link asks for: an experiment, an earlier run, or a calculation made small enough."""
    given = request.GET
    if given.get("as") == "spec":
        return _as_written(given)
    try:
        if name := given.get("experiment"):
            return {"spec": experiment(name), "source": f"the experiment {name}"}
        if again := given.get("again"):
            return {"spec": _spec_of(again), "source": f"run {again}"}
    except SpecError as error:
        return {"spec": experiment("tensor-decode"), "problem": str(error)}
    way = {str(WAYS[key].job): WAYS[key] for key in ("tp", "pp")}.get(given.get("job", ""))
    if not way:
        return {"spec": experiment("tensor-decode"), "is_open": True}
    form = TrafficForm({key: value for key, value in given.items() if key != "job"})
    if not form.is_valid():
        query = given.copy()
        del query["job"]
        raise InvalidCalculation(_address(reverse("calculators:traffic"), query.urlencode()))
    case = form.case
    found = way.trial(case)
    back = _address(reverse("calculators:traffic"), form.address)
    if found is None:
        problem = (
            "With one device, or one layer to cut into stages, nothing travels and nothing can be measured. "
            "Here is an experiment that moves something."
        )
        return {"spec": experiment(f"{way.job}-decode"), "problem": problem, "back": back}
    return {"spec": found.spec, "trial": found, "back": back, "wanted": case}


def _as_written(given: QueryDict) -> dict[str, Any]:
    """The very spec that an address spells out (`workbench.run_address`), and the calculation that it comes from."""
    form = SpecForm({name: given[name] for name in given if name not in ("as", "back")})
    found: dict[str, Any] = {"source": "the calculation"}
    if url_has_allowed_host_and_scheme(back := given.get("back", ""), allowed_hosts=None):
        found["back"] = back
    if form.is_valid() and form.spec:
        return found | {"spec": form.spec}
    return found | {"spec": experiment("tensor-decode"), "form": form, "forecast": None, "is_open": True}


def _spec_of(run_id: str) -> Spec:
    page = runs.run_page(int(run_id), now=timezone.now()) if run_id.isascii() and run_id.isdigit() else None
    if page is None:
        raise Http404(f"There is no run {run_id}.")
    return page.run.spec


def _confirm(request: HtmxHttpRequest, *, spec: Spec, **more: Any) -> HttpResponse:
    form = SpecForm(initial=spec.to_dict())
    context = {
        "form": form,
        "forecast": forecast_of(spec),
        "nonce": uuid4().hex,
        "experiments": experiment_names(),
        **more,
    }
    return render_page(request, "calculators/new_run.html", context)


def _submit(request: HtmxHttpRequest) -> HttpResponse:
    if not request.user.is_authenticated:
        return _to_sign_in(request.get_full_path())
    form = SpecForm(request.POST)
    if form.is_valid() and form.spec:
        nonce = request.POST.get("nonce", "")[:64] or uuid4().hex
        run_id = runs.submit_once(request, form.spec, nonce=nonce, now=timezone.now())
        return redirect(page_address(run_id))
    context = {
        "form": form,
        "nonce": request.POST.get("nonce", "")[:64] or uuid4().hex,
        "experiments": experiment_names(),
        "is_open": True,
    }
    return render_page(request, "calculators/new_run.html", context)


def _to_sign_in(then: str) -> HttpResponse:
    return HttpResponseRedirect(_address(reverse("tutor:sign-in"), urlencode({"next": then})))


def _address(path: str, query: str) -> str:
    return f"{path}?{query}" if query else path


def _attached(response: HttpResponse, name: str) -> HttpResponse:
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    return response
