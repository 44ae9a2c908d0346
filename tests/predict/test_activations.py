"""What layers keep for the backward pass: published figures, and every kept tensor of a real pass counted."""

import dataclasses
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calculators.predict.memory.activations import Cut, KeptTensor, kept_tensors, layer_activations
from calculators.predict.models.catalogue import MODELS
from calculators.predict.shapes import Experts, LatentAttention, ModelShape, Recompute
from calculators.predict.stages import in_flight
from tests.predict.gpt import GIB, KORTHIKANTI, gpt
from tests.predict.sentences import exactly

NONE, SELECTIVE, FULL = (int(mode) for mode in Recompute)
LLAMA_8B, LLAMA_70B, LLAMA_405B = gpt(4096, 32, 32), gpt(8192, 80, 64), gpt(16384, 126, 128)


def in_a_model(shape, **options):
    """GiB that all layers keep of one micro-batch."""
    return (shape.layers * layer_activations(shape, **options) / GIB).tolist()


# Korthikanti 2022


@pytest.mark.parametrize(
    ("size", "without", "with_both"),
    [
        ("22B", 59.25, 9.5625),
        ("175B", 66.84375, 12.3515625),
        ("530B", 114.0234375, 23.076171875),
        ("1T", 131.25, 26.5625),
    ],
)
def test_oracle_2_and_o_4_the_first_stage_keeps_what_korthikanti_s_figure_1_says(size, without, with_both):
    # arXiv 2205.05198, figure 1; values as Calculon's validation states them; to 1e-6
    shape, batch, stages, chunks = KORTHIKANTI[size]
    flying = in_flight(0, pp=stages, vpp=chunks, micro_batches=512)

    kept = layer_activations(
        shape, tokens=2048, batch=batch, tp=8, sp=[False, True], recompute=[NONE, SELECTIVE]
    )

    first_stage = kept * shape.layers / stages * flying / GIB
    assert first_stage.tolist() == pytest.approx([without, with_both], rel=1e-6)


@pytest.mark.parametrize(
    ("size", "percent"),
    [
        ("22B", (66.84, 49.42, 16.18, 7.64)),
        ("175B", (62.04, 56.53, 18.49, 8.71)),
        ("530B", (58.31, 62.04, 20.27, 9.42)),
        ("1T", (58.31, 62.04, 20.27, 9.42)),
    ],
)
def test_oracle_3_and_o_5_each_technique_leaves_the_share_that_korthikanti_s_figure_7_shows(size, percent):
    # read off a plot: 0.15 points. SP, selective, both, full; of tensor parallelism alone
    shape, batch, *_ = KORTHIKANTI[size]

    kept = layer_activations(
        shape,
        tokens=2048,
        batch=batch,
        tp=8,
        sp=[False, True, False, True, False],
        recompute=[NONE, NONE, SELECTIVE, SELECTIVE, FULL],
    )

    assert (100 * kept / kept[0])[1:].tolist() == pytest.approx(percent, abs=0.15)


@pytest.mark.parametrize(("size", "term", "saved"), [("175B", 80, 70), ("530B", 64, 65)])
def test_oracle_4_selective_recomputation_saves_the_5as_h_of_the_scores(size, term, saved):
    # formulas.md oracle 4: 0.5 points
    shape = KORTHIKANTI[size][0]
    none, selective = layer_activations(shape, tokens=2048, recompute=[NONE, SELECTIVE])

    assert (none - selective) / (2048 * shape.hidden_size) == term
    assert 100 * (1 - selective / none) == pytest.approx(saved, abs=0.5)


def test_the_rows_of_korthikanti_s_table_2():
    s, b, h, a, t = 2048, 3, 6144, 64, 8
    shape = gpt(h, 48, a)
    sbh = s * b * h

    def kept(**options):
        return layer_activations(shape, tokens=s, batch=b, **options)

    assert kept() == pytest.approx(sbh * (34 + 5 * a * s / h))
    assert kept(tp=t) == pytest.approx(sbh * (10 + 24 / t + 5 * a * s / (h * t)))
    assert kept(tp=t, sp=True) == pytest.approx(sbh / t * (34 + 5 * a * s / h))
    assert kept(tp=t, recompute=SELECTIVE) == sbh * (10 + 24 / t)
    assert kept(tp=t, sp=True, recompute=SELECTIVE) == 34 * sbh / t
    assert kept(recompute=FULL) == 2 * sbh


