"""The link speed page says what `calculators.predict.serving` calculates, and why a cable alone does not help."""

import re
from html import unescape

import pytest
from django.urls import reverse

from calculators.pages.link_speed import LINK_SPEED
from calculators.predict.devices import device
from calculators.predict.links import LADDER, Reach, rung
from calculators.predict.models.catalogue import MODELS
from calculators.predict.serving import Verdict, decode_work
from calculators.predict.shapes import Layouts
from calculators.units import iec_bytes, seconds
from tests.calculators.reading import figure, number, table, words

PAGE = reverse("calculators:link-speed")
ON_THE_LADDER = [step for step in LADDER if step.reach is not Reach.MEMORY]


def rows(response, name):
    return {row[0].replace("\N{NO-BREAK SPACE}", " "): row[1:] for row in table(response, name)}


def test_the_page_opens_on_the_lessons_example(client):
    response = client.get(PAGE)

    numbers = rows(response, "numbers")
    assert numbers["Exchanges for each token"] == ["128 all-reduces", "1 send and the token id’s way back"]
    assert numbers["Bytes that cross, one after another"] == ["1 MiB", "8.01 KiB"]
    assert "A token is due every 25 ms." in words(response)


@pytest.mark.parametrize(
    ("model", "devices", "card", "batch"),
    [
        ("llama-3.1-70b", 4, "rtx-5090", 1),
        ("phi-4", 5, "rtx-3090", 8),
        ("mixtral-8x7b", 2, "dgx-spark", 1),
        ("deepseek-v3", 8, "h200", 16),
    ],
)
def test_its_numbers_are_those_of_predict(client, model, devices, card, batch):
    shape, chosen = MODELS[model].shape, device(card)
    etp = {"etp": devices} if shape.is_sparse else {}
    options = {
        "device": chosen,
        "batch": batch,
        "context_tokens": 700,
        "weight_bytes_per_element": 0.5,
    }
    splits = [
        decode_work(shape, layouts, **options)
        for layouts in (Layouts(tp=devices, **etp), Layouts(pp=devices))
    ]

    response = client.get(
        PAGE,
        {
            "model": model,
            "devices": devices,
            "device": card,
            "batch": batch,
            "context": 700,
            "bits": 4,
            "wanted": "5",
        },
    )

    numbers, speeds = rows(response, "numbers"), rows(response, "speeds")
    read = [iec_bytes((work.weight_bytes + work.kv_bytes).item()) for work in splits]
    assert numbers["A device reads, along all stages"] == read
    assert numbers["The devices take"] == [seconds(work.device_seconds.item()) for work in splits]
    for step in ON_THE_LADDER:
        link = {
            "bytes_per_second": step.bytes_per_second,
            "latency_seconds": step.typical_latency_seconds,
        }
        printed = speeds[step.short][:2]
        for work, says in zip(splits, printed, strict=True):
            over = work.over(**link)
            assert number(says.removeprefix("✓ ")) == pytest.approx(
                over.tokens_per_second.item(), rel=0.006, abs=0.006
            )
            assert says.startswith("✓") == (over.verdict(5) == Verdict.REACHES)


def test_every_link_that_joins_devices_is_there_and_the_soonest_to_answer_comes_first(client):
    response = client.get(PAGE)

    listed = table(response, "speeds")[1:]
    assert {row[0].replace("\N{NO-BREAK SPACE}", " ") for row in listed} == {
        step.short for step in ON_THE_LADDER
    }
    latencies = [rung_of(row[0]).typical_latency_seconds for row in listed]
    assert latencies == sorted(latencies)


def rung_of(short):
    return next(step for step in LADDER if step.short == short.replace("\N{NO-BREAK SPACE}", " "))


def test_the_chart_and_its_table_say_the_same(client):
    response = client.get(PAGE, {"wanted": "30"})

    drawn, speeds = figure(response, "links"), rows(response, "speeds")
    for trace, column in zip(drawn["data"], (0, 1), strict=True):
        points = {name: speed for name, speed in zip(trace["y"], trace["x"], strict=True) if name is not None}
        assert points.keys() == {step.short for step in ON_THE_LADDER}
        for name, speed in points.items():
            assert number(speeds[name][column].removeprefix("✓ ")) == pytest.approx(
                speed, rel=0.006, abs=0.006
            )
        assert trace["marker"]["symbol"].endswith("-open")
    assert drawn["layout"]["xaxis"]["type"] == "log"
    assert drawn["layout"]["shapes"][0]["x0"] == 30
    assert drawn["layout"]["annotations"][0]["text"] == "30 wanted"


def test_links_of_different_carriers_are_not_joined(client):
    trace = figure(client.get(PAGE), "links")["data"][0]

    for above, below in zip(trace["y"], trace["y"][1:], strict=False):
        if above and below:
            assert rung_of(above).carrier == rung_of(below).carrier
    assert trace["y"].count(None) == len({step.carrier for step in ON_THE_LADDER}) - 1


def test_it_says_why_a_faster_cable_does_not_help_over_tcp(client):
    said = words(client.get(PAGE))

    assert (
        "Over TCP a cable 40 times as fast, 400 instead of 10 Gbit/s, makes tensor parallelism 1.03× as fast: "
        "32.2 → 33.1 tokens/s, because 128 exchanges still wait 15.7 ms in all for answers."
    ) in said
    tcp = rows(client.get(PAGE), "latencies")["kernel TCP"]
    assert tcp[1:3] == ["33.1", "∞"]


def test_a_pipeline_is_told_that_its_devices_take_turns(client):
    fast, modest = client.get(PAGE), client.get(PAGE, {"wanted": "30"})

    assert "The devices alone allow 34.5 tokens/s, so no link reaches 40." in words(fast)
    assert "24 of 26 links reach 30." in words(modest)


