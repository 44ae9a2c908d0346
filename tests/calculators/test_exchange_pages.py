"""The pages of a run that makes calls alone say so, in the colour and the words of its family."""

import pytest
from django.urls import reverse

from calculators.exchange_trials import CalculatedCalls, exchange_trial
from calculators.lab import store
from calculators.lab.spec import ALONE, Pattern, Spec, experiment
from calculators.runs import title_of
from calculators.workbench import run_address
from tests.calculators.made_runs import measured_run, waiting_run
from tests.calculators.reading import words

EXPERTS = {
    "job": "exchange",
    "pattern": "experts",
    "ranks": 4,
    "call_bytes": 262_144,
    "repeats": 2,
    "skew": 1.2,
    "steps": 10,
}


def page_of(run_id):
    return reverse("calculators:run", args=[run_id])


@pytest.mark.parametrize(
    ("pattern", "title"),
    [
        ("gradients", "Calls of data parallelism, gradients"),
        ("zero-1", "Calls of data parallelism, ZeRO-1"),
        ("zero-2", "Calls of data parallelism, ZeRO-2"),
        ("zero-3", "Calls of data parallelism, ZeRO-3"),
        ("ring", "Calls of context parallelism, ring"),
        ("key-value-gather", "Calls of context parallelism, gathered keys and values"),
        ("ulysses", "Calls of context parallelism, Ulysses"),
        ("experts", "Calls of expert parallelism, dispatch and combine"),
    ],
)
def test_a_title_says_whose_calls_they_are(pattern, title):
    assert title_of(Spec.parse({"job": "exchange", "pattern": pattern})) == title


def test_a_finished_exchange_says_that_no_model_computed_and_that_its_calls_are_right(client, ledger):
    run_id = measured_run(ledger, **EXPERTS)

    response = client.get(page_of(run_id))

    said = words(response)
    assert "Calls of expert parallelism, dispatch and combine, on 4 ranks" in said
    assert f"Run {run_id}: 2 repeats of the calls a step; 256 KiB (262,144 B) in a call. {ALONE}" in said
    assert "Each call gave what it must." in said
    assert "Bytes that each rank’s sockets sent over 10 steps." in said
    assert "split model" not in said
    assert 'class="badge family-ep">EP<' in response.content.decode()


def test_a_call_that_gave_something_else_is_told_as_that(client, ledger):
    run_id = measured_run(ledger, verified=False, **EXPERTS)

    said = words(client.get(page_of(run_id)))

    assert (
        "A call gave something else than it must, so its bytes are the bytes of something else. Rank 0: the result "
        "of each call DIFFERS FROM what it must be: largest difference 0.5, tolerance 1e-05." in said
    )


def test_the_hot_experts_share_is_said(client, ledger):
    run_id = measured_run(ledger, **EXPERTS)

    said = words(client.get(page_of(run_id)))

    # Zipf with 1.2 among 4: the first is wanted 1 ÷ (1 + 2^−1.2 + 3^−1.2 + 4^−1.2) = 0.525 of the time.
    assert "Each rank holds one expert, wanted with skew 1.2. Rank 0's gets 5" in said
    assert "of the 1,024 rows of each dispatch, 2." in said


def test_gloos_reduce_scatter_is_explained_where_it_shows_as_the_backends(client, ledger):
    sharded = measured_run(ledger, job="exchange", pattern="zero-3", steps=10)
    plain = measured_run(ledger, job="exchange", pattern="gradients", steps=10)

    explained, not_needed = (words(client.get(page_of(run_id))) for run_id in (sharded, plain))

    assert "gloo has no reduce-scatter of its own: PyTorch all-reduces the whole tensor" in explained
    assert "reduce-scatter" not in not_needed


def test_the_list_names_an_exchange_by_its_family_and_pattern(client, ledger):
    waiting_run(ledger, job="exchange", pattern="ring", call_bytes=524_288, repeats=4, note="")

    response = client.get(reverse("calculators:runs"))

    assert "CP ring, 4 repeats, calls alone 2 512 KiB" in words(response)
    assert "family-cp" in response.content.decode()


def test_the_page_that_starts_one_shows_its_bytes_and_that_no_model_computes(client, ledger):
    response = client.get(reverse("calculators:new-run"), {"experiment": "ring-exchange"})

    said = words(response)
    assert "Calls of context parallelism, ring, on 4 ranks" in said
    assert f"4 repeats of the calls a step; 512 KiB (524,288 B) in a call; 10 measured steps. {ALONE}" in said
    # 3 hops of 512 KiB in each of 4 repeats; a message has 96 bytes of framing and 48 back from the next rank.
    assert "6,291,456 B" in said
    assert "1,728 B" in said


def test_a_calculations_exchange_can_be_asked_for_by_its_address(client, ledger):
    found = exchange_trial(
        CalculatedCalls(pattern=Pattern.EXPERTS, call_bytes=2**20, repeats=3, ranks=2, skew=0.5)
    )

    response = client.get(run_address(found.spec, back="/calculate/traffic"))

    form = response.context["form"]
    assert Spec.parse({name: form.initial.get(name) for name in form.fields}) == found.spec
    assert "Calls of expert parallelism, dispatch and combine, on 2 ranks" in words(response)


def test_downloads_name_the_job_and_its_pattern(client, ledger):
    run_id = measured_run(ledger, **EXPERTS)

    found = client.get(reverse("calculators:run-json", args=[run_id])).json()
    toml = client.get(reverse("calculators:run-toml", args=[run_id])).content.decode()

    assert (found["job"], found["spec"]["pattern"]) == ("exchange", "experts")
    assert Spec.from_toml(toml) == Spec.parse(EXPERTS | {"note": ""})


def test_a_run_stored_before_there_were_exchanges_still_reads(client, ledger):
    run_id = measured_run(ledger, job="tensor")
    with ledger.begin() as session:
        row = session.get(store.RunRow, run_id)
        row.spec = {
            name: value for name, value in row.spec.items() if name not in ("pattern", "skew", "repeats")
        }

    response = client.get(page_of(run_id))

    assert "Tensor parallelism, decode" in words(response)
    assert ALONE not in words(response)


def test_the_experiments_run_what_their_notes_say():
    notes = {
        name: experiment(name).note for name in ("gradients-exchange", "ring-exchange", "experts-exchange")
    }

    assert {name: note.split(",")[0] for name, note in notes.items()} == {
        "gradients-exchange": "Data parallelism",
        "ring-exchange": "Context parallelism",
        "experts-exchange": "Expert parallelism",
    }
