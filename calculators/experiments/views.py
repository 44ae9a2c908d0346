"""The pages of guided experiments: read the request, ask one function, render."""

from uuid import uuid4

from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_GET, require_POST
from django_htmx.http import HttpResponseStopPolling

from calculators.experiments import trying
from calculators.experiments.shown import curves, figures_table
from calculators.lab.guided import GUIDED
from calculators.lab.guided.claims import Guided
from calculators.lab.problems import SpecError
from calculators.runs.opening import WORK_COMMAND
from calculators.runs.views import address, over_the_ledger, to_sign_in
from calculators.runs.words import FAMILIES, place_of, size_of, title_of
from tutor.htmx import HtmxHttpRequest, render_page


@require_GET
@over_the_ledger
def list_experiments(request: HtmxHttpRequest) -> HttpResponse:
    """Every claim, by family, and how it fared when it was last tried in this ledger."""
    last = trying.last_of_each(GUIDED.values(), now=timezone.now())
    families = []
    for key, name in FAMILIES.items():
        members = [(one, last.get(one.name)) for one in GUIDED.values() if one.family == key]
        if members:
            families.append((key, name, members))
    outcomes = [fared.outcome for fared in last.values()]
    context = {
        "families": families,
        "total": len(GUIDED),
        "outcomes": {outcome: outcomes.count(outcome) for outcome in dict.fromkeys(outcomes)},
        "untried": len(GUIDED) - len(last),
    }
    return render_page(request, "calculators/experiments.html", context)


@require_GET
@over_the_ledger
def show_experiment(request: HtmxHttpRequest, name: str) -> HttpResponse:
    """One claim; htmx asks again until the trial that is looked at has ended."""
    guided = _guided(name)
    found = trying.tried(guided, chosen=request.GET.get("trial", ""), now=timezone.now())
    chosen = found.chosen
    polled = bool(request.htmx) and request.htmx.target == "trial"
    if polled and chosen and chosen.is_live and request.GET.get("seen") == chosen.changed_mark:
        return HttpResponse(status=204)
    verdict = chosen.verdict if chosen else None
    runs = {run.variant: run for run in chosen.runs} if chosen else {}
    progress = dict(zip(runs, chosen.progress, strict=False)) if chosen else {}
    context = {
        "guided": guided,
        "tried": found,
        "chosen": chosen,
        "variants": [
            (
                v,
                f"{title_of(v.spec)}, {place_of(v.spec)}",
                size_of(v.spec),
                runs.get(v.name),
                progress.get(v.name, ()),
            )
            for v in guided.variants
        ],
        "figures": figures_table(verdict) if verdict else None,
        "curves": curves(verdict, family=guided.family, name=guided.name) if verdict else [],
        "why_not": trying.why_not_here(guided, found.workers),
        "nonce": uuid4().hex,
        "command": WORK_COMMAND,
    }
    response = render_page(request, "calculators/experiment.html", context, fragment="trial")
    if polled and not (chosen and chosen.is_live):
        response.status_code = HttpResponseStopPolling.status_code
    return response


@require_POST
@over_the_ledger
def run_experiment(request: HtmxHttpRequest, name: str) -> HttpResponse:
    """Puts the runs of an experiment in the queue, once for each nonce."""
    guided = _guided(name)
    page = reverse("calculators:experiment", args=[name])
    if not request.user.is_authenticated:
        return to_sign_in(page)
    nonce = request.POST.get("nonce", "")[:48] or uuid4().hex
    try:
        trial = trying.try_once(request, guided, nonce=nonce, now=timezone.now())
    except SpecError as error:  # more runs than this site lets one person have waiting
        messages.error(request, str(error))
        return redirect(page)
    return redirect(address(page, f"trial={trial}"))


def _guided(name: str) -> Guided:
    if name not in GUIDED:
        raise Http404(f"There is no guided experiment {name}. There are {', '.join(GUIDED)}.")
    return GUIDED[name]
