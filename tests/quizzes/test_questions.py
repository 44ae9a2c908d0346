"""Drawing and marking: pure, repeatable, and fair in every draw."""

import random

import pytest
from pydantic import ValidationError

from quizzes.questions import (
    AnswerProblem,
    DrawError,
    Multiple,
    Numeric,
    Single,
    all_draws,
    digest,
    draw,
    failed_tests,
    fair_draws,
    from_meaning,
    mark,
    multiple_credit,
    rejection,
    shuffled,
)


def numeric(**changes):
    fields = {
        "id": "share",
        "prompt": "GB per GPU?",
        "params": {"p": {"choice": ["70"]}, "tp": {"choice": ["8"]}, "pp": {"choice": ["4"]}},
        "answer": {"calc": "16*p/(tp*pp)", "unit": "GB", "rtol": "0.02"},
        "wrong": [{"calc": "16*p/tp", "misconception": "forgets-stages", "feedback": "Divide by {{ pp }}."}],
    }
    return Numeric.model_validate(fields | changes)


def single(**changes):
    options = [
        {"id": "tp", "text": "Tensor", "credit": "1", "feedback": "yes"},
        {"id": "pp", "text": "Pipeline", "misconception": "splits-a-layer", "feedback": "no: {{ p }}"},
        {"id": "none", "text": "None of the above", "pin": "last", "feedback": "no"},
    ]
    return Single.model_validate({"id": "q", "prompt": "?", "choices": options} | changes)


def multiple(mode):
    options = [{"id": f"o{i}", "text": f"o{i}", "credit": "1" if i in (0, 3) else "0"} for i in range(5)]
    return Multiple.model_validate({"id": "q", "prompt": "?", "choices": options, "credit_mode": mode})


def test_marking_names_the_belief_and_fills_in_the_numbers():
    result = mark(single(params={"p": {"choice": ["70"]}}), {"p": "70"}, chosen=["pp"])

    assert (result.credit, result.misconception, result.feedback) == (0, "splits-a-layer", "no: 70")


def test_a_wrong_model_is_recognised_by_its_number():
    result = mark(numeric(), {"p": "70", "tp": "8", "pp": "4"}, raw="140 GB")

    assert (result.credit, result.misconception, result.feedback) == (0, "forgets-stages", "Divide by 4.")
    assert result.parsed == 140


@pytest.mark.parametrize(
    ("raw", "credit"), [("35", 1), ("35,0 GB", 1), ("35.6", 1), ("36", 0), ("35 GiB", 0), ("32.6 GiB", 1)]
)
def test_gib_is_converted_and_tolerance_is_relative(raw, credit):
    assert mark(numeric(), {"p": "70", "tp": "8", "pp": "4"}, raw=raw).credit == credit


def test_no_tolerance_still_forgives_binary_fractions():
    question = numeric(params={}, answer={"calc": "1.1+2.2", "rtol": "0"}, wrong=[])

    assert mark(question, {}, raw="3.3").right
    assert not mark(question, {}, raw="3.3001").right


@pytest.mark.parametrize("raw", ["nan", "inf", "1e400", "", "about five"])
def test_what_is_no_number_is_asked_back_and_never_right(raw):
    with pytest.raises(AnswerProblem):
        mark(numeric(), {"p": "70", "tp": "8", "pp": "4"}, raw=raw)


@pytest.mark.parametrize(
    ("chosen", "reason"),
    [([], "Nothing is chosen yet"), (["zz"], "no option “zz”"), (["tp", "pp"], "takes one option")],
)
def test_an_answer_that_cannot_be_marked_says_what_to_do(chosen, reason):
    with pytest.raises(AnswerProblem) as caught:
        mark(single(), {}, chosen=chosen)

    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("mode", "first_only", "first_and_wrong", "everything"),
    [
        ("exact", 0, 0, 0),
        ("proportional", 0.8, 0.6, 0.4),
        ("proportional_correct", 0.5, 0, 0),
        ("net_correct", 0.5, 0, 0),
        ("coverage", 0.5, 0.25, 0.4),
    ],
)
def test_credit_modes_pay_what_their_definitions_say(mode, first_only, first_and_wrong, everything):
    question = multiple(mode)

    paid = [
        multiple_credit(question, chosen) for chosen in (["o0"], ["o0", "o1"], ["o0", "o1", "o2", "o3", "o4"])
    ]

    assert paid == pytest.approx([first_only, first_and_wrong, everything])
    assert multiple_credit(question, ["o0", "o3"]) == 1


def test_a_pinned_option_is_last_in_a_thousand_shuffles():
    rng = random.Random(6)

    orders = [shuffled(single(), rng) for _ in range(1000)]

    assert {order[-1] for order in orders} == {"none"}
    assert {order[0] for order in orders} == {"tp", "pp"}


