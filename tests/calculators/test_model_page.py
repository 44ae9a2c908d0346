"""The page *Model*: a configuration becomes an address or sentences, and a model is shown by its parts."""

import json
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse

from calculators.fields import ModelField
from calculators.pages import CALCULATORS
from calculators.pages.model import MODEL
from calculators.pages.model.counts import Recount, people
from calculators.predict.models.catalogue import MODELS
from calculators.predict.models.codes import code_of, shape_of
from calculators.predict.models.configs import LARGEST_BYTES, read_config
from calculators.predict.models.parameters import active_parameters, parameter_parts
from calculators.predict.rules import sizes_that_work
from tests.calculators.reading import figure, number, table, words

PAGE = reverse("calculators:model")
READ = reverse("calculators:read-model")
CONFIGS = Path(__file__).parents[1] / "predict" / "configs"
QWEN2 = (CONFIGS / "qwen2-57b-a14b.json").read_text()
PHI_4 = (CONFIGS / "phi-4.json").read_text()


def given_model(response):
    """The model that the address names to which a reading led."""
    assert response.status_code == 302
    return parse_qs(urlsplit(response["Location"]).query)["model"][0]


@pytest.mark.parametrize("key", MODELS)
def test_every_model_of_the_catalogue_has_its_page(client, key):
    response = client.get(PAGE, {"model": key})

    shape = MODELS[key].shape
    assert f"{shape.name}: {people(MODELS[key].parameters)} parameters" in words(response)
    assert [row[0] for row in table(response, "splits")[1:]] == ["TP", "PP"] + ["EP"] * shape.is_sparse


@pytest.mark.parametrize("key", ["llama-3.1-8b", "deepseek-v3", "gpt-3-175b"])
def test_the_parts_in_the_table_and_in_the_chart_are_those_of_predict(client, key):
    response = client.get(PAGE, {"model": key})

    shape = MODELS[key].shape
    parts = parameter_parts(shape)
    rows = {row[0]: [number(cell) for cell in (row[1], *row[3:])] for row in table(response, "parts")[1:]}
    drawn = {
        trace["name"]: dict(zip(trace["y"], trace["x"], strict=True))
        for trace in figure(response, "parts")["data"]
    }
    assert rows["All"][0] == parts.total
    assert rows["Attention"][0] == parts.attention == drawn["held"]["Attention"]
    assert sum(drawn["held"].values()) == parts.total
    if shape.is_sparse:
        assert rows["All"][1] == active_parameters(shape) == sum(drawn["used by one token"].values())
    else:
        assert set(drawn) == {"held"}


@pytest.mark.parametrize(
    ("key", "title", "ticks"),
    [
        ("deepseek-v3", "billion parameters", ["0", "200", "400", "600", "800"]),
        ("kimi-k2", "billion parameters", ["0", "500", "1,000", "1,500"]),
        ("llama-3.1-8b", "billion parameters", ["0", "2", "4", "6"]),
    ],
)
def test_the_chart_counts_in_the_words_of_its_largest_part(client, key, title, ticks):
    across = figure(client.get(PAGE, {"model": key}), "parts")["layout"]["xaxis"]

    assert (across["title"]["text"], across["ticktext"]) == (title, ticks)


def test_a_published_count_is_compared_with_the_one_of_the_sizes(client):
    said = words(client.get(PAGE, {"model": "mixtral-8x7b"}))

    assert "Published: 46.7 billion. These sizes make 46.703 billion, 0.01 % more." in said
    assert "Published for one token: 12.9 billion." in said


def test_a_count_that_is_off_by_more_than_a_percent_gets_a_warning(client):
    said = words(client.get(PAGE, {"model": "llama-2-70b", "published": "70"}))

    assert "Published: 70 billion. These sizes make 68.977 billion, 1.46 % less." in said
    assert "More than 1 % is no rounding" in said


def test_a_model_without_a_published_count_asks_for_it(client):
    assert "No published count is known for these sizes." in words(client.get(PAGE, {"model": "lesson"}))


@pytest.mark.parametrize(
    ("counted", "agrees", "says"),
    [
        (100_000_000, True, "less than 0.01 % apart"),
        (100_900_000, True, "0.90 % more"),
        (98_900_000, False, "1.10 % less"),
    ],
)
def test_one_percent_is_the_line(counted, agrees, says):
    recount = Recount(published=1e8, counted=counted)

    assert recount.agrees is agrees
    assert recount.says.endswith(f"{says}.")


