"""Configurations of every family give the sizes of the catalogue; what is wrong with one gets a sentence each."""

import dataclasses
import json
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from calculators.predict.models.catalogue import MODELS
from calculators.predict.models.codes import code_of
from calculators.predict.models.configs import LARGEST_BYTES, ConfigError, read_config
from calculators.predict.models.families import FAMILIES
from calculators.predict.models.parameters import active_parameters, total_parameters
from calculators.predict.shapes import Experts, SlidingWindow

FILES = {path.stem: path for path in sorted((Path(__file__).parent / "configs").glob("*.json"))}
LLAMA = json.loads(FILES["llama-3.1-8b"].read_text())
DEEPSEEK = json.loads(FILES["deepseek-v3"].read_text())
QWEN = json.loads(FILES["qwen3-30b-a3b"].read_text())
GPT_OSS = json.loads(FILES["gpt-oss-20b"].read_text())


def read(config, **changes):
    """A configuration with some keys changed; the value `...` takes one out."""
    return read_config(
        json.dumps({key: value for key, value in {**config, **changes}.items() if value is not ...})
    )


def problems(config, **changes):
    with pytest.raises(ConfigError) as caught:
        read(config, **changes)
    return list(caught.value.problems)


def sized(shape):
    return dataclasses.replace(shape, name="", source="")


@pytest.mark.parametrize("key", sorted(FILES.keys() & MODELS.keys() - {"gemma-3-27b"}))
def test_a_configuration_has_the_sizes_of_the_catalogue(key):
    assert sized(read_config(FILES[key].read_text())) == sized(MODELS[key].shape)


def test_gemma_3_s_text_part_is_the_catalogue_s_with_64_padded_words():
    shape = read_config(FILES["gemma-3-27b"].read_text())

    assert sized(shape) == sized(dataclasses.replace(MODELS["gemma-3-27b"].shape, vocab_size=262_208))


# Counts that the makers print, of models that are not in the catalogue [billions]: all, and what one token uses.
@pytest.mark.parametrize(
    ("key", "billions", "active"),
    [
        ("mistral-7b", 7.24, 7.24),
        ("phi-3-mini", 3.82, 3.82),
        ("qwen2-57b-a14b", 57.4, 14.2),
        ("glm-4-9b", 9.4, 9.4),
        ("gpt2", 0.124, 0.124),
        ("pythia-6.9b", 6.86, 6.86),
        ("opt-1.3b", 1.32, 1.32),
    ],
)
def test_other_families_make_their_published_counts(key, billions, active):
    shape = read_config(FILES[key].read_text())

    assert total_parameters(shape) / 1e9 == pytest.approx(billions, rel=0.01)
    assert active_parameters(shape) / 1e9 == pytest.approx(active, rel=0.01)


@pytest.mark.parametrize("path", FILES.values(), ids=lambda path: path.stem)
def test_every_family_here_is_a_known_one(path):
    assert "unknown" not in read_config(path.read_text()).source


def test_no_type_is_in_two_families():
    types = [kind for family in FAMILIES for kind in family.types]

    assert len(types) == len(set(types))


@pytest.mark.parametrize("value", [None, ...], ids=["null", "left out"])
def test_without_key_value_heads_every_head_has_its_own(value):
    assert read(LLAMA, num_key_value_heads=value).kv_heads == 32


def test_vllm_fit_2_key_value_heads_are_read_and_not_all_heads():
    assert (read(LLAMA).kv_heads, read(LLAMA).attention_heads) == (8, 32)


def test_lm_studio_1862_a_hybrid_is_refused_where_counting_attention_in_every_layer_overstates_its_cache():
    kinds = (["linear_attention"] * 3 + ["full_attention"]) * 8

    found = problems(LLAMA, layer_types=kinds, full_attention_interval=4)

    assert [sentence.split()[0] for sentence in found] == ["full_attention_interval", "layer_types"]
    assert read(LLAMA).layers == 4 * kinds.count("full_attention")  # what it would have been counted as


