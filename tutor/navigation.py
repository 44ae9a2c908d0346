"""What every page shows around its content: the main links, and the colours a person chose."""

from dataclasses import dataclass
from functools import cache

from django.http import HttpRequest
from django.urls import reverse

LINKS = (
    ("Lessons", "lessons:index"),
    ("Practice", "quizzes:index"),
    ("Calculate", "calculators:index"),
    ("Runs", "calculators:runs"),
    ("Glossary", "glossary"),
)
THEMES = (("", "as the system"), ("light", "light"), ("dark", "dark"))
THEME_COOKIE = "theme"


@dataclass(frozen=True, kw_only=True)
class Link:
    """One of the main links; `current` is the value of its `aria-current`, or empty."""

    name: str
    address: str
    current: str


def surroundings(request: HttpRequest) -> dict[str, object]:
    """Context of `base.html`."""
    theme = request.COOKIES.get(THEME_COOKIE, "")
    return {
        "navigation": [_link(name, address, request.path) for name, address in _addresses()],
        "theme": theme if theme in dict(THEMES) else "",
        "themes": THEMES,
    }


@cache  # the same on every page
def _addresses() -> tuple[tuple[str, str], ...]:
    return tuple((name, reverse(view)) for name, view in LINKS)


def _link(name: str, address: str, path: str) -> Link:
    section = address if address.endswith("/") else address.rpartition("/")[0] + "/"
    current = "page" if path == address else "true" if path.startswith(section) else ""
    return Link(name=name, address=address, current=current)
