"""The page *One layout*: the rules it keeps, what it moves and where, what a step waits for, what a device holds.

`form` reads the address into a `case`; `page` puts together what the page says of it. `words` and the page's address
are there for the planner, too, whose layouts lead here.
"""

from calculators.pages.layout.page import LAYOUT

__all__ = ["LAYOUT"]