def test_rasbt_922_a_group_is_not_a_head():
    # rasbt/LLMs-from-scratch#922 mixed up the number of groups, 8, with the heads in a group, 4
    assert read(LLAMA).kv_heads != LLAMA["num_attention_heads"] // LLAMA["num_key_value_heads"]


@pytest.mark.parametrize(("given", "width"), [(None, 128), (..., 128), (64, 64)])
def test_a_head_is_as_wide_as_said_or_a_share_of_the_hidden_size(given, width):
    assert read(LLAMA, head_dim=given).head_dim == width


def test_a_family_s_own_head_width_holds_where_none_is_said():
    assert (
        read({**QWEN, "model_type": "qwen3"}, hidden_size=5120, num_attention_heads=64, head_dim=...).head_dim
        == 128
    )


@pytest.mark.parametrize(
    ("given", "of_deepseek"), [(1536, 1536), (None, 0)], ids=["compressed", "projected directly"]
)
def test_latent_queries_are_compressed_or_not(given, of_deepseek):
    assert read(DEEPSEEK, q_lora_rank=given).latent.query_rank == of_deepseek


def test_a_deepseek_that_says_null_experts_is_dense():
    assert read(DEEPSEEK, n_routed_experts=None).experts is None


def test_two_shared_experts_are_one_of_twice_the_width():
    assert read(DEEPSEEK, n_shared_experts=2).experts.shared_width == 4096


@pytest.mark.parametrize(
    ("said", "dense"),
    [
        ({"mlp_only_layers": [0, 1]}, 2),
        ({"mlp_only_layers": []}, 0),
        ({"moe_layer_freq": [0, 0, 0] + [1] * 45}, 3),
        ({"moe_layer_freq": 1}, 0),
        ({"decoder_sparse_step": None}, 0),
    ],
)
def test_first_layers_without_experts_are_said_in_several_ways(said, dense):
    assert read(QWEN, **said).experts == Experts(routed=128, per_token=8, width=768, dense_layers=dense)


@pytest.mark.parametrize(
    ("config", "said", "window"),
    [
        ({**LLAMA, "model_type": "mistral"}, {"sliding_window": 4096}, SlidingWindow(tokens=4096, layers=32)),
        ({**LLAMA, "model_type": "mistral"}, {"sliding_window": None}, None),
        (
            {**LLAMA, "model_type": "gemma3_text"},
            {"sliding_window": 512},
            SlidingWindow(tokens=512, layers=27),
        ),
        (
            {**LLAMA, "model_type": "gemma3_text"},
            {"sliding_window": 512, "sliding_window_pattern": 4},
            SlidingWindow(tokens=512, layers=24),
        ),
        ({**LLAMA, "model_type": "qwen2"}, {"sliding_window": 512}, None),
        ({**LLAMA, "model_type": "qwen2"}, {"sliding_window": 512, "use_sliding_window": False}, None),
        (
            {**LLAMA, "model_type": "qwen2"},
            {"sliding_window": 512, "use_sliding_window": True, "max_window_layers": 28},
            SlidingWindow(tokens=512, layers=4),
        ),
        (GPT_OSS, {"layer_types": None}, SlidingWindow(tokens=128, layers=12)),
        (GPT_OSS, {"layer_types": ["full_attention"] * 24}, None),
        (
            GPT_OSS,
            {"layer_types": ["full_attention"] * 23 + ["sliding_attention"]},
            SlidingWindow(tokens=128, layers=1),
        ),
    ],
)
def test_windows_are_said_in_several_ways(config, said, window):
    assert read(config, **said).window == window


