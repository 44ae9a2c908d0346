"""The cache of keys and values: published figures, wrong published figures, and real arrays counted."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calculators.predict.memory.kv_cache import kv_bytes_per_token, kv_cache_bytes
from calculators.predict.models.catalogue import MODELS
from calculators.predict.shapes import LatentAttention, ModelShape, SlidingWindow
from tests.predict.gpt import GIB, gpt
from tests.predict.sentences import exactly

KIB = 1024
TINY = dataclasses.replace(gpt(8, 4, 4), kv_heads=2)
# jax-ml/scaling-book, inference chapter: its 64-layer model
SCALING_BOOK = dataclasses.replace(gpt(4096, 64, 32, vocab=32128), kv_heads=8, head_dim=256, ffn_width=16384)


def shape_of(key) -> ModelShape:
    return MODELS[key].shape


@pytest.mark.parametrize(
    ("key", "kib"),
    [
        ("gpt-3-175b", 4608),
        ("megatron-22b", 1152),
        ("megatron-145b", 3840),
        ("megatron-175b", 4608),
        ("megatron-530b", 8400),
        ("megatron-1t", 12800),
        ("llama-2-7b", 512),
        ("llama-2-70b", 320),
        ("llama-3.1-8b", 128),
        ("llama-3.1-70b", 320),
        ("llama-3.1-405b", 504),
        ("qwen2.5-72b", 320),
        ("qwen3-8b", 144),
        ("qwen3-32b", 256),
        ("gemma-2-27b", 368),
        ("gemma-3-27b", 496),
        ("phi-4", 200),
        ("nemotron-4-340b", 576),
        ("mixtral-8x7b", 128),
        ("mixtral-8x22b", 224),
        ("qwen3-30b-a3b", 96),
        ("qwen3-235b-a22b", 188),
        ("gpt-oss-20b", 48),
        ("gpt-oss-120b", 72),
        ("deepseek-v2-lite", 30.375),
        ("deepseek-v3", 68.625),
        ("kimi-k2", 68.625),
        ("glm-4.5", 368),
        ("glm-4.5-air", 184),
    ],
)
def test_oracle_10_a_token_of_each_model_takes_what_the_fact_sheet_says(key, kib):
    # facts §3, bf16, all layers attending to everything; exact (30.375 is printed as 30.4, 68.625 as 68.6)
    assert kv_bytes_per_token(shape_of(key)) == kib * KIB


@pytest.mark.parametrize(
    ("key", "kilobytes"), [("deepseek-v3", 70.272), ("qwen2.5-72b", 327.680), ("llama-3.1-405b", 516.096)]
)
def test_o_18_deepseek_s_table_of_caches_per_token(key, kilobytes):
    # arXiv 2505.09343, table 1, in decimal kilobytes
    assert kv_bytes_per_token(shape_of(key)) == pytest.approx(kilobytes * 1000, rel=1e-12)


@pytest.mark.parametrize(
    ("key", "gib"), [("llama-3.1-8b", (0.125, 1.95, 15.62)), ("llama-3.1-70b", (0.313, 4.88, 39.06))]
)
def test_o_19_hugging_face_s_table_for_llama_with_its_two_kinds_of_thousand(key, gib):
    # huggingface/blog issue 2345: 1k is 1,024 tokens there, 16k and 128k are 16,000 and 128,000; to the last digit
    cache = kv_cache_bytes(shape_of(key), context_tokens=[1024, 16_000, 128_000]) / GIB

    assert cache[0] == pytest.approx(gib[0], abs=0.0006)
    assert cache[1:].tolist() == pytest.approx(gib[1:], abs=0.0051)


def test_o_27_infersim_s_96_kib_a_token():
    # alibaba/InferSim, Qwen3-30B-A3B
    assert kv_bytes_per_token(shape_of("qwen3-30b-a3b")) == 96.00 * KIB


def test_o_31_the_scaling_book_s_int8_cache():
    assert kv_bytes_per_token(SCALING_BOOK, bytes_per_element=1) == 2 * 64 * 8 * 256 == 262_144


# published figures that are wrong: ours differ from them, by the factor of the mistake


def test_hugging_face_s_405b_has_twice_the_heads_that_it_really_has():
    # huggingface/blog issue 2345: 0.984 GiB for 1,024 tokens comes from 16 key-value heads; there are 8
    right = kv_cache_bytes(shape_of("llama-3.1-405b"), context_tokens=[1024, 16_000, 128_000]) / GIB

    assert (right / [0.984, 15.38, 123.05]).tolist() == pytest.approx([0.5] * 3, rel=1e-3)


def test_hugging_face_s_16k_is_not_16_kibi():
    one, sixteen = kv_cache_bytes(shape_of("llama-3.1-8b"), context_tokens=[1024, 16 * 1024]) / GIB

    assert sixteen == 16 * one == 2.0
    assert sixteen / 1.95 == pytest.approx(1.024, rel=0.002)


def test_cookbook_s_formula_ignores_key_value_heads_tensor_parallelism_and_that_there_are_keys_and_values():
    # EleutherAI/cookbook calc_transformer_mem.py @827ee3b: layers · hidden · bytes for each token
    shape = shape_of("llama-3.1-70b")
    many_headed = shape_of("llama-2-7b")
    theirs, theirs_many_headed = (each.layers * each.hidden_size * 2 for each in (shape, many_headed))

    assert theirs_many_headed / kv_bytes_per_token(many_headed) == 1 / 2
    assert theirs / kv_bytes_per_token(shape) == (64 / 8) / 2
    assert theirs / kv_bytes_per_token(shape, tp=8) == (64 / 8) / 2 * 8


def test_vllm_fit_counted_8_times_the_cache_of_a_7b_model():
    # jranaraki/vllm-fit issue 2: 2 · layers · heads · hidden · 4 / 8
    shape = shape_of("llama-2-7b")
    theirs = 2 * shape.layers * shape.attention_heads * shape.hidden_size * 4 / 8

    assert theirs / kv_bytes_per_token(shape) == 8


def test_dividing_heads_by_groups_is_not_the_number_of_groups():
    # rasbt/LLMs-from-scratch issue 922: heads // groups was taken for the number of key-value heads
    shape = shape_of("llama-3.1-8b")
    theirs = 2 * shape.layers * (shape.attention_heads // shape.kv_heads) * shape.head_dim * 2

    assert theirs / kv_bytes_per_token(shape) == 4 / 8


@pytest.mark.parametrize(
    ("key", "windowed", "of"), [("gemma-3-27b", 52, 62), ("gpt-oss-120b", 18, 36), ("gemma-2-27b", 23, 46)]
)
def test_counting_windowed_layers_whole_overestimates_a_long_context(key, windowed, of):
    # lmstudio-ai/lmstudio-bug-tracker issue 1862: estimates for hybrid attention 40 to 67 % too high, all included
    shape = shape_of(key)
    context = 131_072
    theirs = kv_bytes_per_token(shape) * context

    ours = kv_cache_bytes(shape, context_tokens=context)

    whole, window = of - windowed, shape.window.tokens
    assert theirs / ours == pytest.approx(of / (whole + windowed * window / context), rel=1e-12)
    assert theirs / ours > 1.4


# real arrays


def caches(shape, *, batch, context, tp, pp, cp, width):
    """Bytes of the arrays that the ranks of the first stage allocate, layer by layer, for the fullest of them."""
    windowed = shape.window.layers if shape.window else 0
    whole_layers = -(-(shape.layers - windowed) // pp)
    here = -(-shape.layers // pp)
    total = 0
    for layer in range(here):
        tokens = context if layer < whole_layers or not shape.window else min(context, shape.window.tokens)
        if shape.latent:
            rows = np.empty((batch, tokens // cp, shape.latent.kv_rank + shape.latent.rope_dim), dtype=width)
            total += rows.nbytes
            continue
        heads = max(1, shape.kv_heads // tp)
        keys = np.empty((batch, tokens // cp, heads, shape.head_dim), dtype=width)
        total += keys.nbytes + np.empty_like(keys).nbytes
    return total


WINDOWED = dataclasses.replace(TINY, window=SlidingWindow(tokens=8, layers=2))
LATENT = dataclasses.replace(
    TINY, latent=LatentAttention(kv_rank=5, rope_dim=2, query_rank=0, value_dim=3), kv_heads=1
)


@pytest.mark.parametrize("shape", [TINY, WINDOWED, LATENT], ids=["grouped", "windowed", "latent"])
@pytest.mark.parametrize("width", [np.float16, np.int8, np.float32])
def test_the_cache_is_as_large_as_the_arrays_of_its_layers(shape, width):
    for tp, pp, cp, context in [(1, 1, 1, 4), (2, 1, 1, 32), (4, 2, 1, 32), (1, 4, 2, 16), (2, 2, 4, 64)]:
        ours = kv_cache_bytes(
            shape,
            batch=3,
            context_tokens=context,
            tp=tp,
            pp=pp,
            cp=cp,
            bytes_per_element=np.dtype(width).itemsize,
        )

        assert ours == caches(shape, batch=3, context=context, tp=tp, pp=pp, cp=cp, width=width)


# properties


@given(
    tp=st.integers(0, 7).map(lambda power: 2**power), key=st.sampled_from(["llama-3.1-8b", "qwen3-235b-a22b"])
)
def test_more_ranks_than_key_value_heads_store_copies(tp, key):
    shape = shape_of(key)

    stored = kv_bytes_per_token(shape, tp=tp) * tp

    assert stored == kv_bytes_per_token(shape) * max(1, tp / shape.kv_heads)


@given(tp=st.integers(1, 128))
def test_latent_attention_is_whole_on_every_tensor_rank(tp):
    shape = shape_of("deepseek-v3")

    assert kv_bytes_per_token(shape, tp=tp) == kv_bytes_per_token(shape)


@given(context=st.integers(1, 10**6), batch=st.integers(1, 100))
def test_a_window_never_keeps_more_than_attention_to_everything(context, batch):
    shape = shape_of("gemma-3-27b")
    everything = dataclasses.replace(shape, window=None)

    ours, whole = (kv_cache_bytes(each, context_tokens=context, batch=batch) for each in (shape, everything))

    assert ours <= whole
    assert (ours == whole) == (context <= shape.window.tokens)


@given(pp=st.integers(1, 62), key=st.sampled_from(["gemma-3-27b", "llama-3.1-70b", "deepseek-v3"]))
def test_stages_share_the_layers_of_the_cache(pp, key):
    shape = shape_of(key)
    pp = min(pp, shape.layers)

    stages = kv_cache_bytes(shape, context_tokens=1000, pp=pp, stage=np.arange(pp))

    assert stages.sum() >= kv_cache_bytes(shape, context_tokens=1000) * (1 - 1e-12)
    assert stages.max() == stages[0]


def test_decode_context_parallelism_shares_out_what_ranks_would_repeat():
    shape = shape_of("qwen3-235b-a22b")  # 4 key-value heads

    whole, halved = kv_cache_bytes(shape, context_tokens=8192, tp=8, dcp=[1, 2])

    assert halved == whole / 2


# what cannot be


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"context_tokens": 0}, "context_tokens is 0, but it must be a number, 1 or more and at most 1e+18."),
        (
            {"context_tokens": 1, "bytes_per_element": 0},
            "bytes_per_element is 0, but it must be a number, more than 0 and at most 1e+18.",
        ),
        (
            {"context_tokens": 1, "tp": 4, "dcp": 4},
            "dcp is 4, but it shares out what tensor ranks repeat, and 2 key-value heads are held 2 times here. "
            "Use 2 or less.",
        ),
        (
            {"context_tokens": [1, 2], "batch": [1, 2, 3]},
            "The arrays do not broadcast: context_tokens (2,), batch (3,). Give them one shape, or shapes that differ "
            "only where one of them is 1.",
        ),
    ],
)
def test_what_cannot_be_is_refused_with_a_way_out(wrong, sentence):
    with pytest.raises(ValueError, match=exactly(sentence)):
        kv_cache_bytes(TINY, **wrong)
