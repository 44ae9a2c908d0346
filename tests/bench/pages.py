"""Every HTML page: its server time, its queries, and what a first visit fetches, plotly.js apart.

Server time is what the WSGI application takes that the web server loads (`tutor.wsgi`), warmed up as it is there, from
the call to the last byte of the body. The request is made before the clock starts, because that is the web server's
work, as sending is. It asks for no compression; a browser, which does, waits for that, too.
"""

import gzip
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from http.cookies import SimpleCookie
from pathlib import Path
from typing import TYPE_CHECKING, Any
from wsgiref.util import setup_testing_defaults

from django.test import Client

if TYPE_CHECKING:
    from calculators.workbench import Calculator

from tests.bench import reference
from tests.bench.results import Result, at_most, within

MILLISECONDS = 20.0
CALCULATOR_MILLISECONDS = 10.0
PLANNER_MILLISECONDS = 150.0
QUERIES = 12
KILOBYTES = 60.0


def measure() -> list[Result]:
    """The slowest, the most talkative and the heaviest page, each by name, and the table of all."""
    with tempfile.TemporaryDirectory(prefix="sixfold-bench-") as home:
        # A process of its own: settings read their home once.
        environment = {**os.environ, "SIXFOLD_HOME": home, "DJANGO_SETTINGS_MODULE": "tutor.settings"}
        command = [sys.executable, "-m", "tests.bench.pages"]
        done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    pages = json.loads(done.stdout.splitlines()[-1])
    results = []
    for page in pages:
        weight = f"{page['kilobytes']:.1f} kB compressed" + (", and plotly.js" if page["plotly"] else "")
        name, note = f"server time of {page['name']}", f"{page['queries']} queries, {weight}"
        goal = _goal(page["name"])
        if goal is None:
            results.append(Result(name=name, value=page["milliseconds"], unit="ms", note=note))
        else:
            timed = within(name, page["milliseconds"], goal, "ms", note=note)
            results.append(timed.judged_at(page["slowness"]))
    most = max(pages, key=lambda page: page["queries"])
    heaviest = max(pages, key=lambda page: page["kilobytes"])
    charts = [page["name"] for page in pages if page["plotly"]]
    without = [page["name"] for page in pages if page["plotly"] and not page["chart"]]
    return [
        *results,
        at_most("most queries of a page", most["queries"], QUERIES, "queries", note=most["name"]),
        at_most(
            "heaviest page, HTML + CSS + JS without plotly.js",
            heaviest["kilobytes"],
            KILOBYTES,
            "kB compressed",
            note=heaviest["name"],
        ),
        at_most(
            "pages with plotly.js but no chart", len(without), 0, "pages", note=f"with: {', '.join(charts)}"
        ),
    ]


def _goal(name: str) -> float | None:
    """What a page may take; None for a planner that searches more than a 70B model on 1,024 devices, as it opens."""
    if name.startswith("planner"):
        return PLANNER_MILLISECONDS if name == "planner" else None
    return CALCULATOR_MILLISECONDS if name.startswith("calculator ") else MILLISECONDS


