"""What every page shows around its content: the main links, and the colours a person chose."""

from dataclasses import dataclass
from functools import cache

from django.http import HttpRequest
from django.urls import reverse

LINKS = (
    ("Lessons", "lessons:index"),
    ("Practice", "quizzes:index"),
    ("Calculate", "calculators:index"),
    ("Lab", "calculators:runs"),
    ("Glossary", "glossary"),
)
ALSO_UNDER = {"calculators:runs": ("calculators:experiments",)}
"""Other sections that belong to one of the links."""
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
        "navigation": tuple(_link(name, places, request.path) for name, places in _addresses()),
        "theme": theme if theme in dict(THEMES) else "",
        "themes": THEMES,
    }


@cache  # the same on every page
def _addresses() -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Each link's name, its address, and the addresses of other sections that it stands for."""
    return tuple((name, tuple(map(reverse, (view, *ALSO_UNDER.get(view, ()))))) for name, view in LINKS)


def _link(name: str, places: tuple[str, ...], path: str) -> Link:
    address = places[0]
    sections = (place if place.endswith("/") else place.rpartition("/")[0] + "/" for place in places)
    current = "page" if path == address else "true" if path.startswith(tuple(sections)) else ""
    return Link(name=name, address=address, current=current)
