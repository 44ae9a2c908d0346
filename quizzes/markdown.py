"""Markdown of packs and lessons to safe HTML: math as MathML, cues as marks, nothing that can run.

    render("The ring sends $\\frac{2(n-1)}{n}S$ bytes.")        -> SafeString
    render("It has [[no NVLink]]{cue=slow-link}.", cues=True)    -> words lit as <mark>
    problems(text)                                               -> every formula that cannot be read
    parser(cues=False)  +  clean(html)                           -> the two halves, to build on

The order is fixed: CommonMark without raw HTML, formulas converted by math-core, and nh3 last over the
whole result with the lists at the end of this file.
"""

import re
from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from html import escape
from typing import Any

import nh3
from django.utils.safestring import SafeString, mark_safe
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererProtocol
from markdown_it.rules_core import StateCore
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token
from markdown_it.utils import OptionsDict
from math_core import LatexError, LatexToMathML
from mdit_py_plugins.dollarmath import dollarmath_plugin


class MathError(ValueError):
    """A formula that cannot be read; `line` counts from 1 in the text given."""

    def __init__(self, message: str, *, line: int) -> None:
        super().__init__(message)
        self.line = line


@dataclass(frozen=True, kw_only=True)
class Cue:
    """Words of a scenario that decide it, and the reason or the name of the reason its author gave."""

    words: str
    reason: str
    line: int


@lru_cache(maxsize=4096)
def render(text: str, *, cues: bool = False, strict: bool = True) -> SafeString:
    """`text` as HTML that is safe to put into a page.

    With `cues` the marked words are lit and numbered in the order of `cues_of`; without, nothing of the
    marks is left. A formula that cannot be read raises MathError, or with `strict=False` is shown as typed.

    >>> render("It costs $3 and $2.")
    '<p>It costs $3 and $2.</p>\\n'
    """
    return clean(parser(cues=cues).render(text, {"strict": strict}))


@lru_cache(maxsize=4096)
def render_inline(text: str, *, cues: bool = False, strict: bool = True) -> SafeString:
    """Like `render` for one line (an option, a title): no paragraph around it."""
    return clean(parser(cues=cues).renderInline(text, {"strict": strict}))


def problems(text: str) -> list[MathError]:
    """Every formula of `text` that cannot be read, in order."""
    if "$" not in text:
        return []
    environment: dict[str, Any] = {"strict": False, "problems": []}
    parser(cues=False).parse(text, environment)
    return list(environment["problems"])


def cues_of(text: str) -> list[Cue]:
    """The cues of `text` in order.

    >>> [(cue.words, cue.reason) for cue in cues_of("Two boxes, [[1 Gbit/s]]{cue=slow-link} apart.")]
    [('1 Gbit/s', 'slow-link')]
    """
    found: list[Cue] = []
    if "[[" not in text:
        return found
    for block in parser(cues=True).parse(text, {"strict": False}):
        for index, token in enumerate(block.children or []):
            if token.type == "cue_open":
                words = _text_until(block.children or [], index, "cue_close")
                found.append(Cue(words=words, reason=token.meta["reason"], line=token.meta["line"]))
    return found


def plain(text: str) -> str:
    """The words of `text` without any markup, for comparing and for labels."""
    words = []
    for block in parser(cues=False).parse(text, {"strict": False}):
        if block.type in ("fence", "code_block", "math_block"):
            words.append(block.content)
        words.extend(_words(child) for child in block.children or [])
        words.append(" ")
    return " ".join("".join(words).split())


def parser(*, cues: bool = False) -> MarkdownIt:
    """The shared CommonMark parser with tables, math and cues; to extend it, take a `fresh_parser`."""
    return _shared_parser(cues)


def fresh_parser(*, cues: bool = False) -> MarkdownIt:
    """A parser of your own, for a caller that adds rules (lessons do). Pass its HTML through `clean`."""
    markdown = MarkdownIt("commonmark", {"html": False, "typographer": False}).enable("table")
    dollarmath_plugin(markdown, allow_space=False, allow_digits=False, allow_labels=False)
    markdown.inline.ruler.before("math_inline", "money", _money_rule)
    markdown.inline.ruler.before("link", "cue", _cue_rule)
    markdown.core.ruler.push("math", _convert_math)
    markdown.core.ruler.push("align", _align_by_class)
    markdown.add_render_rule("math_inline", _show_inline_math)
    markdown.add_render_rule("math_block", _show_block_math)
    markdown.add_render_rule("cue_open", _open_mark if cues else _show_nothing)
    markdown.add_render_rule("cue_close", _close_mark if cues else _show_nothing)
    return markdown


