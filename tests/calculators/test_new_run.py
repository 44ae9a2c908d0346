"""Starting a run: what will run is said before it does, and one click makes one run."""

import re

import pytest
from django.urls import reverse

from calculators.lab import store
from calculators.lab.fields import is_read
from calculators.lab.reading import CHOICES, READERS
from calculators.lab.spec import Job, experiment, experiment_names
from calculators.runs.spec_form import DECIDING
from tests.calculators.made_runs import measured_run
from tests.calculators.reading import words

PAGE = reverse("calculators:new-run")


def queued(sessions):
    with sessions.reading() as session:
        return store.latest_runs(session, limit=10)


def said_in(response, name):
    """What the form says in an input that is shown."""
    found = re.search(rf'<input(?=[^>]* id="id_{name}")[^>]* value="([^"]*)"', response.content.decode())
    return found and found[1]


def shown_in(response):
    """The names of the fields that are shown."""
    return set(re.findall(r'<div class="field (?:switch )?field-(\w+)"', response.content.decode()))


def asked(name="tensor-decode", **changes):
    return {
        **{key: str(value) for key, value in experiment(name).to_dict().items()},
        "nonce": "n1",
        **changes,
    }


def test_a_calculation_becomes_a_spec_with_the_same_bytes(client, ledger):
    response = client.get(PAGE, {"job": "tensor", "model": "lesson", "devices": "2"})

    said = words(response)
    assert "The run has the same 64 layers, the same 2 ranks and the same bytes in each call" in said
    assert "256 wide × 8 sequences × 4 B instead of 4,096 wide × 1 sequence × 2 B" in said
    assert "rank 0 128 1,048,576 B 0 B 73,728 B 0 B 1,122,304 B" in said


def test_an_experiment_is_asked_for_by_name(client, ledger):
    response = client.get(PAGE, {"experiment": "pipeline-training"})

    assert "From the experiment pipeline-training." in words(response)
    assert said_in(response, "microbatches") == "4"


def test_an_unknown_experiment_is_named_with_those_there_are(client, ledger):
    response = client.get(PAGE, {"experiment": "nothing"})

    known = ", ".join(experiment_names())
    assert f"There is no experiment “nothing”. Those that ship are {known}." in words(response)


def test_a_run_can_be_asked_for_again(client, ledger):
    run_id = measured_run(ledger, layers=3)

    response = client.get(PAGE, {"again": run_id})

    assert f"From run {run_id}." in words(response)
    assert said_in(response, "layers") == "3"


@pytest.mark.parametrize("again", ["999", "x", "٣", "-1", "1e9"])
def test_a_run_that_never_was_cannot_be_asked_for_again(client, ledger, again):
    response = client.get(PAGE, {"again": again})

    assert response.status_code == 404


def test_sizes_that_cannot_be_calculated_go_back_to_the_page_that_says_why(client, ledger):
    response = client.get(PAGE, {"job": "tensor", "layers": "many"}, follow=True)

    assert response.redirect_chain == [("/calculate/traffic?layers=many", 302)]
    assert "Layers is “many”" in words(response)


def test_one_device_has_nothing_to_measure(client, ledger):
    response = client.get(PAGE, {"job": "pipeline", "devices": "1"})

    assert "nothing travels and nothing can be measured" in words(response)


def test_a_stranger_may_look_but_not_start(client, ledger, db):
    looked = client.get(PAGE, {"experiment": "tensor-decode"})
    started = client.post(PAGE, asked())

    assert "Sign in to start it" in words(looked)
    assert "Start the run" not in words(looked)
    assert started.headers["Location"].startswith(reverse("tutor:sign-in"))
    assert queued(ledger) == []


def test_the_learner_starts_a_run(signed_in, ledger):
    response = signed_in.post(PAGE, asked(note="first try"))

    [run] = queued(ledger)
    assert response.headers["Location"] == reverse("calculators:run", args=[run.id])
    assert (run.submitted_by, run.spec, run.spec.note) == ("ada", experiment("tensor-decode"), "first try")


def test_a_changed_experiment_does_not_keep_the_experiments_note(signed_in, ledger):
    signed_in.post(PAGE, asked(layers="2"))

    [run] = queued(ledger)
    assert (run.spec.layers, run.spec.note) == (2, "")


def test_a_double_click_makes_one_run(signed_in, ledger):
    first = signed_in.post(PAGE, asked())
    second = signed_in.post(PAGE, asked())
    another = signed_in.post(PAGE, asked(nonce="n2"))

    assert first.headers["Location"] == second.headers["Location"] != another.headers["Location"]
    assert len(queued(ledger)) == 2


def test_every_problem_of_a_spec_is_said_beside_its_field(signed_in, ledger):
    response = signed_in.post(PAGE, asked(ranks="3", layers="none", steps="1", job="guess"))

    errors = response.context["form"].errors
    assert response.status_code == 200
    assert errors["layers"] == ["layers is “none”, but it must be a whole number from 1 to 256 layers."]
    assert errors["steps"] == ["steps is 1, but the least that works is 10 measured steps."]
    assert "job is “guess”" in errors["job"][0]
    assert all(message in words(response) for messages in errors.values() for message in messages)
    assert queued(ledger) == []


def test_fields_that_contradict_each_other_are_said(signed_in, ledger):
    response = signed_in.post(PAGE, asked(ranks="3"))

    assert "8 attention heads cannot be cut into 3 equal slices." in words(response)
    assert queued(ledger) == []


