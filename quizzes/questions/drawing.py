"""Drawing a question's numbers, so that what is shown is fair."""

import itertools
import random
from collections.abc import Iterator

from quizzes.expressions import holds
from quizzes.questions.common import Question
from quizzes.questions.fields import Draw, DrawError, listed, numbers

MAX_COMBINATIONS = 10_000
DRAW_TRIES = 1_000


def draw(question: Question, rng: random.Random) -> dict[str, str]:
    """Parameters for one learner: every `given` holds and what is right differs from all that is wrong.

    Raises DrawError when no such draw is found.
    """
    if not question.params:
        reject = rejection(question, {})
        if reject:
            raise DrawError(reject)
        return {}
    reason = ""
    for _ in range(DRAW_TRIES):
        drawn = {name: rng.choice(parameter.choice) for name, parameter in question.params.items()}
        reason = rejection(question, drawn)
        if not reason:
            return drawn
    fair = next(fair_draws(question), None)
    if fair is None:
        raise DrawError(f"No draw of the parameters gives a fair question. The last one failed: {reason}")
    return fair


def all_draws(question: Question) -> Iterator[dict[str, str]]:
    """Every combination of the parameters in a fixed order, at most MAX_COMBINATIONS of them."""
    names = list(question.params)
    combinations = itertools.product(*(question.params[name].choice for name in names))
    for values in itertools.islice(combinations, MAX_COMBINATIONS):
        yield dict(zip(names, values, strict=True))


def fair_draws(question: Question) -> Iterator[dict[str, str]]:
    """The combinations that may be shown."""
    return (drawn for drawn in all_draws(question) if not rejection(question, drawn))


def rejection(question: Question, drawn: Draw) -> str:
    """Why this draw may not be shown, or nothing. Raises ExpressionError when it cannot be calculated."""
    names = numbers(drawn)
    for condition in question.given:
        if not holds(condition, names):
            return f"the condition {condition} is false with {listed(drawn)}"
    return question.unfair(drawn)


def shuffled(question: Question, rng: random.Random) -> list[str]:
    """The ids to show, in the order to show them."""
    return question.order_shown(rng)


def words_for(question: Question, drawn: Draw) -> dict[str, str]:
    """What {{ name }} stands for in the stem: parameters and computed numbers."""
    return question.words(drawn)


def words_after(question: Question, drawn: Draw) -> dict[str, str]:
    """Like `words_for`, with {{ answer }}: only for text shown after the answer."""
    return {**question.words(drawn), **question.words_of_answer(drawn)}
