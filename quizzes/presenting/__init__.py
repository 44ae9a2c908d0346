"""Questions for pages: `show` before the answer, `explain` after it."""

from collections.abc import Mapping, Sequence
from urllib.parse import urlencode

from django.urls import reverse

from calculators.lab.guided import GUIDED
from quizzes import markdown
from quizzes.models import Misconception, Question, Response, Serving, Verification
from quizzes.numbers import display
from quizzes.presenting.kinds import Entered, Given, block, form_of, judged
from quizzes.presenting.maps import map_of_answer
from quizzes.presenting.shown import Belief, Feedback, Link, LitCue, Measured, ShownQuestion
from quizzes.questions import AnswerProblem, AnyQuestion, fill, words_after, words_for

__all__ = [
    "Feedback",
    "ShownQuestion",
    "experiment_link",
    "explain",
    "lesson_link",
    "question_address",
    "show",
]


def show(
    serving: Serving,
    *,
    chosen: Sequence[str] = (),
    typed: str = "",
    problem: AnswerProblem | str = "",
) -> ShownQuestion:
    """The question as served, with what the learner had entered when the form comes back."""
    content, question = serving.revision.parsed(), serving.question
    words = words_for(content, serving.params)
    left_open = problem.at if isinstance(problem, AnswerProblem) else ()
    return ShownQuestion(
        reference=question.reference,
        address=question_address(question),
        answer_address=reverse("quizzes:answer", args=(question.pack.address, question.slug)),
        kind=content.type,
        symptom=block(content.symptom, words),
        prompt=block(content.prompt, words),
        form=form_of(content, serving, words, Entered(chosen=chosen, left_open=left_open)),
        hints=[block(hint, words) for hint in content.hints],
        nonce=str(serving.nonce) if serving.pk else "",
        typed=typed,
        problem=str(problem),
        is_disputed=question.is_disputed,
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
    why = judged(content, Given(serving=serving, response=response, words=words, beliefs=beliefs))
    return Feedback(
        reference=question.reference,
        address=question_address(question),
        next_address=reverse("quizzes:pack", args=(question.pack.address,)),
        verdict=_verdict(response, why.miss),
        right=response.right,
        credit=response.credit,
        kind=content.type,
        prompt=markdown.render(stem, cues=True, strict=False),
        cues=_cues(stem, content, question, words),
        judged=why,
        belief=_belief(held) if held else None,
        explanation=block(content.explanation, words),
        lessons=[lesson_link(name) for name in content.lessons],
        measure=experiment_link(verify.lab) if verify and verify.lab else None,
        measured=_measured(question.verification) if question.verification else None,
        drawn=map_of_answer(question.about.get("facts", {})) if question.about.get("facts") else None,
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
    """The page that runs an experiment: a guided one's own, or the form of a run."""
    if name in GUIDED:
        return Link(name=GUIDED[name].title, address=reverse("calculators:experiment", args=(name,)))
    return Link(
        name=name.replace("-", " ").capitalize(),
        address=f"{reverse('calculators:new-run')}?{urlencode({'experiment': name})}",
    )


def _measured(told: Verification) -> Measured:
    off = told.difference
    return Measured(
        calculated=display(told.calculated, told.unit),
        measured=display(told.measured, told.unit),
        difference="none" if off == 0 else f"{off:+.2%}" if off is not None else "not a share of 0",
        named=display(told.named, told.unit) if told.named else "",
        agrees=told.agrees,
        device=told.device,
        run=Link(name=f"run {told.run_id}", address=reverse("calculators:run", args=(told.run_id,))),
    )


_FAMILIES = frozenset({"dp", "tp", "pp", "sp", "cp", "ep", "kv", "moe"})


def _verdict(response: Response, miss: str) -> str:
    if response.right:
        return "Right."
    return f"Partly right: {response.credit:.0%} of the credit." if response.credit > 0 else miss


def _cues(stem: str, content: AnyQuestion, question: Question, words: Mapping[str, str]) -> list[LitCue]:
    explained = {**question.pack.header.get("cues", {}), **content.cues}
    return [
        LitCue(
            words=cue.words,
            reason=markdown.render_inline(fill(explained.get(cue.reason, cue.reason), words), strict=False),
        )
        for cue in markdown.cues_of(stem)
    ]


def _belief(held: Misconception) -> Belief:
    return Belief(
        name=markdown.render_inline(held.name, strict=False),
        refutation=markdown.render(held.refutation, strict=False),
        lessons=[lesson_link(name) for name in held.lessons],
        experiments=[experiment_link(name) for name in held.labs],
    )
