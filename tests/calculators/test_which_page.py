"""The page *Which split?* asks in order, answers what the adviser answers, and says why not the rest."""

import re
from dataclasses import replace

import pytest
from django.http import QueryDict
from django.urls import reverse

from calculators.lab.spec import Job
from calculators.pages.which import WHICH
from calculators.pages.which.badges import FAMILY_CODES
from calculators.pages.which.form import WhichForm
from calculators.predict.advisor import QUESTIONS, Facts, Technique, advise
from tests.calculators.reading import table, words

PAGE = reverse("calculators:which")
SIX_CARDS = {
    "phase": "serving",
    "fits": "no",
    "tp": "6",
    "hosts": "1",
    "devices_per_host": "6",
    "attention_heads": "64",
    "kv_heads": "8",
    "tool": "vllm",
}
EXPERTS_AFAR = {
    "phase": "serving",
    "overflow": "experts",
    "moe": "yes",
    "hosts": "4",
    "devices_per_host": "1",
    "link_between": "ethernet-10",
}


def asked(response):
    """The questions that the form shows, in order."""
    return re.findall(r"<legend[^>]*>(.*?)</legend>", response.content.decode())[1:]


def offered(response, fact):
    """The answers offered to the question for `fact`, and the one chosen."""
    inputs = re.findall(rf'<input type="radio" name="{fact}"[^>]*>', response.content.decode())
    values = [re.search(r'value="(.*?)"', each)[1] for each in inputs]
    [chosen] = [value for value, each in zip(values, inputs, strict=True) if " checked" in each]
    return values, chosen


def test_it_starts_with_the_lessons_first_fork(client):
    response = client.get(PAGE)

    assert asked(response) == [
        "Does it train, or does it answer?",
        "Does one copy of the model fit on one device?",
    ]
    assert "Not enough is known" in words(response)
    assert "Why not the others" not in words(response)


def test_an_answer_leads_to_the_next_question_until_it_is_decided(client):
    given = {}
    for fact, value, then in (
        ("phase", "training", QUESTIONS[1].asks),
        ("fits", "no", QUESTIONS[2].asks),
    ):
        given[fact] = value
        assert asked(client.get(PAGE, given))[-1] == then

    decided = client.get(PAGE, given | {"overflow": "stack"})

    assert '<h2 id="technique">Pipeline parallelism</h2>' in decided.content.decode()
    assert offered(decided, "overflow")[1] == "stack"
    assert offered(decided, "fits") == (["yes", "no", ""], "no")


@pytest.mark.parametrize("preset", WHICH.presets, ids=lambda preset: preset.label)
def test_it_shows_what_the_adviser_answers(client, preset):
    response = client.get(f"{PAGE}?{preset.query}")
    form = WhichForm(response.wsgi_request.GET)
    assert form.is_valid()
    advice = advise(form.facts)

    said = words(response)
    assert f'<h2 id="technique">{advice.label}</h2>' in response.content.decode()
    assert advice.says in said
    assert [row[0] for row in table(response, "rejected")[1:]] == [
        each.option.label for each in advice.rejected
    ]
    assert [row[1] for row in table(response, "rejected")[1:]] == [each.reason for each in advice.rejected]
    for step in advice.path:
        assert step.asks in said
        assert step.answer in said


def test_the_six_symptoms_come_first_and_each_has_its_family():
    techniques = [advise(_facts(preset.query)).technique for preset in WHICH.presets[:6]]

    assert techniques == [
        Technique.DATA,
        Technique.TENSOR,
        Technique.PIPELINE,
        Technique.SEQUENCE,
        Technique.CONTEXT,
        Technique.EXPERT,
    ]


def _facts(query):
    form = WhichForm(QueryDict(query))
    assert form.is_valid(), form.errors
    return form.facts


def test_no_preset_names_a_product():
    products = ("vllm", "llama", "megatron", "deepspeed", "nvidia", "spark", "exo", "gpt", "qwen")

    assert not [
        preset.label
        for preset in WHICH.presets
        if any(product in preset.label.lower() for product in products)
    ]


def test_numbers_that_break_a_rule_are_named_with_the_nearest_that_work(client):
    said = words(client.get(PAGE, SIX_CARDS))

    assert "tp is 6, but 6 ranks cannot share 64 attention heads equally. Nearest that work: 4 or 8." in said
    assert "Use TP 4, or TP 2 × PP 3 on all 6 with several requests in flight." in said
    assert "the numbers break a rule" in said
    assert "Checked by vLLM" in said


def test_a_size_that_no_button_has_gets_a_button(client):
    values, chosen = offered(client.get(PAGE, SIX_CARDS), "tp")

    assert (values, chosen) == (["1", "2", "4", "8", "6", ""], "6")


@pytest.mark.parametrize("wording", ["exam", "practice"])
def test_where_the_wordings_differ_both_stand_side_by_side(client, wording):
    response = client.get(PAGE, EXPERTS_AFAR | {"wording": wording})
    sides = response.content.decode().split('id="wordings"')[1]

    assert sides.index("As an exam asks it") < sides.index("Expert parallelism")
    assert sides.index("Expert parallelism") < sides.index("As code and wire do it")
    assert sides.index("As code and wire do it") < sides.index("Pipeline parallelism")
    chosen = "Expert" if wording == "exam" else "Pipeline"
    assert f'<h2 id="technique">{chosen} parallelism</h2>' in response.content.decode()


