"""The planner's page says what `calculators.predict.planner` finds, why the rest is slower, and what to change."""

import re
from dataclasses import replace
from html import unescape
from urllib.parse import parse_qs, urlsplit

import pytest
from django.http import QueryDict
from django.test import Client
from django.urls import reverse
from hypothesis import given, settings
from hypothesis import strategies as st

from calculators.pages.layout.form import LayoutForm
from calculators.pages.layout.words import TIME_PARTS
from calculators.pages.planner import PLANNER
from calculators.pages.planner.form import PlannerForm
from calculators.pages.planner.frontier import MOST_MARKS, thinned
from calculators.pages.planner.kinds import kinds_of
from calculators.pages.planner.page import SHOWN
from calculators.predict.models.catalogue import MODELS
from calculators.predict.planner import AXES, plan, space_of
from calculators.units import iec_bytes, plain, seconds, whole_percent
from tests.calculators.reading import figure, table, words

PAGE = reverse("calculators:planner")
SMALL = {"devices": "16", "model": "llama-3.1-8b", "batch": "64"}
SERVING = {"devices": "8", "phase": "decode", "batch": "64"}
HOME = {
    "device": "dgx-spark",
    "devices": "2",
    "devices_per_host": "1",
    "between": "connectx-7-spark",
    "phase": "decode",
    "tokens": "4096",
    "batch": "1",
}
EXPERTS = {"devices": "32", "model": "mixtral-8x7b", "tokens": "4096", "batch": "128"}
SITUATIONS = {
    "training": SMALL,
    "gradients in fp32": SMALL | {"optimizer": "megatron-adam"},
    "serving": SERVING,
    "at home": HOME,
    "experts": EXPERTS,
}


def said(response):
    return words(response).replace("\N{NO-BREAK SPACE}", " ")


def rows(response, name):
    return [[cell.replace("\N{NO-BREAK SPACE}", " ") for cell in row] for row in table(response, name)]


def task_of(query):
    form = PlannerForm(QueryDict("&".join(f"{name}={value}" for name, value in query.items())))
    assert form.is_valid(), form.errors
    return form.task


def links(response, name):
    """Where each row of a table leads to."""
    html = re.search(rf'<table[^>]*id="{name}".*?</table>', response.content.decode(), re.DOTALL)[0]
    return [
        unescape(found[1]) if (found := re.search(r'<a href="([^"]*)"', row)) else None
        for row in re.findall(r"<tr.*?</tr>", html, re.DOTALL)[1:]
    ]


def as_written(response):
    """What the page's Python gives."""
    code = unescape(
        re.search(r'<code id="python-call">(.*?)</code>', response.content.decode(), re.DOTALL)[1]
    )
    imports, call = code.split("\n\n")
    scope = {}
    exec(imports, scope)
    return eval(call, scope)


# --- numbers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("query", SITUATIONS.values(), ids=SITUATIONS)
def test_the_table_has_the_numbers_of_the_python_beside_it(client, query):
    response = client.get(PAGE, query)

    found = as_written(response)

    best = found.best
    shown = rows(response, "best")[1:]
    assert len(shown) == len(best) == min(SHOWN, found.fitting)
    for row, cells in enumerate(shown):
        assert cells[0] == str(row + 1)
        assert cells[2] == seconds(best["step_seconds"][row])
        rate = best["tokens_per_second"][row]
        assert cells[3] == plain(round(rate, 1 if rate < 100 else None))
        assert cells[-2] == iec_bytes(best["memory_bytes"][row])
        part = max(TIME_PARTS, key=lambda name: best[f"{name}_seconds"][row])
        share = best[f"{part}_seconds"][row] / best["step_seconds"][row]
        assert cells[-1] == f"{TIME_PARTS[part]}, {whole_percent(share)}".replace("\N{NO-BREAK SPACE}", " ")
    counted = f"{found.legal:,} layout{'' if found.legal == 1 else 's'} kept every rule and {found.fitting:,} of them"
    assert counted in said(response)
    assert found.reasons[0] in said(response)


@pytest.mark.parametrize("query", SITUATIONS.values(), ids=SITUATIONS)
def test_each_of_the_best_leads_to_its_own_page_with_the_same_numbers(client, query):
    response = client.get(PAGE, query)

    shown = rows(response, "best")[1:]
    for cells, address in zip(shown, links(response, "best"), strict=True):
        there = client.get(address)
        case = there.context["answer"].case
        assert there.headers["HX-Replace-Url"] == address  # in its own words
        assert not there.context["answer"].broken
        assert case.fits
        assert seconds(case.seconds) == cells[2]
        assert iec_bytes(case.memory_bytes) == cells[-2]
        assert plain(round(case.tokens_per_second, 1 if case.tokens_per_second < 100 else None)) == cells[3]
        sizes, _, details = case.says.partition(", ")
        assert cells[1] == f"{sizes} {details}".strip()


