"""What all kinds of question have in common, and what each kind says about itself."""

import random
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, StringConstraints

from quizzes.expressions import evaluate
from quizzes.numbers import display
from quizzes.questions.fields import Credit, Draw, Name, Optional, Part, Place, Slug, Text, Tolerance, numbers


class Parameter(Part):
    """A closed set of values to draw from, kept as written."""

    choice: Annotated[list[Text], Field(min_length=1, max_length=200)]


class Computed(Part):
    """A number for the text, calculated from the drawn parameters: {{ name }} shows it with its unit."""

    calc: Text
    unit: Optional = ""


class Verify(Part):
    """The calculator and the experiment that check the answer.

    `calc` is the key again, in the names of a run's sizes (layers, ranks, hidden_size, …); `names` says which size, or
    which number, stands for a name of the question's own. `measure` is what of the run it must come to.
    """

    calc: Optional = ""
    lab: Slug | None = None
    measure: Literal["calls", "handed", "sent", "weights", "gradients", "optimizer", "saved"] | None = None
    names: dict[Name, Text] = Field(default_factory=dict)
    rtol: Tolerance | None = None

    @property
    def is_measured(self) -> bool:
        """Whether a run can be held against it."""
        return bool(self.calc and self.lab and self.measure)


class QuestionTest(Part):
    """What the pack's own tests expect: this answer, with these parameters, gives this credit.

    The answer is `choose` (options), `answer` (a number), `match` (item: target) or `order` (steps).
    """

    with_: Annotated[dict[Name, Text], Field(alias="with", default_factory=dict)]
    choose: list[Slug] = Field(default_factory=list)
    answer: Annotated[str, StringConstraints(max_length=200)] | None = None
    match: dict[Slug, Slug] = Field(default_factory=dict)
    order: list[Slug] = Field(default_factory=list)
    credit: Credit | None = None
    misconception: Slug | None = None
    invalid: bool = False


class Passage(NamedTuple):
    """A piece of a question's text: where it stands, and whether it is shown before the answer."""

    place: Place
    text: str
    before: bool
    value: bool = False  # whether {{ value }} stands for a number of its own


class Expression(NamedTuple):
    """A calculation that a question makes, or a condition that it states."""

    place: Place
    text: str
    condition: bool = False


class Defect(NamedTuple):
    """What is wrong with a question beyond the types of its fields."""

    place: Place
    rule: str
    message: str
    severity: Literal["error", "warning"] = "error"


class Reply(NamedTuple):
    """An answer as it is stored and marked: ids that were chosen, or what was typed."""

    chosen: tuple[str, ...] = ()
    raw: str = ""


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


