"""One oracle, three uses: a run that is off disputes the question, and a good one clears it."""

import logging
import re

import pytest

from calculators.lab.compare import compare
from calculators.lab.measurements import Measurement, Quantity
from calculators.lab.spec import Spec, experiment
from calculators.runs import ledger
from quizzes import verifying
from quizzes.bank import import_pack
from quizzes.measured import NotMeasured, is_like, read
from quizzes.models import Question, Verification
from quizzes.packs.checking import check_pack
from quizzes.questions import Verify
from tests.calculators.made_runs import measured_run
from tests.lab.ledgers import plan_of

pytestmark = pytest.mark.django_db

MEASURED = """\
- id: sent
  type: numeric
  prompt: "[[{{ layers }} layers]]{cue=why} on {{ devices }} devices. How many bytes does one send for a token?"
  params: {layers: {choice: ["64", "80"]}, devices: {choice: ["2", "4"]}, hidden: {choice: ["4096"]}}
  answer: {calc: "tensor_parallel_bytes(hidden, layers, devices)", unit: B, rtol: "0.01"}
  wrong: [{calc: "hidden", feedback: that is one half of one}]
  verify:
    lab: tensor-decode
    measure: sent
    calc: tensor_parallel_bytes(hidden, layers, devices, batch, bytes_per_element)
    names: {devices: ranks, hidden: hidden_size}
    rtol: "0.01"
  cues: {why: two a layer}
  tests: [{answer: "nan", invalid: "true"}]
"""
VERIFY = Verify(
    lab="tensor-decode",
    measure="sent",
    calc="tensor_parallel_bytes(hidden_size, layers, ranks, batch, bytes_per_element)",
)
SHIPPED = experiment("tensor-decode")


@pytest.fixture
def sessions(settings, tmp_path):
    settings.LEDGER_URL = f"sqlite:///{tmp_path / 'runs.sqlite3'}"
    verifying.forget()
    return ledger()


@pytest.fixture
def question(write_pack):
    import_pack(check_pack(write_pack(MEASURED, header=HEADER)))
    return lambda: Question.objects.select_related("verification").get(slug="sent")


HEADER = "format: 1\nid: p\npublisher: t\ntitle: T\nversion: 1.0.0\nlicense: CC0-1.0\nauthors: [{name: N}]\n"


def run(sessions, *, share_off=0.0, **changes):
    """A run of tensor-decode whose sockets sent what was predicted, and `share_off` of the formula more."""
    given = {**SHIPPED.to_dict(), **changes}
    formula = next(p.formula for p in plan_of(Spec.parse(given)).predictions if p.quantity is Quantity.WIRE)
    return measured_run(sessions, wire_off_by=share_off * formula, **given)


def look():
    verifying.forget()
    verifying.catch_up()


def test_a_run_ten_percent_off_disputes_the_question_and_a_good_run_clears_it(sessions, question, caplog):
    run(sessions)
    look()
    assert question().verification.agrees
    assert list(Question.objects.examinable()) == [question()]

    bad = run(sessions, share_off=0.1)
    with caplog.at_level(logging.WARNING):
        look()

    told = question().verification
    assert (told.run_id, told.agrees) == (bad, False)
    assert told.difference == pytest.approx(0.1)
    assert list(Question.objects.disputed()) == [question()]
    assert not Question.objects.examinable().exists()
    assert f"p/sent is disputed: run {bad} measured" in caplog.text

    good = run(sessions, layers=8)  # at other sizes: the calculator follows
    look()
    assert (question().verification.run_id, question().verification.agrees) == (good, True)
    assert Question.objects.examinable().exists()
    assert Verification.objects.count() == 3  # what was said before is kept


def test_the_calculators_value_for_the_runs_sizes_stands_beside_the_measured_one(sessions, question):
    run(sessions, layers=2)
    look()

    told = question().verification
    assert told.calculated == told.measured == 2 * 2 * SHIPPED.batch * SHIPPED.hidden_size * 4
    assert told.named > 0  # the framing around each message, taken off
    assert told.unit == "B"
    assert told.device == "cpu, gloo, 2 ranks"


def test_a_run_that_was_not_verified_or_is_of_something_else_says_nothing(sessions, question):
    run(sessions, share_off=0.1, phase="prefill")
    given = {**SHIPPED.to_dict()}
    measured_run(sessions, wire_off_by=1e9, verified=False, **given)
    look()

    assert question().verification is None
    assert Question.objects.examinable().exists()


def test_a_new_revision_is_held_against_the_run_again(sessions, question, write_pack):
    run(sessions)
    look()
    before = question().verification.revision_id
    changed = MEASURED.replace(
        "calc: tensor_parallel_bytes(hidden, layers, devices, batch",
        "calc: 2 * tensor_parallel_bytes(hidden, layers, devices, batch",
    )
    import_pack(check_pack(write_pack(changed, header=HEADER)))
    look()

    assert question().verification.revision_id != before
    assert not question().verification.agrees
    assert question().verification.difference == pytest.approx(-0.5)


