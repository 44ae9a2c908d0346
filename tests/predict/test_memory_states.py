"""Weights, gradients, optimizer state: ZeRO's figures, DeepSpeed's estimators, and parameters counted rank by rank."""

import dataclasses
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calculators.predict.memory.states import (
    ACCUMULATING_ADAM,
    BRIDGE_ADAM,
    MEGATRON_ADAM,
    MIXED_ADAM,
    OPTIMIZERS,
    PLAIN_ADAM,
    Optimizer,
    attention_of_rank,
    deepspeed_zero2,
    deepspeed_zero3,
    largest_unit,
    model_states,
    optimizer,
    rank_parameters,
)
from calculators.predict.models.catalogue import MODELS
from calculators.predict.models.parameters import (
    attention_parameters,
    feed_forward_parameters,
    total_parameters,
)
from calculators.predict.placement import groups
from calculators.predict.shapes import Layout, Layouts
from calculators.predict.stages import layers_of_stage
from tests.predict.gpt import GIB, KORTHIKANTI, gpt
from tests.predict.sentences import exactly

GB = 1e9
# two fp32 moments and no master copy, as the Ultra-Scale Playbook's figures count
TWO_MOMENTS = dataclasses.replace(MIXED_ADAM, state=MIXED_ADAM.state[1:])


def states_of(parameters, zero, replicas, optimizer=MIXED_ADAM):
    return model_states(parameters, zero=zero, replicas=replicas, optimizer=optimizer)


# published figures


@pytest.mark.parametrize(
    ("size", "gib"), [("22B", 45.5625), ("175B", 45.5625), ("530B", 31.640625), ("1T", 32.958984)]
)
def test_oracle_1_parameters_and_optimizer_of_korthikanti_s_figure_1(size, gib):
    # arXiv 2205.05198, figure 1: 18 B for each of 12·L·h² parameters; to 1e-6. t = 8
    shape, _, stages, _ = KORTHIKANTI[size]
    layer = attention_parameters(shape) + feed_forward_parameters(shape)
    assert layer == 12 * shape.hidden_size**2

    states = model_states(shape.layers * layer / (8 * stages), optimizer=MEGATRON_ADAM)

    assert states.total / GIB == pytest.approx(gib, rel=1e-6)


def test_oracle_8_and_o_1_zero_s_figure_1():
    # arXiv 1910.02054: Ψ = 7.5 B, 64 ranks, decimal GB; to 0.05 GB
    total = states_of(7.5e9, [0, 1, 2, 3], 64).total / GB

    assert total.tolist() == pytest.approx([120, 31.4, 16.6, 1.9], abs=0.05)


RANKS = [1, 4, 16, 64, 256, 1024]


@pytest.mark.parametrize(
    ("billions", "zero", "gb"),
    [
        (7.5, 1, [120, 52.5, 35.6, 31.4, 30.4, 30.1]),
        (7.5, 2, [120, 41.3, 21.6, 16.6, 15.4, 15.1]),
        (7.5, 3, [120, 30, 7.5, 1.88, 0.47, 0.12]),
        (128, 1, [2048, 896, 608, 536, 518, 513]),
        (128, 2, [2048, 704, 368, 284, 263, 257]),
        (128, 3, [2048, 512, 128, 32, 8, 2]),
        (1000, 1, [16000, 7000, 4750, 4187, 4046, 4011]),
        (1000, 2, [16000, 5500, 2875, 2218, 2054, 2013]),
        (1000, 3, [16000, 4000, 1000, 250, 62.5, 15.6]),
    ],
)
def test_o_2_zero_s_table_1_which_rounds_here_and_truncates_there(billions, zero, gb):
    # arXiv 1910.02054, table 1: to one of the last printed digit
    total = states_of(billions * 1e9, zero, RANKS).total / GB

    for ours, printed in zip(total, gb, strict=True):
        digits = len(str(printed).partition(".")[2])
        assert abs(ours - printed) < 10.0**-digits


@pytest.mark.parametrize(("zero", "billions"), [(0, 2), (1, 7.6), (2, 14.4), (3, 128)])
def test_o_3_the_largest_model_of_zero_s_table_2_without_model_parallelism(zero, billions):
    # arXiv 1910.02054, table 2: 32 GB, 64 ranks; to the last printed digit
    largest = 32 * GB / states_of(1, zero, 64).total

    assert largest / 1e9 == pytest.approx(billions, abs=0.05)


