"""What a question is, how its numbers are drawn, and how an answer is marked. Pure: no storage, no pages.

A question's content is immutable once stored (a revision); marking takes that content, the drawn
parameters and what the learner chose or typed, and gives a Mark. docs/packs.md shows every field.
"""

import hashlib
import itertools
import json
import math
import random
import re
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, model_validator

from quizzes.expressions import ExpressionError, evaluate, holds
from quizzes.numbers import NumberProblem, display, parse_number

MAX_COMBINATIONS = 10_000
DRAW_TRIES = 1_000


class AnswerProblem(ValueError):
    """An answer that cannot be marked yet; the message asks the learner for what is missing."""


class DrawError(ValueError):
    """No draw of the parameters gives a fair question; the message is for its author."""


def _tidy(value: object) -> object:
    """One spelling of the same text: line ends, outer blank lines and composition carry no meaning."""
    if not isinstance(value, str):
        return value
    return unicodedata.normalize("NFC", value).replace("\r\n", "\n").replace("\r", "\n").strip("\n")


Text = Annotated[str, BeforeValidator(_tidy), StringConstraints(min_length=1, max_length=20_000)]
Optional = Annotated[str, BeforeValidator(_tidy), StringConstraints(max_length=20_000)]
Slug = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+(?:[._-][a-z0-9]+)*$", max_length=80)]
Name = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*$", max_length=40)]
Credit = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Tolerance = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Part(BaseModel):
    """The habits of every piece of a question: unknown keys are errors, and nothing changes afterwards."""

    model_config = ConfigDict(extra="forbid", frozen=True)


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


class Parameter(Part):
    """A closed set of values to draw from, kept as written."""

    choice: Annotated[list[Text], Field(min_length=1, max_length=200)]


class Computed(Part):
    """A number for the text, calculated from the drawn parameters: {{ name }} shows it with its unit."""

    calc: Text
    unit: Optional = ""


class Answer(Part):
    """The key of a numeric question, and how close is close enough."""

    calc: Text
    unit: Optional = ""
    rtol: Tolerance | None = None
    atol: Tolerance | None = None
    units: list[Text] = []

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


class Verify(Part):
    """The calculator and the experiment that check the answer.

    `calc` is the key again, in the names of a run's sizes (layers, ranks, hidden_size, …); `names` says which size, or
    which number, stands for a name of the question's own. `measure` is what of the run it must come to.
    """

    calc: Optional = ""
    lab: Slug | None = None
    measure: Literal["calls", "handed", "sent", "weights", "gradients", "optimizer", "saved"] | None = None
    names: dict[Name, Text] = {}
    rtol: Tolerance | None = None

    @property
    def is_measured(self) -> bool:
        """Whether a run can be held against it."""
        return bool(self.calc and self.lab and self.measure)


class QuestionTest(Part):
    """What the pack's own tests expect: `choose` or `answer`, with these parameters, gives this credit."""

    with_: Annotated[dict[Name, Text], Field(alias="with")] = {}
    choose: list[Slug] = []
    answer: Annotated[str, StringConstraints(max_length=200)] | None = None
    credit: Credit | None = None
    misconception: Slug | None = None
    invalid: bool = False


