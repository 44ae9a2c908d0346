"""The rules of which sizes go together, R1 to R19, as data: what was given, why it cannot work, the nearest that does.

    check(shape, layout, tokens=8192)    the rules that one layout breaks, each as a sentence
    remarks(shape, layout, …)            what is allowed and yet worth saying
    legal(case)                          which of many layouts break none, as one array
    sizes_that_work(shape, "tp")         every size of an axis
    RULES                                the table itself

R1 to R18 are the numbers of the catalogue in the documentation.
"""

from calculators.predict.rules.case import Case, Exchange, Mask
from calculators.predict.rules.checks import (
    Violation,
    check,
    legal,
    masks,
    nearest_sizes,
    remarks,
    sizes_that_work,
    violations,
)
from calculators.predict.rules.sizes import minimum_devices, padded_vocabulary
from calculators.predict.rules.table import BY_ID, RULES, Clause, Kind, Rule
from calculators.predict.rules.tools import TOOLS, Tool, tool

__all__ = [
    "BY_ID",
    "RULES",
    "TOOLS",
    "Case",
    "Clause",
    "Exchange",
    "Kind",
    "Mask",
    "Rule",
    "Tool",
    "Violation",
    "check",
    "legal",
    "masks",
    "minimum_devices",
    "nearest_sizes",
    "padded_vocabulary",
    "remarks",
    "sizes_that_work",
    "tool",
    "violations",
]
