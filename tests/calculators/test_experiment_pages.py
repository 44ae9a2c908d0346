"""The pages of guided experiments: what is claimed, how it fared in this ledger, and one click that tests it."""

import pytest
from django.urls import reverse
from django.utils import timezone

from calculators.experiments import trying
from calculators.experiments.shown import curves, figures_table
from calculators.lab import store
from calculators.lab.devices import Devices, Torch
from calculators.lab.guided import GUIDED, trials
from calculators.lab.guided.claims import Curve, Figure, Level, Outcome, Verdict
from calculators.lab.measurements import Progress
from calculators.runs.words import FAMILIES
from tests.calculators.made_runs import end, start, working_here
from tests.calculators.reading import table, words

LIST = reverse("calculators:experiments")
NAME = "two-all-reduces"
PAGE = reverse("calculators:experiment", args=[NAME])
START = reverse("calculators:run-experiment", args=[NAME])
POLL = {"HX-Request": "true", "HX-Target": "trial"}


@pytest.fixture(autouse=True)
def here(monkeypatch):
    """A machine that can run them, whatever runs the tests."""
    box = Devices(host="here", cpu="a CPU", cores=2, memory_bytes=2**33, torch=Torch(version="2", cuda=""))
    monkeypatch.setattr(trying, "find_devices", lambda: box)
    monkeypatch.setattr(trying, "why_not", lambda guided, devices: "")
    trying._why_not.cache_clear()


def asked_for(sessions, *, name=NAME, by="ada"):
    with sessions.begin() as session:
        return trials.submit(session, GUIDED[name], submitted_by=by, now=timezone.now())


def runs_of(sessions, trial):
    with sessions.reading() as session:
        return store.runs_of_trial(session, trial)


def tried(sessions, *, verified=True, name=NAME):
    """A trial whose runs measured just what was predicted."""
    trial = asked_for(sessions, name=name)
    for run in runs_of(sessions, trial):
        start(sessions, run.id)
        end(sessions, run.id, verified=verified)
    return trial


def test_every_claim_is_listed_with_its_family(client, ledger):
    response = client.get(LIST)

    said = words(response)
    assert all(one.claim in said for one in GUIDED.values())
    assert {key for key, _, _ in response.context["families"]} == {one.family for one in GUIDED.values()}
    assert f"{len(GUIDED)} claims: {len(GUIDED)} not tried in this ledger yet." in said


def test_the_list_says_how_a_claim_fared_and_where(client, ledger):
    tried(ledger)

    said = words(client.get(LIST))

    assert f"1 held, {len(GUIDED) - 1} not tried" in said
    assert "on box (2 cores)" in said


def test_a_page_states_the_claim_and_what_it_is_judged_on(client, ledger):
    said = words(client.get(PAGE))

    one = GUIDED[NAME]
    assert all(text in said for text in (one.title, one.claim, one.about, str(one.level)))
    assert all(variant.title in said for variant in one.variants)
    assert f"python -m calculators.lab experiments {NAME}" in said
    assert "Sign in to run it" in said


def test_a_lesson_that_is_written_is_linked(client, ledger):
    assert 'href="/lessons/tensor-parallelism/"' in client.get(PAGE).content.decode()


def test_one_click_puts_every_run_in_the_queue_once(signed_in, ledger):
    first = signed_in.post(START, {"nonce": "n1"})
    second = signed_in.post(START, {"nonce": "n1"})

    with ledger.reading() as session:
        runs = store.latest_runs(session, limit=10)
    assert first.headers["Location"] == second.headers["Location"] == f"{PAGE}?trial={runs[0].trial}"
    assert [run.variant for run in reversed(runs)] == [variant.name for variant in GUIDED[NAME].variants]
    assert {run.submitted_by for run in runs} == {"ada"}


def test_a_stranger_is_asked_to_sign_in(client, ledger, db):
    response = client.post(START)

    assert response.headers["Location"].startswith(reverse("tutor:sign-in"))


def test_a_trial_without_a_worker_says_how_to_start_one(client, ledger):
    trial = asked_for(ledger)

    said = words(client.get(PAGE, {"trial": trial}))

    assert "No worker is there to run it. Start one with python -m calculators.lab work." in said


def test_a_trial_at_work_shows_each_ranks_progress_and_asks_again(client, ledger):
    working_here(ledger)
    first, _ = runs_of(ledger, asked_for(ledger))
    start(ledger, first.id, events=[Progress(rank=1, part="measure", done=3, total=10)])

    response = client.get(PAGE)

    assert "Its runs are at work; the verdict comes when the last has ended." in words(response)
    assert "rank 1 measure 3 of 10" in words(response)
    assert 'hx-trigger="every 500ms"' in response.content.decode()
    mark = response.context["chosen"].changed_mark
    assert client.get(PAGE, {"seen": mark}, headers=POLL).status_code == 204


