"""The Markdown of lessons: what `quizzes.markdown` reads, and a few things more.

    {{ 2 * layers * activation in MiB }}     a number the calculator makes (numbers.py)
    ::: exam        ::: practice             a note, until the next line that is only :::
    ::: worked      ::: answer               a worked example; an answer that opens when asked
    ::: check tp-or-pp/bytes-ratio           a question, on one line
    ::: calculator traffic layers=64         a calculator with these sizes
    ::: split-map tp=4 layers=8              the picture of a layout
    ::: schedule stages=4 micro-batches=8    who works when in a pipeline
    ::: experiment tensor-decode             a run of the lab that settles the point

Headings get anchors, tables scroll, links to /glossary/#term show the term's meaning. The HTML is cleaned
as everywhere; the one-line pieces are holes in it that the page fills for its reader.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from typing import Any

from django.utils.safestring import SafeString, mark_safe
from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock
from markdown_it.rules_core import StateCore
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token
from mdit_py_plugins.container import container_plugin

from quizzes import markdown
from tutor.lessons.glossary import Term, slug_of
from tutor.lessons.numbers import NUMBER, NumberError, numbers_in, written, written_as_tex

NOTES = ("exam", "practice", "worked", "answer")
PIECES = ("check", "calculator", "split-map", "schedule", "experiment")
_DIRECTIVE = re.compile(r":::(?P<rest>.*)")
# TeX sets 1{,}048 as two numbers and a comma; a reader, and a screen reader, should meet one.
_SPLIT_THOUSANDS = re.compile(r'</mn><mo rspace="0">,</mo><mn>(?=\d{3}</?m)')
# A browser may break the line between a formula and the full stop after it; a word joiner forbids it.
_LOOSE_MARK = re.compile(r"</math>(?=[.,;:!?)’”])")
_OPENING = re.compile(r"(?P<kind>[a-z-]+)(?:\s+(?P<words>.*))?")


@dataclass(frozen=True, kw_only=True)
class Piece:
    """A hole in a lesson's HTML: `::: kind name key=value …`, with hyphens of keys as underscores."""

    kind: str
    name: str
    params: Mapping[str, str]
    line: int


@dataclass(frozen=True, kw_only=True)
class Heading:
    """A heading of the text with its anchor."""

    slug: str
    name: str
    level: int
    line: int


@dataclass(frozen=True, kw_only=True)
class Link:
    """Where a link goes, and the line of the paragraph it stands in."""

    href: str
    line: int


@dataclass(frozen=True, kw_only=True)
class Body:
    """A lesson's text, read: HTML with a mark where each piece goes, and what it refers to."""

    html: SafeString
    pieces: tuple[Piece, ...]
    headings: tuple[Heading, ...]
    links: tuple[Link, ...]
    problems: tuple[tuple[int, str], ...]


def read(text: str, *, names: Mapping[str, float], terms: Mapping[str, Term]) -> Body:
    """`text` as HTML and references; whatever cannot be shown is a problem with its line, from 1."""
    environment: dict[str, Any] = {
        "strict": False,
        "problems": [],
        "names": names,
        "pieces": [],
        "trouble": [],
    }
    parser = _parser()
    tokens = parser.parse(text, environment)
    html = str(markdown.clean(parser.renderer.render(tokens, parser.options, environment), ids=True))
    html = html.replace(
        '<div class="scroll">', '<div class="scroll" tabindex="0" role="group" aria-label="Table">'
    )
    html = html.replace(
        '<div class="math-block">', '<div class="math-block" tabindex="0" role="group" aria-label="Formula">'
    )
    html = _SPLIT_THOUSANDS.sub(",", html)
    html = _LOOSE_MARK.sub("</math>\u2060", html)
    html = html.replace(
        '<div class="answer-opens"></div>', '<details class="answer"><summary>Answer</summary>'
    )
    html = html.replace('<div class="answer-closes"></div>', "</details>")
    problems = [
        *_number_problems(text, names),
        *_directive_problems(text),
        *((error.line, str(error)) for error in environment["problems"]),
        *environment["trouble"],
    ]
    return Body(
        html=mark_safe(_with_meanings(html, terms)),  # noqa: S308 - cleaned above; terms are escaped
        pieces=tuple(environment["pieces"]),
        headings=tuple(_headings(tokens)),
        links=tuple(_links(tokens)),
        problems=tuple(sorted(set(problems))),
    )


