"""What all calculator pages share: states as addresses, runs that are spelled out, Python that runs as it stands."""

import pytest
from django.core.exceptions import ValidationError
from django.urls import reverse
from django.utils.html import json_script

from calculators.fields import Decimal
from calculators.lab.spec import Job, Phase, Spec
from calculators.pages import CALCULATORS
from calculators.predict.models.catalogue import MODELS
from calculators.predict.shapes import Layout, Layouts, Recompute
from calculators.predict.shapes import Phase as PredictPhase
from calculators.predict.traffic import tensor_parallel
from calculators.python_calls import python_call
from calculators.workbench import Chart, Table, run_address
from tests.calculators.reading import words

INDEX = reverse("calculators:index")
SPEC = Spec(job=Job.PIPELINE, phase=Phase.TRAINING, ranks=4, batch=16, microbatches=8, steps=10)


def run_as_written(call):
    """What the last line of `call` gives."""
    imports, last = call.split("\n\n")
    namespace = {}
    exec(imports, namespace)
    return eval(last, namespace)


@pytest.mark.parametrize("page", CALCULATORS, ids=lambda page: page.name)
def test_a_calculator_opens_with_an_answer_and_is_on_the_index(client, page):
    opened = client.get(page.address)

    assert opened.context["answer"] is not None, words(opened)
    assert page.title in words(client.get(INDEX))
    assert page.asks in words(client.get(INDEX))


@pytest.mark.parametrize(
    ("page", "preset"),
    [(page, preset) for page in CALCULATORS for preset in page.presets],
    ids=lambda value: value.name if hasattr(value, "name") else value.label,
)
def test_a_preset_leads_to_an_answer_at_its_own_address(client, page, preset):
    response = client.get(page.at(preset.query))

    assert response.context["answer"] is not None, words(response)
    assert response["HX-Replace-Url"] == page.at(preset.query)
    assert 'aria-current="true"' in response.content.decode().split('class="presets')[1].split("</nav>")[0]


@pytest.mark.parametrize("page", CALCULATORS, ids=lambda page: page.name)
def test_its_lessons_exist(client, db, page):
    assert page.lessons
    for lesson in page.lessons:
        assert lesson.title in words(client.get(lesson.address))


@pytest.mark.parametrize("page", CALCULATORS, ids=lambda page: page.name)
def test_a_page_has_a_table_for_every_chart_and_python_that_runs(client, page):
    answer = client.get(page.address).context["answer"]

    assert all(chart.table.rows for chart in answer.charts)
    assert run_as_written(answer.python) is not None


@pytest.mark.parametrize(
    ("page", "part"),
    [(page, part) for page in CALCULATORS for part in page.parts],
    ids=lambda value: getattr(value, "name", value),
)
def test_a_part_is_calculated_when_its_address_asks_for_it(client, page, part):
    closed = client.get(page.address)
    address = closed.context["parts"][part].address
    opened, alone = (
        client.get(address),
        client.get(address, headers={"HX-Request": "true", "HX-Target": part}),
    )

    assert f'hx-get="{address}"' in closed.content.decode()
    assert f'<div id="{part}"' not in closed.content.decode()
    assert "formulas" not in vars(closed.context["answer"])
    content = alone.content.decode().strip()
    assert content.startswith(f'<div id="{part}"')
    assert len(words(alone)) > 40
    assert content in opened.content.decode()
    assert opened["HX-Replace-Url"] == page.address
    assert "does not know" not in words(opened)


def test_parts_that_are_open_stay_open_and_one_that_is_not_there_is_named(client):
    page = next(page for page in CALCULATORS if page.name == "layout")
    opened = client.get(page.at("tp=4&part=formulas&part=exchange"))
    unknown = client.get(page.at("part=formulas&part=base.html"))

    is_open = {name: part.is_open for name, part in opened.context["parts"].items()}
    assert is_open == {"each_call": False, "exchange": True, "formulas": True}
    assert "The address also says “part”, which this page does not know" in words(unknown)


