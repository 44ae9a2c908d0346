"""Whatever an address says, the page answers with a sentence."""

import pytest
from django.urls import reverse
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.calculators.reading import words

PAGE = reverse("calculators:traffic")
NUMBERS = [
    "devices",
    "batch",
    "tokens",
    "micro_batches",
    "hidden_size",
    "layers",
    "attention_heads",
    "ffn_width",
]
ODD = ["nan", "inf", "-inf", "1e400", "-1", "0x10", "1.5", "٣", "²", "1_000", "1,00", "+3", "true", "{{7*7}}"]


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", ODD)
def test_what_is_not_a_whole_number_is_said_beside_its_field(client, name, value):
    response = client.get(PAGE, {name: value})

    label = response.context["form"][name].label
    assert response.status_code == 200
    assert f"{label} is “{value}”, but it must be a whole number from 1 to " in words(response)


def test_zero_is_too_few(client):
    response = client.get(PAGE, {"devices": "0"})

    assert "Devices is 0, but the least that works is 1." in words(response)


@pytest.mark.parametrize("value", ["1025", "9" * 30, "0" * 50 + "7777", "1,000,000"])
def test_absurdly_many_is_too_many(client, value):
    response = client.get(PAGE, {"devices": value})

    assert "but this page stops at 1,024." in words(response)


def test_an_empty_number_is_asked_for(client):
    response = client.get(PAGE, {"batch": " "})

    assert "Sequences is empty. Give a whole number from 1 to 1,000,000." in words(response)


def test_an_unknown_choice_is_named_with_those_there_are(client):
    response = client.get(PAGE, {"phase": "dreaming", "model": "gpt-9"})

    said = words(response)
    assert "Phase is “dreaming”, but it must be one of “decode”, “prefill”, “training”." in said
    assert "Model is “gpt-9”, but it must be one of “lesson”, “llama-3.1-8b”" in said


def test_own_sizes_must_all_be_given(client):
    response = client.get(PAGE, {"model": "own", "layers": "4"})

    said = words(response)
    assert "Hidden size is empty, and no model is chosen to take it from. Give it." in said
    assert "Layers is empty" not in said


def test_a_key_that_the_page_does_not_know_is_named(client):
    response = client.get(PAGE, {"device": "4", "<script>": "1"})

    said = words(response)
    assert "The address also says “<script>”, “device”, which this page does not know" in said
    assert b"<script>\xe2\x80\x9d" not in response.content


def test_a_long_value_is_not_repeated_whole(client):
    response = client.get(PAGE, {"layers": "x" * 5_000})

    assert "Layers is “" + "x" * 40 + "…”" in words(response)


def test_the_largest_of_everything_still_has_an_answer(client):
    most = {"devices": 1024, "batch": 1_000_000, "tokens": 10_000_000, "micro_batches": 100_000}
    sizes = {"hidden_size": 1_000_000, "layers": 10_000, "attention_heads": 10_000, "bytes_per_element": 8}

    response = client.get(PAGE, {"phase": "training", **most, **sizes})

    assert response.status_code == 200
    assert "EiB" in words(response)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(
        st.sampled_from([*NUMBERS, "model", "phase", "key", "x"]), st.text(max_size=30), max_size=5
    )
)
def test_no_address_breaks_the_page(client, address):
    response = client.get(PAGE, address)

    assert response.status_code == 200


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from(["split-map", "inline-traffic", "inline-map", "forecast"]),
    st.dictionaries(
        st.sampled_from(
            ["tp", "pp", "layers", "step", "key", "t1-layers", "m1-tp", "ranks", "job", "batch", "steps"]
        ),
        st.one_of(st.text(max_size=20), st.integers().map(str)),
        max_size=5,
    ),
)
def test_no_address_breaks_the_smaller_ones(client, page, address):
    response = client.get(reverse(f"calculators:{page}"), address)

    assert response.status_code == 200
