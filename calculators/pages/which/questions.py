"""The questions of the page *Which split?*: those that were answered, and the one to ask next."""

from dataclasses import dataclass
from typing import Any

from django.utils.html import format_html_join
from django.utils.safestring import SafeString, mark_safe
from django.utils.text import slugify

from calculators.fields import AddressForm, Choice
from calculators.predict.advisor import QUESTIONS, Advice, Facts, Finding, Question, Technique, ask_next

NOT_KNOWN = ("", "Not known")
BOTH = "layer,stack"


@dataclass(frozen=True, kw_only=True)
class Option:
    """One answer to a question, as a radio button."""

    value: str
    words: str
    is_chosen: bool


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A question on the page: answered already, or asked now."""

    question: Question
    options: tuple[Option, ...]

    @property
    def name(self) -> str:
        """The id of its element."""
        return f"ask-{self.question.fact}"

    @property
    def picks(self) -> SafeString:
        """The radio buttons with their labels."""
        return format_html_join(
            "",
            '<label class="pick{0}" for="id_{1}_{2}"><input type="radio" name="{1}" id="id_{1}_{2}" value="{3}"{4}> '
            "{5}</label>",
            (
                (
                    "" if option.value else " unknown",
                    self.question.fact,
                    slugify(option.value or "unknown"),
                    option.value,
                    mark_safe(" checked") if option.is_chosen else "",
                    option.words,
                )
                for option in self.options
            ),
        )

    @property
    def chosen(self) -> str:
        """The answer that was given."""
        return next(option.words for option in self.options if option.is_chosen)

    @property
    def is_answered(self) -> bool:
        return any(option.is_chosen and option.value for option in self.options)


def asked(form: AddressForm, facts: Facts, advice: Advice) -> tuple[Asked, ...]:
    """Questions answered so far, and the next; once it is decided, all whose answer would change that."""
    left = () if advice.finding is Finding.RULE else ask_next(facts)
    if advice.technique is Technique.ASK_MORE:
        left = left[:1]
    now = {question.fact for question in left} | {"phase"}
    return tuple(
        Asked(question=question, options=options_of(form, question))
        for question in QUESTIONS
        if question.fact in now or form[question.fact].value()
    )


def options_of(form: AddressForm, question: Question) -> tuple[Option, ...]:
    """What can be answered to a question, and what the form already has for it."""
    chosen = str(form[question.fact].value() or "")
    offered = [(_said(value), words) for value, words in question.choices]
    if question.fact == "overflow":
        offered.append((BOTH, "layers, too wide and too many"))
    if chosen and chosen not in dict(offered):
        field = form.fields[question.fact]
        words = dict(field.choices).get(chosen, chosen) if isinstance(field, Choice) else chosen
        offered.append((chosen, words))
    return tuple(
        Option(value=value, words=words[0].upper() + words[1:], is_chosen=value == chosen)
        for value, words in (*offered, NOT_KNOWN)
    )


def _said(value: Any) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