@pytest.mark.parametrize("part", ["formulas", "each_call", "exchange"])
def test_nothing_is_shown_of_a_part_where_there_is_no_answer(client, part):
    for state in ("tp=6&pp=3", "tp=none", "devices=1&devices_per_host=1&tp=1&pp=1"):
        response = client.get(
            f"/calculate/layout?{state}&part={part}", headers={"HX-Request": "true", "HX-Target": part}
        )

        assert response.status_code == 200
        assert "<table" not in response.content.decode()


def test_a_call_as_python_gives_the_same_as_the_call():
    given = {"hidden_size": 4096, "layers": 64, "ranks": [2, 4], "phase": PredictPhase.DECODE}

    written = python_call(tensor_parallel, **given)

    assert run_as_written(written).wire_bytes.tolist() == tensor_parallel(**given).wire_bytes.tolist()


def test_models_and_layouts_are_written_by_name_and_without_their_defaults():
    def about(shape, layouts):
        return shape, layouts

    about.__module__, about.__name__ = "builtins", "print"

    written = python_call(
        about, MODELS["phi-4"].shape, layouts=Layouts.of(Layout(tp=4, sp=True), recompute=Recompute.FULL)
    )

    assert "model('phi-4').shape" in written
    assert "Layouts(tp=4, sp=True, recompute=Recompute.FULL)" in written


def test_a_run_that_is_spelled_out_is_that_very_run(client, db):
    response = client.get(run_address(SPEC, back="/calculate/traffic?devices=4"))

    assert response.context["forecast"].spec == SPEC
    assert response.context["back"] == "/calculate/traffic?devices=4"


def test_a_run_that_cannot_be_is_refused_where_it_would_start(client, db):
    response = client.get(run_address(SPEC, back="").replace("ranks=4", "ranks=0"))

    assert response.status_code == 200
    assert "ranks is 0, but the least that works is 1 ranks." in words(response)


@pytest.mark.parametrize("back", ["https://elsewhere.example/", "//elsewhere.example", "javascript:alert(1)"])
def test_the_way_back_never_leads_to_another_site(client, db, back):
    response = client.get(run_address(SPEC, back=back))

    assert "back" not in response.context


@pytest.mark.parametrize(
    ("given", "number"), [("2.5", 2.5), ("1e-3", 0.001), ("12,500", 12_500), (" 7 ", 7), (".5", 0.5)]
)
def test_a_decimal_is_read_as_people_write_it(given, number):
    assert Decimal(low=0.001, high=1e6, label="Speed").clean(given) == number


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("", "Speed is empty. Give a number from 0.5 to 100."),
        ("fast", "Speed is “fast”, but it must be a number from 0.5 to 100."),
        ("nan", "Speed is “nan”, but it must be a number from 0.5 to 100."),
        ("inf", "Speed is “inf”, but it must be a number from 0.5 to 100."),
        ("1e999", "Speed is “1e999”, but it must be a number from 0.5 to 100."),
        ("0x10", "Speed is “0x10”, but it must be a number from 0.5 to 100."),
        ("1_000", "Speed is “1_000”, but it must be a number from 0.5 to 100."),
        ("0.1", "Speed is 0.1, but this page takes 0.5 to 100."),
        ("-3", "Speed is -3, but this page takes 0.5 to 100."),
    ],
)
def test_what_is_no_such_number_is_said_in_a_sentence(given, sentence):
    with pytest.raises(ValidationError) as refused:
        Decimal(low=0.5, high=100, label="Speed").clean(given)

    assert refused.value.messages == [sentence]


def test_the_index_of_calculators_lists_the_split_map_too(client):
    assert "Split map" in words(client.get(INDEX))


def test_a_figure_is_written_as_django_would_write_it():
    figure = {"data": [{"name": "</script><b>&é", "y": [1.5, None]}]}
    chart = Chart(name="one", figure=figure, caption="", table=Table(caption="", heads=(), rows=()))

    assert json_script(figure, "one-figure") in chart.html