def test_the_sizes_that_work_are_those_of_the_rules(client):
    rows = {row[0]: row for row in table(client.get(PAGE, {"model": "deepseek-v3"}), "splits")[1:]}

    shape = MODELS["deepseek-v3"].shape
    assert {axis: rows[axis.upper()][1] for axis in ("tp", "pp", "ep")} == {
        axis: ", ".join(map(str, sizes_that_work(shape, axis))) for axis in ("tp", "pp", "ep")
    }
    assert rows["PP"][2].startswith("61 layers make no equal stages of several")
    assert "Every rank caches the whole vector" in rows["TP"][2]


def test_keys_and_values_of_a_token_are_the_published_ones(client):
    assert "Every token adds 68.6 KiB (70,272 B) of keys and values" in words(
        client.get(PAGE, {"model": "deepseek-v3"})
    )
    assert "Every token adds 128 KiB (131,072 B) of keys and values" in words(client.get(PAGE))


def test_a_window_keeps_the_cache_from_growing_in_its_layers(client):
    response = client.get(PAGE, {"model": "gpt-oss-120b"})

    rows = table(response, "cache")
    per_layer = 2 * 8 * 64 * 2
    assert rows[1] == ["1,024", "40.5 MiB (42,467,328 B)", "72 MiB"]
    assert per_layer * 18 * (1024 + 128) == 42_467_328
    assert "18 of the 36 layers forget it again once 128 tokens have come after it" in words(response)


@pytest.mark.parametrize("key", ["llama-3.1-8b", "deepseek-v3"])
def test_every_formula_is_there_in_letters_and_in_numbers(client, key):
    html = client.get(PAGE, {"model": key, "part": "formulas"}).content.decode()

    for gives in ("Attention of one layer", "All layers", "All parameters", "Keys and values of one token"):
        assert gives in html
    assert (
        "<code>" not in html.split("Why these numbers")[1].split("Run it for real")[0]
    )  # a formula that failed


def test_a_pasted_configuration_becomes_an_address_with_its_sizes(client):
    response = client.post(READ, {"text": QWEN2, "name": "Qwen2 57B-A14B"})

    code = given_model(response)
    assert code == code_of(read_config(QWEN2, "Qwen2 57B-A14B"))
    page = client.get(response["Location"])
    assert "Qwen2 57B-A14B: 57.4 billion parameters, of which one token uses 14.2 billion." in words(page)
    assert page["HX-Replace-Url"] == response["Location"]
    assert f'<option value="{code}" selected>Qwen2 57B-A14B (yours)</option>' in page.content.decode()


def test_an_uploaded_configuration_does_the_same(client):
    file = SimpleUploadedFile("config.json", QWEN2.encode(), "application/json")

    response = client.post(READ, {"file": file, "text": ""})

    assert shape_of(given_model(response)).experts.routed == 64


def test_sizes_of_the_catalogue_lead_to_its_model(client):
    assert given_model(client.post(READ, {"text": PHI_4, "name": "mine"})) == "phi-4"


def test_the_page_s_own_model_leads_to_the_bare_address(client):
    text = (CONFIGS / "llama-3.1-8b.json").read_text()

    assert client.post(READ, {"text": text})["Location"] == PAGE


def test_what_is_wrong_is_listed_and_the_text_is_kept(client):
    text = json.dumps({"model_type": "llama", "hidden_size": "<b>", "num_hidden_layers": 0})

    response = client.post(READ, {"text": text, "name": "<i>"})

    html, said = response.content.decode(), words(response)
    assert 'hidden_size is "<b>": write a whole number from 1 to 1,000,000, without quotation marks.' in said
    assert "num_hidden_layers is 0: write a whole number from 1 to 10,000." in said
    assert (
        "lacks num_attention_heads, vocab_size and intermediate_size: add them, or give the whole file."
        in said
    )
    assert text in said
    assert "<b>" not in html
    assert "<i>" not in html
    assert "Where the parameters are" not in said  # nothing of another model below


