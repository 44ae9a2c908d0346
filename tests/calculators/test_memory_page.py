"""The memory page says what the fullest device holds, whether it fits, and leads to what would."""

import html
import re

import pytest
from django.urls import reverse

from calculators.lab.spec import Job
from calculators.pages.memory import MEMORY
from calculators.pages.memory.form import MemoryForm
from calculators.predict.memory import serving_memory, training_memory
from calculators.predict.models.catalogue import MODELS
from calculators.predict.shapes import Layouts, Recompute
from calculators.units import both_bytes, iec_bytes
from tests.calculators.reading import figure, table, words

PAGE = reverse("calculators:memory")
LLAMA = MODELS["llama-3.1-70b"].shape
FITS = {"sp": "on", "zero": "1", "recompute": "selective"}


def links(response, name):
    """Addresses in the element with this id."""
    found = re.search(rf'id="{name}".*?</(?:table|ol)>', response.content.decode(), re.DOTALL).group()
    return [html.unescape(address) for address in re.findall(r'href="([^"]+)"', found)]


def total(response):
    return table(response, "parts")[-1][1]


def parts(response):
    """The first word of each line, in small letters."""
    return [re.split(r"\W", row[0].lower())[0] for row in table(response, "parts")[1:]]


def test_training_opens_on_a_layout_that_does_not_fit(client):
    response = client.get(PAGE)

    memory = training_memory(LLAMA, Layouts(tp=8, dp=8), tokens=8192, micro_batches=16)
    said = words(response)
    assert f"The fullest of 64 devices holds {iec_bytes(memory.total.item())}: it does not fit." in said
    assert "H100 SXM has 80 GiB, of which 72 GiB are to be filled" in said
    assert total(response) == both_bytes(memory.total.item())
    assert parts(response) == ["weights", "gradients", "optimizer", "activations", "together"]


def test_every_choice_of_training_is_calculated(client):
    given = {
        "model": "deepseek-v3",
        "tp": 2,
        "pp": 16,
        "dp": 64,
        "cp": 2,
        "ep": 64,
        "vpp": 2,
        "sp": "on",
        "zero": 3,
        "tokens": 4096,
        "micro_batch": 2,
        "micro_batches": 64,
        "recompute": "full",
    }

    response = client.get(PAGE, given)

    layouts = Layouts(
        tp=2, pp=16, dp=64, cp=2, ep=64, vpp=2, sp=True, zero=3, micro_batch=2, recompute=int(Recompute.FULL)
    )
    memory = training_memory(MODELS["deepseek-v3"].shape, layouts, tokens=4096, micro_batches=64)
    assert total(response) == both_bytes(memory.total.item())
    assert parts(response)[-2:] == ["working", "together"]


def test_every_choice_of_serving_is_calculated(client):
    given = {
        "phase": "serving",
        "tp": 4,
        "dp": 1,
        "batch": 8,
        "tokens": 1024,
        "kv_bytes": "0.5",
        "weight_bytes": "1",
    }

    response = client.get(PAGE, given)

    memory = serving_memory(
        LLAMA,
        Layouts(tp=4),
        batch=8,
        context_tokens=1024,
        kv_bytes_per_element=0.5,
        weight_bytes_per_element=1,
    )
    assert total(response) == both_bytes(memory.total.item())
    assert "The fullest of 4 devices holds" in words(response)
    assert "it fits." in words(response)


def test_the_changes_lead_to_the_very_states_that_they_promise(client):
    response = client.get(PAGE)
    promised = [row[1] for row in table(response, "changes")[1:]]
    addresses = links(response, "changes")

    assert len(promised) == len(addresses) > 5
    for held, address in zip(promised, addresses, strict=True):
        assert iec_bytes(client.get(PAGE + address).context["answer"].holds) == held


def test_where_no_change_alone_suffices_several_are_listed_and_the_last_fits(client):
    response = client.get(PAGE)

    assert "None of these changes alone makes it fit. One after another they do:" in words(response)
    assert "it fits." in words(client.get(PAGE + links(response, "way")[-1]))