def test_its_parts_are_11_sbh_of_attention_19_of_feed_forward_and_4_of_norms():
    # Korthikanti 2022 §4.1
    shape = gpt(6144, 48, 64)
    sizes = {
        tensor.name: tensor.bytes_per_token / shape.hidden_size
        for tensor in kept_tensors(shape)
        if tensor.cut != Cut.SCORES
    }

    norms = sizes.pop("input of the first norm") + sizes.pop("input of the second norm")
    feed_forward = sum(size for name, size in sizes.items() if "feed-forward" in name)
    assert (norms, feed_forward, sum(sizes.values()) - feed_forward) == (4, 19, 11)


# the Ultra-Scale Playbook's figures, whose models are GPT blocks of Llama's width


@pytest.mark.parametrize(
    ("shape", "gib"),
    [
        (LLAMA_8B, [9.25, 28.5, 97, 354, 1348]),
        (LLAMA_70B, [46.25, 142.5, 485, 1770, 6740]),
        (LLAMA_405B, [145.6875, 448.875, 1527.75, 5575.5, 21231]),
    ],
)
def test_o_7_the_playbook_s_activations_without_recomputation(shape, gib):
    # memusage_activations.html, s = 1024 … 16384
    assert in_a_model(shape, tokens=[1024, 2048, 4096, 8192, 16384]) == gib


def test_o_8_the_playbook_s_activations_beside_zero():
    # zero3_memoryusage.html: 34·s·b·h·L, whatever the stage
    assert in_a_model(LLAMA_8B, tokens=[1024, 4096, 16384], recompute=SELECTIVE) == [4.25, 17, 68]


@pytest.mark.parametrize(
    ("tp", "sp", "gib"),
    [
        (1, False, [21.25, 85, 340]),
        (8, False, [8.125, 32.5, 130]),
        (16, False, [7.1875, 28.75, 115]),
        (8, True, [2.65625, 10.625, 42.5]),
        (16, True, [1.328125, 5.3125, 21.25]),
    ],
)
def test_o_9_the_playbook_s_activations_beside_tensor_parallelism(tp, sp, gib):
    # tp_memoryusage.html and tp_sp_memoryusage.html, 70B
    assert in_a_model(LLAMA_70B, tokens=[1024, 4096, 16384], tp=tp, sp=sp, recompute=SELECTIVE) == gib


def test_o_10_the_playbook_s_activations_beside_context_and_pipeline_parallelism():
    # cp_8Bmemoryusage.html: TP 2, s = 1k … 128k; pp_memoryusage.html: 8 micro-batches of an eighth of the layers
    lengths = [1024, 4096, 16384, 65536, 131072]
    one, four = (in_a_model(LLAMA_8B, tokens=lengths, tp=2, cp=cp, recompute=SELECTIVE) for cp in (1, 4))
    an_eighth = layer_activations(LLAMA_8B, tokens=[1024, 4096, 16384], recompute=SELECTIVE) * 32 / 8

    assert one == [2.75, 11, 44, 176, 352]
    assert four == [0.6875, 2.75, 11, 44, 88]
    assert (an_eighth * in_flight(0, pp=8, micro_batches=64) / GIB).tolist() == [4.25, 17, 68]


def test_o_10_the_playbook_s_1b_keeps_a_sixteenth_more_than_a_gib():
    # dp_ourjourney.html
    assert in_a_model(gpt(2048, 16, 32), tokens=1024, recompute=SELECTIVE) == 1.0625


