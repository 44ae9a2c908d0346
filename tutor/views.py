"""Home and sign-in."""

from django.http import HttpResponse
from django.views.decorators.http import require_GET

from tutor.htmx import HtmxHttpRequest, render_page


@require_GET
def home(request: HtmxHttpRequest) -> HttpResponse:
    return render_page(request, "tutor/home.html")


@require_GET
def sign_in(request: HtmxHttpRequest) -> HttpResponse:
    return render_page(request, "tutor/sign_in.html")
