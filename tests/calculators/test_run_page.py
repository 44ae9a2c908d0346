"""A run's page says where it stands, and then what came of it, to the byte."""

from datetime import timedelta

import pytest
from django.urls import reverse
from django.utils import timezone

from calculators.lab import store
from calculators.lab.measurements import Progress, Quantity
from tests.calculators.made_runs import (
    failed_run,
    measured_run,
    running_run,
    waiting_run,
    working_here,
)
from tests.calculators.reading import CountedStatements, figure, number, table, words

POLL = {"HX-Request": "true", "HX-Target": "outcome"}


def page_of(run_id):
    return reverse("calculators:run", args=[run_id])


def compared(sessions, run_id, quantity):
    with sessions.reading() as session:
        return [c for c in store.comparisons_of(session, run_id) if c.quantity is quantity]


def test_a_run_without_a_worker_says_how_to_start_one(client, ledger):
    run_id = waiting_run(ledger)

    response = client.get(page_of(run_id))

    assert "No worker is running." in words(response)
    assert "python -m calculators.lab work" in words(response)


def test_a_waiting_run_says_its_place(client, ledger):
    working_here(ledger)
    first, second = waiting_run(ledger), waiting_run(ledger)

    here, there = client.get(page_of(first)), client.get(page_of(second))

    assert "Next in the queue" in words(here)
    assert "Number 2 in the queue." in words(there)


def test_a_run_at_work_shows_how_far_each_rank_is(client, ledger):
    run_id = running_run(ledger, events=[Progress(rank=1, part="measure", done=3, total=10)])

    response = client.get(page_of(run_id))

    html = response.content.decode()
    assert "At work on box (2 cores)." in words(response)
    assert "rank 1 measure 3 of 10" in words(response)
    assert 'hx-trigger="every 200ms"' in html
    assert '<noscript><meta http-equiv="refresh" content="2"></noscript>' in html


def test_a_poll_that_finds_nothing_new_changes_nothing(client, ledger):
    run_id = running_run(ledger, events=[Progress(rank=0, part="measure", done=3, total=10)])
    first = client.get(page_of(run_id), headers=POLL)
    seen = first.context["page"].changed_mark

    again = client.get(page_of(run_id), {"seen": seen}, headers=POLL)

    assert first.status_code == 200
    assert again.status_code == 204


def test_the_last_poll_brings_the_outcome_and_ends_the_polling(client, ledger):
    run_id = measured_run(ledger)

    response = client.get(page_of(run_id), {"seen": "running"}, headers=POLL)

    html = response.content.decode()
    assert response.status_code == 286
    assert html.strip().startswith("<section")
    assert "hx-trigger" not in html
    assert 'id="wire-figure"' in html


@pytest.mark.parametrize("job", ["tensor", "pipeline"])
def test_every_number_on_the_page_is_the_ledgers(client, ledger, job):
    run_id = measured_run(ledger, job=job, wire_off_by=7)

    response = client.get(page_of(run_id))

    rows = [[number(cell) for cell in row[1:]] for row in table(response, "wire")[1:]]
    expected = compared(ledger, run_id, Quantity.WIRE)
    assert rows == [
        [
            c.prediction.formula,
            c.prediction.backend_excess,
            c.prediction.framing,
            c.prediction.control,
            c.predicted,
            c.measured,
            c.unexplained,
        ]
        for c in expected
    ]
    assert all(row[-1] == 7 for row in rows)


def test_both_matrices_are_on_the_page(client, ledger):
    run_id = measured_run(ledger, job="pipeline", layers=3, ranks=3)

    response = client.get(page_of(run_id))

    for what in ("predicted", "measured"):
        cells = table(response, f"matrix-{what}")[1:]
        for pair in compared(ledger, run_id, Quantity.PAIR):
            assert number(cells[pair.rank][1 + pair.peer]) == getattr(pair, what)


def test_calls_and_handed_bytes_stand_beside_each_other(client, ledger):
    run_id = measured_run(ledger)

    response = client.get(page_of(run_id))

    rows = [[number(cell) for cell in row[1:]] for row in table(response, "calls")[1:]]
    calls, handed = (
        [c for c in compared(ledger, run_id, quantity) if not c.detail]
        for quantity in (Quantity.CALLS, Quantity.HANDED)
    )
    assert rows == [
        [c.predicted, c.measured, h.predicted, h.measured] for c, h in zip(calls, handed, strict=True)
    ]


def test_predicted_is_hollow_and_measured_is_solid(client, ledger):
    run_id = measured_run(ledger)

    drawn = figure(client.get(page_of(run_id)), "wire")

    predicted = [trace for trace in drawn["data"] if trace["offsetgroup"] == "predicted"]
    [measured] = [trace for trace in drawn["data"] if trace["offsetgroup"] == "measured"]
    assert {trace["marker"]["color"] for trace in predicted} == {"rgba(0,0,0,0)"}
    assert measured["marker"]["color"] == "var(--tp)"
    heights = [sum(values) for values in zip(*(trace["y"] for trace in predicted), strict=True)]
    assert heights == [c.predicted for c in compared(ledger, run_id, Quantity.WIRE)]
    assert measured["y"] == [c.measured for c in compared(ledger, run_id, Quantity.WIRE)]


