"""`{% kept %}…{% endkept %}`: a part of a template that is the same in every answer, rendered once in a process.

`{% kept theme %}` keeps one for each value. It is for what has a few values: all of them stay in memory.
"""

from collections.abc import Sequence
from typing import Any

from django import template
from django.template.base import FilterExpression, NodeList, Parser, Token
from django.template.context import Context

register = template.Library()


class Kept(template.Node):
    """What it renders depends on nothing but `values`."""

    def __init__(self, nodelist: NodeList, values: Sequence[FilterExpression]) -> None:
        self.nodelist, self.values = nodelist, values
        self.known: dict[tuple[Any, ...], str] = {}

    def render(self, context: Context) -> str:
        key = tuple(value.resolve(context) for value in self.values)
        if key not in self.known:
            self.known[key] = self.nodelist.render(context)
        return self.known[key]


@register.tag
def kept(parser: Parser, token: Token) -> Kept:
    """The tag: the values that make a difference stand behind its name."""
    values = [parser.compile_filter(bit) for bit in token.split_contents()[1:]]
    nodelist = parser.parse(("endkept",))
    parser.delete_first_token()
    return Kept(nodelist, values)
