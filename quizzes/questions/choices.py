"""Questions with options to choose from."""

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from quizzes.expressions import evaluate
from quizzes.numbers import display
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
    fill,
    listed,
    normalised,
    numbers,
    same_text,
)


class Option(Part):
    """One answer to choose. `calc` writes a calculated number where the text says {{ value }}."""

    id: Slug
    text: Text = "{{ value }}"
    calc: Optional = ""
    unit: Optional = ""
    credit: Credit = 0.0
    feedback: Optional = ""
    misconception: Slug | None = None
    pin: Literal["first", "last"] | None = None

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not self.calc and "{{ value }}" in self.text:
            raise ValueError("an option needs text, or calc: for a calculated number")
        return self


def option_text(option: Option, drawn: Draw, words: Mapping[str, str]) -> str:
    """The option as Markdown with its numbers in place; `words` are those of `Question.words`."""
    if option.calc:
        words = {**words, "value": display(evaluate(option.calc, numbers(drawn)), option.unit)}
    return fill(option.text, words)


class Choice(Question):
    """Options to choose from; `single` and `multiple` differ in how many may be chosen."""

    choices: Annotated[list[Option], Field(min_length=2, max_length=12)]
    shuffle: bool = True

    @model_validator(mode="after")
    def _has_key(self) -> Self:
        if not any(option.credit == 1 for option in self.choices):
            raise ValueError("no option is right: give the right one credit: 1")
        return self

    @property
    def wants_cue(self) -> bool:
        return True

    def option(self, option_id: str) -> Option:
        return next(option for option in self.choices if option.id == option_id)

    def own_texts(self) -> Iterator[Passage]:
        for index, option in enumerate(self.choices):
            yield Passage(("choices", index, "text"), option.text, before=True, value=True)
            yield Passage(("choices", index, "feedback"), option.feedback, before=False, value=True)

    def own_expressions(self) -> Iterator[Expression]:
        for index, option in enumerate(self.choices):
            if option.calc:
                yield Expression(("choices", index, "calc"), option.calc)

    def own_bindings(self) -> Iterator[tuple[Place, str | None]]:
        for index, option in enumerate(self.choices):
            yield ("choices", index, "misconception"), option.misconception

    def defects(self) -> Iterator[Defect]:
        ids: set[str] = set()
        texts: dict[str, str] = {}
        for index, option in enumerate(self.choices):
            where = ("choices", index)
            if option.id in ids:
                yield Defect((*where, "id"), "id", f"the option id {option.id} is used twice.")
            ids.add(option.id)
            text = normalised(option.text)
            if not option.calc:
                if text in texts:
                    yield Defect(
                        (*where, "text"),
                        "duplicate",
                        f"options {texts[text]} and {option.id} have the same text.",
                    )
                texts.setdefault(text, option.id)
            if option.credit < 1 and not option.feedback and not option.misconception:
                yield Defect(
                    where, "feedback", f"the wrong option {option.id} needs feedback or a misconception."
                )
            elif not option.feedback:
                yield Defect(
                    where, "feedback", f"the option {option.id} has no feedback of its own.", "warning"
                )
            if option.credit == 1 and option.misconception:
                yield Defect(
                    (*where, "misconception"),
                    "misconception",
                    f"the right option {option.id} reveals no misconception.",
                )
            if self.shuffle and option.pin is None and re.search(r"\b(above|below)\b", text):
                yield Defect(
                    (*where, "text"),
                    "pin",
                    f"the option {option.id} speaks of “above”; add pin: last, or reword it.",
                    "warning",
                )

    def unfair(self, drawn: Draw) -> str:
        words = self.words(drawn)
        # Of options with one id, which are a defect of their own, the last stands for both.
        twins = same_text({option.id: option_text(option, drawn, words) for option in self.choices})
        if twins is None:
            return ""
        return f"the options {twins[0]} and {twins[1]} read the same with {listed(drawn)}"

    def order_shown(self, rng: random.Random) -> list[str]:
        """Pinned options stay first or last."""
        free = [option.id for option in self.choices if option.pin is None]
        if self.shuffle:
            rng.shuffle(free)
        first = [option.id for option in self.choices if option.pin == "first"]
        last = [option.id for option in self.choices if option.pin == "last"]
        return [*first, *free, *last]

    def reply(self, chosen: Sequence[str], raw: str, *, shown: Sequence[str], drawn: Draw) -> Reply:
        unknown = [option_id for option_id in chosen if option_id not in shown]
        return Reply(chosen=(*(option_id for option_id in shown if option_id in chosen), *unknown))

    def reply_of(self, test: QuestionTest) -> Reply:
        return Reply(chosen=tuple(test.choose))

    def picked(self, reply: Reply) -> list[Option]:
        """The options chosen, in the order written; at least one."""
        known = {option.id for option in self.choices}
        if unknown := [option_id for option_id in reply.chosen if option_id not in known]:
            raise AnswerProblem(
                f"This question has no option “{unknown[0][:40]}”. Choose one of those shown."
            )
        picked = [option for option in self.choices if option.id in reply.chosen]
        if not picked:
            raise AnswerProblem("Nothing is chosen yet. Choose an option, then answer.")
        return picked


def _belief(picked: Sequence[Option]) -> str | None:
    """The misconception of the first wrong option that has one."""
    return next(
        (option.misconception for option in picked if option.credit < 1 and option.misconception), None
    )


class Single(Choice):
    """One option is chosen."""

    type: Literal["single"] = "single"

    def marked(self, drawn: Draw, reply: Reply) -> Mark:
        picked = self.picked(reply)
        if len(picked) > 1:
            raise AnswerProblem("This question takes one option. Choose the best one.")
        words = {**self.words(drawn), **self.words_of_answer(drawn)}
        return Mark(
            credit=picked[0].credit, misconception=_belief(picked), feedback=fill(picked[0].feedback, words)
        )


class Multiple(Choice):
    """Any number of options is chosen."""

    type: Literal["multiple"] = "multiple"
    credit_mode: Literal["exact", "proportional", "proportional_correct", "net_correct", "coverage"] = "exact"

    def defects(self) -> Iterator[Defect]:
        yield from super().defects()
        for index, option in enumerate(self.choices):
            if 0 < option.credit < 1:
                yield Defect(
                    ("choices", index, "credit"),
                    "credit",
                    "options of a multiple question have credit 0 or 1; see credit_mode.",
                )

    def marked(self, drawn: Draw, reply: Reply) -> Mark:
        picked = self.picked(reply)
        credit = multiple_credit(self, [option.id for option in picked])
        return Mark(credit=credit, misconception=_belief(picked), feedback="")


def multiple_credit(question: Multiple, chosen: Sequence[str]) -> float:
    """Credit for a set of options by the question's `credit_mode`.

    With keys K, n options, r right and w wrong ones chosen: exact all or nothing · proportional the share of
    options marked as they should be · proportional_correct r/K unless anything wrong is chosen · net_correct
    (r - w)/K, never below 0 · coverage r/K times r/(r + w).
    """
    keys = {option.id for option in question.choices if option.credit == 1}
    right, wrong = len(keys & set(chosen)), len(set(chosen) - keys)
    missed = len(keys) - right
    match question.credit_mode:
        case "exact":
            return float(missed == 0 and wrong == 0)
        case "proportional":
            return 1 - (missed + wrong) / len(question.choices)
        case "proportional_correct":
            return 0.0 if wrong else right / len(keys)
        case "net_correct":
            return max(0.0, (right - wrong) / len(keys))
        case "coverage":
            return right / len(keys) * (right / (right + wrong)) if right else 0.0
