"""Minimal pairs: two questions that differ in one stated fact, whose right answers differ."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from quizzes.packs.checking import CheckedPack, CheckedQuestion
from quizzes.packs.rules.doubts import Doubt, at_question


def minimal_pairs(packs: Sequence[CheckedPack]) -> dict[tuple[str, str], list[CheckedQuestion]]:
    """The questions of each pair, by pack and pair name."""
    found: dict[tuple[str, str], list[CheckedQuestion]] = defaultdict(list)
    for pack in packs:
        for question in pack.questions:
            if question.content.pair:
                found[pack.header.id, question.content.pair].append(question)
    return found


def findings(packs: Sequence[CheckedPack]) -> Iterator[Doubt]:
    """Pairs that are no pair, or that have one answer."""
    by_id = {pack.header.id: pack for pack in packs}
    for (owner, name), members in minimal_pairs(packs).items():
        pack = by_id[owner]
        if len(members) != 2:
            yield at_question(
                pack, members[0], "pair", f"the pair {name} has {len(members)} questions; a pair has two."
            )
        elif (keys := [_key(member) for member in members])[0] == keys[1] and keys[0]:
            yield at_question(
                pack,
                members[1],
                "pair",
                f"both questions of the pair {name} have the key {', '.join(keys[0])}.",
            )


def _key(question: CheckedQuestion) -> tuple[str, ...]:
    """What is right, as techniques where they are told, else as option ids; empty where nothing is chosen."""
    content = question.content
    keys = [option.id for option in getattr(content, "choices", ()) if option.credit == 1]
    return tuple(sorted(content.techniques.get(name, name) for name in keys))
