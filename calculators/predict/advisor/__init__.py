"""Which split: facts in, a technique out, with the questions asked in order and everything turned down with its reason.

>>> advice = advise(Facts(phase="training", overflow="stack", moe=False))
>>> advice.technique.label
'Pipeline parallelism'
>>> advice.reason_against(Technique.EXPERT)
'The model is dense: it has no experts to place.'
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from calculators.predict.advisor.advice import (
    FAMILIES,
    Advice,
    Answered,
    Finding,
    Outcome,
    Rejected,
    Remedy,
    Technique,
)
from calculators.predict.advisor.facts import (
    CHOICES,
    OVERFLOWS,
    QUESTIONS,
    Facts,
    Question,
)
from calculators.predict.advisor.procedure import PROCEDURE
from calculators.predict.advisor.rejections import rejected

__all__ = [
    "CHOICES",
    "FAMILIES",
    "OVERFLOWS",
    "PROCEDURE",
    "QUESTIONS",
    "Advice",
    "Answered",
    "Facts",
    "Finding",
    "Question",
    "Rejected",
    "Remedy",
    "Technique",
    "advise",
    "ask_next",
]

_ASK_MORE = Outcome(
    technique=Technique.ASK_MORE,
    says="Answer one more question.",
    why="What is known so far fits more than one technique.",
)


def advise(facts: Facts) -> Advice:
    """What to do, in the wording that the facts ask for, and the other one's answer where that differs."""
    advice = _in_one_wording(facts)
    other = _in_one_wording(replace(facts, wording="exam" if facts.wording == "practice" else "practice"))
    differs = (other.technique, other.families) != (advice.technique, advice.families)
    return replace(advice, otherwise=other) if differs else advice


def ask_next(facts: Facts, *, questions: Sequence[Question] = QUESTIONS) -> tuple[Question, ...]:
    """The unanswered questions whose answer would change the advice, in the order in which to ask them.

    What other facts make plain is not asked.

    >>> [question.fact for question in ask_next(Facts(phase="serving", fits=True))]
    ['overflow', 'wanted', 'hosts', 'devices_per_host']
    """
    known = set(facts.known) | ({"fits"} if facts.one_fits is not None else set())
    now = _gist(facts)
    return tuple(
        question
        for question in questions
        if question.fact not in known
        and any(_gist(replace(facts, **{question.fact: choice})) != now for choice, _ in question.choices)
    )


def _gist(facts: Facts) -> tuple[Technique, tuple[Technique, ...], Finding | None]:
    _, outcome = _decide(facts)
    return outcome.technique, outcome.uses, outcome.finding


def _in_one_wording(facts: Facts) -> Advice:
    path, outcome = _decide(facts)
    return Advice(
        technique=outcome.technique,
        finding=outcome.finding,
        families=outcome.uses,
        says=outcome.says,
        why=outcome.why,
        axes=outcome.axes,
        path=path,
        rejected=() if outcome.technique is Technique.ASK_MORE else rejected(facts, outcome),
        rules=outcome.rules,
        sources=outcome.sources,
    )


def _decide(facts: Facts) -> tuple[tuple[Answered, ...], Outcome]:
    """Asks the questions in order, until one decides."""
    path = []
    for step in PROCEDURE:
        said = step.look(facts)
        if said is None:
            continue
        path.append(Answered(asks=step.asks, answer=said.answer, decides=said.outcome is not None))
        if said.outcome is not None:
            return tuple(path), said.outcome
    return tuple(path), _ASK_MORE
