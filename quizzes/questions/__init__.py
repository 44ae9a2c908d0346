"""What a question is, how its numbers are drawn, and how an answer is marked. Pure: no storage, no pages.

A question's content is immutable once stored (a revision); marking takes that content, the drawn
parameters and what the learner chose or typed, and gives a Mark. docs/packs.md shows every field.

Each kind stands in a file of its own and answers for itself (`common.Question` says what it is asked):
nothing outside needs to know which kinds there are.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from quizzes.questions.choices import Choice as Choice
from quizzes.questions.choices import Multiple as Multiple
from quizzes.questions.choices import Option as Option
from quizzes.questions.choices import Single as Single
from quizzes.questions.choices import multiple_credit as multiple_credit
from quizzes.questions.choices import option_text as option_text
from quizzes.questions.common import Mark as Mark
from quizzes.questions.common import Passage as Passage
from quizzes.questions.common import QuestionTest as QuestionTest
from quizzes.questions.common import Reply as Reply
from quizzes.questions.common import Verify as Verify
from quizzes.questions.drawing import MAX_COMBINATIONS as MAX_COMBINATIONS
from quizzes.questions.drawing import all_draws as all_draws
from quizzes.questions.drawing import draw as draw
from quizzes.questions.drawing import fair_draws as fair_draws
from quizzes.questions.drawing import rejection as rejection
from quizzes.questions.drawing import shuffled as shuffled
from quizzes.questions.drawing import words_after as words_after
from quizzes.questions.drawing import words_for as words_for
from quizzes.questions.fields import PLACEHOLDER as PLACEHOLDER
from quizzes.questions.fields import AnswerProblem as AnswerProblem
from quizzes.questions.fields import Draw as Draw
from quizzes.questions.fields import DrawError as DrawError
from quizzes.questions.fields import Optional as Optional
from quizzes.questions.fields import Part as Part
from quizzes.questions.fields import Slug as Slug
from quizzes.questions.fields import Text as Text
from quizzes.questions.fields import fill as fill
from quizzes.questions.fields import normalised as normalised
from quizzes.questions.fields import numbers as numbers
from quizzes.questions.marking import failed_tests as failed_tests
from quizzes.questions.marking import mark as mark
from quizzes.questions.match import Match as Match
from quizzes.questions.numeric import Numeric as Numeric
from quizzes.questions.numeric import WrongModel as WrongModel
from quizzes.questions.order import Order as Order

AnyQuestion = Single | Multiple | Numeric | Match | Order

KINDS: dict[str, type[AnyQuestion]] = {
    "single": Single,
    "multiple": Multiple,
    "numeric": Numeric,
    "match": Match,
    "order": Order,
}


def from_meaning(meaning: Mapping[str, Any], *, slug: str) -> AnyQuestion:
    """The question whose stored meaning this is."""
    return KINDS[meaning["type"]].model_validate({**meaning, "id": slug})


def digest(meaning: Mapping[str, Any]) -> str:
    """The revision's name: sha256 of its meaning, the same whatever the file's layout was.

    >>> digest({"type": "single", "prompt": "a"}) == digest({"prompt": "a", "type": "single"})
    True
    """
    text = json.dumps(meaning, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
