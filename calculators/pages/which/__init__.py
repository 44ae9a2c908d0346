"""The page *Which split?*: questions in order, the technique they lead to, and why not the others.

`form` reads the address into facts, for the adviser of `calculators.predict`; `page` puts together what the page
says of its advice.
"""

from calculators.pages.which.page import WHICH

__all__ = ["WHICH"]