def test_where_they_agree_there_is_one_answer(client):
    assert 'id="wordings"' not in client.get(PAGE, {"overflow": "layer"}).content.decode()


@pytest.mark.parametrize(
    ("given", "jobs"),
    [
        ({"overflow": "layer"}, [Job.TENSOR]),
        ({"overflow": "stack"}, [Job.PIPELINE]),
        ({"overflow": "layer,stack", "hosts": "2", "devices_per_host": "8"}, [Job.TENSOR, Job.PIPELINE]),
        ({"overflow": "sequence"}, [Job.EXCHANGE]),
        ({"overflow": "experts"}, [Job.EXCHANGE]),
        ({"overflow": "model-states"}, [Job.EXCHANGE]),
        ({"fits": "yes", "phase": "training"}, [Job.EXCHANGE]),
        ({"overflow": "activations", "tp": "8"}, []),
    ],
)
def test_what_is_recommended_can_be_run_for_real_on_few_ranks(client, given, jobs):
    response = client.get(PAGE, given)
    runs = response.context["answer"].runs

    assert [f"job={job}" in run.address for run, job in zip(runs, jobs, strict=True)] == [True] * len(jobs)
    for run in runs:
        page = client.get(run.address)
        assert page.status_code == 200
        assert run.label in words(response)


def test_a_run_of_more_devices_than_a_machine_bears_says_what_differs(client):
    [run] = (
        client.get(PAGE, {"overflow": "stack", "hosts": "1", "devices_per_host": "8"}).context["answer"].runs
    )

    assert run.differences == ("4 ranks instead of 8: they share one machine.",)


@pytest.mark.parametrize("preset", WHICH.presets, ids=lambda preset: preset.label)
def test_its_ways_on_lead_to_calculators_that_know_their_numbers(client, preset):
    ways = client.get(f"{PAGE}?{preset.query}").context["answer"].ways_on

    assert ways
    for way in ways:
        response = client.get(way.address)
        assert response.context["answer"] is not None, words(response)
        assert response.context["form"].unknown == []


def test_nothing_that_is_not_a_number_is_taken_and_the_answers_stay(client):
    response = client.get(PAGE, {"fits": "no", "overflow": "stack", "tp": "many", "link_busy": "2"})

    said = words(response)
    assert "TP is “many”, but it must be a whole number from 1 to 4,096." in said
    assert "Link in use is 2, but this page takes 0 to 1." in said
    assert response.context["answer"] is None
    assert offered(response, "overflow")[1] == "stack"


def test_an_answer_that_is_not_offered_is_named(client):
    said = words(client.get(PAGE, {"phase": "dreaming"}))

    assert "Phase is “dreaming”, but it must be one of “training”, “serving”." in said


def test_every_fact_of_the_form_is_one_of_the_adviser_and_every_family_has_a_colour():
    assert set(WhichForm.base_fields) == set(Facts.__dataclass_fields__)
    assert set(FAMILY_CODES.values()) == {"dp", "tp", "pp", "sp", "cp", "ep"}


def test_htmx_gets_the_questions_and_the_advice_alone(client):
    whole = client.get(PAGE, {"fits": "yes"})
    part = client.get(PAGE, {"fits": "yes"}, headers={"HX-Request": "true", "HX-Target": "result"})

    assert "<h1>" in whole.content.decode()
    assert "<h1>" not in part.content.decode()
    assert asked(part) == asked(whole)
    assert part["HX-Replace-Url"] == f"{PAGE}?fits=yes"


def test_what_is_answered_is_folded_up_but_for_the_answer_just_given(client):
    given = {"phase": "training", "fits": "no"}
    swapped = client.get(
        PAGE, given, headers={"HX-Request": "true", "HX-Target": "result", "HX-Trigger": "ask-fits"}
    ).content.decode()

    folded = [each for each in re.findall(r"<details[^>]*>", swapped) if "question" in each]
    assert folded == ['<details class="question">', '<details class="question" open>']
    assert "<strong>It does not fit</strong>" in swapped


def test_the_same_facts_in_python_give_the_same_advice(client):
    page = client.get(PAGE, SIX_CARDS).context["answer"]
    imports, call = page.python.split("\n\n")
    namespace = {}
    exec(imports, namespace)

    again = eval(call, namespace)

    assert replace(again, otherwise=None) == replace(page.advice, otherwise=None)


def _query(query):
    return QueryDict(query)


def test_an_advice_stands_beside_what_each_split_would_leave(client):
    chart = (
        client.get(PAGE + "?phase=training&overflow=sequence&tp=1&tokens=131072").context["answer"].charts[0]
    )

    left = {row.cells[0]: row.cells[1:] for row in chart.table.rows}
    assert left["Data parallelism, plain replicas"] == ("100 %", "100 %")
    assert left["Context parallelism, ring"][0] == "100 %"
    assert left["Pipeline parallelism"] == (
        "17 %",
        "98 %",
    )  # a full pipeline's first stage holds as many activations
    assert left["Tensor parallelism"][1] > left["Tensor with sequence parallelism"][1]
    assert "Expert parallelism" not in left


def test_experts_are_in_the_picture_of_a_model_that_has_them(client):
    chart = (
        client.get(PAGE + "?phase=training&overflow=experts&moe=yes&experts=64").context["answer"].charts[0]
    )

    left = {row.cells[0]: row.cells[1:] for row in chart.table.rows}
    assert left["Expert parallelism"][1] == "100 %"
    assert "Mixtral" in chart.caption