@pytest.mark.parametrize(("zero", "printed", "right"), [(1, 121.6, 122.3), (2, 230.4, 230.8)])
def test_o_3_zero_s_table_2_multiplies_a_row_that_was_rounded_already(zero, printed, right):
    # with 16-way model parallelism it prints 16 × 7.6 and 16 × 14.4
    largest = 16 * 32 * GB / states_of(1, zero, 64).total / 1e9

    assert largest == pytest.approx(right, abs=0.1)
    assert abs(largest - printed) > 0.2


def test_oracle_13_a_70b_model_takes_1120_gb_in_mixed_precision_and_560_in_bridge_s_count():
    assert model_states(70e9).total == 1120 * GB
    assert model_states(70e9, optimizer=BRIDGE_ADAM).total == 560 * GB


def test_o_8_the_playbook_s_zero_stages():
    # zero3_memoryusage.html, 8B as 15 GiB of 16-bit weights, dp = 8
    states = states_of(15 * GIB / 2, [0, 1, 2, 3], 8, TWO_MOMENTS)

    assert (states.weights / GIB).tolist() == [15, 15, 15, 1.875]
    assert (states.gradients / GIB).tolist() == [15, 15, 1.875, 1.875]
    assert (states.optimizer / GIB).tolist() == [60, 7.5, 7.5, 7.5]


def test_o_9_the_playbook_s_70b_weights_beside_tensor_parallelism():
    # tp_memoryusage.html
    weights = model_states(131.5 * GIB / 2 / np.array([1, 8, 16])).weights / GIB

    assert weights.tolist() == [131.5, 16.4375, 8.21875]


def test_o_10_the_playbook_s_fullest_of_8_stages_of_llama_3_8b():
    # pp_memoryusage.html; it leaves norms out
    shape = MODELS["llama-3.1-8b"].shape
    first = rank_parameters(shape, Layouts(pp=8), stage=0).total - 4 * 2 * shape.hidden_size

    states = model_states(first, optimizer=TWO_MOMENTS)

    assert states.weights / GIB == 2.603515625
    assert states.optimizer / GIB == 10.4140625


def test_o_10_the_playbook_s_1b():
    # dp_ourjourney.html: Llama 3.2 1B, tied embeddings, without norms
    shape = dataclasses.replace(
        MODELS["llama-3.1-8b"].shape,
        hidden_size=2048,
        layers=16,
        head_dim=64,
        ffn_width=8192,
        tied_embeddings=True,
    )
    parameters = total_parameters(shape) - (2 * shape.layers + 1) * shape.hidden_size

    assert model_states(parameters).weights / GIB == 2.3017578125


T5_3B, LARGEST, GPUS = 2851e6, 32e6, 8


def test_o_11_deepspeed_s_estimates_for_zero_2():
    # DeepSpeed docs/code-docs/source/memory.rst: t5-3b on one host of 8 GPUs; printed to 0.01
    printed = {True: (5.31, 127.45), False: (15.93, 127.45)}

    for offload, (gpu, host) in printed.items():
        estimate = deepspeed_zero2(T5_3B, gpus=GPUS, offload_optimizer=offload)
        assert (estimate.gpu / GIB, estimate.host / GIB) == pytest.approx((gpu, host), abs=0.005)


def test_o_11_deepspeed_s_estimates_for_zero_3():
    # the same page, in its order: weights and optimizer in the host, the optimizer only, neither
    gpu = (0.12, 0.12, 0.78, 0.78, 6.09, 6.09)
    host = (71.69, 127.45, 63.72, 127.45, 1.43, 127.45)
    cases = [
        {"offload_optimizer": optimizer, "offload_weights": weights, "zero_init": init}
        for optimizer, weights in ((True, True), (True, False), (False, False))
        for init in (True, False)
    ]

    estimates = [deepspeed_zero3(T5_3B, largest_layer=LARGEST, gpus=GPUS, **case) for case in cases]

    assert [estimate.gpu / GIB for estimate in estimates] == pytest.approx(gpu, abs=0.005)
    assert [estimate.host / GIB for estimate in estimates] == pytest.approx(host, abs=0.005)


def test_o_27_infersim_s_weights_of_qwen3_30b():
    # alibaba/InferSim, 4 GPUs, bf16: attention on each, experts shared out, no embedding
    shape = MODELS["qwen3-30b-a3b"].shape
    attention = 2 * attention_parameters(shape) / 2**20
    expert = 2 * 3 * shape.hidden_size * shape.experts.width / 2**20
    rank = rank_parameters(shape, Layouts(dp=4, ep=4), stage=0)

    experts = 2 * rank.experts / 2**20
    per_gpu = (shape.layers * attention + experts) / 1024
    assert (attention, expert) == (36.00, 9.00)
    assert experts == shape.layers * 128 / 4 * 9.00
    assert per_gpu == pytest.approx(15.19, abs=0.005)


