"""A model's code: one for each, back to the same sizes, and a sentence for everything that is none."""

import dataclasses
import re
from urllib.parse import quote, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calculators.predict.models.catalogue import MODELS
from calculators.predict.models.codes import LONGEST_CODE, MOST, SOURCE, code_of, shape_of
from calculators.predict.shapes import Experts, LatentAttention, ModelShape, SlidingWindow
from tests.predict.sentences import exactly

GOOD = "h4096.l64.a32.k8.d128.f14336.v128256.b2"


def size(name, least=1):
    return st.integers(least, MOST[name])


@st.composite
def shapes(draw):
    layers = draw(size("layers"))
    experts = latent = window = None
    if draw(st.booleans()):
        routed = draw(size("routed"))
        experts = Experts(
            routed=routed,
            per_token=draw(st.integers(1, routed)),
            width=draw(size("width")),
            shared_width=draw(size("shared_width", 0)),
            dense_layers=draw(st.integers(0, layers - 1)),
        )
    if draw(st.booleans()):
        latent = LatentAttention(
            kv_rank=draw(size("kv_rank")),
            rope_dim=draw(size("rope_dim")),
            query_rank=draw(size("query_rank", 0)),
            value_dim=draw(size("value_dim")),
        )
    if draw(st.booleans()):
        window = SlidingWindow(tokens=draw(size("tokens")), layers=draw(st.integers(1, layers)))
    return ModelShape(
        name=draw(st.text(max_size=60).filter(str.isprintable)),
        source=SOURCE,
        bytes_per_element=draw(size("bytes_per_element")),
        layers=layers,
        hidden_size=draw(size("hidden_size")),
        attention_heads=draw(size("attention_heads")),
        kv_heads=draw(size("kv_heads")),
        head_dim=draw(size("head_dim")),
        ffn_width=draw(size("ffn_width")),
        vocab_size=draw(size("vocab_size")),
        gated=draw(st.booleans()),
        tied_embeddings=draw(st.booleans()),
        positions=draw(size("positions", 0)),
        experts=experts,
        latent=latent,
        window=window,
    )


@given(shapes())
def test_every_model_comes_back_from_its_code(shape):
    assert shape_of(code_of(shape)) == shape


@given(shapes())
def test_a_code_needs_no_escape_in_an_address(shape):
    code = code_of(shape)

    assert quote(code, safe="") == code
    assert urlencode({"model": code}) == f"model={code}"
    assert len(code) <= LONGEST_CODE


@given(shapes(), shapes())
def test_two_models_never_share_a_code(one, other):
    assert (code_of(one) == code_of(other)) == (one == other)


@pytest.mark.parametrize("preset", MODELS.values(), ids=lambda preset: preset.key)
def test_every_preset_comes_back_but_for_its_source(preset):
    code = code_of(preset.shape)

    assert shape_of(code) == dataclasses.replace(preset.shape, source=SOURCE)
    assert len(code) < 120


def test_no_key_of_the_catalogue_is_a_code():
    assert not [key for key in MODELS if re.match(r"h\d", key)]


