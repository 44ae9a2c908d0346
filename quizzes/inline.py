"""A question inside a lesson: the same form, the same answer address, the same feedback."""

import contextlib
import random
from collections.abc import Sequence
from datetime import datetime

from django.contrib.auth.models import User
from django.template.loader import render_to_string
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from quizzes import bank, sessions
from quizzes.expressions import ExpressionError
from quizzes.models import Question, Serving
from quizzes.presenting import show
from quizzes.questions import DrawError
from tutor.htmx import HtmxHttpRequest


def inline_check(reference: str, request: HtmxHttpRequest) -> SafeString:
    """The question `reference` ("pack/question") as a small form.

    With htmx the feedback takes its place; without, the answer leads to the question's practice page.
    A question that cannot be shown becomes a sentence, so that the lesson around it still reads.
    """
    prepared = _prepared(request)
    if reference not in prepared:
        prepare_checks([reference], request)
    serving = prepared[reference]
    if isinstance(serving, str):
        return format_html('<p class="note">The question {} {}</p>', reference, serving)
    shown = show(serving)
    context = {"shown": shown, "element": f"check-{shown.key}", "inline": True}
    return render_to_string("quizzes/practice.html#question", context, request=request)


def prepare_checks(references: Sequence[str], request: HtmxHttpRequest) -> None:
    """Fetches the questions of a page together: a few queries instead of a few for each. Optional."""
    prepared, learner = _prepared(request), request.user
    places = {reference: _place(reference) for reference in references}
    found = bank.questions_at(places.values())
    questions = {reference: found.get(place) for reference, place in places.items()}
    present = [question for question in questions.values() if question is not None]
    rng, now = random.SystemRandom(), timezone.now()
    served: dict[int, Serving] = {}
    if isinstance(learner, User):
        # Where one of them has no fair draw, each is tried by itself below, and says so.
        with contextlib.suppress(DrawError, ExpressionError):
            served = sessions.serve_all(learner, present, rng=rng, now=now) if present else {}
    for reference, question in questions.items():
        prepared[reference] = _served(question, served, learner, rng, now)


def _served(
    question: Question | None, served: dict[int, Serving], learner: object, rng: random.Random, now: datetime
) -> Serving | str:
    if question is None:
        return "is not in the bank."
    if question.pk in served:
        return served[question.pk]
    try:
        if isinstance(learner, User):
            return sessions.serve(learner, question, rng=rng, now=now)
        return sessions.sample(question)
    except (DrawError, ExpressionError) as error:
        return f"cannot be shown: {error}"


def _place(reference: str) -> tuple[str, str]:
    pack, _, slug = reference.partition("/")
    return pack, slug


def _prepared(request: HtmxHttpRequest) -> dict[str, Serving | str]:
    """What is ready on this request, by reference: a serving, or why there is none."""
    found: dict[str, Serving | str] = request.__dict__.setdefault("_prepared_checks", {})
    return found
