"""`{% load maps %}`: the address of a step of a split map."""

from django import template

from calculators.forms import SplitMapForm

register = template.Library()


@register.filter
def step_address(number: int, form: SplitMapForm) -> str:
    """The address that shows the form's layout at this step."""
    return form.address_with(step=str(number))
