"""The calculator pages, a module or a package each, in the order that the index shows them.

A new page adds its own here and a template of its name; its address and its card follow.
"""

from calculators.pages.experts import EXPERTS
from calculators.pages.layout import LAYOUT
from calculators.pages.link_speed import LINK_SPEED
from calculators.pages.memory import MEMORY
from calculators.pages.model import MODEL
from calculators.pages.pipeline import PIPELINE
from calculators.pages.planner import PLANNER
from calculators.pages.traffic import TRAFFIC
from calculators.pages.which import WHICH
from calculators.workbench import Calculator

CALCULATORS: tuple[Calculator, ...] = (
    TRAFFIC,
    MEMORY,
    LINK_SPEED,
    PIPELINE,
    EXPERTS,
    PLANNER,
    LAYOUT,
    WHICH,
    MODEL,
)