def test_o_31_the_scaling_book_s_models():
    # jax-ml/scaling-book: its 64-layer model without norms; LLaMA-2-13B by parts
    book = dataclasses.replace(
        gpt(4096, 64, 32, vocab=32128), kv_heads=8, head_dim=256, ffn_width=16384, gated=True
    )
    norms = (2 * book.layers + 1) * book.hidden_size
    llama = dataclasses.replace(
        MODELS["llama-2-7b"].shape,
        hidden_size=5120,
        layers=40,
        attention_heads=40,
        kv_heads=40,
        ffn_width=13824,
    )

    assert total_parameters(book) - norms == 18_385_207_296
    assert 40 * feed_forward_parameters(llama) == pytest.approx(8.5e9, rel=0.01)
    assert 40 * attention_parameters(llama) == pytest.approx(4.2e9, rel=0.01)
    assert 2 * llama.vocab_size * llama.hidden_size == pytest.approx(0.3e9, rel=0.1)
    assert total_parameters(llama) == pytest.approx(13.1e9, rel=0.01)


def test_o_31_an_array_cut_4_ways_on_64_chips_is_held_16_times():
    # scaling-book, sharding, question 1: mesh of 4 × 8 × 2, cut along the first
    layouts = Layouts(dp=16, tp=4)
    shape = gpt(64, 1, 4)
    matrices = 12 * shape.hidden_size**2

    held = layouts.world_size * matrices / layouts.tp

    assert held / matrices == 16
    of_rank = rank_parameters(dataclasses.replace(shape, vocab_size=4), layouts, stage=0).total
    assert of_rank == matrices / 4 + 4 * 64 / 4 + 3 * 64


def test_o_35_accelerate_s_bert_in_fp32():
    # accelerate's docs: 413.18 MB estimated, 413.68 measured, 0.2 %. Biases, the pooler and token types added here
    bert = gpt(768, 12, 12, vocab=28996)
    bert = dataclasses.replace(bert, positions=512)
    h, layers = bert.hidden_size, bert.layers
    biases = layers * (4 * h + 4 * h + h + 2 * h) + h
    pooler, token_types = h * h + h, 2 * h

    weights = model_states(
        total_parameters(bert) + biases + pooler + token_types, optimizer=PLAIN_ADAM
    ).weights

    assert weights / 2**20 == pytest.approx(413.18, abs=0.01)
    assert weights / 2**20 == pytest.approx(413.68, rel=0.002)


# published figures that are wrong, or easily taken for what they are not


def test_four_times_the_weights_is_true_of_fp32_only():
    # accelerate estimate-memory: training with Adam is "4×"; in mixed precision it is 8 × the 16-bit weights
    def times(optimizer):
        return optimizer.bytes_per_parameter / optimizer.weight_bytes

    assert times(PLAIN_ADAM) == 4
    assert times(MIXED_ADAM) == 8
    assert times(BRIDGE_ADAM) == 4


def test_bridge_s_example_is_half_of_mixed_precision_and_says_what_it_leaves_out():
    assert MIXED_ADAM.bytes_per_parameter / BRIDGE_ADAM.bytes_per_parameter == 2
    assert BRIDGE_ADAM.leaves_out == (
        "It has no fp32 master weights, and its momentum and variance are in 16 bits. Mixed precision with them takes "
        "16 bytes."
    )


def test_cookbook_divides_by_all_devices_after_dividing_by_model_parallelism():
    # EleutherAI/cookbook calc_transformer_mem.py @827ee3b: state ÷ (t·p) ÷ (all devices), too small by t·p
    shape, layouts = MODELS["llama-3.1-70b"].shape, Layouts(dp=16, tp=8, pp=4, zero=1)
    held = rank_parameters(shape, layouts, stage=0)
    ours = held.states(optimizer=MIXED_ADAM, zero=np.array(1.0)).optimizer
    theirs = held.total / layouts.world_size * MIXED_ADAM.state_bytes

    assert ours / theirs == layouts.tp * layouts.pp


def test_cookbook_leaves_gradients_and_optimizer_whole_without_zero():
    parameters, t, p = 70e9, 8, 4
    ours = model_states(parameters / (t * p))

    assert (2 + 12) * parameters / (ours.gradients + ours.optimizer) == t * p


