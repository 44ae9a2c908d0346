"""Inputs and lists written straight into HTML: a form here has a dozen, and a template for each costs 0.3 ms."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from django import forms
from django.forms.utils import flatatt
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString


class TextInput(forms.TextInput):
    """An input for a line of text."""

    def render(
        self, name: str, value: Any, attrs: Mapping[str, Any] | None = None, renderer: Any = None
    ) -> SafeString:
        said = {"type": self.input_type, "name": name} | (
            {} if value in (None, "") else {"value": str(value)}
        )
        return format_html("<input{}>", flatatt(said | self.build_attrs(self.attrs, attrs)))


class Select(forms.Select):
    """A list to choose one from, in groups where its choices are."""

    def render(
        self, name: str, value: Any, attrs: Mapping[str, Any] | None = None, renderer: Any = None
    ) -> SafeString:
        inner = format_html_join(
            "", "{}", ((self._entry(key, text, str(value)),) for key, text in self.choices)
        )
        return format_html(
            "<select{}>{}</select>", flatatt({"name": name} | self.build_attrs(self.attrs, attrs)), inner
        )

    def _entry(self, key: Any, text: Any, chosen: str) -> SafeString:
        if isinstance(text, list | tuple):
            inner = format_html_join("", "{}", ((self._entry(*option, chosen),) for option in text))
            return format_html('<optgroup label="{}">{}</optgroup>', key, inner)
        return _option(str(key), text, str(key) == chosen)


@lru_cache(maxsize=4096)  # models, links and devices stand in every form
def _option(key: str, text: str, is_chosen: bool) -> SafeString:
    mark = {"selected": True} if is_chosen else {}
    return format_html("<option{}>{}</option>", flatatt({"value": key} | mark), text)