def test_the_layout_s_page_leads_back_to_the_same_plan(client):
    [first, *_] = links(client.get(PAGE, EXPERTS), "best")

    back = client.get(first).context["answer"].planner_address

    assert rows(client.get(back), "best") == rows(client.get(PAGE, EXPERTS), "best")


def test_a_form_of_one_layout_has_every_field_that_the_planner_says():
    assert set(PlannerForm.base_fields) <= set(LayoutForm.base_fields)
    for name in set(PlannerForm.base_fields) & set(LayoutForm.base_fields) - {"phase", "batch"}:
        ours, theirs = PlannerForm.base_fields[name], LayoutForm.base_fields[name]
        assert getattr(ours, "choices", None) == getattr(theirs, "choices", None), name


def test_chart_and_table_of_the_parts_say_the_same(client):
    response = client.get(PAGE, SMALL)

    drawn = figure(response, "parts")["data"]
    found = rows(response, "parts")
    assert [trace["name"] for trace in drawn] == found[0][1:-1]
    for column, trace in enumerate(drawn, start=1):
        assert [row[column] for row in found[1:]] == trace["text"]
        assert trace["marker"]["color"] == "rgba(0,0,0,0)"  # predicted is hollow


def test_the_frontier_rises_with_memory_and_keeps_the_quickest_that_fits(client):
    response = client.get(PAGE, SMALL)
    found = plan(task_of(SMALL))

    [marks] = figure(response, "frontier")["data"]
    assert marks["x"] == sorted(marks["x"])
    assert marks["y"] == sorted(marks["y"])
    assert found.best["tokens_per_second"][0] in marks["y"]
    shown = rows(response, "frontier")[1:]
    assert len(shown) == len(marks["x"]) <= MOST_MARKS
    assert len(shown) + thinned(found)[1] == len(found.frontier)
    assert [row[-1] for row in shown] == ["yes" if x <= 76 else "no" for x in marks["x"]]
    assert max(marks["x"]) <= 4 * 76
    [line] = figure(response, "frontier")["layout"]["shapes"]
    assert line["x0"] == line["x1"] == 76


def test_the_formulas_have_the_first_s_numbers(client):
    response = client.get(PAGE, SMALL)
    best = plan(task_of(SMALL)).best

    html = response.content.decode()
    rate = f"{round(best['tokens_per_second'][0]):,}".replace(",", "{,}")
    step = float(f"{best['step_seconds'][0]:.6g}")
    assert rf"\frac{{64 \cdot 8{{,}}192}}{{{step}\,\text{{s}}}} = {rate}" in html
    dp, micro = best["dp"][0], best["micro_batches"][0]
    assert rf"{dp:.0f} \cdot {best['micro_batch'][0]:.0f}}} = {micro:.0f}" in html
    assert dp * best["micro_batch"][0] * micro == 64


# --- why not ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("query", SITUATIONS.values(), ids=SITUATIONS)
def test_each_kind_is_the_best_of_its_part_of_the_space(client, query):
    task = task_of(query)
    space, best = space_of(task), plan(task).best
    part_of = {}
    for name, kind in kinds_of(task).items():
        part = {
            axis: tuple(n for n in getattr(space, axis) if least <= n <= most)
            for axis, (least, most) in kind.items()
        }
        part_of[name] = plan(task, replace(space, **part), count=1) if all(part.values()) else None

    shown = {row[0]: row[1:] for row in rows(client.get(PAGE, query), "instead")[1:]}

    for name, kind in kinds_of(task).items():
        if all(least <= best[axis][0] <= most for axis, (least, most) in kind.items()):
            assert name not in shown
            continue
        alone = part_of[name]
        if alone is None or not alone.legal:
            assert shown[name] == ["none keeps every rule", "–", "–", "–"]
        elif not alone.fitting:
            needs = iec_bytes(alone.smallest["memory_bytes"][0])
            assert shown[name] == [f"none fits: the smallest needs {needs}", "–", "–", "–"]
        else:
            longer = alone.best["step_seconds"][0] / best["step_seconds"][0] - 1
            assert shown[name][1] == seconds(alone.best["step_seconds"][0])
            if 0.005 <= longer < 10:
                assert shown[name][2] == whole_percent(longer).replace("\N{NO-BREAK SPACE}", " ")


