"""The list of lessons, a lesson, and the glossary."""

from django.http import Http404, HttpResponse
from django.views.decorators.http import require_safe

from quizzes.inline import prepare_checks
from tutor.htmx import HtmxHttpRequest, render_page
from tutor.lessons import catalogue
from tutor.lessons.markup import Piece
from tutor.lessons.pieces import render_piece


@require_safe
def index(request: HtmxHttpRequest) -> HttpResponse:
    """Every lesson with what it is for, in reading order."""
    return render_page(request, "lessons/index.html", {"lessons": catalogue.lessons().values()})


@require_safe
def lesson(request: HtmxHttpRequest, slug: str) -> HttpResponse:
    """One lesson, with its questions and calculators filled in for this reader."""
    lessons = catalogue.lessons()
    if slug not in lessons:
        raise Http404(f"There is no lesson called {slug}.")
    chosen = lessons[slug]
    checks = [part.name for part in chosen.parts if isinstance(part, Piece) and part.kind == "check"]
    prepare_checks(checks, request)
    context = {
        "lesson": chosen,
        "parts": [render_piece(part, request) if isinstance(part, Piece) else part for part in chosen.parts],
        "prerequisites": [lessons[name] for name in chosen.prerequisites],
        "next": lessons.get(chosen.next or ""),
    }
    return render_page(request, "lessons/lesson.html", context)


@require_safe
def glossary(request: HtmxHttpRequest) -> HttpResponse:
    """Every word with its one meaning."""
    return render_page(request, "lessons/glossary.html", {"glossary": catalogue.glossary()})