def test_a_code_can_be_read():
    assert code_of(MODELS["deepseek-v3"].shape) == (
        "h7168.l61.a128.k1.d128.f18432.v129280.b2.e256-8-2048-2048-3.c512-64-1536-128~DeepSeek-V3"
    )
    assert code_of(MODELS["gemma-2-27b"].shape) == (
        "h4608.l46.a32.k16.d128.f36864.v256000.b2.tied.w4096-23~Gemma_2_27B"
    )
    assert code_of(MODELS["gpt-3-175b"].shape) == (
        "h12288.l96.a96.k96.d128.f49152.v50257.b2.p2048.ungated.tied~GPT-3_175B"
    )


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("", ""),
        ("a b", "~a_b"),
        ("a_b", "~a~5Fb"),
        ("50 %", "~50_~25"),
        ("~", "~~7E"),
        ("通义", "~~E9~80~9A~E4~B9~89"),
        ("</script>", "~~3C~2Fscript~3E"),
    ],
)
def test_names_are_written_without_percent_signs(name, written):
    shape = dataclasses.replace(MODELS["lesson"].shape, name=name)

    assert code_of(shape) == GOOD + written
    assert shape_of(GOOD + written).name == name


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        (
            "",
            "The code has the part '', which says nothing about a model. A part is one of the letters h, l, a, k, d, "
            "f, v, b, p, e, c, w with its numbers, or one of ungated, tied.",
        ),
        (
            f"{GOOD}.q7",
            "The code has the part 'q7', which says nothing about a model. A part is one of the letters h, l, a, k, d, "
            "f, v, b, p, e, c, w with its numbers, or one of ungated, tied.",
        ),
        (
            "h4096.l64",
            "The code lacks a (attention_heads), k (kv_heads), d (head_dim), f (ffn_width), v (vocab_size), "
            "b (bytes_per_element). Add a number for each, as in h4096.",
        ),
        (f"{GOOD}.h1", "The code says hidden_size twice. Keep one."),
        (f"{GOOD}.p0", "positions is 0 in the code. Use 1 to 100,000,000."),
        (GOOD.replace("l64", "l0"), "layers is 0 in the code. Use 1 to 10,000."),
        (GOOD.replace("l64", "l10001"), "layers is 10,001 in the code. Use 1 to 10,000."),
        (
            f"{GOOD}.e8-2",
            "The part e8-2 of the code has 2 numbers, but experts need 5: routed, per_token, width, shared_width, "
            "dense_layers. Join them with hyphens.",
        ),
        (f"{GOOD}.e8-9-1-0-0", "per_token is 9, but a layer has only 8 experts. Use 8 or less."),
        (
            f"{GOOD}.e8-2-1-0-64~Mine",
            "dense_layers is 64 in Mine, but of 64 layers at least one has experts. Use fewer, or no experts.",
        ),
        (f"{GOOD}.w128-65", "65 layers have a window, but there are only 64. Use 64 or fewer."),
        (
            GOOD.replace("h4096.l64", "l64.h4096"),
            f"The code is another way to write {GOOD}. Use that one.",
        ),
        (GOOD.replace("h4096", "h04096"), f"The code is another way to write {GOOD}. Use that one."),
        (f"{GOOD}~", f"The code is another way to write {GOOD}. Use that one."),
        (f"{GOOD}~a b", f"The code is another way to write {GOOD}~a_b. Use that one."),
        (f"{GOOD}~~FF", "The name in the code, '~FF', is damaged. Copy the address again."),
        (
            f"{GOOD}~~00",
            r"The model's name is '\x00', but a name has at most 60 characters, all of them printable. "
            "Choose a simpler one.",
        ),
        (
            f"{GOOD}~{'x' * 61}",
            f"The model's name is '{'x' * 40}', but a name has at most 60 characters, all of them printable. "
            "Choose a simpler one.",
        ),
        (
            "h" * 1001,
            "The code has 1,001 characters, but no model needs more than 1,000. Copy it again.",
        ),
    ],
)
def test_what_is_no_code_gets_a_sentence(code, sentence):
    with pytest.raises(ValueError, match=exactly(sentence)):
        shape_of(code)


def complaint_about(code):
    """The sentence that refuses a text, or none if it is the code of the model it gives."""
    try:
        shape = shape_of(code)
    except ValueError as error:
        return str(error) if type(error) is ValueError else f"{error!r}"
    return "" if code_of(shape) == code else "not its code"


@given(st.text(alphabet="hlakdfvbpecw0123456789.-~_ungatedi\ud800²٣%", max_size=80) | st.text(max_size=200))
def test_any_text_is_a_model_or_a_sentence(text):
    assert re.fullmatch(r"(The|[a-z_]+ is|[0-9]+ layers) .*\.|", complaint_about(text), re.DOTALL)


@given(st.data())
def test_a_good_code_with_a_few_characters_changed_is_a_model_or_a_sentence(data):
    code = list(code_of(MODELS["deepseek-v3"].shape))
    for _ in range(data.draw(st.integers(1, 4))):
        code[data.draw(st.integers(0, len(code) - 1))] = data.draw(st.sampled_from("h0-.~9x"))

    assert re.fullmatch(r"(The|[a-z_]+ is|[0-9]+ layers) .*\.|", complaint_about("".join(code)), re.DOTALL)


def test_a_long_name_in_any_script_fits_into_a_code():
    shape = dataclasses.replace(MODELS["deepseek-v3"].shape, name="🦙" * 60, source=SOURCE)

    assert shape_of(code_of(shape)) == shape


def test_a_size_that_no_code_has_is_refused_when_written_as_well():
    shape = dataclasses.replace(MODELS["lesson"].shape, bytes_per_element=9)

    with pytest.raises(ValueError, match=exactly("bytes_per_element is 9 in the code. Use 1 to 8.")):
        code_of(shape)
