"""What every page shows around its content: the main links, and the colours a person chose."""

from dataclasses import dataclass

from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse

LINKS = (
    ("Lessons", "lessons:index"),
    ("Practice", "quizzes:index"),
    ("Calculate", "calculators:traffic"),
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


def _addresses() -> list[tuple[str, str]]:
    found = []
    for name, view in LINKS:
        try:
            found.append((name, reverse(view)))
        except NoReverseMatch:
            continue
    return found


def _link(name: str, address: str, path: str) -> Link:
    section = address if address.endswith("/") else address.rpartition("/")[0] + "/"
    current = "page" if path == address else "true" if path.startswith(section) else ""
    return Link(name=name, address=address, current=current)
