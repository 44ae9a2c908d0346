"""Every legal layout of a model on a cluster, evaluated at once, and the best of them with the reason why.

A layout here is a value for each of ten axes: tp, cp, pp, ep and etp (dp follows: all devices take part), sequence
parallelism, chunks of layers a stage (vpp), sequences of a micro-batch, ZeRO stage, recomputation. The rules decide
which go together (`rules.legal`), `memory` and `timing` say what each costs. Nothing is sampled and nothing is skipped.

Axes that belong together vary along one dimension of the arrays and the others along one each, so what depends on few
of them is calculated once for all the rest; only sums and the results have a value for every layout. Work is done in
chunks: memory grows with the chunk, not with the space.
"""

from calculators.predict.planner.columns import AXES, COLUMNS, MEMORY_COLUMNS, TIME_COLUMNS, Evaluated
from calculators.predict.planner.evaluation import LAYOUTS_IN_A_CHUNK, evaluate
from calculators.predict.planner.kinds import Kind, OfAKind
from calculators.predict.planner.plans import Plan, plan
from calculators.predict.planner.reasons import why
from calculators.predict.planner.task import MOST_DEVICES, Space, Task, space_of

__all__ = [
    "AXES",
    "COLUMNS",
    "LAYOUTS_IN_A_CHUNK",
    "MEMORY_COLUMNS",
    "MOST_DEVICES",
    "TIME_COLUMNS",
    "Evaluated",
    "Kind",
    "OfAKind",
    "Plan",
    "Space",
    "Task",
    "evaluate",
    "plan",
    "space_of",
    "why",
]
