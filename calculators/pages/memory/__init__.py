"""The page *Memory*: what the fullest device of a layout holds, whether it fits, and what to change.

`form` reads the address into a case for the levers of `calculators.predict`; `page` puts together what the page says
of it.
"""

from calculators.pages.memory.page import MEMORY

__all__ = ["MEMORY"]
