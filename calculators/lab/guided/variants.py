"""Shorthand for an experiment's runs."""

from collections.abc import Mapping

from calculators.lab.guided.claims import Variant
from calculators.lab.spec import Spec


def variant(name: str, title: str, *given: Mapping[str, object]) -> Variant:
    """A run whose spec is all of `given` together, the later before the earlier."""
    merged: dict[str, object] = {}
    for part in given:
        merged |= part
    return Variant(name=name, title=title, spec=Spec.parse(merged))
