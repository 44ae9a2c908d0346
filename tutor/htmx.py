"""Page or fragment: the one place that decides which of the two a request gets."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django_htmx.middleware import HtmxDetails


class HtmxHttpRequest(HttpRequest):
    """A request after django-htmx's middleware; for annotations."""

    htmx: HtmxDetails


def render_page(
    request: HtmxHttpRequest,
    template: str,
    context: dict[str, object] | None = None,
    *,
    fragment: str | None = None,
    status: int = 200,
) -> HttpResponse:
    """The whole page, or only its partial named `fragment` when htmx asks to swap that element.

    The partial's name, the element's id and the `hx-target` are the same word, so a request for
    another element of the page still gets the whole page.
    """
    wanted = (
        fragment
        and request.htmx
        and not request.htmx.boosted
        and not request.htmx.history_restore_request
        and request.htmx.target == fragment
    )
    response = render(request, f"{template}#{fragment}" if wanted else template, context, status=status)
    response["Vary"] = "HX-Request, HX-Target"  # one address, two bodies: caches must not mix them
    return response


def csp_nonce(request: HttpRequest) -> dict[str, object]:
    """`csp_nonce` for templates: the name django-htmx's own script tag looks for."""
    return {"csp_nonce": getattr(request, "csp_nonce", "")}