class Question(Part, ABC):
    """What all kinds have in common. The first block is about the question and is not part of its meaning."""

    id: Slug
    type: str
    status: Literal["draft", "live", "retired"] = "live"
    title: Optional = ""
    objectives: list[Slug] = []
    tags: list[Slug] = []
    level: Literal["recognise", "diagnose", "design"] | None = None
    pair: Slug | None = None
    facts: dict[Text, Text] = {}
    techniques: dict[Slug, Text] = {}
    tests: list[QuestionTest] = []

    symptom: Optional = ""
    prompt: Text
    params: dict[Name, Parameter] = {}
    given: list[Text] = []
    computed: dict[Name, Computed] = {}
    hints: list[Text] = []
    explanation: Optional = ""
    cues: dict[Text, Text] = {}
    lessons: list[Text] = []
    verify: Verify | None = None
    calculator: Optional = ""

    @abstractmethod
    def misconceptions(self) -> list[str]:
        """The misconception ids this question can reveal, in the order written."""

    def meaning(self) -> dict[str, Any]:
        """What a learner sees and is marked by, as plain data; fields left at their default are absent."""
        return self.model_dump(mode="json", exclude_defaults=True, exclude=set(ABOUT)) | {"type": self.type}

    def about(self) -> dict[str, Any]:
        """What is recorded about the question but changes neither its text nor its marking."""
        return self.model_dump(mode="json", by_alias=True, exclude_defaults=True, include=set(ABOUT))


ABOUT = ("id", "status", "title", "objectives", "tags", "level", "pair", "facts", "techniques", "tests")


class Choice(Question):
    """Options to choose from; `single` and `multiple` differ in how many may be chosen."""

    choices: Annotated[list[Option], Field(min_length=2, max_length=12)]
    shuffle: bool = True

    @model_validator(mode="after")
    def _has_key(self) -> Self:
        if not any(option.credit == 1 for option in self.choices):
            raise ValueError("no option is right: give the right one credit: 1")
        return self

    def misconceptions(self) -> list[str]:
        return list(dict.fromkeys(o.misconception for o in self.choices if o.misconception))

    def option(self, option_id: str) -> Option:
        return next(option for option in self.choices if option.id == option_id)


class Single(Choice):
    type: Literal["single"] = "single"


class Multiple(Choice):
    type: Literal["multiple"] = "multiple"
    credit_mode: Literal["exact", "proportional", "proportional_correct", "net_correct", "coverage"] = "exact"


class Numeric(Question):
    type: Literal["numeric"] = "numeric"
    answer: Answer
    wrong: list[WrongModel] = []

    def misconceptions(self) -> list[str]:
        return list(dict.fromkeys(w.misconception for w in self.wrong if w.misconception))


KINDS: dict[str, type[Single] | type[Multiple] | type[Numeric]] = {
    "single": Single,
    "multiple": Multiple,
    "numeric": Numeric,
}
AnyQuestion = Single | Multiple | Numeric


def from_meaning(meaning: Mapping[str, Any], *, slug: str) -> AnyQuestion:
    """The question whose stored meaning this is."""
    return KINDS[meaning["type"]].model_validate({**meaning, "id": slug})