def test_where_one_change_suffices_it_is_told(client):
    response = client.get(PAGE, {"phase": "serving", "tp": 2, "dp": 1})

    assert "Any of 5 changes alone makes it fit:" in words(response)
    assert [row[2] for row in table(response, "changes")[1:]].count("yes") == 5


def test_what_fits_says_what_is_left(client):
    response = client.get(PAGE, FITS)

    assert "it fits." in words(response)
    assert "to spare." in words(response)
    assert "What would make it smaller" in words(response)


def test_more_is_left_free_when_asked_for(client):
    response = client.get(PAGE, FITS | {"reserve": "30"})

    assert "it does not fit." in words(response)
    assert "of which 56 GiB are to be filled" in words(response)


def test_the_chart_stacks_hollow_parts_beside_the_device_s_limit(client):
    response = client.get(PAGE)
    drawn = figure(response, "memory")

    assert drawn["layout"]["barmode"] == "stack"
    bars = [trace for trace in drawn["data"] if trace["type"] == "bar"]
    assert all(bar["marker"]["color"] == "rgba(0,0,0,0)" for bar in bars)
    assert drawn["layout"]["shapes"][0]["y0"] == pytest.approx(72 * 2**30)
    stacked = sum(bar["y"][0] for bar in bars)
    assert both_bytes(stacked) == total(response)
    assert len(table(response, "neighbours")) - 1 == len(bars[0]["x"])


def test_a_broken_rule_is_told_beside_the_numbers(client):
    response = client.get(PAGE, {"tp": 3, "dp": 1})

    assert "Rule R1: tp is 3" in words(response)
    assert total(response)


def test_the_optimizer_that_leaves_something_out_says_so(client):
    response = client.get(PAGE, {"optimizer": "bridge-adam"})

    assert "It has no fp32 master weights" in words(response)


def test_its_runs_are_those_of_the_layout_s_widest_splits_and_say_what_they_measure(client):
    response = client.get(PAGE, {"tp": 2, "pp": 4, "dp": 1})
    runs = response.context["answer"].runs

    assert [run.label for run in runs] == ["Run its PP for real", "Run its TP for real"]
    assert f"job={Job.PIPELINE.value}" in runs[0].address
    assert "not yet the memory that each of them holds" in words(response)


def test_one_device_has_nothing_to_run(client):
    response = client.get(PAGE, {"model": "llama-3.1-8b", "phase": "serving", "tp": 1, "dp": 1})

    assert response.context["answer"].runs == ()
    assert "The device holds" in words(response)


@pytest.mark.parametrize("preset", MEMORY.presets, ids=lambda preset: preset.label)
def test_a_case_and_its_address_are_one(preset):
    given = dict(pair.split("=") for pair in preset.query.split("&")) if preset.query else {}
    form = MemoryForm(given)

    assert form.is_valid()
    assert form.address_of(form.case) == f"?{form.address}"


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"tp": "0"}, "Tensor, tp is 0, but the least that works is 1."),
        ({"pp": "many"}, "Pipeline, pp is “many”, but it must be a whole number from 1 to 1,024."),
        ({"tokens": ""}, "Tokens is empty. Give a whole number from 1 to 10,000,000."),
        (
            {"zero": "4"},
            "Replicas share out is “4”, but it must be one of “0”, “1”, “2”, “3”.",
        ),
        ({"reserve": "100"}, "Left free, % is 100, but this page takes 0 to 99."),
        ({"reserve": "nan"}, "Left free, % is “nan”, but it must be a number from 0 to 99."),
        (
            {"recompute": "some"},
            "Recompute is “some”, but it must be one of “none”, “selective”, “full”.",
        ),
    ],
)
def test_what_cannot_be_is_said_in_a_sentence(client, given, sentence):
    response = client.get(PAGE, given)

    assert response.status_code == 200
    assert sentence in words(response)
