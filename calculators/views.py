"""The calculator pages: read the request, ask one function, render. Those of runs are in `calculators/runs`."""

from django.http import HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_GET
from django_htmx.http import replace_url

from calculators import inline
from calculators.forms import SplitMapForm
from calculators.pages import CALCULATORS
from calculators.workbench import Calculator, show
from tutor.htmx import HtmxHttpRequest, render_page


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
    form = SplitMapForm(request.GET or SplitMapForm.OPENING)
    context = {"form": form, "picture": inline.picture(form)}
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


def _address(path: str, query: str) -> str:
    return f"{path}?{query}" if query else path
