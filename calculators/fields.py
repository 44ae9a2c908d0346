"""What a calculator's form is made of: numbers, choices and models, each with errors in whole sentences.

An `AddressForm` is a form whose state is an address, so every state of a calculator can be linked to.
"""

import copy
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, Self
from urllib.parse import quote_plus

from django import forms
from django.http import QueryDict

from calculators.predict.models.catalogue import MODELS, Model
from calculators.predict.shapes import ModelShape, Phase
from calculators.widgets import Select, TextInput, alike

_GROUPED = re.compile(r"\d{1,3}(,\d{3})+", re.ASCII)
_GROUPED_DECIMAL = re.compile(r"\d{1,3}(,\d{3})+(\.\d*)?", re.ASCII)
_DECIMAL = re.compile(r"-?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,4})?", re.ASCII)


class Copied:
    """A field that is copied for each form as cheaply as can be: its widget, and nothing else that is ever changed."""

    widget: Any

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        copied = alike(self)
        copied.widget = copy.deepcopy(self.widget, memo)
        return copied


class WholeNumber(Copied, forms.CharField):
    """A whole number in words of its own: plain digits, or grouped by commas as this site prints them."""

    widget = TextInput

    def __init__(self, *, low: int, high: int, instead: str = "", **kwargs: Any) -> None:
        self.low, self.high, self.instead = low, high, instead
        super().__init__(required=False, **kwargs)
        self.widget.attrs |= {"inputmode": "numeric", "autocomplete": "off", "size": "8"}

    def clean(self, value: object) -> int | None:
        text = str(value or "").strip()
        wanted = f"a whole number from {self.low:,} to {self.high:,}"
        if not text:
            if self.instead:
                return None
            raise forms.ValidationError(f"{self.label} is empty. Give {wanted}.", code="empty")
        digits = text.replace(",", "") if _GROUPED.fullmatch(text) else text
        if not (digits.isascii() and digits.isdigit()):
            raise forms.ValidationError(
                f"{self.label} is “{short(text)}”, but it must be {wanted}.", code="kind"
            )
        if len(digits.lstrip("0")) > len(str(self.high)) or int(digits) > self.high:
            raise forms.ValidationError(
                f"{self.label} is {short(text)}, but this page stops at {self.high:,}.", code="high"
            )
        if int(digits) < self.low:
            raise forms.ValidationError(
                f"{self.label} is {short(text)}, but the least that works is {self.low:,}.", code="low"
            )
        return int(digits)


class Decimal(Copied, forms.CharField):
    """A number that may have a fraction, in plain or scientific notation: 2.5, 1e-6, 12,500."""

    widget = TextInput

    def __init__(self, *, low: float, high: float, instead: str = "", **kwargs: Any) -> None:
        self.low, self.high, self.instead = low, high, instead
        super().__init__(required=False, **kwargs)
        self.widget.attrs |= {"inputmode": "decimal", "autocomplete": "off", "size": "8"}

    def clean(self, value: object) -> float | None:
        text = str(value or "").strip()
        wanted = f"a number from {self.low:g} to {self.high:g}"
        if not text:
            if self.instead:
                return None
            raise forms.ValidationError(f"{self.label} is empty. Give {wanted}.", code="empty")
        number = _number(text)
        if number is None:
            raise forms.ValidationError(
                f"{self.label} is “{short(text)}”, but it must be {wanted}.", code="kind"
            )
        if not self.low <= number <= self.high:
            raise forms.ValidationError(
                f"{self.label} is {short(text)}, but this page takes {self.low:g} to {self.high:g}.",
                code="range",
            )
        return number


class _Chosen(Copied, forms.ChoiceField):
    """A choice whose list all forms share: one that offers more assigns another list."""

    widget = Select


