"""The lab in a real browser, on real ranks: a claim is tested, its runs are looked at, compared, changed and kept."""

import re

import pytest
from playwright.sync_api import expect

from calculators.lab import store

pytestmark = [pytest.mark.browser, pytest.mark.distributed]

# Runs wait for the worker's torch to be imported once, on a machine that may be busy.
RUN_MS = 120_000


@pytest.fixture(scope="module")
def tried(site, browser):
    """The numbers of the runs of one guided experiment, started by a click."""
    page = browser.new_page()
    page.goto(site.entrance)
    page.goto(f"{site.origin}/experiments/")
    page.get_by_role("link", name="Two all-reduces a layer").click()
    page.get_by_role("button", name="Run it").click()
    # The page follows by itself: nobody loads it again.
    expect(page.locator("#trial .headline")).to_contain_text("Each layer made 2 all-reduces", timeout=RUN_MS)
    expect(page.locator("#figures")).to_contain_text("decides")
    page.close()
    ledger = store.open_ledger(f"sqlite:///{site.home / 'runs.sqlite3'}")
    with ledger.reading() as session:
        found = [run for run in store.latest_runs(session, limit=50) if run.experiment == "two-all-reduces"]
    assert all(run.succeeded for run in found)
    return [run.id for run in reversed(found)]


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 390)])
def test_every_page_of_the_lab_is_drawn_and_read_by_everybody(
    site, owner, complaints, serious_violations, tried, scheme, width
):
    owner.emulate_media(color_scheme=scheme)
    owner.set_viewport_size({"width": width, "height": 900})
    first, second = tried
    addresses = (
        "/runs/",
        f"/runs/{second}/",
        f"/runs/compare?a={first}&b={second}",
        f"/runs/new?again={first}",
        "/experiments/",
        "/experiments/two-all-reduces/",
    )
    for address in addresses:
        owner.goto(f"{site.origin}{address}")

        for figure in owner.locator("figure[data-chart]").all():
            expect(figure.locator(".main-svg").first).to_be_visible()
        assert owner.evaluate("document.documentElement.scrollWidth") <= width, address
        assert serious_violations(owner) == [], address
    assert complaints == []


@pytest.mark.timeout(180)
def test_a_training_run_shows_memory_waits_and_steps_each_with_a_table(site, owner, complaints, tried):
    owner.goto(f"{site.origin}/runs/{tried[1]}/")

    for table in ("#wire", "#levels", "#kinds", "#memory", "#shares", "#step-times"):
        expect(owner.locator(f"table{table}")).to_be_visible()
    expect(owner.locator("svg.gantt-svg")).to_be_visible()
    expect(owner.get_by_text("of the whole process")).to_be_visible()
    assert complaints == []


@pytest.mark.timeout(180)
def test_a_figure_is_saved_as_a_picture(site, owner, complaints, tried):
    owner.goto(f"{site.origin}/runs/{tried[0]}/")
    wire = owner.locator('figure[data-chart="wire"]')

    with owner.expect_download() as svg:
        wire.get_by_role("button", name="SVG").click()
    with owner.expect_download() as png:
        wire.get_by_role("button", name="PNG").click()

    assert svg.value.suggested_filename == f"run-{tried[0]}-wire.svg"
    assert svg.value.path().read_text().startswith("<svg")
    assert png.value.path().read_bytes().startswith(b"\x89PNG")
    assert complaints == []


@pytest.mark.timeout(180)
def test_runs_are_filtered_as_one_types_and_two_of_them_compared(site, owner, complaints, tried):
    owner.goto(f"{site.origin}/runs/")
    owner.wait_for_load_state()

    owner.get_by_label("Experiment").fill("two-all-reduces")

    expect(owner).to_have_url(re.compile(r"\?experiment=two-all-reduces"))
    expect(owner.locator("#runs tbody tr")).to_have_count(2)
    for run in tried:
        owner.get_by_label(f"Compare run {run}", exact=True).check()
    owner.get_by_role("button", name="Compare the two ticked").click()
    expect(owner.locator("#specs tr.differs").first).to_contain_text("phase")
    expect(owner.locator("#numbers")).to_contain_text("wire bytes sent")
    assert complaints == []


def listened_to(page, field):
    """Wait until htmx listens to a field that has just come: a script may change it sooner than anybody could."""
    page.wait_for_function("id => 'htmx-internal-data' in document.getElementById(id)", arg=field)
    page.wait_for_function("!document.querySelector('.htmx-request, .htmx-swapping, .htmx-settling')")


@pytest.mark.timeout(180)
def test_the_form_asks_for_what_the_chosen_job_reads(site, owner, complaints):
    owner.goto(f"{site.origin}/runs/new")
    owner.wait_for_load_state()
    owner.get_by_label("Layers").fill("6")

    owner.get_by_label("Job").select_option("pipeline")

    expect(owner.get_by_label("Query, key, value")).to_have_count(0)
    expect(owner.locator("#forecast h2")).to_contain_text("Pipeline parallelism")
    expect(owner.get_by_label("Layers")).to_have_value("6")
    listened_to(owner, "id_phase")
    owner.get_by_label("Phase").select_option("training")
    expect(owner.get_by_label("Schedule")).to_be_visible()
    listened_to(owner, "id_hosts")
    owner.get_by_label("Emulated hosts").fill("2")
    owner.get_by_label("Emulated hosts").blur()
    expect(owner.get_by_label("Link speed [Mbit/s]")).to_be_visible()
    listened_to(owner, "id_hosts")
    owner.get_by_label("Layers").fill("none")
    expect(owner.locator("#forecast")).to_contain_text("layers is “none”, but it must be a whole number")
    assert complaints == []


@pytest.mark.timeout(240)
def test_the_lab_needs_no_javascript(site, owner_without_scripts, tried):
    page = owner_without_scripts
    page.goto(f"{site.origin}/runs/new")
    page.get_by_label("Job").select_option("exchange")

    page.get_by_role("button", name="Show the fields of this job").click()

    expect(page.get_by_label("Bytes in a call")).to_be_visible()
    page.goto(f"{site.origin}/runs/{tried[1]}/")
    for table in ("#wire", "#memory", "#shares", "#step-times"):
        expect(page.locator(f"table{table}")).to_be_visible()
    page.goto(f"{site.origin}/runs/?experiment=two-all-reduces")
    expect(page.locator("#runs tbody tr")).to_have_count(2)
    page.goto(f"{site.origin}/experiments/two-all-reduces/")
    expect(page.locator("#figures")).to_be_visible()
