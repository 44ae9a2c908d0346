"""Measured templates of the built-in packs: each expression is the key, and what the lab predicts for its own runs."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from calculators.lab import forecast
from calculators.lab.measurements import Prediction, Quantity
from calculators.lab.spec import Spec, experiment
from calculators.lab.splits import split_of
from quizzes.expressions import evaluate
from quizzes.measured import names_of
from quizzes.numbers import parse_number
from quizzes.packs.checking import check_pack
from quizzes.questions import Numeric, fair_draws, numbers

PACKS = Path(__file__).parents[2] / "quizzes" / "packs"
NUMERICS = [
    question.content
    for name in ("bytes", "home-cluster")
    for question in check_pack(PACKS / name).questions
    if isinstance(question.content, Numeric)
]
MEASURED = [question for question in NUMERICS if question.verify and question.verify.is_measured]
QUANTITIES = {
    "calls": (Quantity.CALLS, ""),
    "handed": (Quantity.HANDED, ""),
    "sent": (Quantity.WIRE, ""),
    "weights": (Quantity.MEMORY, "weights"),
    "gradients": (Quantity.MEMORY, "gradients"),
    "optimizer": (Quantity.MEMORY, "optimizer"),
    "saved": (Quantity.MEMORY, "saved for backward"),
}
# Keys that follow from what is measured: a share of it per second, or the time that it takes.
DERIVED = {"link-for-a-wish", "one-user-over-ethernet"}


def predictions(spec: Spec) -> Iterator[Prediction]:
    calls = list(split_of(spec).calls(spec))
    yield from forecast.handed(spec, calls)
    yield from forecast.wire_on_gloo(spec, calls)
    yield from split_of(spec).memory(spec)


def test_twenty_four_templates_of_bytes_or_memory_are_measured():
    of_bytes = [q for q in MEASURED if q.verify.measure != "calls"]

    assert len(of_bytes) >= 24


@pytest.mark.parametrize("question", NUMERICS, ids=lambda question: question.id)
def test_a_template_has_six_fair_draws_and_two_wrong_models_with_a_belief(question):
    assert len(list(fair_draws(question))) >= 6
    assert len([wrong for wrong in question.wrong if wrong.misconception]) >= 2


@pytest.mark.parametrize("question", MEASURED, ids=lambda question: question.id)
def test_what_the_lab_predicts_is_what_the_template_calculates(question):
    verify, spec = question.verify, experiment(question.verify.lab)
    quantity, detail = QUANTITIES[verify.measure]
    found = [p for p in predictions(spec) if (p.quantity, p.detail, p.peer) == (quantity, detail, None)]
    steps = 1 if quantity is Quantity.MEMORY else spec.steps

    most = max(prediction.formula for prediction in found) / steps

    assert evaluate(verify.calc, names_of(verify, spec)) == pytest.approx(most, rel=1e-12)


@pytest.mark.parametrize(
    "question", [q for q in MEASURED if q.id not in DERIVED], ids=lambda question: question.id
)
def test_the_measured_quantity_is_the_key_in_other_units(question):
    unit = question.answer.unit
    factor = 1 if question.verify.measure == "calls" else parse_number(f"1 {unit}", unit="B")

    for draw in fair_draws(question):
        names = numbers(draw)
        key = evaluate(question.answer.calc, names) * factor
        assert evaluate(question.verify.calc, names) == pytest.approx(key, rel=1e-12), draw
