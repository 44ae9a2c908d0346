"""The presets: their sizes make the published numbers of parameters, and cache what was published per token."""

import tomllib
from pathlib import Path

import pytest

from calculators.predict.models import catalogue
from calculators.predict.models.catalogue import MODELS, Release, model
from calculators.predict.models.parameters import embedding_parameters, output_parameters
from tests.predict.sentences import exactly

PUBLISHED = [preset for preset in MODELS.values() if preset.published_parameters]
SPARSE = [preset for preset in MODELS.values() if preset.shape.is_sparse]

# Sizes as the published tables print them: hidden, layers, heads, key-value heads, head width, feed-forward width,
# vocabulary; KiB of keys and values a token at 16 bits where all layers attend to everything.
DENSE = """
lesson               4096  64  32   8 128  14336 128256   256
gpt-3-175b          12288  96  96  96 128  49152  50257  4608
megatron-22b         6144  48  64  64  96  24576  51200  1152
megatron-145b       12288  80  96  96 128  49152  51200  3840
megatron-175b       12288  96  96  96 128  49152  51200  4608
megatron-530b       20480 105 128 128 160  81920  51200  8400
megatron-1t         25600 128 160 160 160 102400  51200 12800
llama-2-7b           4096  32  32  32 128  11008  32000   512
llama-2-70b          8192  80  64   8 128  28672  32000   320
llama-3.1-8b         4096  32  32   8 128  14336 128256   128
llama-3.1-70b        8192  80  64   8 128  28672 128256   320
llama-3.1-405b      16384 126 128   8 128  53248 128256   504
qwen2.5-72b          8192  80  64   8 128  29568 152064   320
qwen3-8b             4096  36  32   8 128  12288 151936   144
qwen3-32b            5120  64  64   8 128  25600 151936   256
gemma-2-27b          4608  46  32  16 128  36864 256000   368
gemma-3-27b          5376  62  32  16 128  21504 262144   496
phi-4                5120  40  40  10 128  17920 100352   200
nemotron-4-340b     18432  96  96   8 192  73728 256000   576
"""
# The same with an expert's width, and then first dense layers, dense width (0 where none), experts, visited, shared.
MIXTURES = """
mixtral-8x7b         4096  32  32   8 128  14336  32000 128    0     0   8 2 0
mixtral-8x22b        6144  56  48   8 128  16384  32768 224    0     0   8 2 0
qwen3-30b-a3b        2048  48  32   4 128    768 151936  96    0     0 128 8 0
qwen3-235b-a22b      4096  94  64   4 128   1536 151936 188    0     0 128 8 0
gpt-oss-20b          2880  24  64   8  64   2880 201088  48    0     0  32 4 0
gpt-oss-120b         2880  36  64   8  64   2880 201088  72    0     0 128 4 0
deepseek-v2-lite     2048  27  16   1 128   1408 102400  30.4  1 10944  64 6 2
deepseek-v3          7168  61 128   1 128   2048 129280  68.6  3 18432 256 8 1
kimi-k2              7168  61  64   1 128   2048 163840  68.6  1 18432 384 8 1
glm-4.5              5120  92  96   8 128   1536 151552 368    3 12288 160 8 1
glm-4.5-air          4096  46  96   8 128   1408 151552 184    1 10944 128 8 1
"""
ROWS = {row.split()[0]: [float(n) for n in row.split()[1:]] for row in (DENSE + MIXTURES).split("\n") if row}


def kv_bytes_per_token(shape):
    if shape.latent:
        return 2 * shape.layers * (shape.latent.kv_rank + shape.latent.rope_dim)
    return 2 * shape.layers * 2 * shape.kv_heads * shape.head_dim


def test_the_table_and_the_catalogue_have_the_same_models():
    assert set(ROWS) == set(MODELS)


@pytest.mark.parametrize("key", ROWS)
def test_a_preset_has_the_sizes_of_the_published_tables(key):
    shape, row = MODELS[key].shape, ROWS[key]

    assert [shape.hidden_size, shape.layers, shape.attention_heads] == row[:3]
    assert [shape.kv_heads, shape.head_dim, shape.vocab_size] == [row[3], row[4], row[6]]
    if not shape.experts:
        assert shape.ffn_width == row[5]
        return
    experts, (dense, dense_width, routed, visited, shared) = shape.experts, row[8:]
    assert [experts.width, experts.dense_layers, experts.routed] == [row[5], dense, routed]
    assert [experts.per_token, experts.shared_width] == [visited, shared * row[5]]
    assert shape.ffn_width == (dense_width or row[5])


