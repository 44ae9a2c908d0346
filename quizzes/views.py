"""Practice pages: the packs, one question, and why an answer was right or wrong."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode
from uuid import UUID

from django.http import Http404, HttpResponse, HttpResponseRedirect
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_POST
from django_htmx.http import HttpResponseClientRedirect

from quizzes import bank, sessions, verifying
from quizzes.expressions import ExpressionError
from quizzes.models import Pack, Question, Response, Serving
from quizzes.presenting import Feedback, ShownQuestion, explain, question_address, show
from quizzes.questions import AnswerProblem, DrawError
from quizzes.subjects import SUBJECTS, Subject
from tutor.htmx import HtmxHttpRequest, render_page

MAX_CHOSEN = 20
MAX_CHOICE = 170  # an item, a colon and a target
CONFIDENCES = frozenset(Response.Confidence.values)


@require_GET
def index(request: HtmxHttpRequest) -> HttpResponse:
    verifying.catch_up()
    packs = bank.packs_with_progress(request.user)
    disputed = bank.disputed_questions() if request.user.is_staff else ()
    context: dict[str, object] = {
        "packs": packs,
        "disputed": disputed,
        "groups": _subjects(bank.questions_by_tag()),
    }
    return render_page(request, "quizzes/index.html", context)


@require_GET
def subject(request: HtmxHttpRequest, tag: str) -> HttpResponse:
    """The questions about one subject, from all packs; their titles stay hidden until they are answered."""
    if tag not in SUBJECTS:
        raise Http404(f"There is no subject {tag}.")
    by_tag = bank.questions_by_tag()
    context: dict[str, object] = {
        "subject": SUBJECTS[tag],
        "questions": bank.questions_of(by_tag.get(tag, [])),
        "groups": _subjects(by_tag),
    }
    return render_page(request, "quizzes/subject.html", context)


def _subjects(by_tag: Mapping[str, Sequence[int]]) -> dict[str, list[tuple[Subject, int]]]:
    """The subjects that have questions, by group, with how many."""
    groups: dict[str, list[tuple[Subject, int]]] = {}
    for subject in SUBJECTS.values():
        if count := len(by_tag.get(subject.tag, ())):
            groups.setdefault(subject.group, []).append((subject, count))
    return groups


@never_cache
@require_GET
def pack(request: HtmxHttpRequest, pack: str) -> HttpResponse:
    """The question of this pack that comes next for this person."""
    verifying.catch_up()
    found = bank.pack_at(pack)
    if found is None:
        raise Http404(f"There is no pack {pack}.")
    if request.user.is_authenticated:
        question = sessions.next_question(request.user, found)
    else:
        question = bank.live_questions(found).select_related("pack", "revision").first()
    if question is None:
        return render_page(request, "quizzes/empty.html", {"pack": found})
    return _question_page(request, question)


@never_cache
@require_GET
def question(request: HtmxHttpRequest, pack: str, slug: str) -> HttpResponse:
    verifying.catch_up()
    return _question_page(request, _question_or_404(pack, slug))


@require_POST
def answer(request: HtmxHttpRequest, pack: str, slug: str) -> HttpResponse:
    """Marks and stores the answer, once however often it is posted, and shows why."""
    given = _Given.of(request)
    if not request.user.is_authenticated:
        return _sign_in_first(request, pack, slug, given)
    try:
        done = sessions.answer(
            request.user,
            given.nonce,
            chosen=given.chosen,
            raw=given.typed,
            confidence=given.confidence,
            now=timezone.now(),
        )
    except AnswerProblem as problem:
        serving = sessions.served(request.user, given.nonce)
        assert serving is not None  # noqa: S101 - it was found a moment ago, and servings stay
        shown = show(serving, chosen=given.chosen, typed=given.typed, problem=problem)
        return _practice(request, serving.question.pack, shown=shown)
    except sessions.StaleAnswer as problem:
        return _question_page(request, _question_or_404(pack, slug), problem=str(problem), status=409)
    if request.htmx or done.conflict:
        feedback = _feedback(done.serving, done.response, conflict=done.conflict)
        status = 409 if done.conflict else 200
        return _practice(request, done.serving.question.pack, feedback=feedback, status=status)
    response = redirect("quizzes:answered", *_place(done.serving))
    response.status_code = 303  # the browser asks for the result with GET, so that reloading posts nothing
    return response


@never_cache
@require_GET
def answered(request: HtmxHttpRequest, pack: str, slug: str, nonce: UUID) -> HttpResponse:
    """A stored answer of this learner, at the revision that was answered."""
    if not request.user.is_authenticated:
        return _to_sign_in(request, request.get_full_path())
    serving = sessions.served(request.user, str(nonce))
    response = sessions.response_to(serving) if serving else None
    if (
        serving is None
        or response is None
        or (serving.question.pack.address, serving.question.slug) != (pack, slug)
    ):
        raise Http404("You have no answer here.")
    return _practice(request, serving.question.pack, feedback=_feedback(serving, response))


@dataclass(frozen=True, kw_only=True)
class _Given:
    """What came with the form."""

    nonce: str
    chosen: list[str]
    typed: str
    confidence: str | None

    @classmethod
    def of(cls, request: HtmxHttpRequest) -> "_Given":
        confidence = request.POST.get("confidence", "")
        return cls(
            nonce=request.POST.get("nonce", "")[:64],
            chosen=[choice[:MAX_CHOICE] for choice in request.POST.getlist("choice")[:MAX_CHOSEN]],
            typed=request.POST.get("typed", "").replace("\x00", "")[:1000],
            confidence=confidence if confidence in CONFIDENCES else None,
        )


def _question_page(
    request: HtmxHttpRequest, question: Question, *, problem: str = "", status: int = 200
) -> HttpResponse:
    """The question as this learner sees it, or to read for someone without an account."""
    try:
        if request.user.is_authenticated:
            rng = random.SystemRandom()
            serving = sessions.serve(request.user, question, rng=rng, now=timezone.now())
        else:
            serving = sessions.sample(question)
    except (DrawError, ExpressionError) as error:
        context = {"pack": question.pack, "reason": str(error)}
        return render_page(request, "quizzes/unavailable.html", context)
    shown = show(
        serving,
        chosen=request.GET.getlist("choice")[:MAX_CHOSEN],
        typed=request.GET.get("typed", "")[:1000],
        problem=problem,
    )
    return _practice(request, question.pack, shown=shown, status=status)


def _practice(
    request: HtmxHttpRequest,
    pack: Pack,
    *,
    shown: ShownQuestion | None = None,
    feedback: Feedback | None = None,
    status: int = 200,
) -> HttpResponse:
    """The practice page, or only its part that changes: on that page, or inside a lesson."""
    target = request.htmx.target or "" if request.htmx and not request.htmx.boosted else ""
    inside_lesson = target.startswith("check-")
    context: dict[str, object] = {
        "pack": pack,
        "shown": shown,
        "feedback": feedback,
        "element": "question",
        "level": "h2",
    }
    if inside_lesson and (shown or feedback):
        key = shown.key if shown else feedback.key if feedback else ""
        context |= {"element": f"check-{key}", "inline": True}
        return render(request, "quizzes/practice.html#question", context)
    context["progress"] = bank.progress(request.user, pack)
    if target == "question":
        return render_page(request, "quizzes/practice.html", context | {"swapped": True}, fragment="question")
    return render_page(request, "quizzes/practice.html", context, status=status)


def _feedback(serving: Serving, response: Response, *, conflict: bool = False) -> Feedback:
    content = serving.revision.parsed()
    beliefs = bank.misconceptions(serving.question.pack.publisher, content.misconceptions())
    return explain(serving, response, beliefs, conflict=conflict)


def _question_or_404(pack: str, slug: str) -> Question:
    question = bank.question_at(pack, slug)
    if question is None:
        raise Http404(f"There is no question {slug} in the pack {pack}.")
    return question


def _place(serving: Serving) -> tuple[str, str, UUID]:
    return serving.question.pack.address, serving.question.slug, serving.nonce


def _sign_in_first(request: HtmxHttpRequest, pack: str, slug: str, given: _Given) -> HttpResponse:
    """To sign in, and from there back to the question with what was chosen still chosen."""
    kept = urlencode(
        [("choice", choice) for choice in given.chosen] + ([("typed", given.typed)] if given.typed else [])
    )
    address = question_address(_question_or_404(pack, slug))
    return _to_sign_in(request, f"{address}?{kept}" if kept else address)


def _to_sign_in(request: HtmxHttpRequest, back: str) -> HttpResponse:
    address = f"{reverse('tutor:sign-in')}?{urlencode({'next': back})}"
    return HttpResponseClientRedirect(address) if request.htmx else HttpResponseRedirect(address)
