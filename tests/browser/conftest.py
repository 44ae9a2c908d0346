"""Shared by the browser tests: the whole site as people start it, its owner's browser, and what axe finds."""

import pytest
from axe_playwright_python.sync_playwright import Axe

from calculators.lab import store
from tests.tutor.sites import MANAGE_START, started


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """The site with its worker, started once for all browser tests."""
    with started(MANAGE_START, tmp_path_factory.mktemp("site")) as site:
        # The first start of a home collects the static files, plotly.js among them: half a minute when busy.
        site.entrance = site.wait_for(r"http://127\.0\.0\.1:\d+/enter\?token=\S+", seconds=180)[0]
        site.origin = site.entrance.split("/enter")[0]
        yield site


@pytest.fixture
def ledger(site):
    """Sessions on that site's ledger."""
    return store.open_ledger(f"sqlite:///{site.home / 'runs.sqlite3'}")


@pytest.fixture
def complaints():
    """What the browser complained of: errors, and whatever the content security policy stopped."""
    return []


@pytest.fixture
def owner(site, new_context, complaints):
    """A page of the owner's browser, signed in by the printed address."""
    page = new_context(viewport={"width": 1280, "height": 900}).new_page()
    page.on("console", lambda said: complaints.append(said.text) if said.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(site.entrance)
    return page


@pytest.fixture
def owner_without_scripts(site, new_context):
    """The same with JavaScript turned off."""
    page = new_context(java_script_enabled=False).new_page()
    page.goto(site.entrance)
    return page


@pytest.fixture
def serious_violations():
    """Asks axe about a page; gives what it calls serious or critical, with the elements."""

    def ask(page):
        found = Axe().run(page).response["violations"]
        return [
            (violation["id"], [node["html"][:200] for node in violation["nodes"]])
            for violation in found
            if violation["impact"] in ("serious", "critical")
        ]

    return ask