def test_what_is_needed_depends_on_what_carries_it(client):
    response = client.get(PAGE, {"wanted": "30"})

    work = decode_work(
        MODELS["lesson"].shape,
        Layouts(tp=2),
        device=device("rtx-4090"),
        context_tokens=1024,
    )
    for carrier, cells in list(rows(response, "latencies").items())[1:]:
        step = next(found for found in LADDER if found.carrier == carrier)
        needed = work.link_needed(tokens_per_second=30, latency_seconds=step.typical_latency_seconds)
        if needed.can_be_bought:
            assert number(cells[2].removesuffix(" Gbit/s")) == pytest.approx(
                needed.gbit_per_second.item(), rel=0.01
            )
        else:
            assert cells[2] == "∞"


def test_a_measured_link_joins_the_ladder(client):
    response = client.get(PAGE, {"bytes_per_second": "1.17e9", "microseconds": "15", "link": "measured"})

    speeds = rows(response, "speeds")
    assert len(speeds) == len(ON_THE_LADDER) + 2  # and the head
    assert speeds["measured by you"][4:] == ["9.36", "15 µs"]
    assert speeds["measured by you"][0].startswith("✓")
    assert "your measured link" in words(response)
    assert "latency_seconds=1.5e-05" in unescape(response.content.decode())


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (
            {"microseconds": "80"},
            "Speed, bytes/s is empty. A measured link needs its speed and its latency.",
        ),
        (
            {"bytes_per_second": "1e9"},
            "Latency, µs is empty. A measured link needs its speed and its latency.",
        ),
        (
            {"link": "measured"},
            "Speed, bytes/s is empty. A measured link needs its speed and its latency.",
        ),
        ({"devices": "0"}, "Devices is 0, but the least that works is 1."),
        (
            {"wanted": "nan"},
            "Tokens per second is “nan”, but it must be a number from 0.001 to 1e+06.",
        ),
        ({"wanted": "-3"}, "Tokens per second is -3, but this page takes 0.001 to 1e+06."),
        ({"bits": "5"}, "Bits per weight is “5”, but it must be one of “16”, “8”, “4”."),
        ({"context": ""}, "Context is empty. Give a whole number from 1 to 10,000,000."),
    ],
)
def test_what_cannot_be_is_said_in_a_sentence(client, given, sentence):
    response = client.get(PAGE, given)

    assert response.status_code == 200
    assert sentence in words(response)
    assert 'id="numbers"' not in response.content.decode()


def test_one_device_needs_no_link(client):
    response = client.get(PAGE, {"devices": "1"})

    assert "so it writes at most 34.5 tokens/s, over no link at all. Take two or more." in words(response)
    assert "Run it for real" not in words(response)
    assert table(response, "numbers")[0] == ["", "One device"]
    assert 'id="links-figure"' not in response.content.decode()


def test_sizes_that_do_not_divide_are_said_in_a_sentence(client):
    said = words(client.get(PAGE, {"model": "llama-3.1-70b", "devices": "3", "device": "h200"}))

    assert "tp is 3, but 3 ranks cannot share 64 attention heads equally." in said
    assert "pp is 3, but 80 layers do not make 3 stages of equal depth." in said


def test_what_does_not_fit_is_said_with_what_to_change(client):
    too_large = words(client.get(PAGE, {"model": "llama-3.1-70b"}))
    fits = words(client.get(PAGE, {"model": "llama-3.1-70b", "device": "dgx-spark"}))

    assert "It does not fit under tensor parallelism: a device would hold" in too_large
    assert "Take more devices or fewer bits per weight." in too_large
    assert "does not fit" not in fits


def test_the_python_call_gives_the_link_of_the_page(client):
    response = client.get(PAGE, {"wanted": "60", "link": "infiniband-hdr"})

    code = unescape(re.search(r'id="python-call">(.*?)</code>', response.content.decode(), re.DOTALL)[1])
    imports, _, call = code.partition("\n\n")
    names = {}
    exec(imports, names)
    needed = eval(call, names)

    assert rows(response, "latencies")["RDMA"][2] == f"{needed.gbit_per_second.item():.3g} Gbit/s"
    assert rung("infiniband-hdr").carrier == "RDMA"


def test_the_formula_is_shown_with_its_numbers(client):
    html = client.get(PAGE, {"part": "formulas"}).content.decode()

    assert html.count("<math") >= 16
    assert r"\frac{1}{D + x\,\alpha + \frac{V}{\beta}}" in html
    assert "Tokens/s over 10 Gbit Ethernet (TCP)" in html


def test_it_can_be_run_for_real_both_ways(client):
    html = client.get(PAGE).content.decode()

    for family in ("TP", "PP"):
        assert f"Run it for real: {family}" in html
    assert html.count(reverse("calculators:new-run")) >= 2
    assert "the same 64 layers" in html


@pytest.mark.parametrize("preset", LINK_SPEED.presets, ids=lambda preset: preset.label)
def test_every_example_calculates_and_is_its_own_address(client, preset):
    response = client.get(f"{PAGE}?{preset.query}")

    assert 'id="numbers"' in response.content.decode()
    assert "does not fit" not in words(response)
    assert re.search(rf'aria-current="true">{preset.label}', response.content.decode())


def test_htmx_gets_the_result_alone_and_its_address(client):
    response = client.get(PAGE, {"wanted": "30"}, headers={"HX-Request": "true", "HX-Target": "result"})

    assert b"<html" not in response.content
    assert response["HX-Replace-Url"] == f"{PAGE}?wanted=30"


def test_lessons_are_linked(client):
    assert reverse("lessons:lesson", args=["tp-or-pp"]) in client.get(PAGE).content.decode()
