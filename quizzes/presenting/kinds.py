"""How each kind of question is answered on a page, and how its answers are explained there.

A new kind adds a `form_of` and a `judged` here, and a part of its own to the templates where it needs one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import singledispatch

from django.utils.safestring import SafeString

from quizzes import markdown
from quizzes.expressions import evaluate
from quizzes.models import Misconception, Response, Serving
from quizzes.numbers import display
from quizzes.presenting.shown import (
    BrokenRule,
    Entry,
    Form,
    Judged,
    JudgedOption,
    JudgedOrder,
    JudgedPair,
    PlacedStep,
    Row,
    ShownOption,
    Slip,
)
from quizzes.questions import Choice, Match, Numeric, Order, fill, numbers, option_text


@dataclass(frozen=True, kw_only=True)
class Entered:
    """What a form held when it came back: what was chosen, and the items or steps left open."""

    chosen: Sequence[str] = ()
    left_open: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class Given:
    """A stored answer with what explaining it needs."""

    serving: Serving
    response: Response
    words: Mapping[str, str]
    beliefs: Mapping[str, Misconception]

    def html(self, text: str) -> SafeString:
        """Markdown of the question with its numbers in place."""
        return block(text, self.words)

    def line(self, text: str) -> SafeString:
        """The same without paragraphs."""
        return line(text, self.words)

    def belief(self, slug: str | None) -> str:
        """The name of a misconception."""
        return self.beliefs[slug].name if slug and slug in self.beliefs else ""

    def other_belief(self, slug: str | None) -> str:
        """The same, unless it is the one that the feedback shows in full."""
        held = self.response.misconception
        return "" if held is not None and held.slug == slug else self.belief(slug)


def block(text: str, words: Mapping[str, str]) -> SafeString:
    """Markdown with its numbers in place."""
    return markdown.render(fill(text, words), strict=False) if text else SafeString("")


def line(text: str, words: Mapping[str, str]) -> SafeString:
    """Markdown of one line with its numbers in place."""
    return markdown.render_inline(fill(text, words), strict=False)


# --- before the answer --------------------------------------------------------------------------------


@singledispatch
def form_of(content: object, serving: Serving, words: Mapping[str, str], entered: Entered) -> Form:
    """What the question is answered with, as served, with what had been entered."""
    raise TypeError(f"{type(content).__name__} has no form")


@form_of.register
def _(content: Choice, serving: Serving, words: Mapping[str, str], entered: Entered) -> Form:
    return Form(
        options=[
            ShownOption(
                id=option.id,
                html=markdown.render_inline(option_text(option, serving.params, words), strict=False),
                chosen=option.id in entered.chosen,
            )
            for option in (content.option(name) for name in serving.option_ids)
        ]
    )


@form_of.register
def _(content: Numeric, serving: Serving, words: Mapping[str, str], entered: Entered) -> Form:
    return Form(unit=content.answer.unit)


@form_of.register
def _(content: Match, serving: Serving, words: Mapping[str, str], entered: Entered) -> Form:
    targets = {
        target.id: markdown.plain(fill(target.text, words))
        for target in content.targets_shown(serving.option_ids)
    }
    return Form(
        rows=[
            _row(item.id, line(item.text, words), targets, entered)
            for item in content.items_shown(serving.option_ids)
        ]
    )


@form_of.register
def _(content: Order, serving: Serving, words: Mapping[str, str], entered: Entered) -> Form:
    places = {str(place): str(place) for place in range(1, len(content.steps) + 1)}
    return Form(
        rows=[
            _row(step.id, line(step.text, words), places, entered)
            for step in (content.step(name) for name in serving.option_ids)
        ]
    )


def _row(name: str, html: SafeString, choices: Mapping[str, str], entered: Entered) -> Row:
    values = {f"{name}:{choice}": words for choice, words in choices.items()}
    return Row(
        id=name,
        html=html,
        entries=[
            Entry(value=value, words=words, chosen=value in entered.chosen) for value, words in values.items()
        ],
        open=name in entered.left_open,
    )


# --- after the answer ---------------------------------------------------------------------------------


@singledispatch
def judged(content: object, given: Given) -> Judged:
    """Why the answer is right or wrong, as far as it depends on the kind."""
    raise TypeError(f"answers to {type(content).__name__} are not explained")


@judged.register
def _(content: Choice, given: Given) -> Judged:
    serving, chosen = given.serving, given.response.chosen_option_ids
    options = [
        JudgedOption(
            html=markdown.render_inline(option_text(option, serving.params, given.words), strict=False),
            chosen=option.id in chosen,
            right=option.credit == 1,
            feedback=given.html(option.feedback),
            belief=given.belief(option.misconception),
        )
        for option in (content.option(name) for name in serving.option_ids)
    ]
    # What was chosen, then what is right, then the others as they stood.
    options.sort(key=lambda option: (not option.chosen, not option.right))
    return Judged(miss="Not this one.", options=options)


@judged.register
def _(content: Numeric, given: Given) -> Judged:
    response, drawn = given.response, given.serving.params
    model = (
        content.model_of(response.parsed_value, drawn)
        if response.parsed_value is not None and not response.right
        else None
    )
    unknown = "" if response.right else "None of the usual slips gives this number. Compare the steps below."
    names = numbers(drawn)
    return Judged(
        miss="Not this number.",
        note=given.html(model.feedback if model else unknown),
        typed=response.raw_answer_text,
        understood=_understood(content, response),
        correct=given.words["answer"],
        slips=[
            Slip(
                value=display(evaluate(wrong.calc, names), content.answer.unit),
                belief=given.belief(wrong.misconception),
                feedback=given.html(wrong.feedback),
                chosen=wrong is model,
            )
            for wrong in content.wrong
        ],
    )


def _understood(content: Numeric, response: Response) -> str:
    """The number as it was read, where that is not how it was typed."""
    if response.parsed_value is None:
        return ""
    shown = display(response.parsed_value, content.answer.unit)
    typed = response.raw_answer_text.strip()
    return "" if typed in (shown, display(response.parsed_value)) else shown


@judged.register
def _(content: Match, given: Given) -> Judged:
    chosen = content.pairs(given.response.chosen_option_ids)
    pairs = []
    for item in content.items_shown(given.serving.option_ids):
        target = chosen[item.id]
        mistake = item.mistake(target)
        pairs.append(
            JudgedPair(
                html=given.line(item.text),
                given=given.line(content.target(target).text),
                key=given.line(content.target(item.target).text),
                right=target == item.target,
                mistake=given.html(mistake.feedback if mistake else ""),
                belief=given.other_belief(mistake.misconception if mistake else None),
                feedback=given.html(item.feedback),
            )
        )
    return Judged(miss="None of these matches.", pairs=pairs)


@judged.register
def _(content: Order, given: Given) -> Judged:
    order, key = given.response.chosen_option_ids, content.key
    in_place = {step_id: step_id == right for step_id, right in zip(order, key, strict=True)}
    broken = content.broken(order)
    unknown = "" if given.response.right or broken else "None of the usual mix-ups. Compare the two orders."

    def placed(step_id: str) -> PlacedStep:
        step = content.step(step_id)
        return PlacedStep(
            html=given.line(step.text), in_place=in_place[step_id], feedback=given.html(step.feedback)
        )

    return Judged(
        miss="Not this order.",
        note=given.html(unknown),
        order=JudgedOrder(
            given=[placed(step_id) for step_id in order],
            key=[placed(step_id) for step_id in key],
            broken=[
                BrokenRule(
                    before=given.line(content.step(rule.before).text),
                    after=given.line(content.step(rule.after).text),
                    feedback=given.html(rule.feedback),
                    belief=given.other_belief(rule.misconception),
                )
                for rule in broken
            ],
        ),
    )
