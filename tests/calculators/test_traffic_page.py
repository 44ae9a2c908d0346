"""The traffic page says what `calculators.predict` calculates."""

import pytest
from django.urls import reverse

from calculators.families import WAYS, Case
from calculators.maps import drawn
from calculators.predict.models.catalogue import MODELS
from calculators.predict.shapes import Phase
from calculators.predict.traffic import pipeline_parallel, tensor_parallel
from calculators.units import both_bytes, iec_bytes, plain
from tests.calculators.reading import figure, number, table, words

PAGE = reverse("calculators:traffic")


def test_the_page_opens_on_the_lessons_example(client):
    response = client.get(PAGE)

    assert "128 : 1" in words(response)
    assert table(response, "numbers")[2:5] == [
        ["Bytes in a call", "8 KiB (8,192 B)", "8 KiB (8,192 B)"],
        ["Calls", "128", "1"],
        ["Rounds, one after another", "256", "1"],
    ]
    assert table(response, "numbers")[5][1:] == ["1 MiB (1,048,576 B)", "8 KiB (8,192 B)"]


@pytest.mark.parametrize("phase", list(Phase))
@pytest.mark.parametrize(("model", "devices"), [("llama-3.1-70b", 4), ("phi-4", 5), ("gpt-3-175b", 8)])
def test_its_numbers_are_those_of_predict(client, phase, model, devices):
    shape = MODELS[model].shape
    given = {"batch": 3, "tokens": 512, "micro_batches": 2}
    common = {"hidden_size": shape.hidden_size, "phase": phase, **given}
    expected = [
        tensor_parallel(layers=shape.layers, ranks=devices, **common),
        pipeline_parallel(stages=devices, **common),
    ]

    response = client.get(PAGE, {"model": model, "devices": devices, "phase": phase.value, **given})

    rows = {row[0]: row[1:] for row in table(response, "numbers")}
    assert rows["Bytes in a call"] == [both_bytes(t.bytes_per_call.item()) for t in expected]
    assert rows["Calls"] == [plain(t.calls.item()) for t in expected]
    assert rows["Rounds, one after another"] == [plain(t.rounds.item()) for t in expected]
    assert rows["Bytes that the busiest device sends"] == [both_bytes(t.wire_bytes.item()) for t in expected]


@pytest.mark.parametrize("model", ["lesson", "deepseek-v3"])
@pytest.mark.parametrize("phase", list(Phase))
@pytest.mark.parametrize("way", list(WAYS.values()), ids=lambda way: way.key)
def test_every_way_says_what_its_function_calculates(client, model, phase, way):
    case = Case(shape=MODELS[model].shape, phase=phase, devices=4, batch=3, tokens=512, micro_batches=2)
    given = {"model": model, "first": way.key, "second": way.key, "devices": 4, "phase": phase.value}

    response = client.get(PAGE, given | {"batch": 3, "tokens": 512, "micro_batches": 2})

    if way.needs_experts and model == "lesson":
        assert "is dense: it has no experts to share out" in words(response)
        return
    moved = way.traffic(case, 4)
    rows = {row[0]: row[1:] for row in table(response, "numbers")}
    assert rows["Calls"] == [plain(moved.calls.item())]
    assert rows["Bytes that the busiest device sends"] == [both_bytes(moved.wire_bytes.item())]
    lines = {row[0]: row[1:] for row in table(response, "every")[1:]}
    assert lines[way.short][2] == iec_bytes(moved.wire_bytes.item())


def test_all_ways_are_in_one_table_and_those_that_do_not_apply_say_why(client):
    response = client.get(PAGE, {"model": "lesson", "devices": 4})

    lines = {row[0]: row[1:] for row in table(response, "every")[1:]}
    assert list(lines) == [way.short for way in WAYS.values()]
    assert lines["EP"][0] == "nothing to share out: the model is dense"


def test_plain_replicas_send_nothing_when_they_serve(client):
    response = client.get(PAGE, {"first": "dp", "devices": 8})

    assert table(response, "numbers")[3][1] == "0"
    assert response.context["answer"].traffic.ratio is None


def test_the_backend_s_algorithm_changes_what_is_sent(client):
    ring = table(client.get(PAGE, {"devices": 8}), "numbers")
    tree = table(client.get(PAGE, {"devices": 8, "backend": "NCCL, tree"}), "numbers")

    assert (
        number(tree[5][1].split("(")[1].rstrip(")")) == 2 * 128 * 8192
    )  # twice what each call moves, at any size
    assert number(ring[5][1].split("(")[1].rstrip(")")) == 2 * 7 / 8 * 128 * 8192


@pytest.mark.parametrize("way", ["dp", "zero-3", "cp", "ulysses", "ep"])
def test_a_way_without_a_job_of_its_own_is_measured_by_its_calls_alone(client, way):
    given = {"model": "deepseek-v3", "first": way, "second": "tp", "phase": "training", "devices": 4}

    [run, *_] = client.get(PAGE, given).context["answer"].runs

    assert "as=spec&job=exchange" in run.address
    assert run.differences[0].startswith("No model computes here")