class Choice(_Chosen):
    """One of a few; any other value is named in the error."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)

    def validate(self, value: str) -> None:
        if not self.valid_value(value):
            known = ", ".join(f"“{key}”" for key in _keys(self.choices))
            raise forms.ValidationError(
                f"{self.label} is “{short(value)}”, but it must be one of {known}.", code="choice"
            )


class AddressForm(forms.Form):
    """A form whose state is an address: what that leaves out has its default, so every address shows something."""

    DEFAULTS: Mapping[str, str] = {}

    def __init__(
        self,
        given: QueryDict | Mapping[str, str],
        *,
        prefix: str | None = None,
        defaults: Mapping[str, str] | None = None,
    ) -> None:
        self.defaults = {**self.DEFAULTS, **(defaults or {})}
        said = {key: given.get(key, "") for key in given}
        unsaid = {f"{prefix}-{name}" if prefix else name: value for name, value in self.defaults.items()}
        super().__init__({**unsaid, **said}, prefix=prefix)
        # A form with a prefix shares its address with a whole page, which may say what it likes.
        self.unknown = [] if prefix else sorted(set(said) - set(self.fields))

    @property
    def address(self) -> str:
        """The query that shows this state again, without what is the default."""
        return self._query(self._said)

    def address_with(self, **changes: str) -> str:
        """The relative address of this state with some values changed."""
        return f"?{self._query(self._said | changes)}"

    @cached_property
    def _said(self) -> dict[str, str]:
        """The state in the words of an address; a page has a dozen addresses that differ from it in a few."""
        said = {}
        for name, value in self.cleaned_data.items():
            field = self.fields.get(name)
            if isinstance(field, ModelField) and value is not None:
                said[name] = field.said(value)
            elif value is not None:
                said[name] = f"{value:.12g}" if isinstance(value, float) else str(value)  # 10, not 10.0
        return said

    def _query(self, said: Mapping[str, str]) -> str:
        usual = self.DEFAULTS
        return query_of({name: text for name, text in said.items() if text != usual.get(name, "")})

    @property
    def unknown_sentence(self) -> str:
        """What the address says that this page does not know; empty when it knows all."""
        if not self.unknown:
            return ""
        listed = ", ".join(f"“{short(name)}”" for name in self.unknown[:5])
        more = f" and {len(self.unknown) - 5} more" if len(self.unknown) > 5 else ""
        return f"The address also says {listed}{more}, which this page does not know; it was left out."


class ModelField(_Chosen):
    """A model: one of the catalogue by its key, or any other by its code (`calculators.predict.models.codes`).

    Cleans to a `ModelShape`; the code of a model that was pasted joins the list that the page shows.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(choices=_grouped(MODELS.values()), label=kwargs.pop("label", "Model"), **kwargs)

    @staticmethod
    def said(shape: ModelShape) -> str:
        """The key or the code that cleans to `shape`."""
        return model_key(shape)

    def clean(self, value: object) -> ModelShape:
        key = str(value or "").strip()
        if key in MODELS:
            return MODELS[key].shape
        try:
            return _shape_of(key)
        except ValueError as error:
            known = ", ".join(f"“{name}”" for name in _keys(self.choices))
            raise forms.ValidationError(
                f"{self.label} is “{short(key)}”, but it must be one of {known}, or the code of a model. {error}",
                code="choice",
            ) from None


def phase_field() -> Choice:
    """Decode, prefill or training."""
    return Choice(
        label="Phase",
        choices=[
            (Phase.DECODE.value, "decode: one token at a time"),
            (Phase.PREFILL.value, "prefill: reading a prompt"),
            (Phase.TRAINING.value, "training: forward and backward"),
        ],
    )


def offer_given_model(form: forms.Form, name: str = "model") -> None:
    """Put the model that the address names by its code into the list of its field, so that the page shows it chosen."""
    given = str(form[name].value() or "")
    if given in MODELS:
        return
    try:
        shape = _shape_of(given)
    except ValueError:
        return
    field = form.fields[name]
    field.choices = [(given, f"{shape.name} (yours)"), *field.choices]


def query_of(state: Mapping[str, object]) -> str:
    """A state as an address says it: `urlencode`, which takes its time over what needs no quoting, as most do."""
    said = ((name, str(value)) for name, value in state.items())
    return "&".join(
        f"{name}={text if text.isascii() and text.isalnum() else quote_plus(text)}" for name, text in said
    )


def model_key(shape: ModelShape) -> str:
    """How an address names this model: its key in the catalogue, or else its code."""
    key = _KEYS.get(shape)
    if key is not None:
        return key
    from calculators.predict.models.codes import code_of

    return code_of(shape)


_KEYS = {model.shape: key for key, model in reversed(MODELS.items())}


def _keys(choices: Iterable[tuple[Any, Any]]) -> Iterator[str]:
    """The values that can be chosen, those of groups included."""
    for key, text in choices:
        if isinstance(text, list | tuple):
            yield from _keys(text)
        elif key:
            yield key


def _grouped(models: Iterable[Model]) -> list[tuple[str, list[tuple[str, str]]]]:
    """Dense models, then those with experts."""
    dense, sparse = [], []
    for model in models:
        (sparse if model.shape.is_sparse else dense).append((model.key, model.shape.name))
    groups = (("Dense", dense), ("With experts", sparse))
    return [(name, members) for name, members in groups if members]


def _shape_of(code: str) -> ModelShape:
    from calculators.predict.models.codes import shape_of

    return shape_of(code)


def short(text: str) -> str:
    """A given value as an error repeats it: never at length."""
    return text if len(text) <= 40 else f"{text[:40]}…"


def _number(text: str) -> float | None:
    digits = text.replace(",", "") if _GROUPED_DECIMAL.fullmatch(text) else text
    if not _DECIMAL.fullmatch(digits):
        return None
    number = float(digits)
    return number if math.isfinite(number) else None