def test_an_alternative_leads_to_its_layout_and_names_where_the_time_goes(client):
    response = client.get(PAGE, SERVING)

    shown = rows(response, "instead")[1:]
    where = links(response, "instead")
    assert [row[0] for row in shown] == ["A whole model on each device", "No tensor parallelism"]
    assert shown[0][1].startswith("none fits: the smallest needs")
    case = client.get(where[1]).context["answer"].case
    assert case.layout.tp == 1
    assert seconds(case.seconds) == shown[1][2]
    assert shown[1][4] == "arithmetic"


def test_one_device_has_no_alternatives(client):
    response = client.get(PAGE, {"devices": "1", "model": "llama-3.1-8b", "phase": "decode", "batch": "1"})

    assert "Why not something else" not in said(response)
    assert "The only one that fits. It leads to all about it." in said(response)
    assert "1 layout kept every rule and 1 of them fits." in said(response)
    assert "one device" in rows(response, "best")[1][1]


def test_what_is_much_slower_is_said_as_a_factor(client):
    query = EXPERTS | {"between": "ethernet-1", "batch": "32"}

    longer = [row[3] for row in rows(client.get(PAGE, query), "instead")[1:]]

    assert [cell for cell in longer if cell.endswith("times")]


# --- sentences --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        (SMALL, "The quickest layout that fits trains on"),
        (SMALL, "A step takes"),
        (SERVING, "for each of 64 sequences:"),
        (HOME, "The quickest layout that fits writes 2.8 tokens a second: TP 2. A token takes"),
        (SERVING, "All 7 that fit, the quickest first. A layout leads to all about it."),
        (SMALL, "that fit. A layout leads to all about it."),
        (SMALL, "All were calculated; none was guessed or sampled."),
        ({}, "marks that hardly differ, or need far more memory than there is, are left out."),
        (
            {"devices": "7", "batch": "64"},
            "No layout of 7 devices keeps every rule: 80 layers, 64 attention heads, 64 sequences do not share out "
            "among so many. Change the number of devices or of sequences, or let stages differ by a layer.",
        ),
        (
            {"devices": "7", "phase": "decode", "model": "llama-3.1-8b", "reserve": "79"},
            "none fits: the one that needs least,",
        ),
        (
            {"devices": "8"},
            "keep every rule, but none fits: the one that needs least,",
        ),
        (
            {"devices": "8"},
            "of each device, and 76 GiB is there. Take more devices, larger ones, or shorter sequences.",
        ),
        (
            {"devices": "1", "phase": "decode"},
            "1 layout keeps every rule, but none fits: the one that needs least, one device, takes",
        ),
        (
            {"devices": "1", "phase": "decode"},
            "Take more devices, larger ones, or fewer or shorter sequences.",
        ),
        ({"devices": "8", "reserve": "500"}, "and 0 B is there."),
        ({"devices": "0"}, "Devices is 0, but the least that works is 1."),
        ({"devices": "20000"}, "Devices is 20000, but this page stops at 16,384."),
        ({"devices": "12"}, "Devices is 12, but hosts of 8 cannot hold as many in equal numbers."),
        ({"phase": "prefill"}, "For is “prefill”, but it must be one of “training”, “decode”."),
        ({"batch": "none"}, "Sequences is “none”, but it must be a whole number from 1 to 1,000,000."),
        ({"reserve": "nan"}, "Reserved, GiB is “nan”, but it must be a number from 0 to 1000."),
    ],
)
def test_the_page_says(client, query, sentence):
    assert sentence in said(client.get(PAGE, query))


def test_no_layout_at_all_is_said_without_uneven_stages_where_they_are_allowed(client):
    response = client.get(
        PAGE, {"devices": "7", "batch": "64", "stages": "uneven", "model": "lesson", "tokens": "7"}
    )

    answer = response.context["answer"]
    if answer.plan.legal == 0:
        assert "let stages differ" not in said(response)
    else:
        assert answer.best is not None or answer.plan.smallest is not None


def test_where_nothing_fits_the_smallest_is_one_step_away_and_the_frontier_is_drawn(client):
    response = client.get(PAGE, {"devices": "8"})

    there = client.get(response.context["answer"].layout_address).context["answer"]
    assert there.case.memory_bytes == pytest.approx(
        plan(task_of({"devices": "8"})).smallest["memory_bytes"][0]
    )
    assert not there.case.fits
    assert {row[-1] for row in rows(response, "frontier")[1:]} == {"no"}
    assert 'id="best"' not in response.content.decode()