def test_the_formula_is_shown_in_letters_and_in_numbers(client):
    response = client.get(PAGE, {"part": "formulas"})

    html = response.content.decode()
    assert html.count("<math") >= 8
    assert r"2\,L \cdot" in html
    assert "64" in html.split("All-reduces per token")[1].split("</math>")[1]


def test_the_chart_and_its_table_say_the_same(client):
    response = client.get(PAGE, {"devices": 6})

    drawn = figure(response, "traffic")
    tp = next(trace for trace in drawn["data"] if trace["name"].startswith("TP"))
    assert tp["x"] == [2, 4, 6, 8, 16, 32, 64]
    assert tp["y"][0] == 1_048_576
    assert tp["y"][2] is None  # 32 heads on 6 devices
    assert f"{iec_bytes(tp['y'][1])}" in words(response)
    assert all(trace["marker"]["symbol"].endswith("-open") for trace in drawn["data"])
    assert drawn["layout"]["yaxis"]["type"] == "log"


def test_sizes_that_do_not_divide_are_said_in_a_sentence(client):
    response = client.get(PAGE, {"model": "llama-3.1-70b", "devices": 3})

    said = words(response)
    assert "tp is 3, but 3 ranks cannot share 64 attention heads equally. Nearest that work: 2 or 4." in said
    assert "pp is 3, but 80 layers do not make 3 stages of equal depth. Nearest that work: 2 or 4." in said


def test_one_device_sends_nothing(client):
    response = client.get(PAGE, {"devices": 1})

    assert "One device holds everything, so nothing travels." in words(response)
    assert "Run it for real" not in words(response)


def test_own_sizes_replace_those_of_a_model(client):
    response = client.get(PAGE, {"model": "llama-3.1-8b", "layers": "16"})

    assert "Llama 3.1 8B, changed: 4,096 wide, 16 layers" in words(response)
    assert table(response, "numbers")[3] == ["Calls", "32", "1"]


def test_own_sizes_need_no_model(client):
    sizes = {
        "model": "own",
        "hidden_size": "2,880",
        "layers": "24",
        "attention_heads": "64",
        "ffn_width": "2880",
        "bytes_per_element": "1",
    }

    response = client.get(PAGE, sizes)

    assert table(response, "numbers")[2][1] == both_bytes(2880)


def test_the_address_brings_the_same_page_back(client):
    first = client.get(
        PAGE, {"model": "phi-4", "devices": "5", "phase": "training", "batch": "", "tokens": "64"}
    )
    again = client.get(PAGE, {"model": "phi-4", "devices": "5", "phase": "training", "tokens": "64"})

    address = again["HX-Replace-Url"]
    back = client.get(address)

    assert "HX-Replace-Url" not in first  # an empty number is no state to come back to
    assert address == f"{PAGE}?model=phi-4&phase=training&devices=5&tokens=64"
    assert table(back, "numbers") == table(again, "numbers")


def test_the_opening_state_is_the_bare_address(client):
    response = client.get(PAGE, {"model": "lesson", "devices": "2", "hidden_size": ""})

    assert response["HX-Replace-Url"] == PAGE


def test_htmx_gets_the_result_and_the_errors_of_the_fields(client):
    headers = {"HX-Request": "true", "HX-Target": "result"}

    response = client.get(PAGE, {"devices": "none"}, headers=headers)

    html = response.content.decode()
    assert "<html" not in html
    assert '<section id="result"' in html
    assert 'id="id_devices_error" aria-live="polite" hx-swap-oob="true">Devices is “none”' in html


def test_a_button_leads_each_split_to_its_run(client):
    response = client.get(PAGE, {"devices": "4", "model": "llama-3.1-8b"})

    html = response.content.decode()
    for job in ("tensor", "pipeline"):
        assert f"/runs/new?job={job}&amp;model=llama-3.1-8b&amp;devices=4" in html


def test_the_page_asks_the_database_for_nothing(client, django_assert_num_queries, db):
    with django_assert_num_queries(0):
        client.get(PAGE)


def test_a_number_in_a_table_is_the_number_in_the_chart(client):
    response = client.get(PAGE, {"devices": "8"})

    sent = number(table(response, "numbers")[5][1].split("(")[1].rstrip(")"))
    tp = next(trace for trace in figure(response, "traffic")["data"] if trace["name"].startswith("TP"))
    assert sent == tp["y"][tp["x"].index(8)]


@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_the_picture_of_a_way_shows_the_bytes_of_its_calculation(way, phase):
    shape = MODELS["mixtral-8x7b"].shape
    case = Case(shape=shape, phase=phase, devices=4, batch=4, tokens=4096, micro_batches=2)

    seen = drawn(case, way)

    if phase is Phase.TRAINING and way.family in ("cp", "ep"):
        assert seen is None
    else:
        assert seen.map.scene.sent.busiest_bytes == pytest.approx(way.traffic(case, 4).wire_bytes.item())
