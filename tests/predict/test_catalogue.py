"""The presets: their sizes make the published number of parameters."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calculators.predict.catalogue import MODELS, model
from calculators.predict.parameters import total_parameters
from calculators.predict.shapes import ModelShape
from tests.predict.sentences import exactly

PUBLISHED = [preset for preset in MODELS.values() if preset.published_parameters]
SMALL = st.integers(min_value=1, max_value=50)


@pytest.mark.parametrize("preset", PUBLISHED, ids=lambda preset: preset.key)
def test_a_preset_makes_the_published_count_within_a_percent(preset):
    assert preset.parameters == pytest.approx(preset.published_parameters, rel=0.01)


def test_llama_2_7b_is_counted_to_the_parameter():
    assert MODELS["llama-2-7b"].parameters == 6_738_415_616


@pytest.mark.parametrize(
    ("hidden", "layers", "billions"),
    [
        (2304, 24, 1.652),
        (3072, 30, 3.562),
        (4096, 36, 7.468),
        (6144, 40, 18.450),
        (12288, 80, 145.6),
        (25600, 128, 1007.9),
    ],
)
def test_narayanan_s_formula_counts_the_same_up_to_its_biases(hidden, layers, billions):
    published = 12 * layers * hidden**2 * (1 + 13 / (12 * hidden) + (51200 + 2048) / (12 * layers * hidden))

    counted = total_parameters(
        ModelShape(
            name="a GPT",
            source="a test",
            bytes_per_element=2,
            hidden_size=hidden,
            layers=layers,
            attention_heads=hidden // 128,
            kv_heads=hidden // 128,
            head_dim=128,
            ffn_width=4 * hidden,
            vocab_size=51200,
            positions=2048,
            gated=False,
            tied_embeddings=True,
        )
    )

    assert published / 1e9 == pytest.approx(billions, rel=0.001)
    assert counted == pytest.approx(published, rel=0.001)


@given(
    h=SMALL,
    layers=SMALL,
    a=SMALL,
    kv=SMALL,
    d=SMALL,
    f=SMALL,
    v=SMALL,
    gated=st.booleans(),
    tied=st.booleans(),
)
def test_counting_real_matrices_gives_the_same(h, layers, a, kv, d, f, v, gated, tied):
    query, key, value, output = (h, a * d), (h, kv * d), (h, kv * d), (a * d, h)
    feed_forward = [(h, f), (f, h)] + [(h, f)] * gated
    layer = [query, key, value, output, (h,), (h,), *feed_forward]
    outside = [(v, h), (h,)] + [(v, h)] * (not tied)

    matrices = sum(int(np.prod(shape)) for shape in layer * layers + outside)

    counted = total_parameters(
        ModelShape(
            name="a GPT",
            source="a test",
            bytes_per_element=2,
            hidden_size=h,
            layers=layers,
            attention_heads=a,
            kv_heads=kv,
            head_dim=d,
            ffn_width=f,
            vocab_size=v,
            gated=gated,
            tied_embeddings=tied,
        )
    )
    assert counted == matrices


def test_every_preset_says_where_its_sizes_come_from():
    assert all(preset.shape.source for preset in MODELS.values())


def test_an_unknown_model_is_refused_with_those_that_exist():
    sentence = f"model is 'gpt-7', which is not in the catalogue. Use one of: {', '.join(MODELS)}."

    with pytest.raises(ValueError, match=exactly(sentence)):
        model("gpt-7")