@pytest.mark.parametrize(
    ("said", "size"),
    [
        ({"torch_dtype": "bfloat16"}, 2),
        ({"torch_dtype": "float32"}, 4),
        ({"torch_dtype": ..., "dtype": "float32"}, 4),
        ({"torch_dtype": "float8_e4m3fn"}, 2),
        ({"torch_dtype": ...}, 2),
        ({"torch_dtype": None}, 2),
    ],
)
def test_activations_have_the_width_of_the_elements_but_eight_bits_are_for_weights(said, size):
    assert read(LLAMA, **said).bytes_per_element == size


@pytest.mark.parametrize(
    ("given", "said", "name"),
    [
        ("Mine", {}, "Mine"),
        ("", {}, "llama"),
        ("", {"_name_or_path": "/home/someone/models/Llama-3.1-8B/"}, "Llama-3.1-8B"),
        ("", {"_name_or_path": "meta-llama/Llama-3.1-8B"}, "Llama-3.1-8B"),
        ("", {"_name_or_path": 7, "model_type": ...}, "config.json"),
        ("a\nb\u202e\x00", {}, "ab"),
        ("x" * 100, {}, "x" * 60),
        ("\ud800", {}, "llama"),
    ],
)
def test_a_model_is_called_what_was_asked_or_what_its_file_says(given, said, name):
    text = json.dumps({key: value for key, value in {**LLAMA, **said}.items() if value is not ...})

    assert read_config(text, given).name == name


def test_the_text_part_of_a_model_that_sees_is_what_counts():
    whole = {
        "model_type": "some_vl",
        "tie_word_embeddings": True,
        "text_config": {**LLAMA, "tie_word_embeddings": ...},
    }
    whole["text_config"].pop("tie_word_embeddings")

    shape = read(whole)

    assert sized(shape) == sized(dataclasses.replace(MODELS["llama-3.1-8b"].shape, tied_embeddings=True))


def test_a_text_part_without_a_type_has_that_of_the_whole():
    inner = {key: value for key, value in LLAMA.items() if key != "model_type"}

    assert (
        read({"model_type": "mistral", "text_config": inner}).source == 'A config.json of the type "mistral"'
    )


def test_bytes_with_a_mark_of_their_order_are_read_as_text_is():
    data = FILES["phi-4"].read_bytes()

    assert read_config(b"\xef\xbb\xbf" + data) == read_config("\ufeff" + data.decode()) == read_config(data)


def test_an_unknown_type_is_read_by_the_usual_names_and_says_so():
    shape = read(LLAMA, model_type="new_thing", tie_word_embeddings=False)

    assert sized(shape) == sized(MODELS["llama-3.1-8b"].shape)
    assert shape.source == 'A config.json of the unknown type "new_thing", read by the usual names'
    assert read(LLAMA, model_type=...).source == "A config.json without model_type, read by the usual names"


@pytest.mark.parametrize(("act", "gated"), [("silu", True), ("gelu", False), ("relu2", False), (None, True)])
def test_of_an_unknown_type_the_activation_tells_how_many_matrices_there_are(act, gated):
    assert read(LLAMA, model_type="new_thing", hidden_act=act).gated is gated


WHOLE = "write a whole number from"


