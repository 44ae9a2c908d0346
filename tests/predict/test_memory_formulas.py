"""Formulas of memory say the numbers that they come to."""

import re

import numpy as np
import pytest

from calculators.predict.memory import BRIDGE_ADAM
from calculators.predict.memory.formulas import memory_formulas
from calculators.predict.memory.levers import Serving, Training
from calculators.predict.models.catalogue import MODELS
from calculators.predict.shapes import Layout, Recompute


def shape(key):
    return MODELS[key].shape


CASES = [
    Training(
        shape=shape("llama-3.1-70b"), layout=Layout(tp=8, dp=8, pp=4, zero=1), tokens=8192, micro_batches=8
    ),
    Training(
        shape=shape("llama-3.1-70b"), layout=Layout(tp=8, pp=4, sp=True), tokens=8192, optimizer=BRIDGE_ADAM
    ),
    Training(
        shape=shape("deepseek-v3"),
        layout=Layout(tp=2, dp=64, ep=64, sp=True, zero=3),
        tokens=4096,
        recompute=Recompute.FULL,
    ),
    Training(
        shape=shape("deepseek-v3"),
        layout=Layout(tp=2, dp=64, pp=16, ep=64, sp=True, zero=1),
        tokens=4096,
        micro_batches=64,
        recompute=Recompute.FULL,
    ),
    Training(shape=shape("gpt-3-175b"), layout=Layout(tp=8, pp=8, vpp=3), tokens=2048, micro_batches=64),
    Training(shape=shape("megatron-22b"), layout=Layout(tp=8, sp=True), tokens=2048, micro_batch=4),
    Training(
        shape=shape("megatron-22b"), layout=Layout(tp=8, sp=True), tokens=2048, recompute=Recompute.FULL
    ),
    Training(shape=shape("megatron-22b"), layout=Layout(cp=2), tokens=2048, recompute=Recompute.SELECTIVE),
    Serving(shape=shape("llama-3.1-70b"), layout=Layout(tp=16, pp=2), tokens=8192, batch=4, kv_bytes=1),
    Serving(shape=shape("gemma-3-27b"), layout=Layout(tp=2), tokens=131_072, batch=8, weight_bytes=0.5),
    Serving(shape=shape("deepseek-v3"), layout=Layout(tp=8), tokens=8192, batch=8),
]
IDS = [f"{number}: {case.shape.name}" for number, case in enumerate(CASES)]


def value_of(tex):
    """The number that a formula's left side comes to, and the one it states."""
    plain, _, result = tex.replace(r"\,\text{B}", "").replace("{,}", "").rpartition("=")
    plain = re.sub(r"\\frac\{(.+?)\}\{(.+?)\}", r"((\1)/(\2))", plain)
    plain = plain.replace(r"\cdot", "*").replace(r"\left(", "(").replace(r"\right)", ")")
    return eval(plain), float(result)


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_every_formula_comes_to_what_it_states(case):
    for formula in memory_formulas(case):
        calculated, stated = value_of(formula.numbers)

        assert calculated == pytest.approx(stated, rel=1e-5), formula.gives


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_the_formulas_state_the_parts_of_the_memory(case):
    stated = {formula.gives: value_of(formula.numbers)[1] for formula in memory_formulas(case)}
    memory = case.memory

    if isinstance(case, Training):
        states = memory.weights + memory.gradients + memory.optimizer
        assert stated["Weights, gradients and optimizer’s state"] == pytest.approx(states, abs=0.01)
        assert stated["Activations"] == pytest.approx(memory.activations, abs=0.01)
        assert stated.get("Working memory", 0) == pytest.approx(memory.working, abs=0.01)
    else:
        assert stated["Weights"] == pytest.approx(memory.weights)
        assert stated["KV cache"] == pytest.approx(memory.kv_cache)


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_every_letter_is_explained(case):
    for formula in memory_formulas(case):
        letters = re.sub(r"\\(frac|cdot|left|right|,)", " ", formula.symbols)
        used = set(re.findall(r"\\Psi(?:_\w)?|[a-z](?:_\w)?", letters))

        assert used == {symbol for symbol, _ in formula.legend}, formula.gives


def test_a_gpt_block_has_the_formula_that_everybody_prints():
    [_, layer, *_] = memory_formulas(CASES[4])

    assert layer.symbols == r"h \left( 10 + \frac{24}{t} + \frac{5\,a\,s}{h\,t} \right)"
    assert np.isclose(value_of(layer.numbers)[1], 12288 * (10 + 3 + 5 * 96 * 2048 / (12288 * 8)))
