"""Guided experiments: the claims of the lessons, each with the runs that test it and a judge that reads them."""

from calculators.lab.guided import (
    composed,
    context,
    data,
    expert,
    ladder,
    pipeline,
    sequence,
    serving,
    sharded,
    tensor,
)
from calculators.lab.guided.claims import Guided as Guided
from calculators.lab.guided.claims import Outcome as Outcome
from calculators.lab.guided.claims import Verdict as Verdict
from calculators.lab.problems import Problem, SpecError

_MODULES = (data, sharded, tensor, pipeline, serving, sequence, context, expert, composed, ladder)

GUIDED: dict[str, Guided] = {one.name: one for module in _MODULES for one in module.EXPERIMENTS}
"""Every guided experiment by its name, in the order of the lessons."""


def guided(name: str) -> Guided:
    """The guided experiment of this name; `SpecError` names those there are."""
    if name not in GUIDED:
        message = f"There is no guided experiment “{name}”. There are {', '.join(GUIDED)}."
        raise SpecError([Problem("experiment", message)])
    return GUIDED[name]
