"""Marking: the same content, numbers and answer always give the same mark."""

from collections.abc import Iterator, Sequence

from quizzes.expressions import ExpressionError
from quizzes.questions.common import Mark, Question, QuestionTest, Reply
from quizzes.questions.drawing import fair_draws
from quizzes.questions.fields import AnswerProblem, Draw, listed


def mark(question: Question, drawn: Draw, *, chosen: Sequence[str] = (), raw: str = "") -> Mark:
    """The mark of an answer as it is stored: `chosen` ids, or `raw` text for a numeric question.

    Raises AnswerProblem when there is nothing to mark: nothing chosen, an option that does not exist, an
    item without a match, or text that is not one clear number.
    """
    return question.marked(drawn, Reply(chosen=tuple(chosen), raw=raw))


def failed_tests(question: Question) -> Iterator[tuple[int, str]]:
    """The question's own tests that do not hold: their position and a sentence."""
    for index, test in enumerate(question.tests):
        if problem := _test_problem(question, test):
            yield index, problem


def _test_problem(question: Question, test: QuestionTest) -> str:
    if unknown := sorted(test.with_.keys() - question.params.keys()):
        return f"the test sets {unknown[0]}, which is not a parameter"
    drawn = next((d for d in fair_draws(question) if test.with_.items() <= d.items()), None)
    if drawn is None:
        return f"no fair draw has {listed(test.with_)}" if test.with_ else "the question has no fair draw"
    try:
        result = question.marked(drawn, question.reply_of(test))
    except AnswerProblem as problem:
        return "" if test.invalid else f"the answer is refused: {problem}"
    except ExpressionError as problem:
        return str(problem)
    if test.invalid:
        return f"the answer should be refused, but gets credit {result.credit:g}"
    if test.credit is not None and abs(result.credit - test.credit) > 1e-9:
        return f"credit is {result.credit:g}, the test expects {test.credit:g}"
    if test.misconception is not None and result.misconception != test.misconception:
        return f"the misconception is {result.misconception or 'none'}, the test expects {test.misconception}"
    return ""
