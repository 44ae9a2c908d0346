"""Operations: published formulas and training times, and every matrix product counted one by one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calculators.predict.compute import (
    attended_tokens,
    attention_matmuls,
    attention_width,
    decode_flops,
    feed_forward_matmuls,
    forward_flops,
    gpt_step_flops,
    roofline_seconds,
    training_days,
    training_flops,
)
from calculators.predict.models.catalogue import MODELS
from calculators.predict.models.parameters import (
    attention_parameters,
    computed_parameters,
    feed_forward_parameters,
)
from calculators.predict.shapes import SlidingWindow
from tests.predict.sentences import exactly
from tests.predict.timing_oracles import gpt, narayanan

SIZES = st.integers(1, 64)


def multiplied(rows, inner, outer):
    """Operations of one matrix product, each counted: a multiplication and an addition."""
    return 2 * np.ones((rows, inner, outer)).sum()


@given(
    layers=st.integers(1, 6),
    heads=st.integers(1, 4),
    width=st.integers(1, 8),
    tokens=st.integers(1, 12),
    vocab=st.integers(1, 32),
    full=st.booleans(),
)
def test_a_gpt_s_step_is_its_matrix_products_counted(layers, heads, width, tokens, vocab, full):
    h = heads * width
    projections = multiplied(tokens, h, 3 * h) + multiplied(tokens, h, h)
    block = multiplied(tokens, h, 4 * h) + multiplied(tokens, 4 * h, h)
    attention = heads * (multiplied(tokens, width, tokens) + multiplied(tokens, tokens, width))
    layer = projections + block + attention

    step = gpt_step_flops(
        hidden_size=h, layers=layers, vocab_size=vocab, tokens=tokens, batch=1, full_recompute=full
    )

    assert step.item() == pytest.approx(
        (4 if full else 3) * layers * layer + 3 * multiplied(tokens, h, vocab)
    )


def test_a_gpt_by_its_shape_is_the_same_step_but_for_its_norms():
    shape = gpt("GPT", hidden=6144, heads=64, layers=48)

    found = training_flops(shape, tokens=2048, batch=4, causal=False)

    published = gpt_step_flops(hidden_size=6144, layers=48, vocab_size=51_200, tokens=2048, batch=4)
    norms = 6 * 2048 * 4 * (2 * 48 + 1) * 6144
    assert found.item() == pytest.approx(published.item() + norms, rel=1e-12)
    assert norms / published.item() < 1e-4


# Narayanan 2021 table 1: petaFLOP/s of all devices together.
def test_o_25_the_aggregate_throughputs_of_table_1_are_those_of_its_devices():
    printed = [4.4, 8.8, 18.2, 34.6, 70.8, 143.8, 227.1, 297.4, 410.2, 502.0]
    runs = narayanan()

    for run, petaflops in zip(runs, printed, strict=True):
        rounding = 0.5e12 * run.cluster.devices + 0.05e15  # of what one device and what all of them reach
        assert run.measured * run.cluster.devices == pytest.approx(1e15 * petaflops, abs=rounding)


# Narayanan 2021 §5.1: GPT-3 and a trillion parameters.
@pytest.mark.parametrize(
    ("parameters", "tokens", "devices", "teraflops", "days"),
    [(175e9, 300e9, 1024, 140, 34), (1008e9, 450e9, 3072, 163, 84)],
)
def test_oracle_7_days_of_training(parameters, tokens, devices, teraflops, days):
    found = training_days(
        tokens=tokens, parameters=parameters, devices=devices, flops_per_second=1e12 * teraflops
    )

    assert found.item() == pytest.approx(days, abs=1)


# Narayanan 2021 table 2: 300 billion tokens; hidden, layers, devices, TFLOP/s of a device, days. ZeRO-3, then PTD-P.
TABLE_2 = [
    (12288, 96, 384, 144, 90),
    (12288, 96, 768, 88, 74),
    (12288, 96, 1536, 44, 74),
    (20480, 105, 640, 138, 169),
    (20480, 105, 1120, 98, 137),
    (20480, 105, 2240, 48, 140),
    (12288, 96, 384, 153, 84),
    (12288, 96, 768, 149, 43),
    (12288, 96, 1536, 141, 23),
    (20480, 105, 560, 171, 156),
    (20480, 105, 1120, 167, 80),
    (20480, 105, 2240, 159, 42),
]


@pytest.mark.parametrize(("hidden", "layers", "devices", "teraflops", "days"), TABLE_2)
def test_o_25_days_of_table_2(hidden, layers, devices, teraflops, days):
    flops = gpt_step_flops(
        hidden_size=hidden,
        layers=layers,
        vocab_size=51_200,
        tokens=2048,
        batch=300e9 / 2048,
        full_recompute=True,
    )

    assert flops.item() / (devices * teraflops * 1e12) / 86_400 == pytest.approx(days, abs=1)


def test_eight_operations_a_parameter_and_token_leave_attention_and_logits_out():
    short = training_days(tokens=300e9, parameters=174.6e9, devices=384, flops_per_second=144e12)

    assert short.item() < 90 - 2  # table 2 prints 90, so it was made with the whole formula


@pytest.mark.parametrize("key", MODELS)
def test_the_matrix_products_of_a_layer_hold_the_parameters_that_a_token_is_multiplied_by(key):
    shape = MODELS[key].shape

    def held(matmuls):
        return sum(each.inner * each.outer for each in matmuls)

    assert held(attention_matmuls(shape)) == attention_parameters(shape)
    assert held(feed_forward_matmuls(shape, shape.ffn_width)) == feed_forward_parameters(shape)


@given(tokens=st.integers(1, 40), window=st.integers(1, 60), windowed=st.integers(0, 8))
def test_a_token_looks_at_those_before_it_and_within_the_window(tokens, window, windowed):
    shape = MODELS["llama-3.1-8b"].shape
    shape = type(shape)(
        **{**vars(shape), "layers": 8, "window": SlidingWindow(tokens=window, layers=windowed)}
    )
    # In the limit of long sequences half a token more or less is nothing: count each pair of tokens by its middle.
    fine = np.arange(tokens * 50) / 50 + 0.01
    whole = fine.mean()
    within = np.minimum(fine, window).mean()

    found = attended_tokens(shape, tokens=tokens)

    assert found.item() == pytest.approx(((8 - windowed) * whole + windowed * within) / 8, rel=1e-3)


@given(context=st.integers(0, 10**6))
def test_a_prompt_costs_what_its_tokens_cost_one_after_another(context):
    shape = MODELS["mixtral-8x7b"].shape
    ends = decode_flops(shape, context_tokens=[0, context])

    one_by_one = context * ends.mean()  # operations grow evenly with the context

    if context:
        assert forward_flops(shape, tokens=context).item() == pytest.approx(one_by_one)
    assert ends[0] == 2 * computed_parameters(shape)


def test_a_window_stops_the_growth():
    shape = MODELS["gpt-oss-20b"].shape
    near, far, farther = decode_flops(shape, context_tokens=[128, 1_128, 2_128])

    full_layers = shape.layers - shape.window.layers
    assert shape.window.tokens == 128
    assert far - near == farther - far == full_layers * 1_000 * 2 * attention_width(shape)


def test_the_roofline_is_the_longer_of_the_two_and_meets_itself_at_the_ridge():
    seconds = roofline_seconds([1, 10, 100], 5, flops_per_second=2, bytes_per_second=1)

    assert seconds.tolist() == [5, 5, 50]


def test_arrays_keep_their_shapes():
    assert forward_flops(MODELS["phi-4"].shape, tokens=np.ones((3, 1))).shape == (3, 1)
    assert gpt_step_flops(
        hidden_size=np.ones((2, 1)), layers=[1, 2, 3], vocab_size=1, tokens=1, batch=1
    ).shape == (2, 3)


def test_what_cannot_be_is_refused():
    with pytest.raises(
        ValueError, match=exactly("tokens is 0, but it must be a number, 1 or more and at most 1e+18.")
    ):
        forward_flops(MODELS["phi-4"].shape, tokens=0)
    with pytest.raises(
        ValueError,
        match=exactly("flops_per_second is 0, but it must be a number, more than 0 and at most 1e+18."),
    ):
        roofline_seconds(1, 1, flops_per_second=0, bytes_per_second=1)
    with pytest.raises(
        ValueError, match=exactly("devices is nan, but it must be a number, 1 or more and at most 1e+18.")
    ):
        training_days(tokens=1, parameters=1, devices=float("nan"), flops_per_second=1)
