"""The sizes that everything is multiplied by, and the sentences for sizes that cannot be."""

import dataclasses

import numpy as np
import pytest

from calculators.predict.models.catalogue import MODELS
from calculators.predict.shapes import Layout, Phase, activation_bytes
from tests.predict.sentences import exactly


def test_one_token_of_a_4096_wide_model_is_8_kib():
    assert activation_bytes(batch=1, tokens=1, hidden_size=4096, bytes_per_element=2) == 8 * 1024


def test_activation_bytes_broadcast_over_every_argument():
    grid = activation_bytes(
        batch=np.array([1, 2])[:, None], tokens=[1, 10, 100], hidden_size=4096, bytes_per_element=2
    )

    assert grid.shape == (2, 3)
    assert grid[1, 2] == 2 * 100 * 4096 * 2


def test_a_layout_needs_the_product_of_its_axes():
    assert Layout(dp=2, tp=8, pp=16).world_size == 256


def test_experts_ride_on_the_other_axes_and_need_no_devices_of_their_own():
    assert Layout(dp=8, ep=8).world_size == 8


def test_each_phase_says_what_its_figures_are_counted_for():
    assert [phase.unit for phase in (Phase.DECODE, Phase.PREFILL, Phase.TRAINING)] == [
        "token",
        "prompt",
        "step",
    ]


def test_an_axis_of_nothing_is_refused_with_a_way_out():
    sentence = "tp is 0, but an axis has at least 1 part. Use 1 to leave it whole."

    with pytest.raises(ValueError, match=exactly(sentence)):
        Layout(tp=0)


def test_a_model_without_layers_is_refused_by_name():
    sentence = "layers is 0 in Llama 2 7B, but it counts things: use 1 or more."

    with pytest.raises(ValueError, match=exactly(sentence)):
        dataclasses.replace(MODELS["llama-2-7b"].shape, layers=0)
