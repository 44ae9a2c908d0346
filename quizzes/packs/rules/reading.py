"""Reading level: a scenario is read under time, so its sentences are short and its words common."""

import re
from collections.abc import Iterator, Sequence

from quizzes.packs.checking import CheckedPack
from quizzes.packs.rules.doubts import Doubt, at_question
from quizzes.questions import PLACEHOLDER

MOST = 58.0
"""LIX above which a text is very hard to read; technical prose is 50 to 60 (Björnsson, Läsbarhet, 1968)."""
_LONG = 6  # letters that a word may have before it counts as long
_LEAST_WORDS = 30  # of less text the figure says little


def lix(text: str) -> float:
    """Björnsson's readability index: words a sentence + per cent of words with more than six letters.

    >>> lix("The cat sat. The dog ran.")
    3.0
    """
    words = re.findall(r"[^\W\d_]+", text)
    sentences = max(1, len(re.findall(r"[.?!:](?:\s|$)", text)))
    return len(words) / sentences + 100 * sum(len(word) > _LONG for word in words) / max(1, len(words))


def findings(packs: Sequence[CheckedPack]) -> Iterator[Doubt]:
    """Stems that are hard to read; console excerpts and terms of the subject are not counted."""
    for pack in packs:
        for question in pack.questions:
            text = _prose(question.content.prompt)
            if len(text.split()) >= _LEAST_WORDS and (level := lix(text)) > MOST:
                yield at_question(
                    pack,
                    question,
                    "reading",
                    f"its stem reads at LIX {level:.0f}; {MOST:.0f} is hard already.",
                )


_TERMS = re.compile(
    r"\b(tensor|pipeline|sequence|context|expert|data|model)[ -]parallel(ism)?\b|\bmixture[ -]of[ -]experts\b"
    r"|\b(attention|feed-forward|activations?|parameters?|gradients?|optimi[sz]er|micro-batch(es)?|hidden size)\b",
    re.IGNORECASE,
)


def _prose(text: str) -> str:
    bare = re.sub(r"```.*?```", " ", text, flags=re.DOTALL)
    bare = re.sub(r"\]\]\{cue=[^}]*\}|\[\[|[*_`|]", "", bare)
    return _TERMS.sub("term", PLACEHOLDER.sub("8", bare))