def parts(body: Body) -> Iterator[SafeString | Piece]:
    """The text in order: HTML, a piece, HTML, a piece, …"""
    for index, part in enumerate(re.split(r'<div class="piece-(\d+)"></div>', body.html)):
        yield body.pieces[int(part)] if index % 2 else mark_safe(part)  # noqa: S308 - a part of the cleaned HTML


# --- the parser ---------------------------------------------------------------------------------------


@cache
def _parser() -> MarkdownIt:
    parser = markdown.fresh_parser()
    parser.inline.ruler.before("link", "number", _number)
    parser.core.ruler.before("math", "number-in-math", _numbers_in_math)
    parser.core.ruler.push("anchors", _anchors)
    parser.core.ruler.push("tables", _tables)
    # The order of the two matters: a piece inside a note must be met before the note's end is looked for.
    for kind in NOTES:
        container_plugin(parser, kind, validate=_opens(kind), render=_shows(kind))
    parser.block.ruler.before(
        f"container_{NOTES[-1]}", "piece", _piece, {"alt": ["paragraph", "reference", "blockquote", "list"]}
    )
    parser.add_render_rule("piece", lambda self, tokens, index, *_: tokens[index].content)
    parser.add_render_rule("number", lambda self, tokens, index, *_: tokens[index].content)
    parser.add_render_rule("table_open", lambda *_: '<div class="scroll"><table class="table">\n')
    parser.add_render_rule("table_close", lambda *_: "</table></div>\n")
    return parser


def _number(state: StateInline, silent: bool) -> bool:
    found = NUMBER.match(state.src, state.pos, state.posMax)
    if found is None:
        return False
    if not silent:
        token = state.push("number", "", 0)
        try:
            token.content = f'<span class="num">{escape(written(found["body"], state.env["names"]))}</span>'
        except NumberError:
            token.content = f'<code class="error">{escape(found[0])}</code>'
    state.pos = found.end()
    return True


def _numbers_in_math(state: StateCore) -> None:
    for block in state.tokens:
        line = block.map[0] + 1 if block.map else 1
        for token in (block, *(block.children or [])):
            if token.type in ("math_block", "math_inline"):
                token.content = NUMBER.sub(
                    lambda found, line=line: _tex(found, state.env, line), token.content
                )


def _tex(found: re.Match[str], environment: Mapping[str, Any], line: int) -> str:
    try:
        return written_as_tex(found["body"], environment["names"])
    except NumberError as error:
        if " in " in found["body"]:
            environment["trouble"].append((line, str(error)))
        return "?"


