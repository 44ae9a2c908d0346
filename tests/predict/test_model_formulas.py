"""The formulas of a model: what stands left of the equals sign comes to what stands right of it."""

import re

import pytest

from calculators.predict.models.catalogue import MODELS
from calculators.predict.models.formulas import cache_formula, parameter_formulas
from calculators.predict.models.parameters import total_parameters

PRESETS = [pytest.param(preset.shape, id=key) for key, preset in MODELS.items()]


def calculated(numbers):
    """What the left side of a formula with numbers comes to, and its right side."""
    plain = numbers.replace("{,}", "").replace(r"\,\text{B}", "")
    plain = plain.replace(r"\cdot", "*").replace(r"\left(", "(").replace(r"\right)", ")")
    left, right = re.sub(r"(?<=[\d)]) (?=[\d(])", "*", plain).split("=")
    return eval(left), int(right)


@pytest.mark.parametrize("shape", PRESETS)
def test_the_numbers_of_every_formula_come_to_what_it_says(shape):
    for formula in (*parameter_formulas(shape), cache_formula(shape)):
        left, right = calculated(formula.numbers)

        assert left == right


@pytest.mark.parametrize("shape", PRESETS)
def test_the_last_formula_is_of_all_parameters(shape):
    assert calculated(parameter_formulas(shape)[-1].numbers)[1] == total_parameters(shape)


@pytest.mark.parametrize("shape", PRESETS)
def test_the_legend_names_each_letter_once_and_no_other(shape):
    for formula in (*parameter_formulas(shape), cache_formula(shape)):
        letters = [letter for letter, _ in formula.legend]
        used = re.findall(r"[A-Za-z](?:_[a-z])?", re.sub(r"\\[a-z]+", "", formula.symbols))

        assert sorted(letters) == sorted(set(used))


def test_eight_bit_keys_and_values_take_half():
    shape = MODELS["llama-3.1-8b"].shape

    assert calculated(cache_formula(shape, bytes_per_element=1).numbers)[1] == 65_536
    assert calculated(cache_formula(shape).numbers)[1] == 131_072
