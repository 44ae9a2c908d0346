"""Scenarios: a symptom, a topology and numbers, and each of the six symptoms in several places."""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

from quizzes.packs.checking import CheckedPack, CheckedQuestion
from quizzes.packs.rules.doubts import Doubt, at_pack, at_question
from quizzes.packs.rules.likeness import stem
from quizzes.questions import PLACEHOLDER

SYMPTOMS = (
    "symptom-idle-gpus",
    "symptom-wide-layer",
    "symptom-deep-stack",
    "symptom-beside-tp",
    "symptom-long-sequence",
    "symptom-many-experts",
)
LEAST_SETTINGS = 4
LEAST_SHARE = 0.75
_TOPOLOGY = re.compile(
    r"\b(gpus?|devices?|cards?|servers?|nodes?|hosts?|machines?|boxes|clusters?|racks?|nvlink|pcie|ethernet|infiniband"
    r"|wi-fi|thunderbolt|ranks?|stages?|replicas?|workstations?|desktops?|laptops?)\b",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"\d[\d.,]*|\b(one|two|three|four|six|eight|ten|twelve|sixteen)\b", re.IGNORECASE)
_CUE = re.compile(r"\[\[")


def is_scenario(question: CheckedQuestion) -> bool:
    """Whether the stem has a symptom (words that decide it, or a console excerpt), a topology and two numbers."""
    text = stem(question)
    numbers = len(PLACEHOLDER.findall(text)) + len(_NUMBER.findall(PLACEHOLDER.sub(" ", text)))
    has_symptom = bool(_CUE.search(text)) or bool(question.content.symptom)
    return has_symptom and bool(_TOPOLOGY.search(text)) and numbers >= 2


def settings_of(packs: Sequence[CheckedPack]) -> dict[str, set[str]]:
    """The settings in which each of the six symptoms is asked about, by their tags."""
    settings: dict[str, set[str]] = {symptom: set() for symptom in SYMPTOMS}
    for pack in packs:
        for question in pack.questions:
            tags = question.content.tags
            for symptom in settings.keys() & set(tags):
                settings[symptom] |= {tag for tag in tags if tag.startswith("setting-")}
    return settings


def findings(packs: Sequence[CheckedPack]) -> Iterator[Doubt]:
    """Packs with too few scenarios, unknown symptoms; over all packs, symptoms in too few settings."""
    known = defaultdict(list)
    for pack in packs:
        singles = [q for q in pack.questions if q.content.type == "single"]
        scenarios = [q for q in singles if is_scenario(q)]
        if singles and len(scenarios) < LEAST_SHARE * len(singles):
            bare = ", ".join(q.content.id for q in singles if q not in scenarios)
            yield at_pack(
                pack,
                "scenario",
                f"{len(scenarios)} of {len(singles)} questions with one right option are scenarios (a marked cue, a "
                f"topology, two numbers); {LEAST_SHARE:.0%} should be. The others: {bare}.",
            )
        for question in pack.questions:
            for tag in question.content.tags:
                if tag.startswith("symptom-"):
                    known[tag].append(pack)
                    if tag not in SYMPTOMS:
                        yield at_question(
                            pack, question, "symptom", f"{tag} is none of the six: {', '.join(SYMPTOMS)}."
                        )
    for symptom, settings in settings_of(packs).items():
        if known[symptom] and len(settings) < LEAST_SETTINGS:
            yield at_pack(
                known[symptom][0],
                "settings",
                f"{symptom} plays in {len(settings)} settings ({', '.join(sorted(settings)) or 'none'}); "
                f"{LEAST_SETTINGS} keep a reader from learning the story by heart.",
            )
