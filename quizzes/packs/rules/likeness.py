"""Questions that are the same question: alike in their words, or in everything that decides them."""

import re
from collections.abc import Iterator, Sequence
from itertools import combinations

from quizzes.packs.checking import CheckedPack, CheckedQuestion
from quizzes.packs.rules.doubts import Doubt, at_question
from quizzes.questions import PLACEHOLDER

MOST_ALIKE = 0.5
"""Share of word 3-grams that two stems may have in common (Jaccard); numbers count as one word."""


def findings(packs: Sequence[CheckedPack]) -> Iterator[Doubt]:
    """Pairs of questions that are too much alike; the two of a minimal pair are meant to be."""
    asked = [(pack, question, trigrams(stem(question))) for pack in packs for question in pack.questions]
    for (pack, one, of_one), (_, other, of_other) in combinations(asked, 2):
        if is_pair(one, other):
            continue
        union = len(of_one | of_other)
        alike = len(of_one & of_other) / union if union else 0.0
        if alike >= MOST_ALIKE:
            yield at_question(
                pack, one, "alike", f"its stem shares {alike:.0%} of its words with {other.content.id}."
            )
    for pack in packs:
        decided: dict[object, str] = {}
        for question in pack.questions:
            gist = _gist(question)
            if gist is None:
                continue
            first = decided.setdefault(gist, question.content.id)
            if first != question.content.id and not _is_pair_of(pack, first, question):
                yield at_question(
                    pack, question, "same", f"it has the key, the facts and the distractors of {first}."
                )


def stem(question: CheckedQuestion) -> str:
    """What is read before the options."""
    return f"{question.content.symptom} {question.content.prompt}"


def trigrams(text: str) -> frozenset[tuple[str, ...]]:
    """The word 3-grams of a text; a number, drawn or written, is the word #.

    >>> sorted(trigrams("8 GPUs of {{ gb }} GB"))
    [('#', 'gpus', 'of'), ('gpus', 'of', '#'), ('of', '#', 'gb')]
    """
    bare = re.sub(r"\]\]\{cue=[^}]*\}|\[\[", " ", text)
    bare = PLACEHOLDER.sub(" # ", bare)
    words = re.findall(r"#|[^\W\d_]+|\d[\d.,]*", bare.lower())
    masked = ["#" if word[0].isdigit() else word for word in words]
    return frozenset(zip(masked, masked[1:], masked[2:], strict=False))


def is_pair(one: CheckedQuestion, other: CheckedQuestion) -> bool:
    """Whether the two are one minimal pair."""
    return one.content.pair is not None and one.content.pair == other.content.pair


def _is_pair_of(pack: CheckedPack, first: str, question: CheckedQuestion) -> bool:
    return any(is_pair(one, question) for one in pack.questions if one.content.id == first)


def _gist(question: CheckedQuestion) -> object:
    """Key, facts and distractors, as techniques; None where the question states no facts."""
    content = question.content
    if not content.facts or not content.techniques or content.type != "single":
        return None
    keys = {option.id for option in content.choices if option.credit == 1}
    key = frozenset(content.techniques.get(name, name) for name in keys)
    wrong = frozenset(value for name, value in content.techniques.items() if name not in keys)
    return key, frozenset(content.facts.items()), wrong
