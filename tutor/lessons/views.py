"""The list of lessons, a lesson, what was read, the cheat sheet and the glossary."""

from urllib.parse import urlencode

from django.http import Http404, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from quizzes.inline import prepare_checks
from tutor.htmx import HtmxHttpRequest, render_page
from tutor.lessons import catalogue
from tutor.lessons.cheat_sheet import cheat_sheet as cheat_sheet_of
from tutor.lessons.markup import Piece
from tutor.lessons.pieces import render_piece
from tutor.lessons.progress import mark, progress_of


@require_safe
def index(request: HtmxHttpRequest) -> HttpResponse:
    """Every lesson with what it is for, in reading order."""
    progress = progress_of(request.user, catalogue.lessons())
    return render_page(
        request, "lessons/index.html", {"lessons": catalogue.lessons().values(), "progress": progress}
    )


@require_safe
def lesson(request: HtmxHttpRequest, slug: str) -> HttpResponse:
    """One lesson, with its questions and calculators filled in for this reader."""
    lessons = catalogue.lessons()
    if slug not in lessons:
        if any(defect.file == f"{slug}.md" for defect in catalogue.defects()):
            return render_page(request, "lessons/broken.html", {"slug": slug}, status=503)
        raise Http404(f"There is no lesson called {slug}.")
    chosen = lessons[slug]
    checks = [part.name for part in chosen.parts if isinstance(part, Piece) and part.kind == "check"]
    prepare_checks(checks, request)
    context = {
        "lesson": chosen,
        "parts": [render_piece(part, request) if isinstance(part, Piece) else part for part in chosen.parts],
        "prerequisites": [lessons[name] for name in chosen.prerequisites if name in lessons],
        "next": lessons.get(chosen.next or ""),
        "read_at": progress_of(request.user, lessons).read_at.get(slug),
    }
    return render_page(request, "lessons/lesson.html", context)


@require_POST
def read(request: HtmxHttpRequest, slug: str) -> HttpResponse:
    """Note a lesson as read and go on to the next one, or forget that it was read."""
    lessons = catalogue.lessons()
    if slug not in lessons:
        raise Http404(f"There is no lesson called {slug}.")
    here = reverse("lessons:lesson", args=[slug])
    if not request.user.is_authenticated:
        return HttpResponseRedirect(f"{reverse('tutor:sign-in')}?{urlencode({'next': here})}")
    again = "again" in request.POST
    mark(request.user, slug, read=not again)
    following = lessons.get(lessons[slug].next or "")
    if again:
        return HttpResponseRedirect(here)
    return HttpResponseRedirect(
        reverse("lessons:lesson", args=[following.slug]) if following else reverse("lessons:index")
    )


@require_safe
def cheat_sheet(request: HtmxHttpRequest) -> HttpResponse:
    """The six families on one sheet of paper, every number calculated."""
    return render_page(request, "lessons/cheat_sheet.html", {"sheet": cheat_sheet_of()})


@require_safe
def glossary(request: HtmxHttpRequest) -> HttpResponse:
    """Every word with its one meaning."""
    return render_page(request, "lessons/glossary.html", {"glossary": catalogue.glossary()})
