"""`{% load units %}`: the filters of `calculators.units` for every template of the site."""

from django import template

from calculators import units

register = template.Library()

for _filter in (
    units.exact_bytes,
    units.iec_bytes,
    units.both_bytes,
    units.plain,
    units.signed,
    units.seconds,
    units.rate,
    units.percent,
    units.small,
    units.whole_percent,
    units.counted,
):
    register.filter(_filter.__name__, _filter)
