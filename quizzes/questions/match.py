"""Questions that ask which target belongs to each item."""

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


class Target(Part):
    """What an item can be matched with; one may suit several items, or none."""

    id: Slug
    text: Text


class WrongPair(Part):
    """A wrong target for an item, with the belief behind it."""

    target: Slug
    misconception: Slug | None = None
    feedback: Optional = ""


class Item(Part):
    """What is to be matched, and the target that is right for it."""

    id: Slug
    text: Text
    target: Slug
    feedback: Optional = ""
    wrong: list[WrongPair] = Field(default_factory=list)

    def mistake(self, target: str) -> WrongPair | None:
        """What is said of a wrong target, if anything is."""
        return next((pair for pair in self.wrong if pair.target == target), None)


class Match(Question):
    """Every item is given one target. An answer is stored as `item:target`, in the order shown."""

    type: Literal["match"] = "match"
    targets: Annotated[list[Target], Field(min_length=2, max_length=12)]
    items: Annotated[list[Item], Field(min_length=2, max_length=12)]

    def item(self, item_id: str) -> Item:
        return next(item for item in self.items if item.id == item_id)

    def target(self, target_id: str) -> Target:
        return next(target for target in self.targets if target.id == target_id)

    def own_texts(self) -> Iterator[Passage]:
        for index, target in enumerate(self.targets):
            yield Passage(("targets", index, "text"), target.text, before=True)
        for index, item in enumerate(self.items):
            yield Passage(("items", index, "text"), item.text, before=True)
            yield Passage(("items", index, "feedback"), item.feedback, before=False)
            for place, pair in enumerate(item.wrong):
                yield Passage(("items", index, "wrong", place, "feedback"), pair.feedback, before=False)

    def own_bindings(self) -> Iterator[tuple[Place, str | None]]:
        for index, item in enumerate(self.items):
            for place, pair in enumerate(item.wrong):
                yield ("items", index, "wrong", place, "misconception"), pair.misconception

    def defects(self) -> Iterator[Defect]:
        targets: set[str] = set()
        for index, target in enumerate(self.targets):
            if target.id in targets:
                yield Defect(("targets", index, "id"), "id", f"the target id {target.id} is used twice.")
            targets.add(target.id)
        items: set[str] = set()
        for index, item in enumerate(self.items):
            where = ("items", index)
            if item.id in items:
                yield Defect((*where, "id"), "id", f"the item id {item.id} is used twice.")
            items.add(item.id)
            if item.target not in targets:
                yield Defect(
                    (*where, "target"),
                    "key",
                    f"the target {item.target} of the item {item.id} is not one of its targets.",
                )
            if not item.feedback:
                yield Defect(where, "feedback", f"the item {item.id} has no feedback of its own.", "warning")
            yield from self._defects_of_wrong(item, where, targets)

    def _defects_of_wrong(self, item: Item, where: Place, targets: set[str]) -> Iterator[Defect]:
        seen: set[str] = set()
        for index, pair in enumerate(item.wrong):
            place = (*where, "wrong", index)
            if pair.target not in targets:
                yield Defect(
                    (*place, "target"),
                    "key",
                    f"the wrong target {pair.target} of the item {item.id} is not one of its targets.",
                )
            if pair.target == item.target:
                yield Defect(
                    (*place, "target"),
                    "key",
                    f"the wrong target {pair.target} of the item {item.id} is its right one.",
                )
            if pair.target in seen:
                yield Defect(
                    (*place, "target"),
                    "duplicate",
                    f"the item {item.id} names the wrong target {pair.target} twice.",
                )
            seen.add(pair.target)
            if not pair.feedback and not pair.misconception:
                yield Defect(
                    place,
                    "feedback",
                    f"the wrong target {pair.target} of the item {item.id} needs feedback or a misconception.",
                )

    def unfair(self, drawn: Draw) -> str:
        words = self.words(drawn)
        for what, parts in (("targets", self.targets), ("items", self.items)):
            if twins := same_text({part.id: fill(part.text, words) for part in parts}):
                return f"the {what} {twins[0]} and {twins[1]} read the same with {listed(drawn)}"
        return ""

    def order_shown(self, rng: random.Random) -> list[str]:
        """Items, then targets; each id with what it is before it, since an item and a target may share one."""
        items, targets = [item.id for item in self.items], [target.id for target in self.targets]
        rng.shuffle(items)
        rng.shuffle(targets)
        return [*(f"item:{item_id}" for item_id in items), *(f"target:{target_id}" for target_id in targets)]

    def items_shown(self, shown: Sequence[str]) -> list[Item]:
        """The items in the order of `order_shown`."""
        return [self.item(name.removeprefix("item:")) for name in shown if name.startswith("item:")]

    def targets_shown(self, shown: Sequence[str]) -> list[Target]:
        """The targets in the order of `order_shown`."""
        return [self.target(name.removeprefix("target:")) for name in shown if name.startswith("target:")]

    def reply(self, chosen: Sequence[str], raw: str, *, shown: Sequence[str], drawn: Draw) -> Reply:
        place = {item.id: index for index, item in enumerate(self.items_shown(shown))}
        given = [pair for pair in dict.fromkeys(chosen) if pair]
        return Reply(
            chosen=tuple(sorted(given, key=lambda pair: place.get(pair.partition(":")[0], len(place))))
        )

    def reply_of(self, test: QuestionTest) -> Reply:
        return Reply(chosen=tuple(f"{item}:{target}" for item, target in test.match.items()))

    def pairs(self, chosen: Sequence[str]) -> dict[str, str]:
        """The target given to each item. Raises AnswerProblem where that is not one for each."""
        items, targets = {item.id for item in self.items}, {target.id for target in self.targets}
        given: dict[str, str] = {}
        for pair in chosen:
            item_id, _, target_id = pair.partition(":")
            if item_id not in items:
                raise AnswerProblem(f"This question has no item “{item_id[:40]}”. Match those shown.")
            if target_id not in targets:
                raise AnswerProblem(
                    f"This question has no match “{target_id[:40]}”. Choose one of those shown.", at=[item_id]
                )
            if given.setdefault(item_id, target_id) != target_id:
                raise AnswerProblem("An item is matched twice. Choose one match for each.", at=[item_id])
        return given

    def marked(self, drawn: Draw, reply: Reply) -> Mark:
        given = self.pairs(reply.chosen)
        missing = [item for item in self.items if item.id not in given]
        if missing:
            names = quoted([fill(item.text, self.words(drawn)) for item in missing])
            raise AnswerProblem(
                f"Not matched yet: {names}. Choose a match for every item, then answer.",
                at=[item.id for item in missing],
            )
        mistakes = [item.mistake(given[item.id]) for item in self.items if given[item.id] != item.target]
        wrong = sum(given[item.id] != item.target for item in self.items)
        return Mark(
            credit=1 - wrong / len(self.items) if wrong else 1.0,
            misconception=next(
                (pair.misconception for pair in mistakes if pair and pair.misconception), None
            ),
            feedback="",
        )