def test_what_is_typed_stays_in_the_form_that_is_wrong(signed_in, ledger):
    response = signed_in.post(PAGE, asked(layers="<b>7</b>"))

    html = response.content.decode()
    assert 'value="&lt;b&gt;7&lt;/b&gt;"' in html
    assert '<details class="spec" open>' in html
    assert 'name="nonce" value="n1"' in html


def test_the_forecast_follows_the_form(client):
    spec = asked("pipeline-decode", batch="16")

    response = client.get(reverse("calculators:forecast"), spec)

    assert "16 KiB (16,384 B) in a call" in words(response)


def test_the_forecast_says_what_cannot_run(client):
    response = client.get(reverse("calculators:forecast"), asked(ranks="17"))

    assert "ranks is 17, but this lab stops at 16 ranks." in words(response)


@pytest.mark.parametrize(
    ("given", "shown", "hidden"),
    [
        ({"job": "tensor"}, {"qkv", "layers", "sequence"}, {"regather", "schedule", "pattern", "link_mbit"}),
        ({"job": "tensor", "sequence": "true"}, {"regather", "reduce_scatter"}, {"schedule"}),
        ({"job": "pipeline", "phase": "training"}, {"schedule", "chunks"}, {"qkv", "sequence"}),
        ({"job": "pipeline", "phase": "decode"}, {"microbatches"}, {"schedule", "chunks"}),
        (
            {"job": "exchange", "pattern": "ring"},
            {"pattern", "call_bytes"},
            {"skew", "hidden_size", "layers", "phase"},
        ),
        ({"job": "exchange", "pattern": "experts"}, {"skew", "hidden_size"}, {"batch", "layers"}),
        ({"job": "tensor", "hosts": "2"}, {"link_mbit", "delay_ms", "jitter_ms"}, {"pattern"}),
        ({"job": "mesh", "ep": "2"}, {"tp", "pp", "dp", "ep", "experts"}, {"zero"}),
    ],
)
def test_only_the_fields_that_the_job_reads_are_shown(client, given, shown, hidden):
    response = client.get(reverse("calculators:spec-fields"), given, headers={"HX-Request": "true"})

    fields = shown_in(response)
    assert shown <= fields
    assert not hidden & fields
    assert 'id="forecast"' in response.content.decode()


def test_which_fields_are_shown_depends_on_no_other_than_the_form_asks_again_for():
    for job in Job:
        usual = {"job": job}
        for name in set(CHOICES) - set(DECIDING):
            sets = {
                frozenset(field for field in READERS if is_read(field, usual | {name: value}))
                for value in CHOICES[name]
            }
            assert len(sets) == 1, (job, name)


def test_what_was_said_in_a_field_that_is_hidden_comes_back_with_it(client):
    hidden = client.get(reverse("calculators:spec-fields"), {"job": "pipeline", "qkv": "separate"})

    assert '<input type="hidden" name="qkv" value="separate">' in hidden.content.decode()


def test_without_a_script_the_fields_of_another_job_are_asked_for_and_nothing_starts(signed_in, ledger):
    response = signed_in.post(PAGE, asked(job="pipeline", layers="6", show="fields"))

    assert "microbatches" in shown_in(response)
    assert said_in(response, "layers") == "6"
    assert queued(ledger) == []


def test_a_switch_that_is_not_ticked_is_off(signed_in, ledger):
    spec = {name: value for name, value in asked().items() if name not in ("sequence", "regather", "zigzag")}
    signed_in.post(PAGE, spec)
    signed_in.post(PAGE, spec | {"phase": "prefill", "sequence": "true", "nonce": "n2"})

    assert [run.spec.sequence for run in queued(ledger)] == [True, False]


def test_a_wrong_value_in_a_field_that_is_not_read_stops_nothing(signed_in, ledger):
    signed_in.post(PAGE, asked(schedule="guess"))

    assert len(queued(ledger)) == 1


def test_a_run_of_a_guided_experiment_can_be_changed_first(signed_in, ledger):
    response = signed_in.get(PAGE, {"guided": "two-all-reduces", "variant": "training"})

    assert "“Training, 2 ranks” of the guided experiment two-all-reduces" in words(response)
    assert said_in(response, "batch") == "2"
    assert 'href="/experiments/two-all-reduces/">Back to the experiment' in response.content.decode()


def test_a_run_is_made_again_with_one_click(signed_in, ledger):
    run_id = measured_run(ledger, by="grace", layers=3)

    response = signed_in.post(reverse("calculators:run-again", args=[run_id]), {"nonce": "again"})
    signed_in.post(reverse("calculators:run-again", args=[run_id]), {"nonce": "again"})

    newest, old = queued(ledger)
    assert response.headers["Location"] == reverse("calculators:run", args=[newest.id])
    assert (newest.spec, newest.submitted_by) == (old.spec, "ada")


def test_a_field_that_appears_is_shown_at_its_default_and_not_empty(client):
    page = client.get(
        reverse("calculators:spec-fields"),
        {"job": "pipeline", "phase": "training", "schedule": "Interleaved1F1B"},
    )

    assert {"chunks", "microbatches", "hosts"} <= shown_in(page)
    assert said_in(page, "chunks") == "1"
    assert said_in(page, "hosts") == "1"
    page = client.get(reverse("calculators:spec-fields"), {"job": "tensor", "phase": "training"})
    assert "sequence" in shown_in(page)
    assert not re.search(r'<input(?=[^>]* id="id_sequence")[^>]* checked', page.content.decode())
