"""The truth guard over everything that a learner reads in a pack."""

from collections.abc import Iterator, Sequence

from quizzes.packs.checking import CheckedPack, CheckedQuestion
from quizzes.packs.rules.doubts import Doubt, at_belief, at_question
from quizzes.truth import problems


def findings(packs: Sequence[CheckedPack]) -> Iterator[Doubt]:
    """Doubtful sentences in anything that a learner reads."""
    for pack in packs:
        for question in pack.questions:
            for text in _read_of(question):
                for _, rule, message in problems(text):
                    yield at_question(pack, question, rule, message)
        for belief in pack.header.misconceptions:
            for text in (belief.name, belief.refutation):
                for _, rule, message in problems(text):
                    yield at_belief(pack, belief.id, rule, f"{belief.id}: {message}")


_STEM = ("symptom", "prompt", "hints", "explanation")


def _read_of(question: CheckedQuestion) -> Iterator[str]:
    passages = list(question.content.texts())
    # A stem and its explanation may save each other's sentences: they are read together.
    yield "\n\n".join(passage.text for passage in passages if passage.place[0] in _STEM)
    yield from (passage.text for passage in passages if passage.place[0] not in _STEM)