def test_experts_are_not_cut_by_the_tensor_parallelism_of_attention():
    # NVIDIA/Megatron-LM issue 4050: an older formula divided routed experts by tp
    shape = MODELS["mixtral-8x7b"].shape

    whole, cut = rank_parameters(shape, Layouts(dp=8, tp=8, ep=8, etp=[1, 8]), stage=0).experts

    assert whole == 8 * cut


def test_experts_optimizer_state_is_shared_by_the_replicas_of_experts():
    # Megatron Bridge pull request 3744: parameters ÷ (etp·ep), over expert data parallelism
    shape = MODELS["deepseek-v3"].shape
    layouts = Layouts(dp=64, tp=2, ep=64)  # 128 devices hold each expert on 2
    held = rank_parameters(shape, layouts, stage=0)

    states = held.states(optimizer=MIXED_ADAM, zero=np.array([0.0, 1.0]))

    saved = states.optimizer[0] - states.optimizer[1]
    assert saved == pytest.approx(12 * (held.experts * (1 - 1 / 2) + held.rest * (1 - 1 / 64)))


# parameters counted rank by rank


TINY = dataclasses.replace(
    MODELS["llama-3.1-8b"].shape, hidden_size=16, layers=4, attention_heads=4, kv_heads=2
)
TINY = dataclasses.replace(TINY, name="tiny", head_dim=4, ffn_width=24, vocab_size=32)
SPARSE = dataclasses.replace(
    MODELS["deepseek-v3"].shape,
    name="sparse",
    hidden_size=16,
    layers=6,
    attention_heads=4,
    head_dim=4,
    ffn_width=24,
    vocab_size=32,
    experts=dataclasses.replace(
        MODELS["deepseek-v3"].shape.experts, routed=8, width=12, shared_width=4, dense_layers=2
    ),
    latent=dataclasses.replace(
        MODELS["deepseek-v3"].shape.latent, kv_rank=6, rope_dim=2, query_rank=5, value_dim=4
    ),
)


