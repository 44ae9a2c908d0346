"""TeX to MathML for pages: the formulas that this project writes itself."""

from functools import lru_cache

from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe
from math_core import LatexError, LatexToMathML

_CONVERTER = LatexToMathML(annotation=True, fancy_error=False)


@lru_cache(maxsize=512)
def mathml(tex: str, *, display: bool = False) -> SafeString:
    """A formula as MathML; one that does not convert is shown as it was typed, never dropped.

    math-core escapes what it does not know, so its output is safe as it is.
    """
    try:
        return mark_safe(_CONVERTER.convert_with_local_state(tex, displaystyle=display))  # noqa: S308
    except LatexError:
        return format_html("<code>{}</code>", tex)
