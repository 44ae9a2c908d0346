"""Expressions calculate with the calculator's functions and nothing else."""

import pytest

from calculators.predict.collectives import all_reduce_bytes
from quizzes.expressions import ExpressionError, evaluate, holds, names_in, signatures


def test_an_expression_calculates_with_names_and_functions():
    value = evaluate("2 * layers * all_reduce_bytes(h * 2, t) + ceil(1.5)", {"layers": 64, "h": 4096, "t": 2})

    assert value == 128 * float(all_reduce_bytes(8192, 2)) + 2


def test_the_lesson_ratio_comes_out_of_the_calculator():
    ratio = evaluate("tensor_parallel_bytes(4096, 64, 2) / pipeline_parallel_bytes(4096, 2)")

    assert ratio == 128


def test_a_condition_is_true_or_false():
    assert holds("layers % stages == 0 and not stages > layers", {"layers": 64, "stages": 4})
    assert not holds("1 < x < 3", {"x": 3})


def test_names_of_functions_are_not_parameters():
    assert names_in("min(a, ceil(b))") == {"a", "b"}


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("", "is empty"),
        ("1 +", "cannot be read"),
        ("(" * 200, "cannot be read"),
        ("x", "unknown name x"),
        ("min + 1", "unknown name min"),
        ("1 / 0", "divides by zero"),
        ("9 ** 9 ** 9", "too large"),
        ("10 ** 400", "too large"),
        ("1e400", "not a finite number"),
        ("1" * 399, "too large"),
        ("(-1) ** 0.5", "not a real number"),
        ("sqrt(-1)", "cannot be calculated"),
        ("tensor_parallel_calls(0)", "layers is 0"),
        ("ceil(1, 2)", "Call it as ceil(x)"),
        ("frobnicate(1)", "does not have"),
        ("__import__('os').system('true')", "not a name"),
        ("(1).real", "dot (attribute access)"),
        ("a[0]", "square brackets"),
        ("'a' * 3", "not a number"),
        ("True", "not a number"),
        ("lambda: 1", "a lambda"),
        ("[x for x in (1,)]", "ListComp"),
        ("ceil(**a)", "a call may not"),
        ("1 < 2", "a comparison"),
        ("+".join("1" * 190), "parts"),
        ("1" + " " * 400, "at most 400"),
    ],
)
def test_what_cannot_be_calculated_says_why(expression, reason):
    with pytest.raises(ExpressionError) as caught:
        evaluate(expression)

    assert reason in str(caught.value)


def test_a_condition_that_is_a_number_is_refused():
    with pytest.raises(ExpressionError, match="number, not true or false"):
        holds("1 + 1")


def test_every_function_shows_how_it_is_called():
    assert signatures()["all_reduce_bytes"] == "all_reduce_bytes(full_size, ranks)"
