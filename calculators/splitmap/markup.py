"""SVG as text: elements with escaped attributes, and text whose width is known well enough to fit a box."""

from __future__ import annotations

from html import escape

WIDEST_CHARACTER = 0.6  # em, on average in DejaVu Sans, the widest of the fonts a reader is likely to have


def tag(name: str, *children: str, **attributes: str | float) -> str:
    """One element. Children are markup already, attributes are escaped, `class_` becomes class, `data_at` data-at."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_number(value))}"'
        for key, value in attributes.items()
    )
    return f"<{name}{written}>{''.join(children)}</{name}>" if children else f"<{name}{written}/>"


def text(content: str, *, x: float, y: float, class_: str) -> str:
    """A line of text; the stylesheet sets its size and anchor by class."""
    return tag("text", escape(content), x=x, y=y, class_=class_)


def text_width(content: str, font_size: float) -> float:
    """About how wide a line is at most, in the units of the picture."""
    return len(content) * font_size * WIDEST_CHARACTER


def group(*children: str, class_: str, **attributes: str) -> str:
    """Elements that share a class."""
    return tag("g", *children, class_=class_, **attributes)


def _number(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:.2f}".rstrip("0").rstrip(".")
