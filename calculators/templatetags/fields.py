"""`{{ form.devices|labelled }}`: a field with its label, help and error, written without a template for each."""

from functools import lru_cache

from django import template
from django.forms import BoundField
from django.utils.html import conditional_escape, format_html
from django.utils.safestring import SafeString, mark_safe

register = template.Library()


@register.filter
def labelled(field: BoundField) -> SafeString:
    """The field as every form shows it. Its error stands in an element that is always there, for htmx to fill."""
    opening, closing, described = _around(field.name, field.id_for_label, field.label, field.help_text)
    shown = field.as_widget(attrs={"aria-describedby": described})
    errors = " ".join(conditional_escape(error) for error in field.errors)
    return mark_safe(f"{opening}{shown}{closing}{errors}</p></div>")  # noqa: S308 parts that are escaped


@lru_cache(maxsize=512)  # of the site's own forms, whoever asks
def _around(name: str, identity: str, label: str, help_text: str) -> tuple[SafeString, SafeString, str]:
    """What stands before the input, what between it and its error, and the ids of what describes it."""
    helped = format_html('<p class="help" id="{}_helptext">{}</p>', identity, help_text) if help_text else ""
    return (
        format_html('<div class="field field-{}"><label for="{}">{}</label>', name, identity, label),
        format_html('{}<p class="error" id="{}_error" aria-live="polite">', helped, identity),
        f"{identity}_helptext {identity}_error" if help_text else f"{identity}_error",
    )
