"""Reads pages as a person does: their words, their tables."""

import json
import re
from html.parser import HTMLParser

from sqlalchemy import Engine, event


def words(response):
    """The visible text, with single spaces."""
    parser = _Text()
    parser.feed(response.content.decode())
    return re.sub(r"\s+", " ", "".join(parser.said))


def table(response, name):
    """The cells of the table with this id, a list for each row."""
    html = response.content.decode()
    found = re.search(rf'<table[^>]*id="{name}".*?</table>', html, re.DOTALL)
    rows = re.findall(r"<tr.*?</tr>", found.group(), re.DOTALL)
    return [[_plain(cell) for cell in re.findall(r"<t[hd].*?</t[hd]>", row, re.DOTALL)] for row in rows]


def figure(response, name):
    """The figure that the page's script draws."""
    html = response.content.decode()
    return json.loads(re.search(rf'<script id="{name}-figure"[^>]*>(.*?)</script>', html, re.DOTALL).group(1))


def number(text):
    return float(text.replace(",", "").replace("−", "-").replace("+", "").removesuffix("B").strip())


class CountedStatements:
    """How many statements SQLAlchemy sent while it was open; BEGIN and PRAGMA are not counted."""

    def __enter__(self):
        self.statements = []
        event.listen(Engine, "before_cursor_execute", self._seen)
        return self

    def __exit__(self, *exception):
        event.remove(Engine, "before_cursor_execute", self._seen)

    def _seen(self, connection, cursor, statement, *rest):
        if not statement.startswith(("BEGIN", "PRAGMA")):
            self.statements.append(statement)


class _Text(HTMLParser):
    def __init__(self):
        super().__init__()
        self.said, self.hidden = [], 0

    def handle_starttag(self, tag, attributes):
        self.hidden += tag in ("script", "style", "annotation")
        self.said.append(" " if tag in ("td", "th", "li", "p", "option", "dd") else "")

    def handle_endtag(self, tag):
        self.hidden -= tag in ("script", "style", "annotation")

    def handle_data(self, data):
        if not self.hidden:
            self.said.append(data)


def _plain(html):
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", "", html)).strip()
