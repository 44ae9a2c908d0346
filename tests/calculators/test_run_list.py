"""The list of runs: its filters are an address, and two of its runs can be seen beside each other."""

import pytest
from django.urls import reverse

from calculators.lab import store
from calculators.runs import listing
from tests.calculators.made_runs import failed_run, measured_run, waiting_run, working_here
from tests.calculators.reading import figure, table, words

PAGE = reverse("calculators:runs")
COMPARE = reverse("calculators:compare")


def listed(response):
    return [run.id for run in response.context["list"].runs]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"family": "pp"}, {"pipeline"}),
        ({"job": "exchange"}, {"exchange"}),
        ({"phase": "decode"}, {"tensor", "pipeline", "failed"}),
        ({"state": "failed"}, {"failed"}),
        ({"person": "grace"}, {"pipeline"}),
        ({"words": "BOX pipeline"}, {"pipeline"}),
        ({"words": "memory"}, {"failed"}),
        ({"family": "tp", "state": "done"}, {"tensor"}),
        ({"experiment": "none-such"}, set()),
    ],
)
def test_runs_are_found_by_what_they_are(client, ledger, asked, expected):
    runs = {
        "tensor": measured_run(ledger),
        "pipeline": measured_run(ledger, job="pipeline", by="grace"),
        "exchange": waiting_run(ledger, job="exchange", pattern="ring"),
        "failed": failed_run(ledger, reason="out of memory"),
    }

    response = client.get(PAGE, asked)

    assert set(listed(response)) == {runs[name] for name in expected}


def test_the_filters_are_the_address(client, ledger):
    measured_run(ledger)

    response = client.get(
        PAGE, {"family": "tp", "job": "", "words": ""}, headers={"HX-Request": "true", "HX-Target": "runs"}
    )

    assert response.headers["HX-Replace-Url"] == f"{PAGE}?family=tp"
    assert response.content.decode().strip().startswith("<section")


def test_a_list_that_nothing_fits_says_so(client, ledger):
    measured_run(ledger)

    assert "No run fits. Ask for less: every field that is filled in must fit." in words(
        client.get(PAGE, {"state": "lost"})
    )


def test_a_filter_that_is_no_choice_is_said(client, ledger):
    measured_run(ledger)

    assert "State is “gone”, but it must be one of" in words(client.get(PAGE, {"state": "gone"}))


def test_older_runs_are_a_page_further(client, ledger, monkeypatch):
    monkeypatch.setattr(listing, "PAGE", 2)
    ids = [waiting_run(ledger) for _ in range(3)]

    first = client.get(PAGE, {"state": "queued"})
    older = client.get(f"{PAGE}?state=queued&before={ids[1]}")

    assert listed(first) == [ids[2], ids[1]]
    assert first.context["older"] == f"?state=queued&before={ids[1]}"
    assert listed(older) == [ids[0]]
    assert older.context["older"] == ""


def test_the_state_of_the_queue_stands_on_top(client, ledger):
    working_here(ledger)
    waiting_run(ledger)

    assert "1 worker on box (2 cores). 0 runs at work, 1 waiting." in words(client.get(PAGE))


def test_two_ticked_runs_become_an_address(client, ledger):
    response = client.get(COMPARE, {"run": ["3", "1"]})

    assert response.headers["Location"] == f"{COMPARE}?a=3&b=1"


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"run": ["1", "2", "3"]}, "You ticked 3 runs. Tick exactly two to see them beside each other."),
        ({}, "Say which two runs: go back to the list and tick two of them."),
        ({"a": "1", "b": "1"}, "Say which two runs"),
        ({"a": "٣", "b": "x"}, "Say which two runs"),
        ({"a": "1", "b": "99"}, "There is no run 99 in this ledger."),
    ],
)
def test_what_cannot_be_compared_is_said(client, ledger, asked, sentence):
    measured_run(ledger)

    response = client.get(COMPARE, asked)

    assert response.status_code == 404
    assert sentence in words(response)


def test_specs_are_compared_line_by_line(client, ledger):
    one, other = measured_run(ledger), measured_run(ledger, job="pipeline", layers=4)

    response = client.get(COMPARE, {"a": one, "b": other})

    rows = {row[0]: row[1:] for row in table(response, "specs")[1:]}
    assert rows["job differs"] == ["tensor", "pipeline"]
    assert rows["layers differs"] == ["2", "4"]
    assert rows["qkv differs"] == ["fused", "–"]
    assert rows["ranks"] == ["2", "2"]


def test_every_quantity_of_both_stands_in_a_line_with_the_ratio(client, ledger):
    one, other = measured_run(ledger), measured_run(ledger, batch=16)

    response = client.get(COMPARE, {"a": one, "b": other})

    rows = {row[0]: row[1:] for row in table(response, "numbers")[1:]}
    with ledger.reading() as session:
        handed = [
            c
            for c in store.comparisons_of(session, one)
            if str(c.quantity) == "handed bytes" and not c.detail
        ]
    a_step = f"{sum(c.measured for c in handed) / 10:,.0f}"
    assert rows["handed bytes"][:4] == ["handed", "B", a_step, a_step]
    assert rows["handed bytes"][-1] == "2"
    assert [trace["name"] for trace in figure(response, "both")["data"]] == [
        f"run {run_id} {what}" for run_id in (one, other) for what in ("predicted", "measured")
    ]


def test_runs_that_measured_nothing_yet_can_be_compared_by_their_specs(client, ledger):
    one, other = waiting_run(ledger), waiting_run(ledger, layers=3)

    assert "Neither run has measured anything yet." in words(client.get(COMPARE, {"a": one, "b": other}))