def digest(meaning: Mapping[str, Any]) -> str:
    """The revision's name: sha256 of its meaning, the same whatever the file's layout was.

    >>> digest({"type": "single", "prompt": "a"}) == digest({"prompt": "a", "type": "single"})
    True
    """
    text = json.dumps(meaning, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


# --- drawing ------------------------------------------------------------------------------------------

Draw = Mapping[str, str]


def draw(question: AnyQuestion, rng: random.Random) -> dict[str, str]:
    """Parameters for one learner: every `given` holds and the key differs from every wrong answer.

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


def all_draws(question: AnyQuestion) -> Iterator[dict[str, str]]:
    """Every combination of the parameters in a fixed order, at most MAX_COMBINATIONS of them."""
    names = list(question.params)
    combinations = itertools.product(*(question.params[name].choice for name in names))
    for values in itertools.islice(combinations, MAX_COMBINATIONS):
        yield dict(zip(names, values, strict=True))


def fair_draws(question: AnyQuestion) -> Iterator[dict[str, str]]:
    """The combinations that may be shown."""
    return (drawn for drawn in all_draws(question) if not rejection(question, drawn))


def rejection(question: AnyQuestion, drawn: Draw) -> str:
    """Why this draw may not be shown, or nothing. Raises ExpressionError when it cannot be calculated."""
    names = numbers(drawn)
    for condition in question.given:
        if not holds(condition, names):
            return f"the condition {condition} is false with {_listed(drawn)}"
    if isinstance(question, Numeric):
        return _key_meets_wrong(question, drawn)
    shown: dict[str, str] = {}
    words = words_for(question, drawn)
    for option in question.choices:
        text = normalised(option_text(option, drawn, words))
        if text in shown:
            return f"the options {shown[text]} and {option.id} read the same with {_listed(drawn)}"
        shown[text] = option.id
    return ""


def _key_meets_wrong(question: Numeric, drawn: Draw) -> str:
    """A wrong answer must be told from the key, and from another belief's, beyond display rounding."""
    answer, names = question.answer, numbers(drawn)
    key = evaluate(answer.calc, names)
    if key == 0 and not answer.atol:
        return f"the answer is 0 with {_listed(drawn)}, where rtol means nothing; give atol as well"
    beliefs: list[tuple[float, WrongModel]] = []
    for wrong in question.wrong:
        value = evaluate(wrong.calc, names)
        if _alike(answer, value, key):
            return f"the wrong answer {wrong.calc} equals the key {display(key)} with {_listed(drawn)}"
        for other_value, other in beliefs:
            if other.misconception != wrong.misconception and _alike(answer, value, other_value):
                return (
                    f"the wrong answers {other.calc} and {wrong.calc} are both {display(value)} "
                    f"with {_listed(drawn)}"
                )
        beliefs.append((value, wrong))
    return ""


def _alike(answer: Answer, one: float, other: float) -> bool:
    return answer.close(one, other) or answer.close(other, one) or display(one) == display(other)


def numbers(drawn: Draw) -> dict[str, float]:
    """The drawn parameters that are numbers, for calculating."""
    found = {}
    for name, value in drawn.items():
        try:
            number = float(value)
        except ValueError:
            continue
        if math.isfinite(number):
            found[name] = number
    return found


def shuffled(question: AnyQuestion, rng: random.Random) -> list[str]:
    """Option ids in the order to show: pinned ones stay first or last. Empty for a numeric question."""
    if isinstance(question, Numeric):
        return []
    free = [option.id for option in question.choices if option.pin is None]
    if question.shuffle:
        rng.shuffle(free)
    first = [option.id for option in question.choices if option.pin == "first"]
    last = [option.id for option in question.choices if option.pin == "last"]
    return [*first, *free, *last]


# --- text ---------------------------------------------------------------------------------------------

PLACEHOLDER = re.compile(r"\{\{\s*([A-Za-z_][A-Za-z0-9_]*)\s*\}\}")


def fill(text: str, values: Mapping[str, str]) -> str:
    """`text` with {{ name }} replaced; nothing else is understood, and unknown names stay.

    >>> fill("{{ p }}B parameters on {{q}}", {"p": "70"})
    '70B parameters on {{q}}'
    """
    return PLACEHOLDER.sub(lambda found: values.get(found[1], found[0]), text)


def words_for(question: AnyQuestion, drawn: Draw) -> dict[str, str]:
    """What {{ name }} stands for in the stem: parameters and computed numbers."""
    names = numbers(drawn)
    computed = {n: display(evaluate(c.calc, names), c.unit) for n, c in question.computed.items()}
    return {**drawn, **computed}


def words_after(question: AnyQuestion, drawn: Draw) -> dict[str, str]:
    """Like `words_for`, with {{ answer }}: only for text shown after the answer."""
    words = words_for(question, drawn)
    if isinstance(question, Numeric):
        words["answer"] = display(evaluate(question.answer.calc, numbers(drawn)), question.answer.unit)
    return words


def option_text(option: Option, drawn: Draw, words: Mapping[str, str]) -> str:
    """The option as Markdown with its numbers in place; `words` are those of `words_for`."""
    if option.calc:
        words = {**words, "value": display(evaluate(option.calc, numbers(drawn)), option.unit)}
    return fill(option.text, words)


def normalised(text: str) -> str:
    """`text` for comparing: case, punctuation at the ends, emphasis and runs of blanks do not count.

    >>> normalised("  *Tensor*  parallelism. ") == normalised("tensor parallelism")
    True
    """
    return " ".join(re.sub(r"[*_`]", "", unicodedata.normalize("NFKC", text)).casefold().split()).strip(
        ".!;: "
    )


# --- marking ------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Mark:
    """What an answer is worth and what it reveals. `feedback` is Markdown with its numbers in place."""

    credit: float
    misconception: str | None
    feedback: str
    parsed: float | None = None

    @property
    def right(self) -> bool:
        return self.credit == 1


def mark(question: AnyQuestion, drawn: Draw, *, chosen: Sequence[str] = (), raw: str = "") -> Mark:
    """The mark of an answer: `chosen` option ids, or `raw` text for a numeric question.

    The same content, parameters and answer always give the same mark. Raises AnswerProblem when there is
    nothing to mark: nothing chosen, an option that does not exist, or text that is not one clear number.
    """
    if isinstance(question, Numeric):
        return _mark_number(question, drawn, raw)
    known = {option.id for option in question.choices}
    if unknown := [option_id for option_id in chosen if option_id not in known]:
        raise AnswerProblem(f"This question has no option “{unknown[0][:40]}”. Choose one of those shown.")
    picked = [option for option in question.choices if option.id in set(chosen)]
    if not picked:
        raise AnswerProblem("Nothing is chosen yet. Choose an option, then answer.")
    if isinstance(question, Single):
        if len(picked) > 1:
            raise AnswerProblem("This question takes one option. Choose the best one.")
        credit = picked[0].credit
    else:
        credit = multiple_credit(question, [option.id for option in picked])
    words = words_after(question, drawn)
    wrong = [option for option in picked if option.credit < 1]
    return Mark(
        credit=credit,
        misconception=next((option.misconception for option in wrong if option.misconception), None),
        feedback=fill(picked[0].feedback, words) if isinstance(question, Single) else "",
    )


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


def _mark_number(question: Numeric, drawn: Draw, raw: str) -> Mark:
    answer, names = question.answer, numbers(drawn)
    try:
        value = parse_number(raw, unit=answer.unit, accepted=answer.units)
    except NumberProblem as problem:
        raise AnswerProblem(str(problem)) from None
    key = evaluate(answer.calc, names)
    if answer.close(value, key):
        return Mark(credit=1.0, misconception=None, feedback="", parsed=value)
    near = [
        (abs(value - target), index)
        for index, target in enumerate(evaluate(wrong.calc, names) for wrong in question.wrong)
        if answer.close(value, target)
    ]
    if not near:
        return Mark(credit=0.0, misconception=None, feedback="", parsed=value)
    model = question.wrong[min(near)[1]]
    return Mark(
        credit=model.credit,
        misconception=model.misconception,
        feedback=fill(model.feedback, words_after(question, drawn)),
        parsed=value,
    )


def failed_tests(question: AnyQuestion) -> Iterator[tuple[int, str]]:
    """The question's own tests that do not hold: their position and a sentence."""
    for index, test in enumerate(question.tests):
        if problem := _test_problem(question, test):
            yield index, problem


def _test_problem(question: AnyQuestion, test: QuestionTest) -> str:
    if unknown := sorted(test.with_.keys() - question.params.keys()):
        return f"the test sets {unknown[0]}, which is not a parameter"
    drawn = next((d for d in fair_draws(question) if test.with_.items() <= d.items()), None)
    if drawn is None:
        return f"no fair draw has {_listed(test.with_)}" if test.with_ else "the question has no fair draw"
    try:
        result = mark(question, drawn, chosen=test.choose, raw=test.answer or "")
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


def _listed(drawn: Draw) -> str:
    return ", ".join(f"{name} = {value}" for name, value in drawn.items()) or "no parameters"