class Question(Part, ABC):
    """What all kinds have in common. The first block is about the question and is not part of its meaning."""

    id: Slug
    type: str
    status: Literal["draft", "live", "retired"] = "live"
    title: Optional = ""
    objectives: list[Slug] = Field(default_factory=list)
    tags: list[Slug] = Field(default_factory=list)
    level: Literal["recognise", "diagnose", "design"] | None = None
    pair: Slug | None = None
    facts: dict[Text, Text] = Field(default_factory=dict)
    techniques: dict[Slug, Text] = Field(default_factory=dict)
    tests: list[QuestionTest] = Field(default_factory=list)

    symptom: Optional = ""
    prompt: Text
    params: dict[Name, Parameter] = Field(default_factory=dict)
    given: list[Text] = Field(default_factory=list)
    computed: dict[Name, Computed] = Field(default_factory=dict)
    hints: list[Text] = Field(default_factory=list)
    explanation: Optional = ""
    cues: dict[Text, Text] = Field(default_factory=dict)
    lessons: list[Text] = Field(default_factory=list)
    verify: Verify | None = None
    calculator: Optional = ""

    @property
    def wants_cue(self) -> bool:
        """Whether words of the scenario decide it, so that they should be marked."""
        return False

    # What stands in it.

    @abstractmethod
    def own_texts(self) -> Iterator[Passage]:
        """The texts that only this kind has."""

    def own_expressions(self) -> Iterator[Expression]:
        """The calculations that only this kind makes."""
        yield from ()

    @abstractmethod
    def own_bindings(self) -> Iterator[tuple[Place, str | None]]:
        """Where this kind names a misconception, and which."""

    @abstractmethod
    def defects(self) -> Iterator[Defect]:
        """What the types of its fields cannot say."""

    def texts(self) -> Iterator[Passage]:
        """All text of the question."""
        yield Passage(("symptom",), self.symptom, before=True)
        yield Passage(("prompt",), self.prompt, before=True)
        yield Passage(("explanation",), self.explanation, before=False)
        for index, hint in enumerate(self.hints):
            yield Passage(("hints", index), hint, before=True)
        for name, reason in self.cues.items():
            yield Passage(("cues", name), reason, before=False)
        yield from self.own_texts()

    def expressions(self) -> Iterator[Expression]:
        """All that is calculated."""
        for index, condition in enumerate(self.given):
            yield Expression(("given", index), condition, condition=True)
        for name, computed in self.computed.items():
            yield Expression(("computed", name, "calc"), computed.calc)
        if self.verify and self.verify.calc and not self.verify.measure:  # that one is about a run's sizes
            yield Expression(("verify", "calc"), self.verify.calc)
        yield from self.own_expressions()

    def bindings(self) -> Iterator[tuple[Place, str]]:
        """Every misconception named, and where."""
        for place, belief in self.own_bindings():
            if belief:
                yield place, belief
        for index, test in enumerate(self.tests):
            if test.misconception:
                yield ("tests", index, "misconception"), test.misconception

    def misconceptions(self) -> list[str]:
        """The misconception ids this question can reveal, in the order written."""
        return list(dict.fromkeys(belief for _, belief in self.own_bindings() if belief))

    # How it is shown, answered and marked.

    def words(self, drawn: Draw) -> dict[str, str]:
        """What {{ name }} stands for before the answer: parameters and computed numbers."""
        names = numbers(drawn)
        computed = {n: display(evaluate(c.calc, names), c.unit) for n, c in self.computed.items()}
        return {**drawn, **computed}

    def words_of_answer(self, drawn: Draw) -> dict[str, str]:
        """What {{ name }} stands for only after the answer."""
        return {}

    @property
    def names_after(self) -> frozenset[str]:
        """The names that `words_of_answer` gives."""
        return frozenset()

    @abstractmethod
    def unfair(self, drawn: Draw) -> str:
        """Why these numbers make no fair question of this kind, or nothing."""

    @abstractmethod
    def order_shown(self, rng: random.Random) -> list[str]:
        """The ids to show, in the order to show them."""

    @abstractmethod
    def reply(self, chosen: Sequence[str], raw: str, *, shown: Sequence[str], drawn: Draw) -> Reply:
        """What a form sends, as it is stored. Raises AnswerProblem where that leaves the answer open."""

    @abstractmethod
    def reply_of(self, test: QuestionTest) -> Reply:
        """The answer that a test gives."""

    @abstractmethod
    def marked(self, drawn: Draw, reply: Reply) -> Mark:
        """The mark of an answer. Raises AnswerProblem when there is nothing to mark."""

    # How it is stored.

    def meaning(self) -> dict[str, Any]:
        """What a learner sees and is marked by, as plain data; fields left at their default are absent."""
        return self.model_dump(mode="json", exclude_defaults=True, exclude=set(ABOUT)) | {"type": self.type}

    def about(self) -> dict[str, Any]:
        """What is recorded about the question but changes neither its text nor its marking."""
        return self.model_dump(mode="json", by_alias=True, exclude_defaults=True, include=set(ABOUT))


ABOUT = ("id", "status", "title", "objectives", "tags", "level", "pair", "facts", "techniques", "tests")
