"""The path that the product is: lesson, scenario, calculation, measured run; in a real browser, on real ranks."""

import http.client
import re
from threading import Barrier, Thread
from urllib.parse import urlencode, urlsplit

import pytest
from playwright.sync_api import expect

from calculators.lab import store
from calculators.lab.measurements import Quantity
from calculators.lab.spec import experiment
from calculators.predict.shapes import Phase
from calculators.predict.traffic import tensor_parallel

pytestmark = [pytest.mark.browser, pytest.mark.distributed]

# A run waits for the worker's torch to be imported once, on a machine that may be busy.
RUN_MS = 90_000


SMALLEST_LETTERS = """Math.min(...[...document.querySelectorAll("svg.split-map text")].map((text) =>
  parseFloat(getComputedStyle(text).fontSize) * text.ownerSVGElement.getBoundingClientRect().width / 352))"""
TOO_WIDE = """[...document.querySelectorAll("svg.split-map :is(.sm-card, .sm-label) text")].filter((text) => {
  const inside = text.getBoundingClientRect(), around = text.parentNode.querySelector("rect").getBoundingClientRect();
  return inside.left < around.left || inside.right > around.right;
}).map((text) => text.textContent)"""


@pytest.mark.timeout(240)
def test_from_a_lesson_to_a_measured_run(site, owner, ledger, complaints, serious_violations):
    page = owner

    page.get_by_role("link", name="Lessons", exact=True).click()
    page.get_by_role("link", name=re.compile("TP or PP")).first.click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("TP or PP")
    assert serious_violations(page) == []

    page.goto(f"{site.origin}/practice/tp-or-pp/wide-ffn-batch-one/")
    assert serious_violations(page) == []
    choices = page.locator("label.choice")
    choices.filter(has_text=re.compile("pipeline", re.IGNORECASE)).first.click()
    page.get_by_role("button", name="Answer").click()
    expect(page.locator(".verdict")).to_be_visible()
    expect(page.locator(".is-chosen.is-wrong")).to_contain_text("your answer")
    expect(page.locator(".is-right").first).to_be_visible()
    expect(page.locator(".cue").first).to_be_visible()
    assert serious_violations(page) == []

    page.get_by_role("link", name="Calculate", exact=True).click()
    assert serious_violations(page) == []
    page.get_by_role("link", name="What crosses the link").click()
    expect(page.locator("#ratio")).to_have_text("128 : 1")
    page.wait_for_load_state()  # only then does the form listen
    page.get_by_label("Layers").fill("8")
    expect(page.locator("#ratio")).to_have_text("16 : 1")
    assert page.url == f"{site.origin}/calculate/traffic?layers=8"
    expect(page.locator("#traffic-plot .main-svg").first).to_be_visible()
    assert serious_violations(page) == []

    page.get_by_role("link", name="Run it for real: TP").click()
    expect(
        page.get_by_text("the same 8 layers, the same 2 ranks and the same bytes in each call")
    ).to_be_visible()
    assert serious_violations(page) == []
    page.get_by_role("button", name="Start the run").click()

    expect(page.locator("#wire")).to_be_visible(timeout=RUN_MS)
    expect(page.locator("#wire-plot .main-svg").first).to_be_visible()
    assert serious_violations(page) == []
    expect(page.get_by_text("The split model computes what the whole one does.")).to_be_visible()
    run_id = int(re.search(r"/runs/(\d+)/", page.url).group(1))
    with ledger.reading() as session:
        run, comparisons = store.get_run(session, run_id), store.comparisons_of(session, run_id)
    wire = [c for c in comparisons if c.quantity is Quantity.WIRE]
    assert run.succeeded
    assert numbers(page, "[data-predicted]") == [c.predicted for c in wire]
    assert numbers(page, "[data-measured]") == [c.measured for c in wire]
    for what in ("predicted", "measured"):
        pairs = [c for c in comparisons if c.quantity is Quantity.PAIR]
        assert numbers(page, f"#matrix-{what} td.num:not(.self)") == [getattr(c, what) for c in pairs]
    calculated = tensor_parallel(hidden_size=4096, layers=8, ranks=2, phase=Phase.DECODE)
    assert {c.prediction.formula / c.steps for c in wire} == {calculated.wire_bytes.item()}
    assert all(c.is_explained and c.steps >= 10 for c in wire)
    assert {c.measured for c in comparisons if c.quantity is Quantity.IDLE} == {0}

    assert complaints == []


@pytest.mark.timeout(240)
def test_the_calculation_and_the_run_need_no_javascript(site, owner_without_scripts, ledger):
    page = owner_without_scripts

    page.goto(f"{site.origin}/calculate/traffic")
    page.get_by_label("Layers").fill("4")
    page.get_by_role("button", name="Calculate").click()
    expect(page.locator("#ratio")).to_have_text("8 : 1")
    expect(page.get_by_role("table").filter(has_text="The same numbers.")).to_be_visible()
    page.get_by_role("link", name="Run it for real: PP").click()
    page.get_by_role("button", name="Start the run").click()

    # The page loads itself again while the run goes on; nobody has to do anything.
    expect(page.locator("#wire")).to_be_visible(timeout=RUN_MS)
    run_id = int(re.search(r"/runs/(\d+)/", page.url).group(1))
    with ledger.reading() as session:
        wire = [c for c in store.comparisons_of(session, run_id) if c.quantity is Quantity.WIRE]
    assert numbers(page, "[data-measured]") == [c.measured for c in wire]
    expect(page.locator("#wire-plot")).to_be_hidden()


