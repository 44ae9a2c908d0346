"""A browser without JavaScript for many at once: keeps cookies, reads forms, notes how long each page took."""

import http.cookiejar
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass, field
from html.parser import HTMLParser


@dataclass(frozen=True, kw_only=True)
class Visit:
    """One request as a visitor met it; `status` 0 means that no answer came."""

    what: str
    status: int
    seconds: float


@dataclass(kw_only=True)
class Form:
    """A form as it stands in a page: its fields as they would be sent, and the choices of each radio group."""

    action: str
    method: str
    fields: dict[str, str] = field(default_factory=dict)
    choices: dict[str, list[str]] = field(default_factory=dict)


class Visitor:
    """One person's cookies and history."""

    def __init__(self, origin: str) -> None:
        self.origin = origin
        self.visits: list[Visit] = []
        cookies = urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar())
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), cookies)

    def get(self, what: str, path: str) -> str:
        """The page at `path`."""
        return self._open(what, urllib.request.Request(self._absolute(path)))

    def send(self, what: str, form: Form, **values: str) -> str:
        """The page that follows the form, filled in with `values`."""
        data = urllib.parse.urlencode(form.fields | values).encode()
        address = self._absolute(form.action)
        request = urllib.request.Request(address, data=data, headers={"Referer": address})
        return self._open(what, request)

    @property
    def address(self) -> str:
        """Where the last request ended, after redirects."""
        return self._address

    def _absolute(self, path: str) -> str:
        return urllib.parse.urljoin(self.origin, path)

    def _open(self, what: str, request: urllib.request.Request) -> str:
        began, status, page = time.monotonic(), 0, ""
        try:
            with self._opener.open(request, timeout=60) as answer:
                status, page, self._address = answer.status, answer.read().decode(), answer.url
        except urllib.error.HTTPError as error:
            status, page, self._address = error.code, error.read().decode(), error.url
        except OSError:
            self._address = request.full_url
        self.visits.append(Visit(what=what, status=status, seconds=time.monotonic() - began))
        return page


def forms_of(page: str) -> list[Form]:
    """Every form that posts, in the order of the page."""
    reader = _Forms()
    reader.feed(page)
    return [form for form in reader.forms if form.method == "post"]


class _Forms(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.forms: list[Form] = []
        self._select = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        name, value = given.get("name", ""), given.get("value", "on")
        if tag == "form":
            self.forms.append(Form(action=given.get("action", ""), method=given.get("method", "get").lower()))
        elif not self.forms:
            return
        elif tag == "input" and given.get("type") in ("radio", "checkbox"):
            self.forms[-1].choices.setdefault(name, []).append(value)
            if "checked" in given:
                self.forms[-1].fields[name] = value
        elif tag == "input" and name:
            self.forms[-1].fields[name] = given.get("value", "")
        elif tag == "select":
            self._select = name
        elif (
            tag == "option"
            and self._select
            and ("selected" in given or self._select not in self.forms[-1].fields)
        ):
            self.forms[-1].fields[self._select] = value

    def handle_endtag(self, tag: str) -> None:
        if tag == "select":
            self._select = ""
