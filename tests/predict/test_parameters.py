"""Counting a model's parameters: against published counts, and against matrices multiplied out one by one."""

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calculators.predict.models.catalogue import MODELS
from calculators.predict.models.parameters import (
    active_parameters,
    attention_parameters,
    bias_parameters,
    expert_parameters,
    norm_parameters,
    parameter_parts,
    prediction_module_parameters,
    total_parameters,
)
from calculators.predict.shapes import Experts, LatentAttention, ModelShape

SIZE = st.integers(min_value=1, max_value=50)


def gpt(hidden, layers, heads):
    return ModelShape(
        name="a GPT",
        source="a test",
        bytes_per_element=2,
        hidden_size=hidden,
        layers=layers,
        attention_heads=heads,
        kv_heads=heads,
        head_dim=hidden // heads,
        ffn_width=4 * hidden,
        vocab_size=51200,
        positions=2048,
        gated=False,
        tied_embeddings=True,
    )


def test_llama_2_7b_is_counted_to_the_parameter():
    assert MODELS["llama-2-7b"].parameters == 6_738_415_616


# Narayanan 2021 (arXiv 2104.04473), table 1 [billions]: the printed label, and what the paper's equation 2 gives
NARAYANAN = [
    (2304, 24, 24, "1.7", 1.652),
    (3072, 30, 32, "3.6", 3.562),
    (4096, 36, 32, "7.5", 7.468),
    (6144, 40, 48, "18.4", 18.450),
    (8192, 48, 64, "39.1", 39.1),
    (10240, 60, 80, "76.1", 76.1),
    (12288, 80, 96, "145.6", 145.6),
    (16384, 96, 128, "310.1", 310.1),
    (20480, 105, 128, "529.6", 529.6),
    (25600, 128, 160, "1008.0", 1008.0),
]


@pytest.mark.parametrize(("hidden", "layers", "heads", "label", "billions"), NARAYANAN)
def test_oracle_6_and_o_25_narayanan_s_models_have_the_parameters_of_equation_2(
    hidden, layers, heads, label, billions
):
    equation = 12 * layers * hidden**2 * (1 + 13 / (12 * hidden) + (51200 + 2048) / (12 * layers * hidden))

    shape = gpt(hidden, layers, heads)
    counted = total_parameters(shape) + bias_parameters(shape)

    assert equation / 1e9 == pytest.approx(billions, rel=0.001)
    assert counted == pytest.approx(equation + 2 * hidden, rel=1e-12)  # the last norm, which it leaves out
    assert total_parameters(shape) == pytest.approx(equation, rel=0.001)
    if billions > 39:
        assert f"{counted / 1e9:.1f}" == label


def test_o_27_qwen3_30b_a3b_in_mebibytes_on_four_devices():
    # InferSim's example: 16-bit weights, experts shared out among 4 GPUs, attention on each of them
    shape = MODELS["qwen3-30b-a3b"].shape
    mib = 2**20

    attention, expert = attention_parameters(shape) * 2 / mib, expert_parameters(shape) * 2 / mib
    per_device = shape.layers * (attention + shape.experts.routed / 4 * expert)

    assert (attention, expert) == (36.00, 9.00)
    assert round(per_device / 1024, 2) == 15.19


def test_o_31_the_scaling_book_s_64_layer_model_is_ours_without_norms():
    # jax-ml.github.io/scaling-book, inference: D 4096, F 16384, 32 heads of 256, 8 of keys, V 32128, one embedding
    shape = ModelShape(
        name="a worked problem",
        source="the scaling book",
        bytes_per_element=2,
        hidden_size=4096,
        layers=64,
        attention_heads=32,
        kv_heads=8,
        head_dim=256,
        ffn_width=16384,
        vocab_size=32128,
        tied_embeddings=True,
    )

    parts = parameter_parts(shape)

    assert parts.total - parts.norms == 18_385_207_296
    assert 2 * shape.layers * shape.kv_heads * shape.head_dim == 262_144  # int8 keys and values a token


def test_o_31_llama_2_13b_by_part():
    llama = dataclasses.replace(
        MODELS["llama-2-7b"].shape,
        hidden_size=5120,
        layers=40,
        attention_heads=40,
        kv_heads=40,
        ffn_width=13824,
    )

    parts = parameter_parts(llama)

    billions = [part / 1e9 for part in (parts.feed_forward, parts.attention, parts.embedding + parts.output)]
    assert [round(part, 1) for part in billions] == [8.5, 4.2, 0.3]


def test_deepseek_v3_s_extra_module_is_named_apart():
    # deepseek-ai/DeepSeek-V3 README_WEIGHTS: 11.5 billion parameters of its own, beside 671 of the main model
    shape = MODELS["deepseek-v3"].shape

    assert prediction_module_parameters(shape) == pytest.approx(11.5e9, rel=0.01)
    assert total_parameters(shape) == pytest.approx(671e9, rel=0.001)