def _piece(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    if state.is_code_block(start):
        return False
    line = state.src[state.bMarks[start] + state.tShift[start] : state.eMarks[start]]
    directive = _directive(line)
    if directive is None or directive[0] not in PIECES:
        return False
    if not silent:
        kind, words = directive
        name = next((word for word in words if "=" not in word), "")
        params = dict(word.split("=", 1) for word in words if "=" in word)
        pieces = state.env["pieces"]
        token = state.push("piece", "div", 0)
        token.content = f'<div class="piece-{len(pieces)}"></div>\n'
        token.map = [start, start + 1]
        pieces.append(
            Piece(
                kind=kind,
                name=name,
                params={key.replace("-", "_"): value for key, value in params.items()},
                line=start + 1,
            )
        )
    state.line = start + 1
    return True


def _directive(line: str) -> tuple[str, list[str]] | None:
    found = _DIRECTIVE.fullmatch(line.strip())
    opening = found and _OPENING.fullmatch(found["rest"].strip())
    return (opening["kind"], (opening["words"] or "").split()) if opening else None


def _opens(kind: str) -> Any:
    return lambda params, *_: params.strip() == kind


def _shows(kind: str) -> Any:
    opening = {
        "exam": '<div class="note exam">\n',
        "practice": '<div class="note practice">\n',
        "worked": '<div class="worked"><p class="label">Worked number</p>\n',
        "answer": '<div class="answer-opens"></div>\n',
    }[kind]
    closing = '<div class="answer-closes"></div>\n' if kind == "answer" else "</div>\n"
    return lambda self, tokens, index, *_: opening if tokens[index].nesting == 1 else closing


def _anchors(state: StateCore) -> None:
    for heading in _headings(state.tokens):
        heading_open = next(
            t for t in state.tokens if t.type == "heading_open" and t.map == [heading.line - 1, heading.line]
        )
        heading_open.attrs["id"] = heading.slug


def _tables(state: StateCore) -> None:
    """The first cell of each row heads it; a header cell without words heads nothing."""
    first, in_body = False, False
    for index, token in enumerate(state.tokens):
        if token.type == "tbody_open":
            in_body = True
        elif token.type == "tbody_close":
            in_body = False
        elif token.type == "tr_open":
            first = True
        elif token.type in ("td_open", "th_open"):
            empty = not state.tokens[index + 1].content
            if first and in_body:
                token.tag = state.tokens[index + 2].tag = "th"
            elif empty:
                token.tag = state.tokens[index + 2].tag = "td"
            first = False


# --- what the text refers to --------------------------------------------------------------------------


def _headings(tokens: Sequence[Token]) -> Iterator[Heading]:
    for index, token in enumerate(tokens):
        if token.type == "heading_open":
            name = "".join(child.content for child in tokens[index + 1].children or [])
            line = token.map[0] + 1 if token.map else 1
            yield Heading(slug=slug_of(name), name=name, level=int(token.tag[1]), line=line)


def _links(tokens: Sequence[Token]) -> Iterator[Link]:
    for block in tokens:
        line = block.map[0] + 1 if block.map else 1
        for token in block.children or []:
            if token.type in ("softbreak", "hardbreak"):
                line += 1
            elif token.type == "link_open":
                yield Link(href=str(token.attrs.get("href", "")), line=line)


def _number_problems(text: str, names: Mapping[str, float]) -> Iterator[tuple[int, str]]:
    for number in numbers_in(text):
        try:
            written(number.body, names)
        except NumberError as error:
            yield number.line, str(error)


def _directive_problems(text: str) -> Iterator[tuple[int, str]]:
    opened: list[tuple[int, str]] = []
    for line, content in enumerate(text.splitlines(), start=1):
        if not _DIRECTIVE.fullmatch(content.strip()):
            continue
        directive = _directive(content)
        if directive is None:
            if content.strip() != ":::":
                yield line, f"“{content.strip()}” is no directive. Write ::: and a word: {_known()}."
            elif opened:
                opened.pop()
            else:
                yield line, "This ::: closes nothing. Remove it, or open a note above."
        elif directive[0] in NOTES:
            if directive[1]:
                yield line, f"::: {directive[0]} takes no words after it. Put them on the next line."
            opened.append((line, directive[0]))
        elif directive[0] not in PIECES:
            yield line, f"“{directive[0]}” is not a directive. Use one of {_known()}."
    for line, kind in opened:
        yield line, f"::: {kind} is never closed. Put a line with only ::: after it."


def _known() -> str:
    return ", ".join((*NOTES, *PIECES))


# --- terms --------------------------------------------------------------------------------------------

_TERM_LINK = re.compile(r'<a href="/glossary/#(?P<slug>[a-z0-9-]+)"[^>]*>(?P<words>.*?)</a>', re.DOTALL)


def _with_meanings(html: str, terms: Mapping[str, Term]) -> str:
    """Links to terms, each with its meaning beside it, shown while the link is pointed at or focused."""
    count = 0

    def explained(found: re.Match[str]) -> str:
        nonlocal count
        term = terms.get(found["slug"])
        if term is None:
            return found[0]
        count += 1
        return (
            f'<span class="term"><a href="/glossary/#{term.slug}" aria-describedby="meaning-{count}">'
            f'{found["words"]}</a><span class="meaning" role="tooltip" id="meaning-{count}">'
            f"{escape(term.meaning)}</span></span>"
        )

    return _TERM_LINK.sub(explained, html)
