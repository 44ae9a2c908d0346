"""What pages show of a question, before the answer and after it.

`ShownQuestion` holds no key, no feedback and no cue: a template that gets one cannot leak what is not there.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from django.urls import reverse
from django.utils.safestring import SafeString

from quizzes import markdown
from quizzes.expressions import evaluate
from quizzes.models import Misconception, Question, Response, Serving
from quizzes.numbers import display
from quizzes.questions import (
    AnyQuestion,
    Multiple,
    Numeric,
    WrongModel,
    fill,
    numbers,
    option_text,
    words_after,
)
from quizzes.questions import words_for as words_before


@dataclass(frozen=True, kw_only=True)
class ShownOption:
    """An option before the answer; `chosen` keeps what was ticked when the form comes back."""

    id: str
    html: SafeString
    chosen: bool


@dataclass(frozen=True, kw_only=True)
class ShownQuestion:
    """A question before the answer."""

    reference: str
    address: str
    answer_address: str
    kind: str
    symptom: SafeString
    prompt: SafeString
    options: list[ShownOption]
    unit: str
    hints: list[SafeString]
    nonce: str
    typed: str = ""
    problem: str = ""

    @property
    def key(self) -> str:
        """For element ids, unique among the questions of a page."""
        return self.reference.replace("/", "-")


@dataclass(frozen=True, kw_only=True)
class JudgedOption:
    """An option after the answer, with why it is right or wrong."""

    html: SafeString
    chosen: bool
    right: bool
    feedback: SafeString
    belief: str


@dataclass(frozen=True, kw_only=True)
class LitCue:
    """Words of the scenario that decide it, and why."""

    words: str
    reason: SafeString


@dataclass(frozen=True, kw_only=True)
class Link:
    name: str
    address: str


@dataclass(frozen=True, kw_only=True)
class Belief:
    """A misconception as it is shown to someone who has just held it."""

    name: SafeString
    refutation: SafeString
    lessons: list[Link]
    experiments: list[Link]


@dataclass(frozen=True, kw_only=True)
class Slip:
    """A wrong way to calculate, and the number it gives."""

    value: str
    belief: str
    feedback: SafeString
    chosen: bool


@dataclass(frozen=True, kw_only=True)
class Feedback:
    """A question after the answer."""

    reference: str
    address: str
    next_address: str
    verdict: str
    right: bool
    credit: float
    kind: str
    symptom: SafeString
    prompt: SafeString
    cues: list[LitCue]
    options: list[JudgedOption]
    typed: str
    understood: str
    correct: str
    slips: list[Slip]
    note: SafeString
    belief: Belief | None
    explanation: SafeString
    lessons: list[Link]
    measure: Link | None
    calculator: Link | None
    stored_elsewhere: bool = False

    @property
    def key(self) -> str:
        return self.reference.replace("/", "-")


def show(
    serving: Serving, *, chosen: Sequence[str] = (), typed: str = "", problem: str = ""
) -> ShownQuestion:
    """The question as served, with what the learner had entered when the form comes back."""
    content, question = serving.revision.parsed(), serving.question
    words = words_before(content, serving.params)
    options = [] if isinstance(content, Numeric) else [content.option(name) for name in serving.option_ids]
    return ShownQuestion(
        reference=question.reference,
        address=question_address(question),
        answer_address=reverse("quizzes:answer", args=(question.pack.address, question.slug)),
        kind=content.type,
        symptom=_html(content.symptom, words),
        prompt=_html(content.prompt, words),
        options=[
            ShownOption(
                id=option.id,
                html=markdown.render_inline(option_text(option, serving.params, words), strict=False),
                chosen=option.id in chosen,
            )
            for option in options
        ],
        unit=content.answer.unit if isinstance(content, Numeric) else "",
        hints=[_html(hint, words) for hint in content.hints],
        nonce=str(serving.nonce) if serving.pk else "",
        typed=typed,
        problem=problem,
    )


def explain(
    serving: Serving, response: Response, beliefs: Mapping[str, Misconception], *, conflict: bool = False
) -> Feedback:
    """Why the stored answer is right or wrong. `beliefs` holds the question's misconceptions by id."""
    content, question = serving.revision.parsed(), serving.question
    words = words_after(content, serving.params)
    stem = fill(f"{content.symptom}\n\n{content.prompt}" if content.symptom else content.prompt, words)
    held = response.misconception
    verify = content.verify
    return Feedback(
        reference=question.reference,
        address=question_address(question),
        next_address=reverse("quizzes:pack", args=(question.pack.address,)),
        verdict=_verdict(response),
        right=response.right,
        credit=response.credit,
        kind=content.type,
        symptom=SafeString(""),
        prompt=markdown.render(stem, cues=True, strict=False),
        cues=_cues(stem, content, question, words),
        options=_judged(content, serving, response, words, beliefs),
        typed=response.raw_answer_text,
        understood=_understood(content, response),
        correct=words.get("answer", "") if isinstance(content, Numeric) else "",
        slips=_slips(content, serving, response, words, beliefs),
        note=_note(content, serving, response, words),
        belief=_belief(held) if held else None,
        explanation=_html(content.explanation, words),
        lessons=[lesson_link(name) for name in content.lessons],
        measure=experiment_link(verify.lab) if verify and verify.lab else None,
        calculator=(
            Link(name="Calculate it", address=fill(content.calculator, serving.params))
            if content.calculator
            else None
        ),
        stored_elsewhere=conflict,
    )


