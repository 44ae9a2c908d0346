"""The page *Planner*: every legal layout of a model on a cluster, the best of them, and why not the others.

`form` reads the address into a task for the planner of `calculators.predict`; `page` puts together what the page says
of its plan.
"""

from calculators.pages.planner.page import PLANNER

__all__ = ["PLANNER"]