@pytest.mark.parametrize("key", ROWS)
def test_oracle_10_keys_and_values_per_token_are_the_published_ones(key):
    printed = ROWS[key][7]

    kib = kv_bytes_per_token(MODELS[key].shape) / 1024

    assert (kib if printed == int(printed) else round(kib, 1)) == printed


@pytest.mark.parametrize("preset", PUBLISHED, ids=lambda preset: preset.key)
def test_oracle_10_a_preset_makes_the_published_count_within_a_percent(preset):
    assert preset.parameters == pytest.approx(preset.published_parameters, rel=0.01)


@pytest.mark.parametrize("preset", SPARSE, ids=lambda preset: preset.key)
def test_published_active_counts_lie_between_those_with_and_without_embedding_and_output(preset):
    outside = embedding_parameters(preset.shape) + output_parameters(preset.shape)
    half_a_digit = 0.05e9 if preset.published_active % 1e9 else 0.5e9  # the figures are printed rounded

    low, high = preset.active - outside - half_a_digit, preset.active + half_a_digit

    assert low <= preset.published_active <= high


@pytest.mark.parametrize(
    ("key", "printed", "left_out"),
    [
        ("mixtral-8x7b", 12.9, ()),  # Mistral counts everything
        ("mixtral-8x22b", 39, ()),
        ("gpt-oss-20b", 3.6, (embedding_parameters,)),  # gpt-oss model card: without the embedding
        ("gpt-oss-120b", 5.1, (embedding_parameters,)),
        ("glm-4.5", 32, (embedding_parameters, output_parameters)),
        ("glm-4.5-air", 12, (embedding_parameters, output_parameters)),
    ],
)
def test_publishers_count_what_a_token_uses_in_three_ways(key, printed, left_out):
    counted = MODELS[key].active - sum(part(MODELS[key].shape) for part in left_out)

    assert round(counted / 1e9, 1 if printed % 1 else None) == printed


@pytest.mark.parametrize(("key", "gib"), [("gpt-oss-120b", 60.8), ("gpt-oss-20b", 12.8)])
def test_mxfp4_experts_make_the_published_size_of_the_checkpoint(key, gib):
    # gpt-oss model card, table 1; biases, 0.04 billion of them at most, are not counted here
    assert MODELS[key].released_bytes / 2**30 == pytest.approx(gib, rel=0.005)


def test_fp8_leaves_embedding_output_router_and_norms_at_16_bits():
    deepseek = MODELS["deepseek-v3"]

    assert deepseek.released is Release.FP8
    assert 671.0e9 + 1.85e9 < deepseek.released_bytes < 671.1e9 + 2.0e9  # 2 × 129,280 × 7,168 = 1.85e9


def test_16_bit_weights_take_two_bytes_each():
    assert MODELS["llama-3.1-70b"].released_bytes == 2 * MODELS["llama-3.1-70b"].parameters


def divisors(number):
    return [size for size in range(1, number + 1) if number % size == 0]


@pytest.mark.parametrize("key", ["gpt-3-175b", "glm-4.5", "glm-4.5-air", "nemotron-4-340b"])
def test_96_heads_can_be_shared_in_twelve_ways(key):
    assert divisors(MODELS[key].shape.attention_heads) == [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 96]


@pytest.mark.parametrize("tp", [4, 8])
def test_phi_4_has_40_heads_for_4_and_8_ranks_but_not_the_key_value_heads(tp):
    shape = MODELS["phi-4"].shape

    assert shape.attention_heads % tp == 0
    assert shape.kv_heads % tp
    assert tp % shape.kv_heads


def test_8_ranks_hold_qwen3_s_four_key_value_heads_twice_and_a_latent_vector_eight_times():
    copies = [
        8 // MODELS[key].shape.kv_heads
        for key in ("qwen3-30b-a3b", "qwen3-235b-a22b", "deepseek-v3", "kimi-k2")
    ]

    assert copies == [2, 2, 8, 8]


