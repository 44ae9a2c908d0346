"""The page *Link speed*: how fast a split can write over every link, and which link a wanted speed needs.

`form` reads the address into a `case`; a `split` is what one family makes of it; `page` puts both together.
"""

from calculators.pages.link_speed.page import LINK_SPEED

__all__ = ["LINK_SPEED"]