def test_the_page_says_that_it_searches_while_it_does(client):
    html = client.get(PAGE, SMALL).content.decode()

    assert re.search(r'<p class="searching no-print" role="status"><span>Trying every layout …</span>', html)


# --- ways on ----------------------------------------------------------------------------------------------------------


def test_the_first_s_tensor_parallelism_and_pipeline_can_be_run(client):
    query = {"devices": "64", "batch": "64"}
    answer = client.get(PAGE, query).context["answer"]
    best = answer.plan.best

    expected = [name for name in ("tp", "pp") if best[name][0] > 1]
    specs = [parse_qs(urlsplit(run.address).query) for run in answer.runs]
    assert [spec["job"][0] for spec in specs] == [
        {"tp": "tensor", "pp": "pipeline"}[name] for name in expected
    ]
    assert [run.label for run in answer.runs] == [
        f"Run the {name.upper()} of the first for real" for name in expected
    ]
    for run, spec in zip(answer.runs, specs, strict=True):
        assert spec["back"][0].startswith(PAGE)
        assert client.get(run.address).status_code == 200


def test_the_state_is_the_address_and_htmx_gets_the_result_alone(client):
    response = client.get(PAGE, SMALL, headers={"HX-Request": "true", "HX-Target": "result"})

    assert response.headers["HX-Replace-Url"].endswith("?devices=16&model=llama-3.1-8b&batch=64")
    assert b"<html" not in response.content


@pytest.mark.parametrize("preset", PLANNER.presets, ids=lambda preset: preset.label)
def test_every_preset_has_a_layout_that_fits(client, preset):
    answer = client.get(PLANNER.at(preset.query)).context["answer"]

    assert answer.best is not None
    assert answer.instead is not None


# --- no address breaks it ---------------------------------------------------------------------------------------------

FIELDS = {
    "model": st.sampled_from(["llama-3.1-8b", "mixtral-8x7b", "gemma-3-27b", "phi-4", "own", ""]),
    "phase": st.sampled_from(["training", "decode", "prefill"]),
    "devices": st.integers(-1, 40).map(str) | st.sampled_from(["64", "12345", "x", "99999999999"]),
    "devices_per_host": st.sampled_from(["1", "2", "3", "8", "72", "0"]),
    "device": st.sampled_from(["h100", "rtx-4090", "dgx-spark", "tpu"]),
    "between": st.sampled_from(["infiniband-ndr", "wifi-6", "lan"]),
    "tokens": st.sampled_from(["1", "7", "4096", "10000000", "0", "1.5"]),
    "batch": st.sampled_from(["1", "3", "64", "1000000", "0"]),
    "reserve": st.sampled_from(["0", "4", "79.9", "1000", "-1", "inf"]),
    "stages": st.sampled_from(["equal", "uneven", "x"]),
    "optimizer": st.sampled_from(["mixed-adam", "junk"]),
    "junk": st.text(max_size=5),
}


@settings(max_examples=60, deadline=None)
@given(query=st.fixed_dictionaries({}, optional=FIELDS))
def test_no_address_breaks_the_page(query):
    query = {"devices": "16", **query}

    response = Client().get(PAGE, query)

    assert response.status_code == 200
    answer = response.context["answer"]
    if answer is None:
        assert "Nothing is calculated yet" in said(response)
        return
    assert answer.headline
    assert (answer.best is None) == (answer.plan.fitting == 0)
    text = said(response).split("The same in Python")[0]
    assert "∞" not in text
    assert "nan" not in text.lower().split()
    if answer.layout_address:
        there = Client().get(answer.layout_address).context["answer"]
        assert not there.broken
        shown = answer.plan.best if answer.best else answer.plan.smallest
        assert there.case.seconds == pytest.approx(shown["step_seconds"][0], rel=1e-9)
        assert {axis: shown[axis][0] for axis in AXES if axis in vars(there.case.layout)} == {
            axis: float(value) for axis, value in vars(there.case.layout).items()
        }


def test_models_of_the_catalogue_are_named_by_their_key(client):
    [first, *_] = links(client.get(PAGE, SMALL), "best")

    assert parse_qs(urlsplit(first).query)["model"] == ["llama-3.1-8b"]
    assert "llama-3.1-8b" in MODELS
