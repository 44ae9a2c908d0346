"""The advisor as a second opinion: from a scenario's stated facts it must reach the key, and no other option."""

from collections.abc import Iterator, Sequence

from calculators.predict.advisor import FAMILIES, Advice, Remedy, Technique, advise
from quizzes.facts import facts_of
from quizzes.packs.checking import CheckedPack, CheckedQuestion
from quizzes.packs.rules.doubts import Doubt, at_question


def findings(packs: Sequence[CheckedPack]) -> Iterator[Doubt]:
    """Questions whose key the advisor does not reach, and options that it could defend as well."""
    for pack in packs:
        for question in pack.questions:
            for problem in _problems(question):
                yield at_question(pack, question, "advice", problem)


def _problems(question: CheckedQuestion) -> Iterator[str]:
    content = question.content
    options = {option.id: option for option in getattr(content, "choices", ())}
    for name, value in content.techniques.items():
        if name not in options:
            yield f"techniques: names {name}, which is no option."
        elif unknown := [word for word in _words(value) if word not in _KNOWN]:
            yield f"techniques: {unknown[0]!r} is no technique; use one of {', '.join(_KNOWN)}."
    if not content.facts:
        return
    try:
        advice = advise(facts_of(content.facts))
    except ValueError as error:
        yield f"facts: {error}"
        return
    if content.type != "single" or not content.techniques:
        return
    said = _said(advice)
    key = next((name for name, option in options.items() if option.credit == 1), "")
    if key not in content.techniques:
        yield f"techniques: does not say what the key {key} is."
    elif not _agrees(content.techniques[key], advice):
        yield f"from its facts the advisor says {said}, and the key is {content.techniques[key]}."
    for name, value in content.techniques.items():
        if name != key and _agrees(value, advice):
            yield f"the option {name} is what the advisor says from the facts: {said}."


def _agrees(value: str, advice: Advice) -> bool:
    """Whether an option is the advice: the technique itself, or just the families that it is made of."""
    words = set(_words(value))
    return words == {str(advice.technique)} or words == {str(family) for family in advice.families}


def _said(advice: Advice) -> str:
    families = " + ".join(advice.families)
    return (
        f"{advice.technique} ({families})" if families and families != advice.technique else advice.technique
    )


def _words(value: str) -> list[str]:
    return [word.strip() for word in value.split("+")]


_KNOWN = tuple(dict.fromkeys([*map(str, FAMILIES), *map(str, Technique), *map(str, Remedy)]))
