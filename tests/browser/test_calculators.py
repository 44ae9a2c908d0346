"""Every calculator in a real browser: drawn, readable in both themes and on a phone, alive as one types."""

import re

import pytest
from playwright.sync_api import expect

from calculators.pages import CALCULATORS

pytestmark = pytest.mark.browser

# A field of each page, a value that it does not open with, and what the address then says.
CHANGES = {
    "traffic": ("devices", "8", "devices=8"),
    "memory": ("tokens", "4096", "tokens=4096"),
    "pipeline": ("micro_batches", "12", "micro_batches=12"),
    "link-speed": ("wanted", "20", "wanted=20"),
    "experts": ("tokens", "1024", "tokens=1024"),
    "planner": ("devices", "64", "devices=64"),
    "layout": ("tp", "4", "tp=4"),
}


@pytest.mark.timeout(120)
@pytest.mark.parametrize("page", CALCULATORS, ids=lambda page: page.name)
def test_a_calculator_is_drawn_and_read_by_everybody(site, owner, complaints, serious_violations, page):
    for scheme, width in (("light", 1280), ("dark", 390)):
        owner.emulate_media(color_scheme=scheme)
        owner.set_viewport_size({"width": width, "height": 900})

        owner.goto(f"{site.origin}/calculate/{page.name}")

        for part in page.parts:
            owner.locator(f"details.part:has(#{part}) > summary").click()
            expect(owner.locator(f"div#{part}")).to_be_visible()
        for figure in owner.locator("figure[data-chart]").all():
            expect(figure.locator(".main-svg").first).to_be_visible()
        assert owner.evaluate("document.documentElement.scrollWidth") <= width
        assert serious_violations(owner) == []
    assert complaints == []


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", list(CHANGES))
def test_a_result_follows_what_one_types_and_its_address_brings_it_back(site, owner, complaints, name):
    field, value, said = CHANGES[name]
    owner.goto(f"{site.origin}/calculate/{name}")
    owner.wait_for_load_state()
    before = owner.locator("#result").inner_text()

    owner.locator(f"#id_{field}").fill(value)

    expect(owner).to_have_url(re.compile(re.escape(said)))
    expect(owner.locator("#result")).not_to_have_text(before)
    after = owner.locator("#python-call").inner_text()
    expect(owner.locator(f"#id_{field}")).to_be_focused()
    owner.reload()
    assert owner.locator("#python-call").inner_text() == after
    assert complaints == []


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", list(CHANGES))
def test_a_calculator_needs_no_javascript(site, owner_without_scripts, name):
    field, value, said = CHANGES[name]
    page = owner_without_scripts
    page.goto(f"{site.origin}/calculate/{name}")

    page.locator(f"#id_{field}").fill(value)
    page.get_by_role("button", name="Calculate").click()

    assert said in page.url
    expect(page.locator("#result table").first).to_be_visible()
    expect(page.get_by_role("button", name="Copy")).to_have_count(0)


@pytest.mark.timeout(60)
def test_an_opened_part_follows_what_one_types_and_leaves_the_address_alone(site, owner, complaints):
    owner.goto(f"{site.origin}/calculate/layout?tp=4")
    owner.wait_for_load_state()

    owner.locator("details.part", has_text="Why these numbers").locator("summary").click()
    expect(owner.locator("div#formulas")).to_contain_text("Tensor parallelism")
    expect(owner).to_have_url(f"{site.origin}/calculate/layout?tp=4")
    before = owner.locator("div#formulas").inner_text()
    owner.locator("#id_tp").fill("2")

    expect(owner).to_have_url(f"{site.origin}/calculate/layout?tp=2")
    expect(owner.locator("div#formulas")).to_be_visible()
    expect(owner.locator("div#formulas")).not_to_have_text(before)
    assert complaints == []


@pytest.mark.timeout(60)
def test_a_part_opens_without_javascript(site, owner_without_scripts):
    page = owner_without_scripts
    page.goto(f"{site.origin}/calculate/layout")

    page.locator("details.part", has_text="Who sends to whom").locator("summary").click()
    page.locator("#exchange").get_by_role("link", name="Show it").click()

    expect(page.locator("svg.heat")).to_be_visible()


def test_the_python_of_a_page_can_be_copied(site, owner):
    owner.context.grant_permissions(["clipboard-read", "clipboard-write"])
    owner.goto(f"{site.origin}/calculate/traffic")

    owner.get_by_role("button", name="Copy").click()

    expect(owner.get_by_role("button", name="Copied")).to_be_visible()
    assert owner.evaluate("navigator.clipboard.readText()") == owner.locator("#python-call").inner_text()


@pytest.mark.timeout(60)
def test_a_wrong_size_is_said_beside_its_field_and_nothing_is_lost(site, owner, complaints):
    owner.goto(f"{site.origin}/calculate/planner")
    owner.wait_for_load_state()

    owner.locator("#id_devices").fill("100")

    expect(owner.locator("#id_devices_error")).to_have_text(
        "Devices is 100, but hosts of 8 cannot hold as many in equal numbers. Nearest that work: 96 or 104."
    )
    owner.locator("#id_devices").fill("128")
    expect(owner.locator("#id_devices_error")).to_be_empty()
    expect(owner.locator("#best")).to_be_visible()
    assert complaints == []