def test_o_26_a_layer_of_flagscale_s_qwen_keeps_155_mib():
    # flagos-ai/FlagScale pull request 454, case 1: TP 4 with SP, s = 4096, masks counted; printed to 0.1 MB
    shape = dataclasses.replace(
        MODELS["qwen3-32b"].shape, layers=54, attention_heads=40, ffn_width=13824, vocab_size=152064
    )

    kept = layer_activations(shape, tokens=4096, tp=4, sp=True, recompute=SELECTIVE, dropout=True)

    assert kept / 2**20 == 155.0


# a real pass


TINY = gpt(8, 1, 4)
GATED = dataclasses.replace(TINY, gated=True, kv_heads=2, ffn_width=12)
SPARSE = dataclasses.replace(
    GATED, name="sparse", experts=Experts(routed=4, per_token=2, width=6, shared_width=10), ffn_width=1
)
LATENT = dataclasses.replace(
    GATED, latent=LatentAttention(kv_rank=5, rope_dim=2, query_rank=6, value_dim=3), kv_heads=1, head_dim=4
)


class Pass:
    """One layer's forward pass on one rank in NumPy, which remembers every array that its backward pass reads."""

    def __init__(self, shape: ModelShape, *, batch, tokens, tp, cp, etp, sp, recompute, masks):
        self.shape, self.tp, self.etp, self.masks = shape, tp, etp, masks
        self.rows = batch * tokens // cp
        self.beside = self.rows // tp if sp else self.rows
        self.keys, self.batch, self.recompute = tokens, batch, recompute
        self.kept: list[np.ndarray] = []

    def keep(self, *sizes, dtype=np.float16):
        array = np.zeros(sizes, dtype=dtype)
        self.kept.append(array)
        return array

    def run(self, *, sparse):
        x = np.zeros((self.beside, self.shape.hidden_size), dtype=np.float16)
        if self.recompute == FULL:
            self.kept.append(x)
            return self
        self.kept.append(x)
        normed = x / 2
        self.kept.append(normed)
        self.attend()
        self.mask()
        middle = x + 1
        self.kept.append(middle)
        self.kept.append(middle / 2)
        self.experts() if sparse else self.block(self.rows, self.shape.ffn_width // self.tp)
        self.mask()
        return self

    def mask(self):
        if self.masks:
            self.keep(self.beside, self.shape.hidden_size, dtype=np.uint8)

    def attend(self):
        shape, heads = self.shape, self.shape.attention_heads // self.tp
        if shape.latent:
            latent = shape.latent
            for width in (
                latent.query_rank,
                latent.query_rank,
                latent.kv_rank,
                latent.kv_rank,
                latent.rope_dim,
            ):
                self.keep(self.beside, width)
            key_width, value_width, key_heads = shape.head_dim + latent.rope_dim, latent.value_dim, heads
        else:
            key_width = value_width = shape.head_dim
            key_heads = max(1, shape.kv_heads // self.tp)
        self.keep(self.rows, heads, key_width)
        self.keep(self.rows, key_heads, key_width)
        self.keep(self.rows, key_heads, value_width)
        if self.recompute == NONE:
            scores = self.keep(heads, self.rows, self.keys)
            if self.masks:
                self.kept += [(scores > 0).astype(np.uint8), scores * 2]
        self.keep(self.rows, heads, value_width)

    def block(self, rows, width):
        first = self.keep(rows, width)
        if self.shape.gated:
            second = self.keep(rows, width)
            self.kept.append(first * second)
        else:
            self.kept.append(np.maximum(first, 0))

    def experts(self):
        experts = self.shape.experts
        self.keep(self.beside, experts.routed, dtype=np.float32)
        copies = self.rows * experts.per_token * self.etp // self.tp
        self.keep(copies, self.shape.hidden_size)
        self.block(copies, experts.width // self.etp)
        self.block(self.rows, experts.shared_width // self.tp)


@pytest.mark.parametrize("shape", [TINY, GATED, SPARSE, LATENT], ids=["gpt", "gated", "sparse", "latent"])
@pytest.mark.parametrize("recompute", [NONE, SELECTIVE, FULL])
def test_a_layer_keeps_the_arrays_that_a_real_pass_remembers(shape, recompute):
    sparse = shape.is_sparse
    for tp, sp, cp, etp, masks in product((1, 2), (False, True), (1, 2), (1, 2), (False, True)):
        if etp > tp:
            continue
        walked = Pass(
            shape, batch=2, tokens=8, tp=tp, cp=cp, etp=etp, sp=sp, recompute=recompute, masks=masks
        ).run(sparse=sparse)

        kept = layer_activations(
            shape,
            tokens=8,
            batch=2,
            tp=tp,
            sp=sp,
            cp=cp,
            etp=etp,
            recompute=recompute,
            sparse=sparse,
            dropout=masks,
        )

        assert kept == sum(array.nbytes for array in walked.kept), (tp, sp, cp, etp, masks)


def test_key_value_heads_are_repeated_once_there_are_fewer_than_ranks():
    kept = layer_activations(GATED, tokens=1, tp=[1, 2, 4], recompute=SELECTIVE)
    keys_and_values = 2 * 2 * GATED.head_dim * np.array([2, 1, 1])
    rest = 4 * 2 * GATED.hidden_size + (2 * 2 * GATED.hidden_size + 3 * 2 * GATED.ffn_width) / np.array(
        [1, 2, 4]
    )

    assert kept.tolist() == (keys_and_values + rest).tolist()


# properties


@given(
    batch=st.integers(1, 8),
    tokens=st.integers(1, 4096),
    tp=st.sampled_from([1, 2, 4, 8]),
    cp=st.sampled_from([1, 2, 4]),
    key=st.sampled_from(["llama-3.1-8b", "gpt-3-175b", "deepseek-v3", "mixtral-8x7b", "gpt-oss-20b"]),
)
def test_each_step_of_recomputation_and_sequence_parallelism_keeps_no_more(batch, tokens, tp, cp, key):
    shape = MODELS[key].shape

    kept = layer_activations(
        shape,
        tokens=tokens,
        batch=batch,
        tp=tp,
        cp=cp,
        sp=[[False], [True]],
        recompute=[NONE, SELECTIVE, FULL],
        sparse=shape.is_sparse,
    )

    assert np.all(np.diff(kept, axis=0) <= 0)
    assert np.all(np.diff(kept, axis=1) < 0)
    assert (kept[0] == kept[1]).all() == (tp == 1)


@given(tokens=st.integers(1, 4096), cp=st.integers(1, 16), mode=st.sampled_from([SELECTIVE, FULL]))
def test_context_parallelism_divides_all_that_is_kept(tokens, cp, mode):
    shape = MODELS["deepseek-v3"].shape

    whole, part = layer_activations(shape, tokens=tokens, cp=[1, cp], recompute=mode, sparse=True)

    assert part * cp == pytest.approx(whole)


def test_many_layouts_are_calculated_in_the_shape_of_what_they_depend_on():
    kept = layer_activations(
        MODELS["llama-3.1-8b"].shape, tokens=8192, tp=np.array([1, 2, 4])[:, None], recompute=[0, 1, 2]
    )

    assert kept.shape == (3, 3)


def test_a_kept_tensor_says_how_it_is_cut():
    first = kept_tensors(MODELS["llama-3.1-8b"].shape)[0]

    assert first == KeptTensor(name="input of the first norm", bytes_per_token=8192, cut=Cut.TOKENS)


# what cannot be


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"tokens": 0}, "tokens is 0, but it must be a number, 1 or more and at most 1e+18."),
        (
            {"tokens": 8, "recompute": 3},
            "recompute is 3, but the modes are 0 (none), 1 (selective) and 2 (full).",
        ),
        (
            {"tokens": [1, 2], "sp": [True, False, True]},
            "The arrays do not broadcast: tokens (2,), sp (3,). Give them one shape, or shapes that differ only where "
            "one of them is 1.",
        ),
    ],
)
def test_what_cannot_be_is_refused_with_a_way_out(wrong, sentence):
    with pytest.raises(ValueError, match=exactly(sentence)):
        layer_activations(TINY, **wrong)
