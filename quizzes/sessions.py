"""Practice: which question comes next, the question as served, and the answer as stored.

A question's numbers and option order are stored when it is first shown, under a nonce. The nonce is what
an answer is for: the same one twice is one answer, and one that is not this learner's is refused.
"""

import hashlib
import random
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.contrib.auth.models import User
from django.db import transaction

from quizzes import bank
from quizzes.models import Pack, Question, Response, Serving
from quizzes.questions import AnswerProblem, AnyQuestion, Mark, Reply, draw, from_meaning, mark, shuffled


class StaleAnswer(ValueError):
    """An answer to a question that this learner was not shown; the message says what to do."""


@dataclass(frozen=True, kw_only=True)
class Answered:
    """An answer as stored. `conflict` tells that another answer to the same showing was stored before."""

    serving: Serving
    response: Response
    conflict: bool = False


def next_question(learner: User, pack: Pack) -> Question | None:
    """The question to show now: one left open, else unseen ones, else the one met least and longest ago."""
    if left_open := bank.open_serving(learner, pack):
        return left_open.question
    turns = [(_turn(learner, met), met.question_id) for met in bank.attempts(learner, pack)]
    return bank.question_by_id(min(turns)[1]) if turns else None


def _turn(learner: User, met: bank.Attempts) -> tuple[int, float, str]:
    """Unseen first; among equals an order of the learner's own, so that neighbours in the file part."""
    own_order = hashlib.sha256(f"{learner.pk}/{met.question_id}".encode()).hexdigest()
    return met.count, met.last.timestamp() if met.last else 0.0, own_order


def serve(learner: User, question: Question, *, rng: random.Random, now: datetime) -> Serving:
    """The question as this learner sees it until it is answered; the same however often it is opened."""
    return serve_all(learner, [question], rng=rng, now=now)[question.pk]


def serve_all(
    learner: User, questions: Sequence[Question], *, rng: random.Random, now: datetime
) -> dict[int, Serving]:
    """Several questions as `serve` gives them, by question id, at the cost of one."""
    current = _open(learner, questions)
    outdated = [s.pk for q in questions if (s := current.get(q.pk)) and s.revision_id != q.revision_id]
    if outdated:  # their author has changed them since
        Serving.objects.filter(pk__in=outdated).update(closed_at=now)
    missing = [q for q in questions if q.pk not in current or current[q.pk].pk in outdated]
    if not missing:
        return current
    # Two tabs opened at once: the second insert gives way, and both show the first.
    Serving.objects.bulk_create((_fresh(learner, q, rng, now) for q in missing), ignore_conflicts=True)
    return _open(learner, questions)


def _fresh(learner: User, question: Question, rng: random.Random, now: datetime) -> Serving:
    content = _content(question)
    return Serving(
        learner=learner,
        question=question,
        revision=question.revision,
        params=draw(content, rng),
        option_ids=shuffled(content, rng),
        served_at=now,
    )


def sample(question: Question) -> Serving:
    """The question as a visitor without an account sees it: always the same draw, and nothing is stored."""
    rng = random.Random(f"{question.pk}/{question.revision_id}")  # noqa: S311 - not a secret
    content = _content(question)
    return Serving(
        question=question,
        revision=question.revision,
        params=draw(content, rng),
        option_ids=shuffled(content, rng),
    )


def answer(
    learner: User,
    nonce: str,
    *,
    chosen: Sequence[str],
    raw: str,
    now: datetime,
    confidence: str | None = None,
) -> Answered:
    """Marks and stores one answer to a question as served, once.

    The same nonce again gives back what is stored. Raises StaleAnswer for a nonce that is not this
    learner's, and AnswerProblem for an answer that cannot be marked; then nothing is stored.
    """
    with transaction.atomic():
        # One answer of a learner at a time, so that the first stays the first.
        User.objects.select_for_update().get(pk=learner.pk)
        serving = served(learner, nonce)
        if serving is None:
            raise StaleAnswer(
                "This form is out of date: the question was not shown to you like this. Open it again below."
            )
        given = _answers_to(serving)
        content = serving.revision.parsed()
        if stored := given.get(serving.nonce):
            same = _is_same(stored, content, serving, chosen, raw)
            return Answered(serving=serving, response=stored, conflict=not same)
        reply = content.reply(chosen, raw, shown=serving.option_ids, drawn=serving.params)
        result = mark(content, serving.params, chosen=reply.chosen, raw=reply.raw)
        response = _store(serving, reply, result, confidence, now, first_attempt=not given)
        return Answered(serving=serving, response=response)


def served(learner: User, nonce: str) -> Serving | None:
    """The serving with this nonce, if it is this learner's."""
    try:
        key = uuid.UUID(nonce)
    except ValueError:
        return None
    return (
        Serving.objects.select_related("question__pack", "revision__question")
        .filter(learner_id=learner.pk, nonce=key)
        .first()
    )


def response_to(serving: Serving) -> Response | None:
    """What is stored for this serving."""
    return Response.objects.select_related("misconception").filter(client_nonce=serving.nonce).first()


def _answers_to(serving: Serving) -> dict[uuid.UUID, Response]:
    """Everything that this learner has answered to this question, at any revision, by nonce."""
    answers = Response.objects.select_related("misconception").filter(
        learner_id=serving.learner_id, revision__question_id=serving.question_id
    )
    return {response.client_nonce: response for response in answers}


def _is_same(
    stored: Response, content: AnyQuestion, serving: Serving, chosen: Sequence[str], raw: str
) -> bool:
    """Whether the form says what is stored already."""
    try:
        reply = content.reply(chosen, raw, shown=serving.option_ids, drawn=serving.params)
    except AnswerProblem:
        return False
    return reply == Reply(chosen=tuple(stored.chosen_option_ids), raw=stored.raw_answer_text)


def _store(
    serving: Serving,
    reply: Reply,
    result: Mark,
    confidence: str | None,
    now: datetime,
    *,
    first_attempt: bool,
) -> Response:
    publisher = serving.question.pack.publisher
    belief = bank.misconception(publisher, result.misconception) if result.misconception else None
    response = Response.objects.create(
        learner_id=serving.learner_id,
        revision=serving.revision,
        shown_option_ids=serving.option_ids,
        chosen_option_ids=list(reply.chosen),
        params=serving.params,
        raw_answer_text=reply.raw,
        parsed_value=result.parsed,
        credit=result.credit,
        misconception=belief,
        confidence=confidence,
        first_attempt=first_attempt,
        client_nonce=serving.nonce,
        answered_at=now,
    )
    Serving.objects.filter(pk=serving.pk, closed_at=None).update(closed_at=now)
    return response


def _open(learner: User, questions: Sequence[Question]) -> dict[int, Serving]:
    """What the learner has open of these questions; each brings the question, and its revision if still shown."""
    by_id = {question.pk: question for question in questions}
    left_open = Serving.objects.filter(learner_id=learner.pk, question__in=list(by_id), closed_at=None)
    servings = {serving.question_id: serving for serving in left_open}
    for question_id, serving in servings.items():
        serving.question = question = by_id[question_id]
        if question.revision is not None and serving.revision_id == question.revision_id:
            serving.revision = question.revision  # fetched with the question already
            serving.revision.question = question
    return servings


def _content(question: Question) -> AnyQuestion:
    assert question.revision is not None  # noqa: S101 - only questions with one are shown
    return from_meaning(question.revision.content, slug=question.slug)