def test_a_verified_run_says_so(client, ledger):
    run_id = measured_run(ledger)

    response = client.get(page_of(run_id))

    said = words(response)
    assert "The split model computes what the whole one does." in said
    assert "Largest difference on any rank: 1.00×10⁻⁷, tolerance 1.00×10⁻⁵." in said
    assert "Unexplained: 0 B (0 %)." in said
    assert "0 B on every rank while nothing was asked of them." in said
    assert table(response, "step-times")[1] == ["rank 0", *["2 ms"] * 5]


def test_a_split_that_computes_something_else_is_called_that(client, ledger):
    run_id = measured_run(ledger, verified=False)

    said = words(client.get(page_of(run_id)))

    assert "The split model does not compute what the whole one does" in said
    assert "done, not verified" in said


def test_what_the_prediction_misses_is_shown_as_its_failure(client, ledger):
    run_id = measured_run(ledger, wire_off_by=1_000_000)

    said = words(client.get(page_of(run_id)))

    assert "+1,000,000 B" in said
    assert "more than 1 %, so the prediction is wrong somewhere." in said


def test_noise_in_the_idle_control_casts_doubt(client, ledger):
    run_id = measured_run(ledger, idle=52)

    said = words(client.get(page_of(run_id)))

    assert "rank 0: 52 B, rank 1: 52 B: something else was talking, so doubt these numbers." in said


def test_a_failed_run_names_the_rank_and_its_reason(client, ledger):
    run_id = failed_run(ledger, reason="out of memory.")

    response = client.get(page_of(run_id))

    assert "Rank 1 failed. out of memory." in words(response)
    assert "rank 1 about to fail" in words(response)


def test_a_traceback_is_for_those_who_signed_in(client, ledger, learner):
    run_id = failed_run(ledger, traceback="Traceback: </pre><script>x</script>")

    stranger = client.get(page_of(run_id))
    client.force_login(learner)
    known = client.get(page_of(run_id))

    assert b"Traceback:" not in stranger.content
    assert "A traceback was kept; sign in to read it." in words(stranger)
    assert b"Traceback: &lt;/pre&gt;&lt;script&gt;" in known.content


def test_a_worker_that_went_silent_leaves_the_run_lost(client, ledger):
    run_id = running_run(ledger, now=timezone.now() - timedelta(seconds=10))

    said = words(client.get(page_of(run_id)))

    assert "The run was lost." in said
    assert "was not heard from for 6 s" in said


def test_the_one_who_started_a_run_cancels_it(signed_in, ledger):
    run_id = waiting_run(ledger)

    response = signed_in.post(reverse("calculators:cancel", args=[run_id]), follow=True)

    assert "The run was cancelled before it started." in words(response)


def test_a_run_at_work_is_first_asked_to_stop(signed_in, ledger):
    run_id = running_run(ledger)

    response = signed_in.post(reverse("calculators:cancel", args=[run_id]), follow=True)

    assert "Cancelling: the ranks are being ended." in words(response)


def test_nobody_cancels_the_run_of_another(signed_in, ledger):
    run_id = waiting_run(ledger, by="grace")

    offered = signed_in.get(page_of(run_id))
    response = signed_in.post(reverse("calculators:cancel", args=[run_id]))

    assert "Cancel the run" not in words(offered)
    assert response.status_code == 403
    assert "was started by grace; only they can cancel it." in words(response)


def test_a_stranger_who_cancels_is_asked_to_sign_in(client, ledger, db):
    run_id = waiting_run(ledger)

    response = client.post(reverse("calculators:cancel", args=[run_id]))

    assert response.headers["Location"].startswith(reverse("tutor:sign-in"))


def test_a_run_that_never_was_is_not_found(client, ledger):
    responses = [
        client.get(page_of(404)),
        client.get(f"{page_of(404)[:-1]}.json"),
        client.get("/runs/404.csv"),
    ]

    assert [response.status_code for response in responses] == [404, 404, 404]


def test_the_page_asks_few_questions(signed_in, ledger, django_assert_max_num_queries):
    run_id = measured_run(ledger, ranks=4, layers=4)
    signed_in.get(page_of(run_id))  # the first visit of a process looks whether the tables are up to date

    with CountedStatements() as counted, django_assert_max_num_queries(2):
        signed_in.get(page_of(run_id))

    assert len(counted.statements) <= 10


def test_the_first_visit_teaches(client, ledger):
    response = client.get(reverse("calculators:runs"))

    assert "No measurements yet. Predict something first, then run it and see how close you were." in words(
        response
    )


def test_the_list_shows_every_state(client, ledger):
    measured_run(ledger)
    failed_run(ledger)
    running_run(ledger)
    waiting_run(ledger)

    response = client.get(reverse("calculators:runs"))

    said = words(response)
    assert all(state in said for state in ("done", "failed", "running", "queued"))
    assert "Runs are waiting and no worker is there to take them." in said


def test_a_list_of_many_runs_asks_no_more(signed_in, ledger, django_assert_max_num_queries):
    for _ in range(20):
        waiting_run(ledger)
    signed_in.get(reverse("calculators:runs"))

    with CountedStatements() as counted, django_assert_max_num_queries(2):
        signed_in.get(reverse("calculators:runs"))

    assert len(counted.statements) <= 4


def test_a_ledger_that_cannot_be_opened_is_a_sentence(client, settings, tmp_path):
    (tmp_path / "file").write_text("not a folder")
    settings.LEDGER_URL = f"sqlite:///{tmp_path / 'file' / 'runs.sqlite3'}"

    response = client.get(reverse("calculators:runs"))

    assert response.status_code == 503
    assert "The folder of the ledger cannot be made" in words(response)
    assert "Lessons, practice and calculators work without it." in words(response)
