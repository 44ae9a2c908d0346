"""`{{ form.devices|labelled }}`: a field with its label, help and error, written without a template for each."""

from django import template
from django.forms import BoundField
from django.utils.html import conditional_escape, format_html
from django.utils.safestring import SafeString

register = template.Library()


@register.filter
def labelled(field: BoundField) -> SafeString:
    """The field as every form shows it. Its error stands in an element that is always there, for htmx to fill."""
    identity = field.id_for_label
    help_text = field.help_text
    return format_html(
        '<div class="field field-{}"><label for="{}">{}</label>{}{}'
        '<p class="error" id="{}_error" aria-live="polite">{}</p></div>',
        field.name,
        identity,
        field.label,
        field.as_widget(),
        format_html('<p class="help" id="{}_helptext">{}</p>', identity, help_text) if help_text else "",
        identity,
        " ".join(conditional_escape(error) for error in field.errors) if field.errors else "",
    )
