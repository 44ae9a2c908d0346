"""Questions that ask for a number."""

import random
from collections.abc import Iterator, Sequence
from typing import Literal, Self

from pydantic import Field, model_validator

from quizzes.expressions import evaluate
from quizzes.numbers import UNITS, NumberProblem, display, parse_number
from quizzes.questions.common import Defect, Expression, Mark, Passage, Question, QuestionTest, Reply
from quizzes.questions.fields import (
    AnswerProblem,
    Credit,
    Draw,
    Optional,
    Part,
    Place,
    Slug,
    Text,
    Tolerance,
    fill,
    listed,
    numbers,
)


class Answer(Part):
    """The key of a numeric question, and how close is close enough."""

    calc: Text
    unit: Optional = ""
    rtol: Tolerance | None = None
    atol: Tolerance | None = None
    units: list[Text] = Field(default_factory=list)

    @model_validator(mode="after")
    def _has_tolerance(self) -> Self:
        if self.rtol is None and self.atol is None:
            raise ValueError("a numeric answer needs rtol or atol; write rtol: 0 when it must be exact")
        return self

    def close(self, value: float, target: float) -> bool:
        """Whether `value` counts as `target`: within the tolerance, never stricter than float rounding."""
        slack = max(self.atol or 0.0, (self.rtol or 0.0) * abs(target), 1e-9 * abs(target), 1e-12)
        return abs(value - target) <= slack * (1 + 1e-9)


class WrongModel(Part):
    """A wrong way to calculate the answer, with the belief behind it."""

    calc: Text
    misconception: Slug | None = None
    feedback: Optional = ""
    credit: Credit = 0.0


class Numeric(Question):
    """A number is typed; `wrong` says what other ways of thinking give."""

    type: Literal["numeric"] = "numeric"
    answer: Answer
    wrong: list[WrongModel] = Field(default_factory=list)

    @property
    def names_after(self) -> frozenset[str]:
        return frozenset({"answer"})

    def words_of_answer(self, drawn: Draw) -> dict[str, str]:
        return {"answer": display(self.key(drawn), self.answer.unit)}

    def key(self, drawn: Draw) -> float:
        """The right number."""
        return evaluate(self.answer.calc, numbers(drawn))

    def model_of(self, value: float, drawn: Draw) -> WrongModel | None:
        """The wrong model that gives `value`; the nearest when tolerances overlap."""
        names = numbers(drawn)
        near = [
            (abs(value - target), index)
            for index, target in enumerate(evaluate(wrong.calc, names) for wrong in self.wrong)
            if self.answer.close(value, target)
        ]
        return self.wrong[min(near)[1]] if near else None

    def own_texts(self) -> Iterator[Passage]:
        for index, wrong in enumerate(self.wrong):
            yield Passage(("wrong", index, "feedback"), wrong.feedback, before=False)

    def own_expressions(self) -> Iterator[Expression]:
        yield Expression(("answer", "calc"), self.answer.calc)
        for index, wrong in enumerate(self.wrong):
            yield Expression(("wrong", index, "calc"), wrong.calc)

    def own_bindings(self) -> Iterator[tuple[Place, str | None]]:
        for index, wrong in enumerate(self.wrong):
            yield ("wrong", index, "misconception"), wrong.misconception

    def defects(self) -> Iterator[Defect]:
        if self.answer.unit and self.answer.units and self.answer.unit not in UNITS:
            yield Defect(("answer", "units"), "unit", f"units of {self.answer.unit} are not known here.")
        for index, unit in enumerate(self.answer.units):
            if unit not in UNITS:
                yield Defect(("answer", "units", index), "unit", f"the unit {unit} is not known here.")
        for index, wrong in enumerate(self.wrong):
            if not wrong.feedback and not wrong.misconception:
                yield Defect(("wrong", index), "feedback", "a wrong model needs feedback or a misconception.")
            if wrong.credit >= 1:
                yield Defect(("wrong", index, "credit"), "key", "a wrong model cannot have full credit.")

    def unfair(self, drawn: Draw) -> str:
        """A wrong answer must be told from the key, and from another belief's, beyond display rounding."""
        key, names = self.key(drawn), numbers(drawn)
        if key == 0 and not self.answer.atol:
            return f"the answer is 0 with {listed(drawn)}, where rtol means nothing; give atol as well"
        beliefs: list[tuple[float, WrongModel]] = []
        for wrong in self.wrong:
            value = evaluate(wrong.calc, names)
            if _alike(self.answer, value, key):
                return f"the wrong answer {wrong.calc} equals the key {display(key)} with {listed(drawn)}"
            for other_value, other in beliefs:
                if other.misconception != wrong.misconception and _alike(self.answer, value, other_value):
                    return (
                        f"the wrong answers {other.calc} and {wrong.calc} are both {display(value)} "
                        f"with {listed(drawn)}"
                    )
            beliefs.append((value, wrong))
        return ""

    def order_shown(self, rng: random.Random) -> list[str]:
        return []

    def reply(self, chosen: Sequence[str], raw: str, *, shown: Sequence[str], drawn: Draw) -> Reply:
        return Reply(raw=raw)

    def reply_of(self, test: QuestionTest) -> Reply:
        return Reply(raw=test.answer or "")

    def marked(self, drawn: Draw, reply: Reply) -> Mark:
        try:
            value = parse_number(reply.raw, unit=self.answer.unit, accepted=self.answer.units)
        except NumberProblem as problem:
            raise AnswerProblem(str(problem)) from None
        if self.answer.close(value, self.key(drawn)):
            return Mark(credit=1.0, misconception=None, feedback="", parsed=value)
        model = self.model_of(value, drawn)
        if model is None:
            return Mark(credit=0.0, misconception=None, feedback="", parsed=value)
        words = {**self.words(drawn), **self.words_of_answer(drawn)}
        return Mark(
            credit=model.credit,
            misconception=model.misconception,
            feedback=fill(model.feedback, words),
            parsed=value,
        )


def _alike(answer: Answer, one: float, other: float) -> bool:
    return answer.close(one, other) or answer.close(other, one) or display(one) == display(other)