def question_address(question: Question) -> str:
    return reverse("quizzes:question", args=(question.pack.address, question.slug))


def lesson_link(name: str) -> Link:
    """`slug` or `slug#part` of a lesson."""
    slug, _, part = name.partition("#")
    address = f"/lessons/{slug}/{'#' if part else ''}{part}"
    words = [word.upper() if word in _FAMILIES else word for word in slug.split("-")]
    title = " ".join(words)
    return Link(name=title[:1].upper() + title[1:], address=address)


def experiment_link(name: str) -> Link:
    """The page that runs an experiment."""
    return Link(
        name=name.replace("-", " ").capitalize(),
        address=f"/runs/new?{urlencode({'experiment': name})}",
    )


_FAMILIES = frozenset({"dp", "tp", "pp", "sp", "cp", "ep", "kv", "moe"})


def _html(text: str, words: Mapping[str, str]) -> SafeString:
    return markdown.render(fill(text, words), strict=False) if text else SafeString("")


def _verdict(response: Response) -> str:
    if response.right:
        return "Right."
    if response.credit > 0:
        return f"Partly right: {response.credit:.0%} of the credit."
    return "Not this one." if not response.raw_answer_text else "Not this number."


def _cues(stem: str, content: AnyQuestion, question: Question, words: Mapping[str, str]) -> list[LitCue]:
    explained = {**question.pack.header.get("cues", {}), **content.cues}
    return [
        LitCue(
            words=cue.words,
            reason=markdown.render_inline(fill(explained.get(cue.reason, cue.reason), words), strict=False),
        )
        for cue in markdown.cues_of(stem)
    ]


def _judged(
    content: AnyQuestion,
    serving: Serving,
    response: Response,
    words: Mapping[str, str],
    beliefs: Mapping[str, Misconception],
) -> list[JudgedOption]:
    if isinstance(content, Numeric):
        return []
    judged = [
        JudgedOption(
            html=markdown.render_inline(option_text(option, serving.params, words), strict=False),
            chosen=option.id in response.chosen_option_ids,
            right=option.credit == 1,
            feedback=_html(option.feedback, words),
            belief=_name(beliefs, option.misconception),
        )
        for option in (content.option(name) for name in serving.option_ids)
    ]
    # What was chosen, then what is right, then the others as they stood.
    return sorted(judged, key=lambda option: (not option.chosen, not option.right))


def _slips(
    content: AnyQuestion,
    serving: Serving,
    response: Response,
    words: Mapping[str, str],
    beliefs: Mapping[str, Misconception],
) -> list[Slip]:
    if not isinstance(content, Numeric):
        return []
    names = numbers(serving.params)
    model = _model(content, serving, response)
    return [
        Slip(
            value=display(evaluate(wrong.calc, names), content.answer.unit),
            belief=_name(beliefs, wrong.misconception),
            feedback=_html(wrong.feedback, words),
            chosen=wrong is model,
        )
        for wrong in content.wrong
    ]


def _note(content: AnyQuestion, serving: Serving, response: Response, words: Mapping[str, str]) -> SafeString:
    """What stands directly under the verdict: the feedback of what was chosen."""
    if isinstance(content, Numeric):
        model = _model(content, serving, response)
        if model:
            return _html(model.feedback, words)
        unknown = (
            "" if response.right else "None of the usual slips gives this number. Compare the steps below."
        )
        return _html(unknown, words)
    if isinstance(content, Multiple):
        return SafeString("")
    return _html(content.option(response.chosen_option_ids[0]).feedback, words)


def _model(content: Numeric, serving: Serving, response: Response) -> WrongModel | None:
    """The wrong model whose number was typed; the nearest when tolerances overlap, as in marking."""
    if response.right or response.parsed_value is None:
        return None
    names, value = numbers(serving.params), response.parsed_value
    near = [
        (abs(value - target), index)
        for index, target in enumerate(evaluate(wrong.calc, names) for wrong in content.wrong)
        if content.answer.close(value, target)
    ]
    return content.wrong[min(near)[1]] if near else None


def _understood(content: AnyQuestion, response: Response) -> str:
    if not isinstance(content, Numeric) or response.parsed_value is None:
        return ""
    shown = display(response.parsed_value, content.answer.unit)
    typed = response.raw_answer_text.strip()
    return "" if typed in (shown, display(response.parsed_value)) else shown


def _name(beliefs: Mapping[str, Misconception], slug: str | None) -> str:
    return beliefs[slug].name if slug and slug in beliefs else ""


def _belief(held: Misconception) -> Belief:
    return Belief(
        name=markdown.render_inline(held.name, strict=False),
        refutation=markdown.render(held.refutation, strict=False),
        lessons=[lesson_link(name) for name in held.lessons],
        experiments=[experiment_link(name) for name in held.labs],
    )