def test_a_dense_model_s_extra_module_is_one_layer_and_the_joining_matrix():
    shape = gpt(1024, 4, 8)

    layer = 12 * 1024**2 + norm_parameters(shape)

    assert prediction_module_parameters(shape) == layer + 2 * 1024**2 + 2 * 1024


# GPT-3 and Megatron have all of them, gpt-oss those of its experts (and a sink a head), the others fewer or none.
@pytest.mark.parametrize("preset", MODELS.values(), ids=lambda preset: preset.key)
def test_all_biases_that_there_could_be_are_less_than_a_thousandth(preset):
    sinks = preset.shape.layers * preset.shape.attention_heads

    assert bias_parameters(preset.shape) + sinks < 0.001 * total_parameters(preset.shape)


@pytest.mark.parametrize("preset", MODELS.values(), ids=lambda preset: preset.key)
def test_the_parts_make_the_whole(preset):
    parts = parameter_parts(preset.shape)

    assert sum(dataclasses.asdict(parts).values()) == parts.total == preset.parameters


@st.composite
def shapes(draw):
    """Small models of every kind."""
    layers = draw(SIZE)
    experts = latent = None
    if draw(st.booleans()):
        routed = draw(SIZE)
        experts = Experts(
            routed=routed,
            per_token=draw(st.integers(1, routed)),
            width=draw(SIZE),
            shared_width=draw(st.integers(0, 20)),
            dense_layers=draw(st.integers(0, layers - 1)),
        )
    if draw(st.booleans()):
        latent = LatentAttention(
            kv_rank=draw(SIZE), rope_dim=draw(SIZE), query_rank=draw(st.integers(0, 20)), value_dim=draw(SIZE)
        )
    return ModelShape(
        name="a model",
        source="a test",
        bytes_per_element=2,
        layers=layers,
        hidden_size=draw(SIZE),
        attention_heads=draw(SIZE),
        kv_heads=draw(SIZE),
        head_dim=draw(SIZE),
        ffn_width=draw(SIZE),
        vocab_size=draw(SIZE),
        gated=draw(st.booleans()),
        tied_embeddings=draw(st.booleans()),
        positions=draw(st.integers(0, 50)),
        experts=experts,
        latent=latent,
    )


def matrices(shape, *, visited, tables=True):
    """Every weight's inputs and outputs, layer by layer, with `visited` experts in each; `tables` of vectors too."""
    h, heads, width = shape.hidden_size, shape.attention_heads, shape.head_dim
    if tables:
        yield shape.vocab_size, h
        yield shape.positions, h
    for layer in range(shape.layers):
        yield from [(h,), (h,)]
        if latent := shape.latent:
            keys = heads * (width + latent.rope_dim)
            yield from (
                [(h, latent.query_rank), (latent.query_rank, keys)] if latent.query_rank else [(h, keys)]
            )
            yield from [(h, latent.kv_rank), (h, latent.rope_dim)]
            yield from [(latent.kv_rank, heads * width), (latent.kv_rank, heads * latent.value_dim)]
            yield heads * latent.value_dim, h
        else:
            yield from [(h, heads * width), (h, shape.kv_heads * width), (h, shape.kv_heads * width)]
            yield heads * width, h
        experts = shape.experts
        if experts is None or layer < experts.dense_layers:
            blocks = [shape.ffn_width]
        else:
            blocks = [experts.width] * visited + [experts.shared_width] * bool(experts.shared_width)
            yield h, experts.routed
        for inner in blocks:
            yield from [(h, inner), (inner, h)] + [(h, inner)] * shape.gated
    yield (h,)
    if tables and not shape.tied_embeddings:
        yield h, shape.vocab_size


@given(shapes())
def test_multiplying_out_every_matrix_gives_the_same(shape):
    experts = shape.experts

    everything = sum(map(math.prod, matrices(shape, visited=experts.routed if experts else 0)))
    used = sum(map(math.prod, matrices(shape, visited=experts.per_token if experts else 0)))

    biases = sum(size[-1] for size in matrices(shape, visited=experts.routed if experts else 0, tables=False))

    assert total_parameters(shape) == everything
    assert bias_parameters(shape) == biases
    assert active_parameters(shape) == used


@given(hidden=st.integers(1, 200), layers=SIZE)
def test_doubling_the_width_makes_a_gpt_s_matrices_four_times_as_large(hidden, layers):
    narrow, wide = gpt(8 * hidden, layers, 8), gpt(16 * hidden, layers, 8)

    narrow_parts, wide_parts = parameter_parts(narrow), parameter_parts(wide)

    assert wide_parts.attention == 4 * narrow_parts.attention
    assert wide_parts.feed_forward == 4 * narrow_parts.feed_forward
    assert wide_parts.embedding == 2 * narrow_parts.embedding