def clean(html: str, *, ids: bool = False) -> SafeString:
    """`html` with everything removed that is not on the lists below. Always the last step.

    `ids` keeps id attributes, for headings that our own lessons link to; packs from others get none.
    """
    attributes = _ATTRIBUTES | {"*": {"class", "id"} if ids else {"class"}}
    return mark_safe(  # noqa: S308 - nh3 has just cleaned it
        nh3.clean(html, tags=_TAGS, attributes=attributes, url_schemes={"http", "https", "mailto"})
    )


def mathml(tex: str, *, display: bool = False) -> str:
    """One formula as MathML without inline styles (our content policy forbids them). Raises MathError."""
    try:
        converted: str = _tex().convert_with_local_state(tex, displaystyle=display)
    except LatexError as error:
        position, _, reason = str(error).partition(": ")
        place = f" (at character {int(position) + 1})" if position.isdigit() else ""
        shown = tex if len(tex) <= 60 else f"{tex[:57]}…"
        raise MathError(f"The formula ${shown}$ cannot be read{place}: {reason or error}", line=1) from None
    return _STYLE.sub(lambda found: _classes(tex, found["style"]), converted)


# --- formulas ----------------------------------------------------------------------------------------

_STYLE = re.compile(r'\sstyle="(?P<style>[^"]*)"')
# The handful of styles math-core writes, each as a class of static/math.css.
_STYLE_CLASSES = {
    "text-align:left": "m-left",
    "text-align:right": "m-right",
    "justify-items:start": "",
    "justify-items:end": "",
    "padding-left:0": "m-tight-start",
    "padding-right:0": "m-tight-end",
    "padding-left:1em": "m-gap",
    "padding-right:0.1667em": "m-thin-end",
    "margin-left:-0.16666667em": "m-back",
    "border-top:0.05em solid currentcolor": "m-line-top",
    "border-bottom:0.05em solid currentcolor": "m-line-bottom",
    "border-left:0.05em solid currentcolor": "m-line-left",
    "border-right:0.05em solid currentcolor": "m-line-right",
}


def _classes(tex: str, style: str) -> str:
    names = []
    for declaration in filter(None, (part.strip() for part in style.split(";"))):
        key = re.sub(r":\s+", ":", declaration)
        if key not in _STYLE_CLASSES:
            raise MathError(
                f"The formula ${tex}$ asks for a layout that a page cannot show ({declaration}). "
                "Leave out colours, numbered equations and custom widths.",
                line=1,
            )
        names.append(_STYLE_CLASSES[key])
    return f' class="{" ".join(filter(None, names))}"' if any(names) else ""


@cache
def _tex() -> LatexToMathML:
    return LatexToMathML(annotation=True, fancy_error=False, max_expansions=1000)


def _money_rule(state: StateInline, silent: bool) -> bool:
    """A dollar sign whose partner lies beyond a backtick is money: “$2, then `$x`” holds no formula."""
    if state.src[state.pos] != "$":
        return False
    partner = state.src.find("$", state.pos + 1, state.posMax)
    if partner < 0 or "`" not in state.src[state.pos : partner]:
        return False
    if not silent:
        state.pending += "$"
    state.pos += 1
    return True


def _convert_math(state: StateCore) -> None:
    for block in state.tokens:
        start = block.map[0] + 1 if block.map else 1
        if block.type == "math_block":
            _convert(block, line=start, display=True, environment=state.env)
        line = start
        for token in block.children or []:
            if token.type in ("softbreak", "hardbreak"):
                line += 1
            elif token.type == "math_inline":
                _convert(token, line=line, display=False, environment=state.env)
                line += token.content.count("\n")
            elif token.type == "cue_open":
                token.meta["line"] = line


def _convert(token: Token, *, line: int, display: bool, environment: MutableMapping[str, Any]) -> None:
    try:
        token.meta["mathml"] = mathml(token.content.strip(), display=display)
    except MathError as error:
        located = MathError(str(error), line=line)
        if environment.get("strict", True):
            raise located from None
        environment.setdefault("problems", []).append(located)
        token.meta["mathml"] = f'<code class="math-as-typed">{escape(token.content)}</code>'


def _show_inline_math(
    renderer: RendererProtocol,
    tokens: Sequence[Token],
    index: int,
    options: OptionsDict,
    environment: MutableMapping[str, Any],
) -> str:
    return str(tokens[index].meta["mathml"])


def _show_block_math(
    renderer: RendererProtocol,
    tokens: Sequence[Token],
    index: int,
    options: OptionsDict,
    environment: MutableMapping[str, Any],
) -> str:
    return f'<div class="math-block">{tokens[index].meta["mathml"]}</div>\n'


