"""What every calculator page is: sizes on the left, what follows from them on the right, and the ways on from there.

A page is a module or a package of `calculators/pages`: its form (an `AddressForm`, so that every state is an
address), its answer (an `Answer` with whatever else the page shows), and one `Calculator` that names both, listed in
`calculators/pages/__init__.py`. A package has them in `form` and `page`, and what the page says in files of one
subject. `show` serves it. Its template `calculators/NAME.html` extends `calculators/_workbench.html`, lays out the
fields, and places the pieces of the answer in a partial named `result`: `_problems.html`, `_run_it.html`,
`_python.html`, and the `html` of charts, tables and formulas, which are written without a template.

What few look at is a part: a closed `<details>` (`_part.html`) whose content htmx fetches when it opens. The
`Calculator` lists it, a partial of its name in the page's template shows it, and the answer calculates it when that
asks (a `cached_property`).
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache
from typing import Any

from django.http import HttpResponse
from django.template.loader import get_template
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe
from django_htmx.http import replace_url

from calculators.fields import AddressForm, ModelField, offer_given_model, query_of
from calculators.figures import Figure
from calculators.lab.spec import Job, Spec
from calculators.mathml import mathml
from calculators.predict.traffic import Formula
from calculators.tables import Row as Row
from calculators.tables import Table as Table
from calculators.trials import Trial
from tutor.htmx import HtmxHttpRequest, render_page


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A figure, what it shows in a sentence, and the table of the same numbers; `name` is one word, its own here."""

    name: str
    figure: Figure
    caption: str
    table: Table

    @property
    def html(self) -> SafeString:
        """All of it; static/charts.js draws the figure."""
        return format_html(
            '<figure data-chart="{}"><div class="plot" id="{}-plot" hx-preserve="true"></div>'
            '<script id="{}-figure" type="application/json">{}</script><figcaption>{}</figcaption>{}</figure>',
            self.name,
            self.name,
            self.name,
            self._json,
            self.caption,
            self.table.html,
        )

    @property
    def _json(self) -> SafeString:
        """As Django's json_script, which takes five times as long for as much text."""
        text = json.dumps(self.figure).replace("<", "\\u003C").replace(">", "\\u003E").replace("&", "\\u0026")
        return mark_safe(text)  # noqa: S308 no < is left in it


@dataclass(frozen=True, kw_only=True)
class ShownFormula:
    """A formula ready for a page: what it gives, in symbols, with the numbers, and what the letters mean."""

    gives: str
    symbols: SafeString
    numbers: SafeString
    legend: tuple[tuple[SafeString, str], ...]

    @cached_property
    def html(self) -> SafeString:
        """All of it, written without a template for each letter."""
        return format_html(
            '<p class="gives">{}</p><div class="math-block" tabindex="0">{}</div>'
            '<div class="math-block" tabindex="0">{}</div><p class="help">{}</p>',
            self.gives,
            self.symbols,
            self.numbers,
            format_html_join(" · ", "{} {}", self.legend),
        )


@dataclass(frozen=True, kw_only=True)
class RunIt:
    """A way to a run that measures this: the button, where it leads, what is kept and what had to differ."""

    label: str
    address: str
    kept: str
    differences: tuple[str, ...] = ()
    family: str = ""


