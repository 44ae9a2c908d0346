"""Numbers are read as people write them, and what is unclear is asked back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quizzes.numbers import NumberProblem, display, parse_number


@pytest.mark.parametrize(
    ("typed", "value"),
    [
        ("35,0", 35.0), ("1,234.5", 1234.5), ("1.234,5", 1234.5), ("3.145", 3.145), ("0,125", 0.125),
        ("1234,567", 1234.567), ("1,234,567", 1234567), ("1.234.567", 1234567), ("1 048 576", 1048576),
        ("1\u202f048\u00a0576".replace("\u00a0", "\u202f"), 1048576), ("1'048'576", 1048576),
        ("1 048,576", 1048.576), ("1_000", 1000), ("21.0", 21), (".5", 0.5), (",5", 0.5), ("5.", 5),
        ("1.5e6", 1.5e6), ("1.5 × 10^6", 1.5e6), ("2×10⁶", 2e6), ("−5", -5), ("+5", 5), ("  7 ", 7),
        ("128:1", 128), ("128x", 128), ("128 times", 128), ("٣", 3), ("５", 5),
    ],
)  # fmt: skip
def test_a_number_is_read_however_it_is_written(typed, value):
    assert parse_number(typed) == pytest.approx(value, rel=1e-15)


def test_a_lone_comma_before_three_digits_is_asked_back():
    with pytest.raises(NumberProblem) as caught:
        parse_number("3,145")

    assert "3.145" in str(caught.value)
    assert "3145" in str(caught.value)


@pytest.mark.parametrize(
    "typed",
    ["nan", "NaN", "inf", "-Infinity", "1e400", "1e-400", "1,23.4", "12,34,567", "1,2,3", "1..2", "", "   ", "abc",
     "--5", "0x10", "1/2", "1 2", "9" * 200, "1e", "٣٫٥", "<b>5</b>", "5; DROP TABLE", "1__000"],
)  # fmt: skip
def test_what_is_not_one_number_is_refused_in_a_sentence(typed):
    with pytest.raises(NumberProblem) as caught:
        parse_number(typed)

    assert str(caught.value).endswith(".")


@pytest.mark.parametrize(
    ("typed", "unit", "value"),
    [
        ("35 GB", "GB", 35), ("35GiB", "GB", 37.58096384), ("35000 MB", "GB", 35), ("8 KiB", "B", 8192),
        ("8192 bytes", "B", 8192), ("8 Mbit", "MB", 1), ("5 ms", "s", 0.005), ("3μs", "ms", 0.003),
        ("1 transfer", "transfers", 1), ("64", "transfers", 64), ("8 gib", "GiB", 8),
    ],
)  # fmt: skip
def test_units_are_converted_and_never_equated(typed, unit, value):
    assert parse_number(typed, unit=unit) == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize(
    ("typed", "unit", "reason"),
    [
        ("8 KB", "B", "1,024 bytes (KiB)"),
        ("8 gb", "GB", "gigabits"),
        ("8 b", "B", "bits (bit) or bytes (B)"),
        ("5 ms", "GB", "measures time"),
        ("64 B", "transfers", "asked in transfers"),
        ("50%", "", "without a unit"),
        ("1 EB", "B", "not known here"),
    ],
)
def test_a_unit_that_does_not_answer_is_asked_back(typed, unit, reason):
    with pytest.raises(NumberProblem) as caught:
        parse_number(typed, unit=unit)

    assert reason in str(caught.value)


def test_only_the_units_a_question_accepts_may_be_typed():
    with pytest.raises(NumberProblem, match="GB or MB; you wrote TB"):
        parse_number("5 TB", unit="GB", accepted=["GB", "MB"])


@given(st.floats(min_value=1e-290, max_value=1e12) | st.floats(min_value=-1e12, max_value=-1e-290))
def test_a_full_float_survives_typing(value):
    assert parse_number(repr(value)) == value


@given(st.text(max_size=100))
def test_no_text_breaks_the_reader(text):
    try:
        value = parse_number(text, unit="GB")
    except NumberProblem:
        return
    assert value == value
    assert abs(value) != float("inf")


@given(st.integers(min_value=0, max_value=10**14))
def test_what_a_page_prints_can_be_typed_back(number):
    shown = display(float(number), "B")

    if shown.count(",") == 1:  # 8,192 alone is asked back, as everywhere
        return
    assert parse_number(shown, unit="B") == number