def test_the_last_poll_brings_the_verdict_and_ends_the_polling(client, ledger):
    trial = tried(ledger)

    response = client.get(PAGE, {"trial": trial, "seen": "before"}, headers=POLL)

    assert response.status_code == 286
    assert "hx-trigger" not in response.content.decode()
    assert "held Each layer made 2 all-reduces forward and 2 backward." in words(response)
    assert table(response, "figures")[1] == [
        "all-reduces of a layer, forward",
        "bytes handed to the calls",
        "decides",
        "",
        "2 calls",
        "2 calls",
    ]


def test_a_trial_whose_split_computes_something_else_did_not_hold(client, ledger):
    tried(ledger, verified=False)

    assert "did not hold “Decode, 2 ranks” (run 1) is not verified" in words(client.get(PAGE))


def test_a_trial_whose_run_was_cancelled_could_not_run(client, ledger):
    for run in runs_of(ledger, asked_for(ledger)):
        with ledger.begin() as session:
            store.request_cancel(session, run.id, now=timezone.now())

    said = words(client.get(PAGE))

    assert "Could not run here: “Decode, 2 ranks” (run 1) did not end well: it was cancelled." in said


def test_earlier_trials_are_listed_and_can_be_looked_at(client, ledger):
    old, new = tried(ledger), tried(ledger)

    latest, earlier = client.get(PAGE), client.get(PAGE, {"trial": old})

    assert latest.context["chosen"].trial == new
    assert earlier.context["chosen"].trial == old
    assert "Earlier trials" in words(latest)


def test_where_no_worker_can_run_it_the_reason_stands_instead_of_the_button(signed_in, ledger, monkeypatch):
    monkeypatch.setattr(trying, "why_not", lambda guided, devices: "this machine has no user namespaces")

    response = signed_in.get(PAGE)

    assert "It cannot run on this machine: this machine has no user namespaces." in words(response)
    assert START not in response.content.decode()


def test_a_worker_elsewhere_may_have_what_this_machine_lacks(signed_in, ledger, monkeypatch):
    monkeypatch.setattr(trying, "why_not", lambda guided, devices: "this machine has no user namespaces")
    working_here(ledger)  # its machine is called otherwise than the one of the test

    assert START in signed_in.get(PAGE).content.decode()


def test_an_experiment_that_is_not_there_is_not_found(client, ledger):
    assert client.get("/experiments/nothing/").status_code == 404


def test_a_run_says_which_experiment_it_belongs_to(client, ledger):
    first, _ = runs_of(ledger, tried(ledger))

    assert f"A run of the guided experiment {NAME}, “decode”." in words(
        client.get(reverse("calculators:run", args=[first.id]))
    )


def test_every_family_of_a_claim_has_a_name():
    assert {one.family for one in GUIDED.values()} <= set(FAMILIES)


def test_what_decides_stands_first_and_ratios_keep_their_digits():
    beside = Figure(what="wire", unit="×", predicted=1, measured=0.99891, level=Level.WIRE, decides=False)
    decides = Figure(what="calls", unit="calls", predicted=None, measured=0, level=Level.HANDED)
    verdict = Verdict(outcome=Outcome.HELD, sentence="", figures=(beside, decides))

    rows = figures_table(verdict).rows

    assert [(row.cells[0], row.cells[2], row.cells[4], row.cells[5]) for row in rows] == [
        ("calls", "decides", "–", "0 calls"),
        ("wire", "told beside", "1 ×", "0.9989 ×"),
    ]


def test_a_curve_is_a_line_of_predictions_and_dots_of_measurements():
    curve = Curve(
        name="Tokens against link speed",
        x_title="Mbit/s",
        y_title="tokens/s",
        x=(10, 100),
        predicted=(1.5, 15.0),
        measured=(1.4, None),
        logarithmic=True,
    )

    [drawn] = curves(Verdict(outcome=Outcome.HELD, sentence="", curves=(curve,)), family="tp", name="ladder")

    line, dots = drawn.figure["data"]
    assert (line["mode"], dots["mode"]) == ("lines+markers", "markers")
    assert (line["line"]["dash"], line["marker"]["symbol"]) == ("dot", "circle-open")
    assert dots["marker"]["symbol"] == "circle"
    assert drawn.figure["layout"]["xaxis"]["type"] == drawn.figure["layout"]["yaxis"]["type"] == "log"
    assert '<td class="num">–</td>' in drawn.table