@pytest.mark.timeout(120)
def test_a_wrong_size_is_said_beside_its_field_as_one_types(site, owner, complaints):
    page = owner
    page.goto(f"{site.origin}/calculate/traffic")

    page.get_by_role("textbox", name="Devices").fill("two")

    expect(page.locator("#id_devices_error")).to_have_text(
        "Devices is “two”, but it must be a whole number from 1 to 1,024."
    )
    page.get_by_role("textbox", name="Devices").fill("4")
    expect(page.locator("#id_devices_error")).to_be_empty()
    expect(page.locator("#ratio")).to_have_text("192 : 1")
    expect(page.get_by_role("textbox", name="Devices")).to_be_focused()
    assert complaints == []


@pytest.mark.timeout(120)
@pytest.mark.parametrize("address", ["/calculate/traffic", "/calculate/split-map", "/runs/", "/runs/new"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_fit_a_phone_and_every_reader(site, owner, complaints, serious_violations, address, scheme):
    page = owner
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": 390, "height": 844})

    page.goto(f"{site.origin}{address}")

    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert serious_violations(page) == []
    assert complaints == []


@pytest.mark.timeout(120)
def test_a_map_is_walked_through_with_buttons_and_arrow_keys(site, owner, complaints):
    page = owner
    page.goto(f"{site.origin}/calculate/split-map?tp=1&pp=2&layers=8")
    lit, step = page.locator(".sm-card.is-lit"), page.locator('[aria-current="step"]')
    expect(lit).to_have_count(0)

    page.get_by_role("button", name="Next step").click()

    expect(step).to_have_text("Stage 0: device 0 works through layers 0–3, alone.")
    expect(lit).to_have_count(1)
    page.keyboard.press("ArrowRight")
    expect(lit).to_have_count(2)
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    expect(lit).to_have_count(0)
    expect(page.get_by_role("button", name="Next step")).to_be_focused()
    page.get_by_role("textbox", name="Pipeline stages").fill("4")
    expect(page.locator(".strip > li")).to_have_count(9)
    expect(step).to_be_visible()
    assert complaints == []


@pytest.mark.timeout(120)
def test_without_scripts_the_steps_of_a_map_are_a_strip(site, owner_without_scripts):
    page = owner_without_scripts
    page.goto(f"{site.origin}/calculate/split-map?tp=1&pp=2&layers=8")
    expect(page.get_by_role("button", name="Next step")).to_be_hidden()

    page.get_by_role("link", name="Stage 0 sends 8 KiB to stage 1.").click()

    expect(page.locator(".strip > li:visible")).to_have_count(5)
    expect(page.locator(".sm-card.is-lit")).to_have_count(2)


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "layout",
    [
        "tp=4",
        "pp=4",
        "tp=2&sp=on&phase=prefill",
        "cp=4&phase=training",
        "dp=4&ep=4&experts=8",
        "dp=4&phase=training&batch=128",
        "dp=4&zero=3&phase=training",
        "tp=4&pp=2&ranks_per_host=4",
        "dp=2&tp=2&pp=2&phase=training",
        "dp=2&tp=2&pp=2&cp=2&ep=4&experts=8&sp=on&zero=1&phase=training",
    ],
)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_map_is_read_at_360_pixels(site, owner, complaints, serious_violations, layout, scheme):
    page = owner
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": 360, "height": 800})

    page.goto(f"{site.origin}/calculate/split-map?layers=8&{layout}")

    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert page.evaluate(SMALLEST_LETTERS) >= 9.5
    assert page.evaluate(TOO_WIDE) == []
    assert serious_violations(page) == []
    assert complaints == []


@pytest.mark.timeout(120)
def test_two_clicks_at_the_same_moment_make_one_run(site, owner, ledger):
    owner.goto(f"{site.origin}/runs/new?experiment=tensor-decode")
    form = {key: str(value) for key, value in experiment("tensor-decode").to_dict().items()}
    form |= {
        "nonce": "the same",
        "csrfmiddlewaretoken": owner.locator("[name=csrfmiddlewaretoken]").last.input_value(),
    }
    cookies = "; ".join(f"{cookie['name']}={cookie['value']}" for cookie in owner.context.cookies())
    together, places = Barrier(4), []

    def click():
        connection = http.client.HTTPConnection(urlsplit(site.origin).netloc, timeout=60)
        headers = {"Cookie": cookies, "Content-Type": "application/x-www-form-urlencoded"}
        together.wait()
        connection.request("POST", "/runs/new", urlencode(form), headers)
        places.append(connection.getresponse().getheader("Location"))

    clicks = [Thread(target=click) for _ in range(4)]
    for thread in clicks:
        thread.start()
    for thread in clicks:
        thread.join()

    assert len(places) == 4
    assert len(set(places)) == 1
    assert re.fullmatch(r"/runs/\d+/", places[0])


def numbers(page, selector):
    """The numbers in these cells, as a person reads them."""
    return [
        float(text.replace(",", "").replace("−", "-")) for text in page.locator(selector).all_inner_texts()
    ]
