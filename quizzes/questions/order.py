"""Questions that ask for the order of steps."""

import random
from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

from pydantic import Field

from quizzes.questions.common import Defect, Mark, Passage, Question, QuestionTest, Reply
from quizzes.questions.fields import (
    AnswerProblem,
    Draw,
    Optional,
    Part,
    Place,
    Slug,
    Text,
    fill,
    listed,
    quoted,
    same_text,
)


class Step(Part):
    """One step; the steps of a question are written in the right order."""

    id: Slug
    text: Text
    feedback: Optional = ""


class WrongOrder(Part):
    """Two steps the wrong way round, with the belief behind it."""

    before: Slug
    after: Slug
    misconception: Slug | None = None
    feedback: Optional = ""

    def broken_by(self, order: Sequence[str]) -> bool:
        """Whether `order` has the two steps this way round."""
        return order.index(self.before) < order.index(self.after)


class Order(Question):
    """Steps are put in order. An answer is stored as the step ids in the order given."""

    type: Literal["order"] = "order"
    steps: Annotated[list[Step], Field(min_length=2, max_length=12)]
    wrong: list[WrongOrder] = Field(default_factory=list)

    def step(self, step_id: str) -> Step:
        return next(step for step in self.steps if step.id == step_id)

    @property
    def key(self) -> list[str]:
        """The step ids in the right order."""
        return [step.id for step in self.steps]

    def broken(self, order: Sequence[str]) -> list[WrongOrder]:
        """What `order` has the wrong way round, as far as the question has a word on it."""
        return [rule for rule in self.wrong if rule.broken_by(order)]

    def own_texts(self) -> Iterator[Passage]:
        for index, step in enumerate(self.steps):
            yield Passage(("steps", index, "text"), step.text, before=True)
            yield Passage(("steps", index, "feedback"), step.feedback, before=False)
        for index, rule in enumerate(self.wrong):
            yield Passage(("wrong", index, "feedback"), rule.feedback, before=False)

    def own_bindings(self) -> Iterator[tuple[Place, str | None]]:
        for index, rule in enumerate(self.wrong):
            yield ("wrong", index, "misconception"), rule.misconception

    def defects(self) -> Iterator[Defect]:
        ids: set[str] = set()
        for index, step in enumerate(self.steps):
            if step.id in ids:
                yield Defect(("steps", index, "id"), "id", f"the step id {step.id} is used twice.")
            ids.add(step.id)
            if not step.feedback:
                yield Defect(
                    ("steps", index), "feedback", f"the step {step.id} has no feedback of its own.", "warning"
                )
        seen: set[tuple[str, str]] = set()
        for index, rule in enumerate(self.wrong):
            where = ("wrong", index)
            pair = (rule.before, rule.after)
            unknown = [
                (name, step) for name, step in zip(("before", "after"), pair, strict=True) if step not in ids
            ]
            for name, step_id in unknown:
                yield Defect((*where, name), "key", f"wrong: {name} names {step_id}, which is not a step.")
            if rule.before == rule.after:
                yield Defect(where, "key", f"the step {rule.before} cannot stand before itself.")
            elif not unknown and self.key.index(rule.before) < self.key.index(rule.after):
                yield Defect(
                    where,
                    "key",
                    f"{rule.before} before {rule.after} is the right order; wrong: takes what is not.",
                )
            if pair in seen:
                yield Defect(where, "duplicate", f"{rule.before} before {rule.after} stands in wrong: twice.")
            seen.add(pair)
            if not rule.feedback and not rule.misconception:
                yield Defect(
                    where,
                    "feedback",
                    f"the wrong order {rule.before} before {rule.after} needs feedback or a misconception.",
                )

    def unfair(self, drawn: Draw) -> str:
        words = self.words(drawn)
        if twins := same_text({step.id: fill(step.text, words) for step in self.steps}):
            return f"the steps {twins[0]} and {twins[1]} read the same with {listed(drawn)}"
        return ""

    def order_shown(self, rng: random.Random) -> list[str]:
        """Shuffled, and never in the right order."""
        shown = self.key
        while shown == self.key:
            rng.shuffle(shown)
        return shown

    def reply(self, chosen: Sequence[str], raw: str, *, shown: Sequence[str], drawn: Draw) -> Reply:
        """From the place of each step, sent as `step:place`, to the order of the steps."""
        places = self._places([entry for entry in chosen if entry])
        filled = self.words(drawn)
        words = {step.id: fill(step.text, filled) for step in self.steps}
        if missing := [step.id for step in self.steps if step.id not in places]:
            raise AnswerProblem(
                f"Without a place yet: {quoted([words[s] for s in missing])}. Give every step one, then answer.",
                at=missing,
            )
        for place in range(1, len(self.steps) + 1):
            together = [step_id for step_id in shown if places.get(step_id) == place]
            if len(together) > 1:
                raise AnswerProblem(
                    f"In place {place} stand {quoted([words[step_id] for step_id in together])}. "
                    "Give each step a place of its own.",
                    at=together,
                )
        return Reply(chosen=tuple(sorted(places, key=lambda step_id: places[step_id])))

    def _places(self, entries: Sequence[str]) -> dict[str, int]:
        places: dict[str, int] = {}
        for entry in entries:
            step_id, _, place = entry.partition(":")
            if step_id not in self.key:
                raise AnswerProblem(f"This question has no step “{step_id[:40]}”. Order those shown.")
            if place not in [str(number) for number in range(1, len(self.steps) + 1)]:
                raise AnswerProblem(
                    f"There is no place “{place[:40]}”. Places go from 1 to {len(self.steps)}.", at=[step_id]
                )
            if places.setdefault(step_id, int(place)) != int(place):
                raise AnswerProblem("A step has two places. Give each step one.", at=[step_id])
        return places

    def reply_of(self, test: QuestionTest) -> Reply:
        return Reply(chosen=tuple(test.order))

    def marked(self, drawn: Draw, reply: Reply) -> Mark:
        order = list(reply.chosen)
        if unknown := [step_id for step_id in order if step_id not in self.key]:
            raise AnswerProblem(f"This question has no step “{unknown[0][:40]}”. Order those shown.")
        if sorted(order) != sorted(self.key):
            raise AnswerProblem("An order has every step once. Give every step a place, then answer.")
        if order == self.key:
            return Mark(credit=1.0, misconception=None, feedback="")
        broken = self.broken(order)
        return Mark(
            credit=0.0,
            misconception=next((rule.misconception for rule in broken if rule.misconception), None),
            feedback=fill(broken[0].feedback, self.words(drawn)) if broken else "",
        )
