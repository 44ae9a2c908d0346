"""`{% load runs %}`: what a line of a list says of a spec."""

from django import template

from calculators.runs.words import brief_of

register = template.Library()
register.filter("brief", brief_of)
