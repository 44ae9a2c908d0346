"""The page of a new run: what will run is said before it does, and its spec can be changed first."""

from typing import Any
from uuid import uuid4

from django.http import Http404, HttpResponse, QueryDict
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_GET, require_http_methods

from calculators.families import WAYS
from calculators.forecast import forecast as forecast_of
from calculators.lab.guided import GUIDED, guided
from calculators.lab.spec import Spec, SpecError, experiment, experiment_names
from calculators.pages.traffic import TrafficForm
from calculators.runs.page import get_run
from calculators.runs.spec_form import SpecForm
from calculators.runs.submission import submit_once
from calculators.runs.views import address, over_the_ledger, page_address, to_sign_in
from tutor.htmx import HtmxHttpRequest, render_page


@require_http_methods(["GET", "HEAD", "POST"])
@over_the_ledger
def new_run(request: HtmxHttpRequest) -> HttpResponse:
    """What will run, before it runs; a POST puts it in the queue, once for each nonce."""
    if request.method == "POST":
        return _submit(request)
    try:
        asked = _asked(request.GET)
    except InvalidCalculation as error:
        return redirect(error.address)
    return _confirm(request, **asked)


@require_GET
def forecast(request: HtmxHttpRequest) -> HttpResponse:
    """What the spec in the form would move, for htmx to swap as its fields change."""
    return render_page(request, "calculators/_forecast.html", _foreseen(SpecForm(request.GET)))


@require_GET
def spec_fields(request: HtmxHttpRequest) -> HttpResponse:
    """The fields that the job in the form reads, for htmx to swap as it changes, and the forecast with them."""
    return render_page(
        request, "calculators/_spec_fields.html", {**_foreseen(SpecForm(request.GET)), "with_forecast": True}
    )


class InvalidCalculation(Exception):
    """A run was asked for from sizes that cannot be calculated; `address` is the page that says why."""

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self.address = address


def _asked(given: QueryDict) -> dict[str, Any]:
    """The spec that a link asks for: an experiment, an earlier run, or a calculation made small enough."""
    if given.get("as") == "spec":
        return _as_written(given)
    try:
        if name := given.get("experiment"):
            return {"spec": experiment(name), "source": f"the experiment {name}"}
        if name := given.get("guided"):
            return _of_guided(name, given.get("variant", ""))
        if again := given.get("again"):
            return {"spec": _spec_of(again), "source": f"run {again}", "is_open": True}
    except SpecError as error:
        return {"spec": experiment("tensor-decode"), "problem": str(error)}
    way = {str(WAYS[key].job): WAYS[key] for key in ("tp", "pp")}.get(given.get("job", ""))
    if not way:
        return {"spec": experiment("tensor-decode"), "is_open": True}
    form = TrafficForm({key: value for key, value in given.items() if key != "job"})
    if not form.is_valid():
        query = given.copy()
        del query["job"]
        raise InvalidCalculation(address(reverse("calculators:traffic"), query.urlencode()))
    case = form.case
    found = way.trial(case)
    back = address(reverse("calculators:traffic"), form.address)
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


def _of_guided(name: str, variant: str) -> dict[str, Any]:
    """One of the runs of a guided experiment, the first unless it is named."""
    one = guided(name)
    chosen = next((v for v in one.variants if v.name == variant), one.variants[0])
    back = reverse("calculators:experiment", args=[name])
    return {
        "spec": chosen.spec,
        "source": f"“{chosen.title}” of the guided experiment {name}",
        "back": back,
        "back_to": "the experiment",
        "is_open": True,
    }


def _spec_of(run_id: str) -> Spec:
    run = get_run(int(run_id), now=timezone.now()) if run_id.isascii() and run_id.isdigit() else None
    if run is None:
        raise Http404(f"There is no run {run_id}.")
    return run.spec


def _confirm(request: HtmxHttpRequest, *, spec: Spec, **more: Any) -> HttpResponse:
    context = {
        "form": SpecForm(initial=spec.to_dict()),
        "forecast": forecast_of(spec),
        "nonce": uuid4().hex,
        **_starting_points(),
        **more,
    }
    return render_page(request, "calculators/new_run.html", context)


def _submit(request: HtmxHttpRequest) -> HttpResponse:
    """Start the run; or, asked to show the fields of the chosen job, show them."""
    form = SpecForm(request.POST)
    if "show" not in request.POST:
        if not request.user.is_authenticated:
            return to_sign_in(request.get_full_path())
        if form.is_valid() and form.spec:
            nonce = request.POST.get("nonce", "")[:64] or uuid4().hex
            try:
                run_id = submit_once(request, form.spec, nonce=nonce, now=timezone.now())
            except SpecError as error:  # more than this site gives to a run, or to one person
                form.refuse(error)
            else:
                return redirect(page_address(run_id))
    context = {
        **_foreseen(form),
        "nonce": request.POST.get("nonce", "")[:64] or uuid4().hex,
        "is_open": True,
        **_starting_points(),
    }
    return render_page(request, "calculators/new_run.html", context)


def _foreseen(form: SpecForm) -> dict[str, Any]:
    return {"form": form, "forecast": forecast_of(form.spec) if form.is_valid() and form.spec else None}


def _starting_points() -> dict[str, Any]:
    """Specs that ship, and guided experiments."""
    return {"experiments": experiment_names(), "guided": list(GUIDED.values())}
