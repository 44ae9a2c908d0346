"""Practice in a real browser: by keyboard alone, with and without scripts, and nothing axe calls serious."""

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from quizzes.models import Response

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def open_page(live_server, signed_in, tiny, browser):
    """Opens an address of the live site as the signed-in learner, with scripts or without."""
    contexts = []

    def open_(path, *, scripts=True):
        context = browser.new_context(java_script_enabled=scripts)
        contexts.append(context)
        context.add_cookies(
            [{"name": "sessionid", "value": signed_in.cookies["sessionid"].value, "url": live_server.url}]
        )
        page = context.new_page()
        page.goto(live_server.url + path)
        return page

    yield open_
    for context in contexts:
        context.close()


@pytest.mark.parametrize("scripts", [True, False])
def test_a_question_is_answered_by_keyboard_alone(open_page, scripts):
    page = open_page("/practice/tiny/too-wide/", scripts=scripts)

    for _ in range(40):
        page.keyboard.press("Tab")
        if page.locator("[name=choice]:focus").count():
            break
    page.keyboard.press("Space")
    page.keyboard.press("Enter")
    page.wait_for_selector(".verdict")

    assert page.locator(".verdict").inner_text() in ("Right.", "Not this one.")
    assert page.locator("mark.cue").inner_text().startswith("One layer alone")
    expect(page.locator(".verdict:focus")).to_have_count(1)
    assert Response.objects.count() == 1


def test_feedback_takes_the_place_of_the_form_without_a_new_page(open_page):
    page = open_page("/practice/tiny/share/")
    address = page.url

    page.fill("[name=typed]", "3,145")
    page.click("#question button")
    page.wait_for_selector("[role=alert] >> text=can be read two ways")
    page.fill("[name=typed]", "1")
    page.click("#question button")
    page.wait_for_selector(".verdict")

    assert page.url == address
    assert page.locator("form[action*=answer]").count() == 0
    page.click("text=Next question")
    assert page.locator("fieldset legend").count() == 1


@pytest.mark.parametrize("slug", ["too-wide", "share", "which-send"])
def test_axe_finds_nothing_serious_before_and_after(open_page, slug):
    page = open_page(f"/practice/tiny/{slug}/")
    before = Axe().run(page)

    if slug == "share":
        page.fill("[name=typed]", "1")
    else:
        page.locator("[name=choice]").first.check()
    page.click("#question button")
    page.wait_for_selector(".verdict")
    after = Axe().run(page)

    for found in (before, after):
        serious = [v["id"] for v in found.response["violations"] if v["impact"] in ("serious", "critical")]
        assert serious == []
