"""Lessons in Chromium: nothing for an accessibility checker to find, every piece alive, the keyboard enough."""

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from quizzes.bank import load_builtin_packs
from tutor.lessons import catalogue

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]
PAGES = ["/lessons/", "/glossary/", "/cheat-sheet/", *(f"/lessons/{slug}/" for slug in catalogue.lessons())]
SEEN = [("light", 1280, PAGES), ("dark", 390, PAGES), ("dark", 1280, PAGES[:5]), ("light", 390, PAGES[:5])]
"""Every page in both themes and both widths, the other two combinations for a few."""


@pytest.fixture
def browser_signed_in(signed_in, context, live_server):
    """The address of a server with the built-in questions, whose browser holds the learner's session.

    Ask for it before `page`: Playwright starts an event loop, and in one Django makes no test database.
    """
    load_builtin_packs()
    session = signed_in.cookies["sessionid"]
    context.add_cookies([{"name": "sessionid", "value": session.value, "url": live_server.url}])
    return live_server.url


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    ("theme", "width", "pages"), SEEN, ids=lambda value: str(value) if not isinstance(value, list) else ""
)
def test_no_page_has_a_barrier_or_runs_over_the_edge(browser_signed_in, page, theme, width, pages):
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme=theme)
    complaints = []
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)

    for address in pages:
        page.goto(browser_signed_in + address)
        found = Axe().run(page).response["violations"]

        barriers = [one for one in found if one["impact"] in ("serious", "critical")]
        assert [(one["id"], one["nodes"][0]["html"]) for one in barriers] == [], address
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, address
    assert complaints == []


def test_a_word_explains_itself_to_the_keyboard(browser_signed_in, page):
    page.goto(f"{browser_signed_in}/lessons/tensor-parallelism/")
    term = page.locator(".term", has_text="all-reduce").first

    expect(term.get_by_role("tooltip")).to_be_hidden()
    term.get_by_role("link").focus()

    expect(term.get_by_role("tooltip")).to_be_visible()
    expect(term.get_by_role("tooltip")).to_contain_text("holds the sum")


def test_the_picture_follows_what_is_typed(browser_signed_in, page):
    page.goto(f"{browser_signed_in}/lessons/tensor-parallelism/")
    expect(page.locator("svg.split-map")).to_contain_text("Device 3")

    page.get_by_label("Tensor-parallel ranks").fill("2")

    expect(page.locator("svg.split-map")).not_to_contain_text("Device 3")
    assert page.url.endswith("/lessons/tensor-parallelism/")


def test_an_answer_is_judged_where_it_was_asked(browser_signed_in, page):
    page.goto(f"{browser_signed_in}/lessons/tp-or-pp/")
    check = page.locator("section.check").first

    check.get_by_role("radio").first.check()
    check.get_by_role("button", name="Answer").click()

    expect(check.get_by_role("radio")).to_have_count(0)
    assert page.url.endswith("/lessons/tp-or-pp/")


def test_a_lesson_prints_with_its_answers_open_and_without_its_chrome(browser_signed_in, page):
    page.goto(f"{browser_signed_in}/lessons/tp-or-pp/")

    page.emulate_media(media="print")

    expect(page.get_by_text("40 heads by 3 leaves")).to_be_visible()
    expect(page.locator(".contents")).to_be_hidden()
    expect(page.locator(".onward")).to_be_hidden()