def test_a_draw_keeps_its_conditions():
    question = numeric(
        params={"p": {"choice": ["70"]}, "tp": {"choice": ["2", "4", "8"]}, "pp": {"choice": ["2", "4"]}},
        given=["tp > pp"],
    )

    drawn = [draw(question, random.Random(seed)) for seed in range(200)]

    assert {(d["tp"], d["pp"]) for d in drawn} == {("4", "2"), ("8", "2"), ("8", "4")}


def test_a_draw_in_which_a_wrong_model_gives_the_key_is_never_shown():
    question = numeric(
        params={"p": {"choice": ["70"]}, "tp": {"choice": ["8"]}, "pp": {"choice": ["1", "4"]}}
    )

    assert "equals the key" in rejection(question, {"p": "70", "tp": "8", "pp": "1"})
    assert {draw(question, random.Random(seed))["pp"] for seed in range(100)} == {"4"}


def test_a_wrong_model_within_tolerance_of_the_key_counts_as_the_key():
    near = numeric(wrong=[{"calc": "16*p/(tp*pp)*1.015", "feedback": "x"}])

    assert list(fair_draws(near)) == []


def test_two_beliefs_with_one_number_cannot_be_told_apart():
    wrong = [{"calc": "16*p", "misconception": "a"}, {"calc": "p*16", "misconception": "b"}]

    with pytest.raises(DrawError, match="both 1,120"):
        draw(numeric(wrong=wrong), random.Random(1))


def test_a_thousand_draws_keep_the_key_apart_from_every_wrong_model():
    question = numeric(
        params={
            "p": {"choice": [str(n) for n in range(1, 40)]},
            "tp": {"choice": ["1", "2", "4", "8"]},
            "pp": {"choice": ["1", "2", "4", "8"]},
        },
        wrong=[{"calc": "16*p/tp", "misconception": "a"}, {"calc": "16*p/pp", "misconception": "b"}],
    )

    for seed in range(1000):
        drawn = draw(question, random.Random(seed))
        assert rejection(question, drawn) == ""
        assert drawn["tp"] != "1"
        assert drawn["pp"] != "1"
        assert drawn["tp"] != drawn["pp"]


def test_calculated_options_must_read_differently():
    question = Single.model_validate(
        {
            "id": "q",
            "prompt": "?",
            "params": {"t": {"choice": ["1", "2"]}},
            "choices": [
                {"id": "a", "calc": "8*t", "unit": "B", "credit": "1"},
                {"id": "b", "calc": "8*t*t", "unit": "B", "feedback": "squared"},
            ],
        }
    )

    assert list(fair_draws(question)) == [{"t": "2"}]


def test_a_zero_key_needs_an_absolute_tolerance():
    zero = {"calc": "p-p", "rtol": "0.1"}

    assert "rtol means nothing" in rejection(
        numeric(answer=zero, wrong=[]), {"p": "70", "tp": "1", "pp": "1"}
    )
    assert not rejection(numeric(answer=zero | {"atol": "1"}, wrong=[]), {"p": "70", "tp": "1", "pp": "1"})


def test_the_stored_meaning_marks_as_the_question_did():
    question = numeric()

    again = from_meaning(question.meaning(), slug="share")

    assert again.meaning() == question.meaning()
    for raw in ("35", "140", "7"):
        drawn = next(all_draws(question))
        assert mark(again, drawn, raw=raw) == mark(question, drawn, raw=raw)


def test_what_is_only_about_a_question_is_not_its_meaning():
    plain, tagged = single(), single(tags=["x"], status="draft", level="design", tests=[{"choose": ["tp"]}])

    assert digest(plain.meaning()) == digest(tagged.meaning())
    assert digest(plain.meaning()) != digest(single(prompt="Other?").meaning())


def test_the_questions_own_tests_report_what_differs():
    question = single(tests=[{"choose": ["pp"], "credit": "1"}, {"choose": ["pp"], "misconception": "other"}])

    assert [problem for _, problem in failed_tests(question)] == [
        "credit is 0, the test expects 1",
        "the misconception is splits-a-layer, the test expects other",
    ]


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: numeric(answer={"calc": "1"}), "needs rtol or atol"),
        (lambda: numeric(answer={"calc": "1", "rtol": "nan"}), "finite"),
        (lambda: single(choices=[{"id": "a", "text": "A"}, {"id": "b", "text": "B"}]), "no option is right"),
        (lambda: single(colour="red"), "not permitted"),
        (lambda: single(choices=[{"id": "a", "credit": "1"}, {"id": "b", "text": "B"}]), "needs text"),
    ],
)
def test_a_question_that_cannot_be_is_refused(make, reason):
    with pytest.raises(ValidationError) as caught:
        make()

    assert reason in str(caught.value)
