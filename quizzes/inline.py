"""A question inside a lesson: the same form, the same answer address, the same feedback."""

import random

from django.contrib.auth.models import User
from django.template.loader import render_to_string
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from quizzes import bank, sessions
from quizzes.expressions import ExpressionError
from quizzes.presenting import show
from quizzes.questions import DrawError
from tutor.htmx import HtmxHttpRequest


def inline_check(reference: str, request: HtmxHttpRequest) -> SafeString:
    """The question `reference` ("pack/question") as a small form.

    With htmx the feedback takes its place; without, the answer leads to the question's practice page.
    A question that cannot be shown becomes a sentence, so that the lesson around it still reads.
    """
    pack, _, slug = reference.partition("/")
    question = bank.question_at(pack, slug)
    if question is None:
        return format_html('<p class="note">The question {} is not in the bank.</p>', reference)
    learner = request.user
    try:
        if isinstance(learner, User):
            rng = random.SystemRandom()
            serving = sessions.serve(learner, question, rng=rng, now=timezone.now())
        else:
            serving = sessions.sample(question)
    except (DrawError, ExpressionError) as error:
        return format_html('<p class="note">The question {} cannot be shown: {}</p>', reference, error)
    shown = show(serving)
    context = {"shown": shown, "element": f"check-{shown.key}", "inline": True}
    return render_to_string("quizzes/practice.html#question", context, request=request)
