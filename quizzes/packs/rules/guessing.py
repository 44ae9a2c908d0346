"""Habits of a pack by which someone who knows nothing would score above chance."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from quizzes.packs.checking import CheckedPack
from quizzes.packs.rules.doubts import Doubt, at_pack

ABSOLUTES = re.compile(r"\b(always|never|only|all|none|every|must|cannot|impossible)\b")
_LEAST_QUESTIONS = 8
"""Of fewer questions no habit can be told from chance."""


def findings(packs: Sequence[CheckedPack]) -> Iterator[Doubt]:
    """The longest option right too often, absolute words in wrong options alone, the key in one fixed place."""
    for pack in packs:
        singles = [q.content for q in pack.questions if q.content.type == "single"]
        if len(singles) < _LEAST_QUESTIONS:
            continue
        longest = chance = 0.0
        absolute_keys = absolute_wrongs = 0
        fixed = Counter[int]()
        for content in singles:
            options = content.choices
            lengths = [len(option.text) for option in options]
            keys = [place for place, option in enumerate(options) if option.credit == 1]
            if lengths.count(max(lengths)) == 1:
                longest += lengths.index(max(lengths)) in keys
            chance += len(keys) / len(options)
            absolute_keys += any(ABSOLUTES.search(options[place].text.lower()) for place in keys)
            absolute_wrongs += sum(
                bool(ABSOLUTES.search(option.text.lower()))
                for place, option in enumerate(options)
                if place not in keys
            )
            if not content.shuffle:
                fixed[keys[0]] += 1
        spread = 2 * (chance * (1 - chance / len(singles))) ** 0.5
        if longest > chance + spread:
            yield at_pack(
                pack,
                "longest",
                f"The longest option is right {longest:.0f} times in {len(singles)}; chance gives {chance:.1f}.",
            )
        if absolute_wrongs >= 5 and not absolute_keys:
            yield at_pack(
                pack,
                "absolutes",
                f"Words such as always and never stand in {absolute_wrongs} wrong options and in no right one.",
            )
        unshuffled = fixed.total()
        if unshuffled >= _LEAST_QUESTIONS and max(fixed.values()) > unshuffled * 0.6:
            yield at_pack(
                pack,
                "position",
                f"{max(fixed.values())} of {unshuffled} unshuffled questions have the right option in the same place.",
            )