def walk_stage(shape, stage, layout):
    """Parameters of one rank of a stage, matrix by matrix, in the order of the model."""
    h, t, count_rest, count_experts = shape.hidden_size, layout.tp, 0, 0
    heads = shape.attention_heads // t
    kv_heads = max(1, shape.kv_heads // t)
    chunks = [list(chunk) for chunk in np.array_split(np.arange(shape.layers), layout.pp * layout.vpp)]
    here = [layer for number, chunk in enumerate(chunks) if number % layout.pp == stage for layer in chunk]
    for layer in here:
        matrices = [(h, 1), (h, 1)]  # norms
        if shape.latent:
            la = shape.latent
            width = shape.head_dim + la.rope_dim
            matrices += [(h, la.query_rank), (la.query_rank, heads * width), (h, la.kv_rank + la.rope_dim)]
            matrices += [(la.kv_rank, heads * shape.head_dim), (la.kv_rank, heads * la.value_dim)]
            matrices += [(heads * la.value_dim, h)]
        else:
            d = shape.head_dim
            matrices += [(h, heads * d), (h, kv_heads * d), (h, kv_heads * d), (heads * d, h)]
        if shape.experts and layer >= shape.experts.dense_layers:
            ex = shape.experts
            for _ in range(ex.routed // layout.ep):
                count_experts += 3 * h * (ex.width // layout.etp)
            matrices += [(h, ex.routed)] + 3 * [(h, ex.shared_width // t)]
        else:
            matrices += 3 * [(h, shape.ffn_width // t)]
        count_rest += sum(rows * columns for rows, columns in matrices)
    if stage == 0:
        count_rest += shape.vocab_size // t * h
    if stage == layout.pp - 1:
        count_rest += h
        if not shape.tied_embeddings or layout.pp > 1:
            count_rest += shape.vocab_size // t * h
    return count_rest, count_experts


@pytest.mark.parametrize("shape", [TINY, dataclasses.replace(TINY, tied_embeddings=True), SPARSE])
def test_a_rank_answers_for_the_matrices_of_its_stage(shape):
    layouts = product((1, 2, 4), (1, 2, 3, 4), (1, 2), (1, 2), (1, 2))
    for tp, pp, vpp, ep, etp in layouts:
        if (vpp > 1 and pp == 1) or pp * vpp > shape.layers or (not shape.experts and ep * etp > 1):
            continue
        layout = Layout(dp=4, tp=tp, pp=pp, vpp=vpp, ep=ep, etp=etp)
        for stage in range(pp):
            held = rank_parameters(shape, Layouts.of(layout), stage=stage)

            assert (held.rest, held.experts) == walk_stage(shape, stage, layout), (layout, stage)


@pytest.mark.parametrize("key", MODELS)
def test_one_device_answers_for_every_parameter_of_a_model(key):
    shape = MODELS[key].shape

    assert rank_parameters(shape, Layouts(), stage=0).total == total_parameters(shape)


@pytest.mark.parametrize("key", MODELS)
def test_attention_of_one_rank_is_all_of_it(key):
    shape = MODELS[key].shape

    assert attention_of_rank(shape, 1) == attention_parameters(shape)


@given(
    pp=st.integers(1, 12),
    vpp=st.integers(1, 4),
    key=st.sampled_from(["deepseek-v3", "glm-4.5", "llama-3.1-70b"]),
)
def test_the_stages_have_every_layer_once(pp, vpp, key):
    shape = MODELS[key].shape

    dense, sparse = layers_of_stage(shape, np.arange(pp), pp=pp, vpp=vpp)

    assert (dense.sum(), sparse.sum()) == (shape.dense_layers, shape.sparse_layers)


def test_replicas_are_the_members_of_the_groups_that_share_them():
    layout = Layout(dp=4, tp=2, cp=2, ep=4, etp=1)
    held = rank_parameters(SPARSE, Layouts.of(layout), stage=0)

    assert held.replicas == len(groups(layout, "dp")[0]) * len(groups(layout, "cp")[0])
    assert held.expert_replicas == len(groups(layout, "edp")[0])


def test_the_largest_piece_is_a_layer_of_a_large_model_and_the_embedding_of_a_small_one():
    large, small = MODELS["llama-3.1-405b"].shape, dataclasses.replace(TINY, vocab_size=100_000)
    layer = attention_parameters(large) + feed_forward_parameters(large) + 2 * large.hidden_size

    assert largest_unit(large, Layouts()) == layer
    assert largest_unit(small, Layouts(tp=[1, 2])).tolist() == [100_000 * 16, 100_000 * 16 / 2]


# properties


@given(
    parameters=st.integers(1, 10**12), replicas=st.integers(1, 1024), key=st.sampled_from(sorted(OPTIMIZERS))
)
def test_each_zero_stage_keeps_no_more_than_the_one_before(parameters, replicas, key):
    total = model_states(parameters, optimizer=OPTIMIZERS[key], zero=[0, 1, 2, 3], replicas=replicas).total

    assert np.all(np.diff(total) < 0) if replicas > 1 else np.all(np.diff(total) == 0)
    assert total[3] == pytest.approx(OPTIMIZERS[key].bytes_per_parameter * parameters / replicas)


def test_every_optimizer_says_its_parts_and_where_they_come_from():
    sizes = {found.key: found.bytes_per_parameter for found in OPTIMIZERS.values()}

    assert sizes == {
        "mixed-adam": 16,
        "megatron-adam": 18,
        "accumulating-adam": 20,
        "bridge-adam": 8,
        "plain-adam": 16,
    }
    assert all(found.source and found.state for found in OPTIMIZERS.values())
    assert ACCUMULATING_ADAM.gradient_bytes - MIXED_ADAM.gradient_bytes == 4
    assert isinstance(optimizer("mixed-adam"), Optimizer)


# what cannot be


def test_an_unknown_optimizer_is_refused_with_all_that_are_known():
    sentence = (
        "optimizer is 'lion', which is not known here. Use one of: mixed-adam, megatron-adam, accumulating-adam, "
        "bridge-adam, plain-adam."
    )

    with pytest.raises(ValueError, match=exactly(sentence)):
        optimizer("lion")


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"zero": 4}, "zero is 4, but there are stages 0 to 3. Use 0 for plain replicas."),
        ({"replicas": 0}, "replicas is 0, but it must be a number, 1 or more and at most 1e+18."),
        (
            {"zero": [1, 2, 3], "replicas": [1, 2]},
            "The arrays do not broadcast: replicas (2,), zero (3,). Give them one shape, or shapes that differ only "
            "where one of them is 1.",
        ),
    ],
)
def test_what_cannot_be_is_refused_with_a_way_out(wrong, sentence):
    with pytest.raises(ValueError, match=exactly(sentence)):
        model_states(1e9, **wrong)


def test_negative_parameters_are_refused():
    sentence = "parameters is -1, but it must be a number, 0 or more and at most 1e+18."

    with pytest.raises(ValueError, match=exactly(sentence)):
        model_states(-1)