@dataclass(frozen=True, kw_only=True)
class Change:
    """Another state of the page: what it changes, and its address."""

    says: str
    address: str


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What every page shows of a calculation. A page's own answer adds to it.

    explains   gives the formulas with the numbers in them, when they are asked for
    """

    charts: tuple[Chart, ...] = ()
    explains: Callable[[], Sequence[Formula]] = tuple
    python: str = ""
    runs: tuple[RunIt, ...] = ()

    @cached_property
    def formulas(self) -> tuple[ShownFormula, ...]:
        """What it explains, ready for the page."""
        return shown(self.explains())


@dataclass(frozen=True, kw_only=True)
class Preset:
    """A state worth a look: its name, and its address behind the `?`."""

    label: str
    query: str


@dataclass(frozen=True, kw_only=True)
class LessonLink:
    """Where the words behind the numbers are explained."""

    slug: str
    title: str

    @property
    def address(self) -> str:
        return view_address("lessons:lesson", self.slug)


FORMULAS = {"formulas": "Why these numbers"}
"""The part that most pages have."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """A part as the page shows it: whether it is open, the partial that it then shows, the address that opens it."""

    name: str
    title: str
    is_open: bool
    template: str
    address: str


@dataclass(frozen=True, kw_only=True)
class Calculator:
    """One page: its name (in its address and of its template), what it is for, and how it answers.

    answer    the form when it is valid → an `Answer`; a ValueError that it raises is shown as it is
    parts     name → title of what is calculated when it is opened; the address asks for it by `part=NAME`
    """

    name: str
    title: str
    asks: str
    form: type[AddressForm]
    answer: Callable[[Any], Answer]
    presets: tuple[Preset, ...] = ()
    lessons: tuple[LessonLink, ...] = ()
    parts: Mapping[str, str] = field(default_factory=FORMULAS.copy)
    draws: bool = True

    @property
    def address(self) -> str:
        """Its address, without a state."""
        return view_address(f"calculators:{self.name}")

    @property
    def template(self) -> str:
        """The template of its name."""
        return f"calculators/{self.name.replace('-', '_')}.html"

    def at(self, query: str) -> str:
        """Its address in the state that `query` says."""
        return f"{self.address}?{query}" if query else self.address

    def parts_at(self, query: str, opened: Iterable[str]) -> dict[str, Part]:
        """Its parts in that state."""
        return {
            name: Part(
                name=name,
                title=title,
                is_open=name in opened,
                template=f"{self.template}#{name}",
                address=self.at("&".join(filter(None, (query, f"part={name}")))),
            )
            for name, title in self.parts.items()
        }


def show(request: HtmxHttpRequest, calculator: Calculator, **more: object) -> HttpResponse:
    """The page, or what htmx is to swap, its result or one part; the address follows the state.

    `more` joins the context.
    """
    state, opened = request.GET.dict(), request.GET.getlist("part")
    if calculator.parts.keys() >= set(opened):
        state.pop("part", None)
    form = calculator.form(state)
    if isinstance(form.fields.get("model"), ModelField):
        offer_given_model(form)
    answer, problem = None, ""
    if form.is_valid():
        try:
            answer = calculator.answer(form)
        except ValueError as error:
            problem = str(error)
    query = form.address if form.is_valid() else ""
    address = calculator.address
    context = {
        "calculator": calculator,
        "address": address,
        "form": form,
        "answer": answer,
        "problem": problem,
        "query": query,
        "parts": calculator.parts_at(query, opened),
        "presets": tuple(
            (f"{address}?{preset.query}" if preset.query else address, preset.label, preset.query == query)
            for preset in calculator.presets
        ),
        **more,
    }
    target = request.htmx.target
    fragment = target if target in calculator.parts else "result"
    response = render_page(request, calculator.template, context, fragment=fragment)
    if form.is_valid():
        replace_url(response, calculator.at(query))
    return response


def warm_up(calculators: Iterable[Calculator]) -> None:
    """Answer each once and read its template, so that the first person to ask does not wait for that."""
    for calculator in calculators:
        form = calculator.form({})
        if form.is_valid():
            calculator.answer(form)
        get_template(calculator.template)


def shown(formulas: Sequence[Formula]) -> tuple[ShownFormula, ...]:
    """Formulas of `calculators.predict`, ready for a page."""
    return tuple(_shown(formula) for formula in formulas)


@lru_cache(maxsize=512)
def _shown(formula: Formula) -> ShownFormula:
    return ShownFormula(
        gives=formula.gives,
        symbols=mathml(formula.symbols, display=True),
        numbers=mathml(formula.numbers, display=True),
        legend=tuple((mathml(symbol), meaning) for symbol, meaning in formula.legend),
    )


def run_it(
    found: Trial | None, *, label: str, family: str, back: str, address: str = ""
) -> tuple[RunIt, ...]:
    """The way to the run of a trial, none where nothing travels. `back` is the page's own address with its state.

    The run's page spells the spec out, unless `address` names another way to ask for it.
    """
    if found is None:
        return ()
    return (
        RunIt(
            label=label,
            address=address or run_address(found.spec, back=back),
            kept=found.kept,
            differences=found.differences,
            family=family,
        ),
    )


def run_address(spec: Spec, *, back: str) -> str:
    """The page that starts this very spec and knows the way back."""
    usual = _usual(spec.job)
    said = {name: value for name, value in spec.to_dict().items() if value != usual[name] or name == "job"}
    return f"{view_address('calculators:new-run')}?{query_of({'as': 'spec', **said, 'back': back})}"


@cache
def _usual(job: Job) -> Mapping[str, Any]:
    """What a spec of this job says where nothing was chosen."""
    return Spec(job=job).to_dict()


@cache  # a page asks for a dozen, and they are the same on every page
def view_address(view: str, *names: str) -> str:
    """Where a view is."""
    return reverse(view, args=names)