def test_a_truncated_upload_is_shown_with_the_place_where_it_ends(client):
    file = SimpleUploadedFile("config.json", b'{"hidden_size": 4096,\n "num_', "application/json")

    response = client.post(READ, {"file": file})

    assert "The file ends before its last bracket is closed (line 2, column 2)" in words(response)
    assert ' "num_</textarea>' in response.content.decode().replace("&quot;", '"')


def test_a_file_that_is_no_text_is_refused_and_not_shown(client):
    file = SimpleUploadedFile("model.safetensors", b"\xff\xfe\x00" * 100)

    response = client.post(READ, {"file": file})

    assert "Byte 1 of the file is no UTF-8 text" in words(response)


def test_a_text_and_a_file_at_once_are_one_too_many(client):
    file = SimpleUploadedFile("config.json", PHI_4.encode())

    response = client.post(READ, {"text": QWEN2, "file": file})

    assert "A text was pasted and a file was chosen as well: give one of them." in words(response)


def test_nothing_at_all_is_said_to_be_nothing(client):
    assert "Nothing was given: paste the text of a config.json, or upload one." in words(client.post(READ))


@pytest.mark.parametrize("size", [LARGEST_BYTES + 1, 2 * LARGEST_BYTES, 8 * LARGEST_BYTES])
def test_a_large_file_is_refused_by_its_size(client, size):
    response = client.post(READ, {"file": SimpleUploadedFile("model.bin", b"x" * size)})

    assert f"this page reads {LARGEST_BYTES:,} at most" in words(response)


def test_a_large_request_is_refused_before_it_is_read():
    client = Client(enforce_csrf_checks=True)  # its token would be missed if the body were read

    response = client.post(READ, {"text": "x" * (5 * LARGEST_BYTES)})

    assert response.status_code == 200
    assert "bytes were sent, but a config.json takes a few thousand" in words(response)


def test_a_form_from_elsewhere_is_refused():
    client = Client(enforce_csrf_checks=True)

    assert client.post(READ, {"text": PHI_4}).status_code == 403


def test_reading_is_asked_for_by_post_alone(client):
    assert client.get(READ).status_code == 405


@pytest.mark.parametrize(
    "code", ["h4096", "gpt-7", "<script>", "h4096.l64.a32.k8.d128.f1.v1.b2~%FF", "x" * 5000]
)
def test_an_address_with_no_model_gets_a_sentence(client, code):
    response = client.get(PAGE, {"model": code})

    assert response.status_code == 200
    assert "Nothing is calculated yet" in words(response)
    assert "<script>" not in words(response).replace(code, "")


@pytest.mark.parametrize(
    "code",
    [
        "h1.l1.a1.k1.d1.f1.v1.b1",
        "h7.l13.a3.k2.d5.f11.v17.b3.e5-3-7-2-4.w9-6",
        "h1000000.l10000.a10000.k10000.d100000.f10000000.v100000000.b8.e100000-100000-10000000-10000000-9999"
        ".c1000000-100000-1000000-100000.w1000000000-10000",
    ],
)
def test_the_smallest_and_the_largest_model_of_an_address_have_their_page(client, code):
    response = client.get(PAGE, {"model": code})

    assert response.context["answer"] is not None, words(response)
    assert table(response, "parts")[-1][0] == "All"


def test_every_calculator_that_takes_a_model_is_one_click_away(client):
    code = given_model(client.post(READ, {"text": QWEN2}))

    onward = client.get(PAGE, {"model": code}).context["answer"].onward

    assert {change.says for change in onward} == {
        page.title for page in CALCULATORS if isinstance(page.form.base_fields.get("model"), ModelField)
    } - {MODEL.title}
    for change in onward:
        assert f"model={code}" in change.address
        assert client.get(change.address).context["answer"] is not None


def test_the_form_works_without_a_script(client):
    html = client.get(PAGE).content.decode()

    form = (
        html.split(f'action="{READ}"')[0].rsplit("<form", 1)[1]
        + html.split(f'action="{READ}"')[1].split("</form>")[0]
    )
    assert 'method="post"' in form
    assert 'enctype="multipart/form-data"' in form
    assert "csrfmiddlewaretoken" in form
    assert "hx-" not in form


def test_htmx_gets_the_result_alone(client):
    response = client.get(PAGE, {"model": "phi-4"}, headers={"HX-Request": "true", "HX-Target": "result"})

    html = response.content.decode()
    assert html.lstrip().startswith("<section")
    assert "<textarea" not in html