@pytest.mark.parametrize(
    ("config", "changes", "expected"),
    [
        (LLAMA, {"hidden_size": 0}, [f"hidden_size is 0: {WHOLE} 1 to 1,000,000."]),
        (LLAMA, {"hidden_size": -4096}, [f"hidden_size is -4096: {WHOLE} 1 to 1,000,000."]),
        (LLAMA, {"hidden_size": 4096.0}, [f"hidden_size is 4096.0: {WHOLE} 1 to 1,000,000."]),
        (LLAMA, {"hidden_size": True}, [f"hidden_size is true: {WHOLE} 1 to 1,000,000."]),
        (LLAMA, {"hidden_size": [4096]}, [f"hidden_size is [4096]: {WHOLE} 1 to 1,000,000."]),
        (LLAMA, {"hidden_size": [4096] * 9}, [f"hidden_size is a list of 9: {WHOLE} 1 to 1,000,000."]),
        (LLAMA, {"hidden_size": {}}, [f"hidden_size is an object: {WHOLE} 1 to 1,000,000."]),
        (
            LLAMA,
            {"hidden_size": "4096"},
            [f'hidden_size is "4096": {WHOLE} 1 to 1,000,000, without quotation marks.'],
        ),
        (
            LLAMA,
            {"vocab_size": "y" * 99},
            [f'vocab_size is "{"y" * 39}…": {WHOLE} 1 to 100,000,000, without quotation marks.'],
        ),
        (LLAMA, {"num_hidden_layers": 10**9}, [f"num_hidden_layers is 1000000000: {WHOLE} 1 to 10,000."]),
        (LLAMA, {"num_hidden_layers": 10**30}, [f"num_hidden_layers is 1e+30: {WHOLE} 1 to 10,000."]),
        (LLAMA, {"num_key_value_heads": 0}, [f"num_key_value_heads is 0: {WHOLE} 1 to 10,000."]),
        (
            LLAMA,
            {"num_key_value_heads": 5},
            [
                "num_key_value_heads is 5, which does not divide 32, the number of attention heads: write one that "
                "does, such as 4."
            ],
        ),
        (
            LLAMA,
            {"num_key_value_heads": 64},
            [
                "num_key_value_heads is 64, which does not divide 32, the number of attention heads: write one that "
                "does, such as 32."
            ],
        ),
        (
            LLAMA,
            {"num_attention_heads": 24},
            [
                "hidden_size is 4096, which num_attention_heads, 24, does not divide: change one of them, or add "
                "head_dim, the width of a head."
            ],
        ),
        (
            LLAMA,
            {"torch_dtype": "int3"},
            [
                'torch_dtype is "int3": write one of float32, bfloat16, float16, auto, float8_e4m3fn, float8_e5m2, '
                "int8, uint8."
            ],
        ),
        (LLAMA, {"tie_word_embeddings": "false"}, ['tie_word_embeddings is "false": write true or false.']),
        (LLAMA, {"model_type": 7}, ['model_type is 7: write the name of a family, such as "llama".']),
        (
            LLAMA,
            {"is_encoder_decoder": True},
            [
                "is_encoder_decoder is true: the calculators know models with a decoder alone, so take one of those."
            ],
        ),
        (
            LLAMA,
            {"full_attention_interval": 4},
            [
                "full_attention_interval is 4: some layers of this model are no attention layers, which the "
                "calculators cannot count, so take a model that has attention in every layer."
            ],
        ),
        (
            LLAMA,
            {"layer_types": ["linear_attention"] * 32},
            [
                'layer_types names "linear_attention", a kind of layer that the calculators cannot count: take a model '
                "whose layers are all full_attention or sliding_attention."
            ],
        ),
        (
            LLAMA,
            {"layer_types": ["full_attention"] * 31},
            ["layer_types names 31 layers, but num_hidden_layers is 32: make them agree."],
        ),
        (
            LLAMA,
            {"layer_types": "full_attention"},
            ['layer_types is "full_attention": write a list with the kind of each layer in quotation marks.'],
        ),
        (
            LLAMA,
            {"layer_types": ["sliding_attention"] * 32},
            ['A config.json of the type "llama" lacks sliding_window: add it, or give the whole file.'],
        ),
        (
            LLAMA,
            {"vocab_size": ...},
            ['A config.json of the type "llama" lacks vocab_size: add it, or give the whole file.'],
        ),
        (
            LLAMA,
            {"vocab_size": None, "num_hidden_layers": ..., "intermediate_size": ...},
            [
                'A config.json of the type "llama" lacks num_hidden_layers, vocab_size (it says null) and '
                "intermediate_size: add them, or give the whole file."
            ],
        ),
        (
            {"model_type": "new_thing"},
            {},
            [
                'A config.json of the unknown type "new_thing" lacks hidden_size, num_hidden_layers, '
                "num_attention_heads, vocab_size and intermediate_size: add them, or give the whole file."
            ],
        ),
        (
            {},
            {},
            [
                "A config.json without model_type lacks hidden_size, num_hidden_layers, num_attention_heads, "
                "vocab_size and intermediate_size: add them, or give the whole file."
            ],
        ),
        (
            DEEPSEEK,
            {"q_lora_rank": ..., "first_k_dense_replace": ..., "kv_lora_rank": ...},
            [
                'A config.json of the type "deepseek_v3" lacks kv_lora_rank, q_lora_rank and first_k_dense_replace: '
                "add them, or give the whole file."
            ],
        ),
        (
            QWEN,
            {"num_experts": ...},
            ['A config.json of the type "qwen3_moe" lacks num_experts: add it, or give the whole file.'],
        ),
        (
            QWEN,
            {"num_experts": 0, "moe_intermediate_size": -1},
            [
                f"num_experts is 0: {WHOLE} 1 to 100,000.",
                f"moe_intermediate_size is -1: {WHOLE} 1 to 10,000,000.",
            ],
        ),
        (
            QWEN,
            {"num_experts_per_tok": 129},
            [
                "num_experts_per_tok is 129, but num_experts is 128: a token cannot visit more experts than there are, "
                "so write 128 or less."
            ],
        ),
        (
            DEEPSEEK,
            {"first_k_dense_replace": 61},
            [
                "The first 61 layers are said to have no experts, but there are only 61: write fewer, or take the "
                "experts out."
            ],
        ),
        (
            QWEN,
            {"decoder_sparse_step": 2},
            [
                "decoder_sparse_step is 2: the calculators know experts in every layer but the first few, so write 1, "
                "or take another model."
            ],
        ),
        (
            QWEN,
            {"mlp_only_layers": [5]},
            [
                "mlp_only_layers is [5]: the calculators know layers without experts only before all others, so write "
                "[], [0], [0, 1] and so on."
            ],
        ),
        (
            LLAMA,
            {"hidden_size": 0, "vocab_size": None, "num_hidden_layers": "32", "tie_word_embeddings": 1},
            [
                f"hidden_size is 0: {WHOLE} 1 to 1,000,000.",
                f'num_hidden_layers is "32": {WHOLE} 1 to 10,000, without quotation marks.',
                "tie_word_embeddings is 1: write true or false.",
                'A config.json of the type "llama" lacks vocab_size (it says null): add it, or give the whole file.',
            ],
        ),
    ],
)
def test_everything_wrong_is_said_at_once_with_its_key_its_value_and_what_to_write(config, changes, expected):
    assert problems(config, **changes) == expected


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "Nothing was given: paste the text of a config.json, or upload one."),
        (" \n", "Nothing was given: paste the text of a config.json, or upload one."),
        ("[]", "The file is [], but a config.json is an object: give all of it, from { to }."),
        ('"llama"', 'The file is "llama", but a config.json is an object: give all of it, from { to }.'),
        ("null", "The file is null, but a config.json is an object: give all of it, from { to }."),
        (
            '{"hidden_size": 4096,\n "num_hid',
            "The file ends before its last bracket is closed (line 2, column 2): a part is missing, so give all of it.",
        ),
        (
            '{"hidden_size": 4096',
            "The file ends before its last bracket is closed (line 1, column 21): a part is missing, so give all of "
            "it.",
        ),
        (
            "{\n  hidden_size: 4096\n}",
            'The file is no JSON from line 2, column 3 on, near "hidden_size: 4096" (expecting property name enclosed '
            "in double quotes): correct it, or give it as it was.",
        ),
        (
            '{"a": 1} {"b": 2}',
            'The file is no JSON from line 1, column 10 on, near "{\\"b\\": 2}" (extra data): correct it, or give it '
            "as it was.",
        ),
        (
            '{"hidden_size": NaN}',
            "The file holds NaN, which JSON does not have: write a number or null in its place.",
        ),
        (
            '{"other": [-Infinity]}',
            "The file holds -Infinity, which JSON does not have: write a number or null in its place.",
        ),
        (
            '{"hidden_size": 1, "hidden_size": 2}',
            "hidden_size is given twice, as 1 and as 2: keep one of them.",
        ),
        (
            '{"a": {"<b>": null, "<b>": "x"}}',
            '"<b>" is given twice, as null and as "x": keep one of them.',
        ),
        (
            "[" * 100_000,
            "The file nests lists and objects too deeply to be a config.json: give the config.json itself.",
        ),
        (
            '{"a":' * 50_000 + "1" + "}" * 50_000,
            "The file has 300,001 bytes, but a config.json takes a few thousand and this page reads 262,144 at most: "
            "give the config.json itself, not the weights or the tokenizer.",
        ),
        (
            "é" * (LARGEST_BYTES // 2 + 1),
            "The file has 262,146 bytes, but a config.json takes a few thousand and this page reads 262,144 at most: "
            "give the config.json itself, not the weights or the tokenizer.",
        ),
        (b"PK\x03\x04\xff", "Byte 5 of the file is no UTF-8 text: give the config.json itself, unpacked."),
    ],
)
def test_what_is_no_configuration_gets_a_sentence(text, sentence):
    with pytest.raises(ConfigError) as caught:
        read_config(text)

    assert caught.value.problems == (sentence,)
    assert str(caught.value) == sentence


