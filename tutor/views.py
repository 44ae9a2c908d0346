"""Home, the ways in and out, and the choice of colours."""

from django.contrib import auth
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_GET, require_http_methods, require_POST
from django_htmx.http import HttpResponseClientRedirect

from tutor.accounts import SignInForm, owner_for, safe_next
from tutor.home import home_of
from tutor.htmx import HtmxHttpRequest, render_page
from tutor.navigation import THEME_COOKIE, THEMES

YEAR_SECONDS = 365 * 24 * 3600


@require_GET
def home(request: HtmxHttpRequest) -> HttpResponse:
    return render_page(request, "tutor/home.html", {"home": home_of(request.user)})


@never_cache
@require_GET
def enter(request: HtmxHttpRequest) -> HttpResponse:
    """Signs the owner in by the printed link."""
    owner = owner_for(request.GET.get("token", ""))
    if owner is None:
        return render_page(request, "tutor/wrong_token.html", status=403)
    auth.login(request, owner, backend="django.contrib.auth.backends.ModelBackend")
    return redirect("tutor:home")


@never_cache
@sensitive_post_parameters("password")
@require_http_methods(["GET", "HEAD", "POST"])
def sign_in(request: HtmxHttpRequest) -> HttpResponse:
    if request.htmx:  # a fragment was asked for after the session had ended: show the whole page instead
        return HttpResponseClientRedirect(request.get_full_path())
    wanted = request.POST.get("next") or request.GET.get("next")
    destination = safe_next(request, wanted, reverse("tutor:home"))
    form = SignInForm(request, data=request.POST if request.method == "POST" else None)
    if form.is_valid():
        auth.login(request, form.get_user())
        return HttpResponseRedirect(destination)
    return render_page(request, "tutor/sign_in.html", {"form": form, "next": destination})


@require_POST
def sign_out(request: HttpRequest) -> HttpResponse:
    auth.logout(request)
    return redirect("tutor:home")


@require_POST
def theme(request: HttpRequest) -> HttpResponse:
    """Remembers light or dark for a year, or forgets it."""
    response = HttpResponseRedirect(safe_next(request, request.POST.get("next"), reverse("tutor:home")))
    wanted = request.POST.get("theme", "")
    if wanted and wanted in dict(THEMES):
        response.set_cookie(THEME_COOKIE, wanted, max_age=YEAR_SECONDS, samesite="Lax", httponly=True)
    else:
        response.delete_cookie(THEME_COOKIE, samesite="Lax")
    return response


def form_refused(request: HttpRequest, reason: str = "") -> HttpResponse:
    """What Django shows for a form without this browser's token: it came from elsewhere or is too old."""
    return render(request, "403.html", status=403)