def test_a_question_that_was_changed_is_held_against_the_run_that_was_seen_already(
    sessions, question, write_pack, monkeypatch
):
    run(sessions)
    look()
    monkeypatch.setattr(verifying, "LOOK_AGAIN_SECONDS", 0.0)
    twice = MEASURED.replace(
        "calc: tensor_parallel_bytes(hidden, layers, devices, batch",
        "calc: 2 * tensor_parallel_bytes(hidden, layers, devices, batch",
    )
    import_pack(check_pack(write_pack(twice, header=HEADER)))

    verifying.catch_up()  # the same process, and no new run

    assert not question().verification.agrees


def test_a_ledger_that_cannot_be_opened_is_logged_and_no_page_falls(settings, question, caplog, tmp_path):
    (tmp_path / "file").write_text("no folder")
    settings.LEDGER_URL = f"sqlite:///{tmp_path / 'file' / 'runs.sqlite3'}"
    look()

    assert "Questions are not held against runs" in caplog.text
    assert question().verification is None


def test_looking_again_within_two_seconds_asks_nothing(sessions, question, django_assert_num_queries):
    look()
    run(sessions)

    with django_assert_num_queries(0):
        verifying.catch_up()


def test_a_state_of_memory_is_read_as_it_is_and_a_count_of_a_step_divided_by_the_steps():
    spec = Spec.parse(
        {"job": "data", "phase": "training", "ranks": 2, "layers": 1, "batch": 4, "tokens": 8, "steps": 10}
    )
    predictions = plan_of(spec).predictions
    told = [
        Measurement(
            quantity=p.quantity,
            rank=p.rank,
            peer=p.peer,
            detail=p.detail,
            value=p.predicted,
            steps=spec.steps,
        )
        for p in predictions
    ]
    comparisons = compare(predictions, told)

    weights = read(Verify(lab="x", measure="weights", calc="4 * parameters"), spec, comparisons)
    handed = read(Verify(lab="x", measure="handed", calc="4 * parameters"), spec, comparisons)

    assert weights.difference == handed.difference == 0
    assert weights.agrees(0)
    assert handed.agrees(None)


@pytest.mark.parametrize(
    ("verify", "reason"),
    [
        (Verify(lab="x"), "binds no measurement"),
        (Verify(lab="x", measure="saved", calc="1"), "has no reading of bytes held, saved for backward"),
        (VERIFY.model_copy(update={"calc": "devices"}), "It cannot be calculated for the run"),
        (VERIFY.model_copy(update={"names": {"d": "nonsense"}}), "names: d is nonsense"),
    ],
)
def test_a_run_that_has_no_such_reading_says_why(verify, reason):
    predictions = plan_of(SHIPPED).predictions
    told = [
        Measurement(
            quantity=p.quantity,
            rank=p.rank,
            peer=p.peer,
            detail=p.detail,
            value=p.predicted,
            steps=SHIPPED.steps,
        )
        for p in predictions
    ]

    with pytest.raises(NotMeasured, match=reason):
        read(verify, SHIPPED, compare(predictions, told))


def test_runs_are_alike_at_any_sizes_but_not_with_other_choices():
    assert is_like(Spec.parse({**SHIPPED.to_dict(), "layers": 9, "ranks": 4}), SHIPPED)
    assert not is_like(Spec.parse({**SHIPPED.to_dict(), "phase": "training"}), SHIPPED)


def test_feedback_shows_calculated_measured_run_and_difference(sessions, question, client, django_user_model):
    client.force_login(django_user_model.objects.create_user("ada"))
    bad = run(sessions, share_off=0.1)
    verifying.forget()

    asked = client.get("/practice/p/sent/").content.decode()
    nonce = re.search(r'name="nonce" value="([^"]+)"', asked)[1]
    told = client.post(
        "/practice/p/sent/answer", {"nonce": nonce, "typed": "1"}, follow=True
    ).content.decode()

    assert "Disputed: the newest run measured something else" in asked
    assert f'<a href="/runs/{bad}/">run {bad}</a>' in told
    assert '<dd class="num">65,536 B</dd>' in told  # 2 × 4 layers × 8 sequences × 256 × 4 B
    assert '<dd class="num">72,090 B</dd>' in told
    assert '<dd class="num">+10.00%</dd>' in told
    assert "They do not agree" in told


def test_the_author_is_told_which_questions_are_disputed_and_learners_are_not(
    sessions, question, client, django_user_model
):
    bad = run(sessions, share_off=0.1)
    client.force_login(django_user_model.objects.create_user("ada"))
    assert "Disputed by a measurement" not in client.get("/practice/").content.decode()

    client.force_login(django_user_model.objects.create_user("owner", is_staff=True))
    verifying.forget()
    page = " ".join(client.get("/practice/").content.decode().split())

    assert "Disputed by a measurement" in page
    assert f"run {bad}</a> measured" in page