def test_a_number_of_thousands_of_digits_is_too_large_and_no_harm():
    with pytest.raises(
        ConfigError, match="hidden_size is Infinity: write a whole number from 1 to 1,000,000"
    ):
        read_config('{"hidden_size": ' + "9" * 100_000 + "}")


KEYS = sorted(
    {key for path in FILES.values() for key in json.loads(path.read_text())} | {"layer_types", "multi_query"}
)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
    | st.sampled_from(["llama", "qwen3_moe", "deepseek_v3", "gpt2", "sliding_attention", "bfloat16"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=8,
)


def complaints(text):
    """The sentences that refuse a text, none if it is a model that an address can carry; anything else is raised."""
    try:
        shape = read_config(text)
    except ConfigError as error:
        assert error.problems  # noqa: PT017
        return error.problems
    assert code_of(shape)
    return ()


def are_sentences(found):
    return len(set(found)) == len(found) and all(each.isprintable() and each.endswith(".") for each in found)


@given(
    base=st.sampled_from(sorted(FILES)),
    changes=st.dictionaries(st.sampled_from(KEYS), JSON, max_size=4),
    without=st.lists(st.sampled_from(KEYS), max_size=3),
)
@example(base="llama-2-7b", changes={"hidden_size": 1_000_000, "num_attention_heads": 1}, without=[])
@example(
    base="deepseek-v3", changes={"n_shared_experts": 1000, "moe_intermediate_size": 10_000_000}, without=[]
)
def test_a_changed_configuration_is_a_model_or_sentences(base, changes, without):
    config = {**json.loads(FILES[base].read_text()), **changes}

    text = json.dumps({key: value for key, value in config.items() if key not in without})

    assert are_sentences(complaints(text))


@given(JSON)
def test_any_json_is_a_model_or_sentences(value):
    assert are_sentences(complaints(json.dumps(value)))


@given(st.text(alphabet='{}[]":,0123456789eE.-+ntrufalsx\n \ud800é', max_size=60) | st.binary(max_size=60))
def test_any_text_is_a_model_or_sentences(text):
    assert are_sentences(complaints(text))


@given(base=st.sampled_from(sorted(FILES)), share=st.floats(0, 1))
def test_a_configuration_cut_off_anywhere_is_refused_with_the_place(base, share):
    text = FILES[base].read_text().rstrip()

    found = complaints(text[: int(share * (len(text) - 1))])

    assert len(found) == 1
    assert found[0].startswith(("The file ends before", "The file is no JSON from line", "Nothing was given"))