# --- cues ----------------------------------------------------------------------------------------------

_CUE_END = re.compile(r"\]\]\{cue=(?:\"(?P<quoted>[^\"{}]+)\"|(?P<name>[^\s\"{}][^\"{}]*?))\s*\}")


def _cue_rule(state: StateInline, silent: bool) -> bool:
    """[[words]]{cue=reason}: the words are ordinary inline Markdown. Anything else stays as typed."""
    if not state.src.startswith("[[", state.pos):
        return False
    end = _CUE_END.search(state.src, state.pos + 2, state.posMax)
    if end is None or "[[" in state.src[state.pos + 2 : end.start()]:
        return False
    if not silent:
        opening = state.push("cue_open", "mark", 1)
        opening.meta = {"reason": (end["quoted"] or end["name"]).strip(), "line": 1}
        ending, state.pos, state.posMax = state.posMax, state.pos + 2, end.start()
        state.md.inline.tokenize(state)
        state.posMax = ending
        state.push("cue_close", "mark", -1)
    state.pos = end.end()
    return True


def _open_mark(
    renderer: RendererProtocol,
    tokens: Sequence[Token],
    index: int,
    options: OptionsDict,
    environment: MutableMapping[str, Any],
) -> str:
    return '<mark class="cue">'


def _close_mark(
    renderer: RendererProtocol,
    tokens: Sequence[Token],
    index: int,
    options: OptionsDict,
    environment: MutableMapping[str, Any],
) -> str:
    environment["cue"] = environment.get("cue", 0) + 1
    return f'<sup class="cue-number">{environment["cue"]}</sup></mark>'


def _show_nothing(
    renderer: RendererProtocol,
    tokens: Sequence[Token],
    index: int,
    options: OptionsDict,
    environment: MutableMapping[str, Any],
) -> str:
    return ""


# --- helpers -------------------------------------------------------------------------------------------


@cache
def _shared_parser(cues: bool) -> MarkdownIt:
    return fresh_parser(cues=cues)


def _align_by_class(state: StateCore) -> None:
    for token in state.tokens:
        if token.type in ("th_open", "td_open") and (style := token.attrs.pop("style", None)):
            token.attrs["class"] = f"align-{str(style).removeprefix('text-align:')}"


def _text_until(tokens: Sequence[Token], start: int, ending: str) -> str:
    words = []
    for token in tokens[start + 1 :]:
        if token.type == ending:
            break
        words.append(_words(token))
    return " ".join("".join(words).split())


def _words(token: Token) -> str:
    if token.type in ("softbreak", "hardbreak"):
        return " "
    if token.type == "html_inline":
        return ""
    return token.content


_MATH_TAGS = frozenset(
    {
        "math", "semantics", "annotation", "mrow", "mi", "mn", "mo", "mtext", "mspace", "mfrac", "msqrt",
        "mroot", "msub", "msup", "msubsup", "munder", "mover", "munderover", "mmultiscripts", "mprescripts",
        "mtable", "mtr", "mtd", "mphantom", "mpadded", "menclose",
    }
)  # fmt: skip
_TAGS = _MATH_TAGS | {
    "p", "br", "hr", "em", "strong", "code", "pre", "blockquote", "ul", "ol", "li", "a", "mark", "sup", "sub",
    "h1", "h2", "h3", "h4", "h5", "h6", "table", "thead", "tbody", "tr", "th", "td", "div", "span",
}  # fmt: skip
_ATTRIBUTES: dict[str, set[str]] = {
    "a": {"href", "title"},
    "ol": {"start"},
    "math": {"display"},
    "annotation": {"encoding"},
    "menclose": {"notation"},
    "mfrac": {"displaystyle", "linethickness"},
    "mi": {"mathvariant"},
    "mo": {
        "lspace", "rspace", "maxsize", "minsize", "movablelimits", "stretchy", "symmetric", "largeop",
        "fence", "separator", "form", "accent",
    },
    "mover": {"accent"},
    "munder": {"accentunder"},
    "munderover": {"accent", "accentunder"},
    "mrow": {"displaystyle", "scriptlevel"},
    "mspace": {"width", "height", "depth"},
    "mtable": {"displaystyle", "scriptlevel", "columnalign"},
    "mtd": {"columnspan", "rowspan"},
    "mpadded": {"width", "height", "depth", "lspace", "voffset"},
}  # fmt: skip


# mdurl, below the parser, fills its tables on first use in a way that two threads at once would break: use it now.
render("[a link](https://example.org/%20)")
