"""The page *Pipeline*: who works when, how long stages wait, and what they hold meanwhile.

`form` reads the address into a `case`; `page` puts together what the page says of it.
"""

from calculators.pages.pipeline.page import PIPELINE

__all__ = ["PIPELINE"]