def test_qwen3_235b_cut_8_ways_is_no_multiple_of_a_128_block():
    assert MODELS["qwen3-235b-a22b"].shape.experts.width / 8 == 192


@pytest.mark.parametrize("key", ["gpt-oss-20b", "gpt-oss-120b"])
def test_gpt_oss_is_narrower_than_its_heads_together(key):
    shape = MODELS[key].shape

    assert (shape.hidden_size, shape.attention_heads * shape.head_dim) == (2880, 4096)


@pytest.mark.parametrize(("key", "stages"), [("glm-4.5-air", [1, 2, 23, 46]), ("deepseek-v3", [1, 61])])
def test_some_depths_divide_into_few_stages(key, stages):
    assert divisors(MODELS[key].shape.layers) == stages


@pytest.mark.parametrize(
    ("key", "tokens", "share"),
    [("gemma-2-27b", 4096, 1 / 2), ("gpt-oss-20b", 128, 1 / 2), ("gpt-oss-120b", 128, 1 / 2)],
)
def test_half_the_layers_of_gemma_2_and_gpt_oss_look_through_a_window(key, tokens, share):
    shape = MODELS[key].shape

    assert (shape.window.tokens, shape.window.layers / shape.layers) == (tokens, share)


def test_every_sixth_layer_of_gemma_3_looks_at_everything():
    shape = MODELS["gemma-3-27b"].shape

    assert (shape.window.tokens, shape.window.layers) == (1024, sum(layer % 6 != 0 for layer in range(1, 63)))


def test_o_18_deepseek_s_table_of_keys_and_values():
    # DeepSeek-V3 at ISCA 2025 (arXiv 2505.09343), table 1: decimal kilobytes a token in BF16
    table = {"deepseek-v3": 70.272, "qwen2.5-72b": 327.680, "llama-3.1-405b": 516.096}

    assert {key: kv_bytes_per_token(MODELS[key].shape) / 1000 for key in table} == table


def test_o_19_the_405b_row_of_a_published_table_has_twice_its_key_value_heads():
    # huggingface/blog#2345: 0.984 GB for 1k tokens; the rows for 8B and 70B are right
    printed = {"llama-3.1-8b": 0.125, "llama-3.1-70b": 0.313, "llama-3.1-405b": 0.984}

    ours = {key: kv_bytes_per_token(MODELS[key].shape) * 1024 / 2**30 for key in printed}

    assert round(ours["llama-3.1-8b"], 3) == printed["llama-3.1-8b"]
    assert ours["llama-3.1-70b"] == pytest.approx(printed["llama-3.1-70b"], abs=0.0006)
    assert printed["llama-3.1-405b"] / ours["llama-3.1-405b"] == pytest.approx(2, abs=0.001)


def test_vllm_fit_2_counting_every_head_s_keys_overstates_llama_70b_eight_times():
    shape = MODELS["llama-3.1-70b"].shape

    wrong = 2 * shape.layers * 2 * shape.attention_heads * shape.head_dim

    assert wrong / kv_bytes_per_token(shape) == 8


def test_the_lessons_own_preset_comes_first():
    assert next(iter(MODELS)) == "lesson"


def test_every_preset_says_where_its_sizes_come_from():
    assert all(preset.shape.source for preset in MODELS.values())


def test_every_mixture_has_a_published_active_count_and_no_dense_model_has():
    assert [preset for preset in MODELS.values() if preset.published_active] == SPARSE


def test_every_key_of_the_data_file_is_read():
    known = {"name", "sizes", "kind", "experts", "latent", "window", "published", "released", "source"}
    entries = tomllib.loads(Path(catalogue.__file__).with_name("models.toml").read_text()).values()

    assert {key for entry in entries for key in entry} == known
    assert {key for entry in entries for key in entry.get("published", ())} == {"total", "active"}


def test_an_unknown_model_is_refused_with_those_that_exist():
    sentence = f"model is 'gpt-7', which is not in the catalogue. Use one of: {', '.join(MODELS)}."

    with pytest.raises(ValueError, match=exactly(sentence)):
        model("gpt-7")
