"""Shared by every test: a learner, a signed-in browser, and what a machine must have for the real tests."""

import importlib.util
import os
import shutil

import hypothesis
import pytest

# No test fails on time: on a busy machine an example may take any. CI tries the same examples of a commit every time;
# people's machines try new ones.
hypothesis.settings.register_profile("here", deadline=None)
hypothesis.settings.register_profile("CI", deadline=None, derandomize=True)
hypothesis.settings.load_profile("CI" if os.environ.get("CI") else "here")

REQUIRE_ALL = os.environ.get("SIXFOLD_REQUIRE_ALL") == "1"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
CHROMIUM_FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def pytest_collection_modifyitems(items):
    # One process may hold DJANGO_ALLOW_ASYNC_UNSAFE and a running event loop; keep it to the end.
    items.sort(key=lambda item: "browser" in item.keywords)


def pytest_runtest_setup(item):
    """Skips what this machine cannot run, and says what to install; where all is required, fails instead."""
    if item.get_closest_marker("browser"):
        # Playwright keeps an event loop in this thread, and Django's ORM refuses that unless told otherwise. For the
        # rest of the process: fixtures that outlive a test use the database, too, and browser tests come last.
        os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"
    missing = {
        "browser": (CHROMIUM, "Chromium is not on PATH. Install it (Debian: apt install chromium)."),
        "distributed": (importlib.util.find_spec("torch"), "torch is not installed. Run `make setup`."),
        "postgres": (
            os.environ.get("SIXFOLD_TEST_POSTGRES_URL"),
            "SIXFOLD_TEST_POSTGRES_URL names no PostgreSQL database.",
        ),
    }
    for marker, (found, reason) in missing.items():
        if not found and item.get_closest_marker(marker):
            (pytest.fail if REQUIRE_ALL else pytest.skip)(reason)


@pytest.fixture
def learner(django_user_model):
    """A person with an account and no special rights."""
    return django_user_model.objects.create_user("ada", password="a long pass phrase")


@pytest.fixture
def signed_in(client, learner):
    """Django's test client, signed in as the learner."""
    client.force_login(learner)
    return client


@pytest.fixture(scope="session")
def browser_type_launch_args():
    """pytest-playwright starts the machine's own Chromium, with nothing that reaches out to the network."""
    return {"executable_path": CHROMIUM, "args": CHROMIUM_FLAGS}
