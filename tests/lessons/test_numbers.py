"""Worked numbers: calculated, rounded and named for a reader."""

import pytest

from tutor.lessons.numbers import UNITS, NumberError, digits, numbers_in, written, written_as_tex


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("layers", "64"),
        ("2 * layers * 8192", "1,048,576"),
        ("2 * layers * 8192 in MiB", "1 MiB"),
        ("8192 in KiB", "8 KiB"),
        ("3 / 11 in .1 %", "27.3 %"),
        ("128 * 6e-6 in .1 ms", "0.8 ms"),
        ("0.1e9 in MB", "100 MB"),
        ("125e6 in Gbit/s", "1 Gbit/s"),
        ("1.5 in times", "1.5 times"),
        ("3 - 13", "−10"),
        ("1 / 3", "0.333"),
        ("1234.5678", "1,235"),
        ("0.00036553 in ms", "0.366 ms"),
        ("1.999", "2"),
    ],
)
def test_a_number_is_calculated_and_written_with_its_unit(body, text):
    shown = written(body, {"layers": 64})

    assert shown == text.replace(" ", "\u00a0")


def test_the_unit_stays_on_the_line_of_its_number():
    assert " " not in written("8192 in KiB", {})


def test_in_a_formula_thousands_are_set_tight():
    assert written_as_tex("2 * layers * 8192", {"layers": 64}) == "1{,}048{,}576"


def test_a_unit_in_a_formula_is_refused():
    with pytest.raises(NumberError) as refused:
        written_as_tex("8192 in KiB", {})

    assert str(refused.value) == (
        "{{ 8192 in KiB }} names a unit inside a formula. Leave “in KiB” out and write the unit as \\text{…}."
    )


def test_an_unknown_unit_is_answered_with_those_there_are():
    with pytest.raises(NumberError) as refused:
        written("8192 in furlongs", {})

    assert str(refused.value).startswith("{{ 8192 in furlongs }} asks for “furlongs”, which is not a unit")
    assert all(unit in str(refused.value) for unit in UNITS)


def test_what_the_calculator_cannot_evaluate_is_said_in_its_words():
    with pytest.raises(NumberError, match="uses the unknown name lairs"):
        written("2 * lairs in MiB", {"layers": 64})


def test_numbers_know_their_line():
    found = list(numbers_in("One {{ 1 + 1 }}\n\nand {{ 2\n + 2 }} and {{{not}}} and {{tight}}."))

    assert [(number.line, number.body.split()[0]) for number in found] == [(1, "1"), (3, "2")]


def test_asked_decimals_are_kept_and_others_are_trimmed():
    assert digits(1.5, 2) == "1.50"
    assert digits(1.5) == "1.5"
