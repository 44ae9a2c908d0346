"""A match and an order in a real browser: by keyboard alone, with scripts and without, on a narrow screen too."""

import pytest
from playwright.sync_api import expect

from quizzes.bank import import_pack
from quizzes.models import Response
from quizzes.packs.checking import check_pack
from tests.quizzes.conftest import ROWS

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def open_question(live_server, signed_in, new_context):
    """Opens a question of the pack in a browser of the signed-in learner."""
    import_pack(check_pack(ROWS))

    def open_(slug, **kwargs):
        context = new_context(**kwargs)
        cookie = signed_in.cookies["sessionid"].value
        context.add_cookies([{"name": "sessionid", "value": cookie, "url": live_server.url}])
        page = context.new_page()
        page.goto(f"{live_server.url}/practice/rows/{slug}/")
        return page

    return open_


def tab_to(page, selector):
    """Presses Tab until the element has the focus."""
    for _ in range(40):
        if page.locator(f"{selector}:focus").count():
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"Tab never reaches {selector}")


def choose(page, choices):
    """In each list in turn, the option with this value, by the arrow keys."""
    for item, value in choices.items():
        tab_to(page, f"select[id$='-{item}']")
        values = page.eval_on_selector_all(":focus option", "options => options.map(option => option.value)")
        page.keyboard.press("Home")
        for _ in range(values.index(f"{item}:{value}")):
            page.keyboard.press("ArrowDown")


def answer(page):
    """Presses the button."""
    tab_to(page, "#question button")
    page.keyboard.press("Enter")


def shown(page):
    """The items or steps in the order on the page."""
    return page.eval_on_selector_all(
        "select", "lists => lists.map(list => list.options[1].value.split(':')[0])"
    )


@pytest.mark.parametrize("scripts", [True, False])
@pytest.mark.parametrize(
    ("slug", "wrong", "right", "sentence", "stored"),
    [
        ("which-split", {"wide": "tp", "deep": "pp"}, {"tp": "cp"}, "Not matched yet: “The prompt",
         {"wide:tp", "deep:pp", "tp:cp"}),
        ("a-stage", {"send": "2", "forward": "2", "receive": "1"}, {"send": "3"}, "In place 2 stand “",
         {"receive", "forward", "send"}),
    ],
)  # fmt: skip
def test_it_is_answered_by_keyboard_alone(open_question, slug, wrong, right, sentence, stored, scripts):
    page = open_question(slug, java_script_enabled=scripts, viewport={"width": 360, "height": 700})
    choose(page, {name: wrong[name] for name in shown(page) if name in wrong})
    answer(page)

    page.wait_for_selector(f"[role=alert] >> text={sentence}")
    expect(page.locator("select[aria-invalid]:focus")).to_have_count(
        1
    )  # htmx gives the focus a moment after the text
    assert page.locator("select[aria-invalid]").count() == (1 if slug == "which-split" else 2)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")

    choose(page, right)
    answer(page)
    page.wait_for_selector(".verdict")
    assert page.locator(".verdict").inner_text() == "Right."
    assert set(Response.objects.get().chosen_option_ids) == stored
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("slug", ["which-split", "a-stage"])
def test_axe_finds_nothing_serious_before_asked_back_and_after(
    open_question, serious_violations, slug, scheme
):
    page = open_question(slug, color_scheme=scheme)
    assert serious_violations(page) == []
    page.click("#question button")
    page.wait_for_selector("[role=alert]")
    assert serious_violations(page) == []
    # Every pair is wrong; every step takes the place that it has on the page, which is never the right order.
    pairs = {"wide": "pp", "deep": "cp", "tp": "tp"}

    for place, name in enumerate(shown(page), 1):
        value = pairs[name] if slug == "which-split" else str(place)
        page.locator(f"select[id$='-{name}']").select_option(f"{name}:{value}")
    page.click("#question button")
    page.wait_for_selector(".verdict.bad")

    assert page.locator(".is-wrong").count() >= 2
    assert serious_violations(page) == []