def _walk() -> list[dict[str, object]]:
    """Visit every page as the owner, in this process, with a finished run in the ledger and a question answered."""
    import statistics
    import time

    import django

    django.setup()
    from django.conf import settings
    from django.contrib.auth import get_user_model
    from django.db import connection
    from django.test.utils import CaptureQueriesContext
    from django.utils import timezone
    from sqlalchemy import event
    from sqlalchemy.engine import Engine

    from calculators.lab import worker
    from calculators.lab.devices import find_devices
    from calculators.lab.launch import LocalLauncher
    from calculators.lab.spec import experiment
    from calculators.lab.store import open_ledger, submit
    from calculators.pages import CALCULATORS
    from tutor.lessons.catalogue import lessons
    from tutor.management.commands.start import prepare

    settings.ALLOWED_HOSTS = ["testserver"]
    prepare()
    from tutor.wsgi import application

    sessions = open_ledger(settings.LEDGER_URL)
    with sessions.begin() as session:
        run = submit(session, experiment("tensor-decode"), submitted_by="owner", now=timezone.now())
    with LocalLauncher() as launcher:
        worker.work(sessions, launcher, owner="bench", devices=find_devices(), once=True)
    with sessions.begin() as session:
        waiting = submit(session, experiment("pipeline-decode"), submitted_by="owner", now=timezone.now())
    client = Client()
    owner, _ = get_user_model().objects.get_or_create(username="owner", is_staff=True)
    client.force_login(owner)

    ledger_queries: list[str] = []
    event.listen(Engine, "before_cursor_execute", lambda *arguments: ledger_queries.append(arguments[2]))
    addresses = {
        "home": "/",
        "sign-in": "/sign-in",
        "lessons": "/lessons/",
        **{f"lesson {lesson.title}": f"/lessons/{slug}/" for slug, lesson in lessons().items()},
        "cheat sheet": "/cheat-sheet/",
        "glossary": "/glossary/",
        "practice": "/practice/",
        "a subject": "/practice/by-subject/symptom-wide-layer/",
        "the pack": "/practice/tp-or-pp/",
        "a question": "/practice/tp-or-pp/wide-ffn-batch-one/",
        "an answer judged": _answered(client, "/practice/tp-or-pp/many-layers-each-fits/"),
        "calculators": "/calculate/",
        **{_calculator_name(page, at): page.at(at) for page in CALCULATORS for at in _states(page)},
        "split map": "/calculate/split-map",
        "runs": "/runs/",
        "new run": "/runs/new?experiment=tensor-decode",
        "a measured run": f"/runs/{run.id}/",
        "a waiting run": f"/runs/{waiting.id}/",
    }
    pages = []
    for name, address in addresses.items():
        request = _request(address, client.cookies)
        status, html = _visit(application, dict(request))
        assert status.startswith("200"), (name, status)
        assert b'class="who"' in html, f"{name} is not shown to the owner"
        # The machine's speed changes within seconds, so the loop runs between the visits, not before them all.
        times, loops = [], []
        for _ in range(21):
            visited = dict(request)  # what handles it adds to it
            started = time.perf_counter()
            _visit(application, visited)
            times.append(time.perf_counter() - started)
            loops.append(reference.once())
        ledger_queries.clear()
        with CaptureQueriesContext(connection) as captured:
            _, html = _visit(application, dict(request))
        asked = len(captured) + sum(
            not statement.startswith(("BEGIN", "PRAGMA")) for statement in ledger_queries
        )
        pages.append(
            {
                "name": name,
                "milliseconds": 1e3 * statistics.median(times),
                "slowness": 1e3 * statistics.median(loops) / reference.GOAL_MS,
                "queries": asked,
                "kilobytes": _weight(html, settings.STATIC_ROOT) / 1e3,
                "plotly": b"plotly" in html and b"plotly.min" in html,
                # A run's page draws its chart in place when the run ends, a calculator's when it has an answer.
                "chart": any(
                    mark in html for mark in (b"data-chart", b'id="outcome"', b'hx-target="#result"')
                ),
            }
        )
    return pages


def _request(address: str, cookies: SimpleCookie) -> dict[str, Any]:
    """A visit to `address` as a web server hands it on."""
    path, _, query = address.partition("?")
    request = {"PATH_INFO": path, "QUERY_STRING": query, "HTTP_HOST": "testserver"}
    request["HTTP_COOKIE"] = cookies.output(attrs=[], header="", sep=";").strip()
    setup_testing_defaults(request)
    return request


def _visit(application: Callable[..., Any], request: dict[str, Any]) -> tuple[str, bytes]:
    """Status and body, as a web server asks for them."""
    statuses: list[str] = []
    response = application(request, lambda status, headers: statuses.append(status))
    try:
        return statuses[0], b"".join(response)
    finally:
        response.close()


def _states(page: "Calculator") -> list[str]:
    """The queries that a calculator is timed at: as it opens, and each of its presets."""
    return ["", *(preset.query for preset in page.presets if preset.query)]


def _calculator_name(page: "Calculator", query: str) -> str:
    kind = "planner" if page.name == "planner" else f"calculator {page.name}"
    return f"{kind}?{query}" if query else kind


def _answered(client: Client, question: str) -> str:
    """Answer a question with its first option; the address of the page that judges it."""
    form = client.get(question).content.decode()
    given = {name: re.search(rf'name="{name}" value="([^"]+)"', form) for name in ("nonce", "choice")}
    answer = client.post(f"{question}answer", {name: found[1] for name, found in given.items() if found})
    assert answer.status_code == 303, answer.status_code
    return answer["Location"]


def _weight(html: bytes, static_root: Path) -> int:
    """Compressed bytes of the page and of the styles and scripts that it names, plotly.js apart."""
    total = len(gzip.compress(html))
    for name in set(re.findall(rb'(?:src|href)="/static/([^"]+\.(?:css|js))"', html)):
        if b"plotly" not in name:
            total += len(gzip.compress((Path(static_root) / name.decode()).read_bytes()))
    return total


if __name__ == "__main__":
    print(json.dumps(_walk()))
