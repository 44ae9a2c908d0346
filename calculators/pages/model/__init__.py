"""The page *Model*: what a config.json says, how many parameters that makes, and how they can be split.

`form` reads the address, `page` puts together what the page says of a model, and `pasted` turns a config.json into
an address.
"""

from calculators.pages.model.page import MODEL

__all__ = ["MODEL"]
