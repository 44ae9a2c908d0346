"""Misconceptions: each is offered by two questions at least, and can be read up on."""

from collections import Counter
from collections.abc import Iterator, Sequence

from quizzes.packs.checking import CheckedPack
from quizzes.packs.rules.doubts import Doubt, at_belief, at_question

LEAST_QUESTIONS = 2


def findings(packs: Sequence[CheckedPack]) -> Iterator[Doubt]:
    """Misconceptions that review cannot ask about twice or cannot refute, and wrong options that reveal none."""
    uses = Counter(
        (pack.header.publisher, belief)
        for pack in packs
        for question in pack.questions
        for belief in question.content.misconceptions()
    )
    for pack in packs:
        for belief in pack.header.misconceptions:
            count = uses[pack.header.publisher, belief.id]
            if count < LEAST_QUESTIONS:
                offered = "No question offers" if not count else "Only one question offers"
                yield at_belief(pack, belief.id, "misconception", f"{offered} {belief.id}; review needs two.")
            if not belief.lessons:
                message = f"The misconception {belief.id} has no lesson to read."
                yield at_belief(pack, belief.id, "misconception", message)
        for question in pack.questions:
            for option in getattr(question.content, "choices", ()):
                if option.credit < 1 and option.misconception is None:
                    yield at_question(
                        pack, question, "unbound", f"the wrong option {option.id} reveals no misconception."
                    )
