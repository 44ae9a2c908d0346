"""The fullest rank: measured trainings, stages walked one by one, and what fits where."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calculators.predict.devices import DEVICES
from calculators.predict.memory import (
    MEGATRON_ADAM,
    MIXED_ADAM,
    PARTS,
    Memory,
    fits,
    room,
    serving_memory,
    training_memory,
)
from calculators.predict.memory.activations import Cut, KeptTensor, layer_activations
from calculators.predict.memory.states import largest_unit
from calculators.predict.models.catalogue import MODELS
from calculators.predict.schedules import Schedule, timetable
from calculators.predict.shapes import Layout, Layouts, Recompute
from tests.predict.gpt import GIB, gpt
from tests.predict.sentences import exactly
from tests.predict.test_memory_states import SPARSE, TINY, walk_stage

LLAMA = MODELS["llama-3.1-70b"].shape
DEEPSEEK = MODELS["deepseek-v3"].shape
SELECTIVE, FULL = int(Recompute.SELECTIVE), int(Recompute.FULL)


# measured trainings


@pytest.mark.parametrize(
    ("micro_batch", "batch", "dp", "pp", "tp", "gib"),
    [(2, 2048, 8, 1, 1, 69.1), (4, 512, 4, 1, 2, 55.7), (2, 2048, 4, 2, 1, 49.8), (4, 128, 1, 1, 8, 28.8)],
)
def test_o_26_the_peaks_that_megatron_reached_training_llama_2_7b(micro_batch, batch, dp, pp, tp, gib):
    """NVIDIA/Megatron-LM pull request 482: torch.cuda.max_memory_allocated on one host of H800; within 1 %.

    bf16, gradients in fp32, distributed optimizer, flash attention, 2,048 tokens. The kernels of 2023 were not fused
    as those of today, so that what they kept besides is said here: the output of the SiLU, a copy of the heads' output
    in another order, and at the peak either the 16-bit logits and their softmax or one block's gradients.
    """
    shape = MODELS["llama-2-7b"].shape
    h, f = shape.hidden_size, shape.ffn_width
    kernels_of_2023 = (
        KeptTensor(name="output of the SiLU", bytes_per_token=2 * f, cut=Cut.TENSOR),
        KeptTensor(name="output of the heads, reordered", bytes_per_token=2 * h, cut=Cut.TENSOR),
    )
    logits = (2 + 4) * shape.vocab_size / tp if pp == 1 else 0
    # of the product, of its two halves, of both joined; of the block's output and input
    gradients = (2 + 2 + 2 + 4) * f / tp + 2 * 2 * h

    memory = training_memory(
        shape,
        Layouts(dp=dp, pp=pp, tp=tp, micro_batch=micro_batch, zero=1, recompute=SELECTIVE),
        tokens=2048,
        micro_batches=batch / (dp * micro_batch),
        optimizer=MEGATRON_ADAM,
        dropout=True,
        also_kept=kernels_of_2023,
    )

    peak = memory.total + micro_batch * 2048 * max(logits, gradients)
    assert peak / GIB == pytest.approx(gib, rel=0.01)


def test_o_26_flagscale_s_prediction_for_a_16b_qwen():
    # flagos-ai/FlagScale pull request 454, case 1: 46,983.28 + 8,989.01 MiB; 1 %
    shape = dataclasses.replace(
        MODELS["qwen3-32b"].shape, layers=54, attention_heads=40, ffn_width=13824, vocab_size=152064
    )
    layouts = Layouts(tp=4, dp=2, sp=True, zero=1, recompute=SELECTIVE)

    memory = training_memory(
        shape, layouts, tokens=4096, micro_batches=8, optimizer=MEGATRON_ADAM, dropout=True
    )

    states = memory.weights + memory.gradients + memory.optimizer
    assert states / 2**20 == pytest.approx(46_983.28, rel=1e-4)  # ours has each norm whole on every rank
    assert memory.activations / 2**20 == pytest.approx(8_989.01, rel=1e-5)


# stages walked one by one


def walk(shape, layout, *, micro_batch, micro_batches, tokens, recompute):
    """Bytes of each stage's rank, from lists of layers and a schedule that is played."""
    kind = Schedule.INTERLEAVED if layout.vpp > 1 else Schedule.ONE_F_ONE_B
    if layout.pp == 1:
        flying = [1]
    else:
        played = timetable(
            kind, stages=layout.pp, micro_batches=micro_batches, chunks=layout.vpp if layout.vpp > 1 else None
        )
        flying = played.peak_in_flight.tolist()
    totals = []
    dense_first = shape.experts.dense_layers if shape.experts else shape.layers
    for stage in range(layout.pp):
        rest, experts = walk_stage(shape, stage, layout)
        total = 0.0
        of_rest, of_experts = (
            layout.dp * layout.cp,
            layout.dp * layout.tp * layout.cp / (layout.ep * layout.etp),
        )
        for count, replicas in ((rest, of_rest), (experts, of_experts)):
            total += count * 2 / (replicas if layout.zero >= 3 else 1)
            total += count * 2 / (replicas if layout.zero >= 2 else 1)
            total += count * 12 / (replicas if layout.zero >= 1 else 1)
        chunks = np.array_split(np.arange(shape.layers), layout.pp * layout.vpp)
        for number, chunk in enumerate(chunks):
            for layer in chunk if number % layout.pp == stage else ():
                total += flying[stage] * layer_activations(
                    shape,
                    tokens=tokens,
                    batch=micro_batch,
                    tp=layout.tp,
                    sp=layout.sp,
                    cp=layout.cp,
                    etp=layout.etp,
                    recompute=recompute,
                    sparse=bool(layer >= dense_first),
                )
        if stage == layout.pp - 1:
            here = micro_batch * tokens / layout.cp
            beside = layout.tp if layout.sp else 1
            total += here * (2 * 2 * shape.hidden_size / beside + 4 * shape.vocab_size / layout.tp)
        totals.append(total)
    return totals


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_the_fullest_rank_is_that_of_the_fullest_stage(data):
    shape = data.draw(st.sampled_from([TINY, SPARSE]))
    choose = lambda *values: data.draw(st.sampled_from(values))  # noqa: E731
    pp = choose(1, 2, 3, 4)
    vpp = choose(*(n for n in (1, 2, 3) if n == 1 or (pp > 1 and shape.layers % (pp * n) == 0)))
    tp = choose(1, 2, 4)
    ep, etp = (choose(1, 2, 4), choose(*(n for n in (1, 2) if n <= tp))) if shape.experts else (1, 1)
    layout = Layout(
        dp=choose(4, 8), tp=tp, pp=pp, cp=choose(1, 2), ep=ep, etp=etp, vpp=vpp, sp=choose(False, True),
        zero=choose(0, 1, 2, 3),
    )  # fmt: skip
    sizes = {"micro_batch": choose(1, 3), "recompute": choose(*(int(mode) for mode in Recompute))}
    micro_batches, tokens = pp * choose(1, 2, 5), choose(8, 64, 512)

    memory = training_memory(shape, Layouts.of(layout, **sizes), tokens=tokens, micro_batches=micro_batches)

    walked = walk(shape, layout, micro_batches=micro_batches, tokens=tokens, **sizes)
    assert memory.total - memory.working == pytest.approx(max(walked), rel=1e-12)


def test_the_last_stage_is_fullest_where_the_vocabulary_outweighs_the_pipeline():
    shape = dataclasses.replace(TINY, vocab_size=100_000)
    layouts = Layouts(pp=2, recompute=FULL)

    memory = training_memory(shape, layouts, tokens=4096, micro_batches=8)

    assert memory.activations >= 4 * 100_000 * 4096


def test_the_stage_behind_the_dense_layers_is_fullest_in_a_sparse_model():
    # 61 layers of which 3 are dense, 16 stages: the first stage has one sparse layer, the second four
    layouts = Layouts(dp=64, tp=2, pp=16, ep=64, recompute=FULL, sp=True, zero=1)

    memory = training_memory(DEEPSEEK, layouts, tokens=4096, micro_batches=60)

    # 4 layers × 4 of 256 experts × 44 million, 2 bytes each
    assert memory.weights > 2 * 4 * 4 * 3 * 7168 * 2048


def test_gpipe_keeps_every_micro_batch_and_1f1b_as_many_as_stages():
    def kept(schedule):
        layouts = Layouts(pp=4, recompute=SELECTIVE)
        return training_memory(LLAMA, layouts, tokens=4096, micro_batches=32, schedule=schedule).activations

    stage = 20 * layer_activations(LLAMA, tokens=4096, recompute=SELECTIVE)
    logits = 4096 * (4 * LLAMA.hidden_size + 4 * LLAMA.vocab_size)

    assert kept("1f1b") == kept(None) == 4 * stage
    assert kept("gpipe") == 32 * (stage + logits)


def test_dualpipe_holds_the_weights_twice():
    one, two = (
        training_memory(LLAMA, Layouts(pp=4), tokens=4096, micro_batches=32, schedule=schedule)
        for schedule in ("1f1b", "dualpipe")
    )

    assert two.weights == pytest.approx(2 * one.weights, rel=1e-6)  # but for the last norm


# what comes and goes


def test_zero_3_gathers_one_layer_whole_with_its_gradient():
    layouts = Layouts(dp=[1, 8, 8], zero=[3, 3, 2], recompute=SELECTIVE)

    memory = training_memory(LLAMA, layouts, tokens=512, micro_batches=1)

    assert memory.working.tolist() == [0, 4 * largest_unit(LLAMA, Layouts()), 0]


def test_full_recomputation_needs_the_layer_that_is_at_work():
    layouts = Layouts(recompute=[0, 1, 2], micro_batch=2)

    memory = training_memory(LLAMA, layouts, tokens=512, micro_batches=1)

    layer = layer_activations(LLAMA, tokens=512, batch=2, recompute=SELECTIVE)
    assert memory.working.tolist() == [0, 0, layer]


# many layouts at once


def test_parts_keep_the_shape_of_what_they_depend_on():
    layouts = Layouts(
        tp=np.array([1, 2, 4, 8]).reshape(4, 1, 1),
        micro_batch=np.array([1, 2, 4]).reshape(1, 3, 1),
        zero=[0, 1],
    )

    memory = training_memory(LLAMA, layouts, tokens=4096, micro_batches=8)

    assert {part: getattr(memory, part).shape for part in PARTS} == {
        "weights": (4, 1, 2),
        "gradients": (4, 1, 2),
        "optimizer": (4, 1, 2),
        "activations": (4, 3, 1),
        "kv_cache": (),
        "working": (4, 3, 2),
    }
    assert memory.total.shape == (4, 3, 2)


@settings(max_examples=30, deadline=None)
@given(key=st.sampled_from(["llama-3.1-70b", "deepseek-v3"]), seed=st.integers(0, 2**32 - 1))
def test_many_layouts_at_once_are_what_each_is_alone(key, seed):
    rng, count = np.random.default_rng(seed), 12
    shape = MODELS[key].shape
    axes = {
        "dp": rng.choice([64, 128], count),
        "tp": rng.choice([1, 2, 8], count),
        "pp": rng.choice([1, 3, 16, 30], count),
        "cp": rng.choice([1, 2], count),
        "ep": rng.choice([1, 8, 64], count) if shape.experts else np.ones(count, dtype=int),
        "sp": rng.choice([False, True], count),
        "zero": rng.choice([0, 1, 2, 3], count),
        "micro_batch": rng.choice([1, 2], count),
        "recompute": rng.choice([0, 1, 2], count),
    }
    micro_batches = rng.integers(1, 100, count)

    together = training_memory(shape, Layouts(**axes), tokens=4096, micro_batches=micro_batches)

    for row in range(count):
        one = Layouts(**{axis: values[row] for axis, values in axes.items()})
        alone = training_memory(shape, one, tokens=4096, micro_batches=micro_batches[row])
        for part in PARTS:
            shown = np.broadcast_to(getattr(together, part), together.total.shape)
            assert shown[row] == pytest.approx(getattr(alone, part).item(), rel=1e-12), part


@given(power=st.integers(0, 3), zero=st.integers(0, 3), mode=st.sampled_from(Recompute))
def test_doubling_tensor_parallelism_never_takes_more_memory(power, zero, mode):
    layouts = Layouts(tp=[2**power, 2 ** (power + 1)], dp=8, zero=zero, recompute=int(mode))

    before, after = training_memory(LLAMA, layouts, tokens=4096, micro_batches=8).total

    assert after < before


# serving


def test_a_70b_model_in_16_bits_takes_141_gb_of_weights():
    memory = serving_memory(LLAMA, Layouts(), batch=1, context_tokens=1)

    assert memory.weights == pytest.approx(141e9, rel=0.002)
    assert (memory.gradients, memory.optimizer, memory.working) == (0, 0, 0)


def test_half_a_byte_a_weight_is_a_quarter_of_the_memory():
    whole, quarter = (
        serving_memory(LLAMA, Layouts(), batch=1, context_tokens=1, weight_bytes_per_element=width).weights
        for width in (2, 0.5)
    )

    assert whole == 4 * quarter


def test_a_rank_serves_its_stage_s_layers_and_heads():
    memory = serving_memory(LLAMA, Layouts(tp=8, pp=2), batch=16, context_tokens=8192, kv_bytes_per_element=1)

    assert memory.kv_cache == 16 * 8192 * 2 * 40 * 1 * 128


def test_serving_across_replicas_of_attention_shares_out_the_experts():
    one, many = (
        serving_memory(DEEPSEEK, Layouts(dp=dp, ep=dp), batch=1, context_tokens=1).weights for dp in (1, 64)
    )
    experts = 58 * 256 * 3 * 7168 * 2048 * 2

    assert one - many == pytest.approx(experts * (1 - 1 / 64))


def test_many_sequences_write_logits_for_the_last_token_of_each():
    memory = serving_memory(LLAMA, Layouts(), batch=[1, 100], context_tokens=10)

    assert memory.activations[1] == 100 * memory.activations[0]
    assert memory.activations[0] > 4 * LLAMA.vocab_size


# does it fit


def test_what_fits_leaves_a_tenth_free():
    h100 = DEVICES["h100"]
    just = room(h100).item()
    parts = {part: np.array(0.0) for part in PARTS}
    memory = Memory(**{**parts, "weights": np.array([just, just + 1])})

    assert just == 0.9 * h100.memory_bytes
    assert fits(memory, h100).tolist() == [True, False]
    assert fits(memory, h100, reserve=0).tolist() == [True, True]


def test_a_reserve_that_is_no_share_is_refused():
    sentence = (
        "reserve is 1, but it is the share of a device's memory that stays free: use 0 or more, below 1."
    )

    with pytest.raises(ValueError, match=exactly(sentence)):
        room(DEVICES["h100"], reserve=1)


# what cannot be


@pytest.mark.parametrize(
    ("axes", "sizes", "sentence"),
    [
        ({"tp": 0}, {}, "tp is 0, but it must be a number, 1 or more and at most 1e+18."),
        ({"pp": float("nan")}, {}, "pp is nan, but it must be a number, 1 or more and at most 1e+18."),
        ({"zero": 4}, {}, "zero is 4, but there are stages 0 to 3. Use 0 for plain replicas."),
        (
            {"recompute": -1},
            {},
            "recompute is -1, but the modes are 0 (none), 1 (selective) and 2 (full).",
        ),
        ({}, {"tokens": "many"}, "tokens is 'many', which is not a number or an array of numbers."),
        (
            {},
            {"micro_batches": 0},
            "micro_batches is 0, but it must be a number, more than 0 and at most 1e+18.",
        ),
        (
            {"tp": [1, 2], "dp": [1, 2, 3]},
            {},
            "The arrays do not broadcast: dp (3,), tp (2,). Give them one shape, or shapes that differ only where one "
            "of them is 1.",
        ),
    ],
)
def test_what_cannot_be_trained_is_refused_with_a_way_out(axes, sizes, sentence):
    with pytest.raises(ValueError, match=exactly(sentence)):
        training_memory(LLAMA, Layouts(**axes), **{"tokens": 8, "micro_batches": 1} | sizes)


def test_what_cannot_be_served_is_refused_with_a_way_out():
    sentence = "weight_bytes_per_element is 0, but it must be a number, more than 0 and at most 1e+18."

    with pytest.raises(ValueError, match=exactly(sentence)):
        serving_memory(LLAMA, Layouts(), batch=1, context_tokens=1, weight_bytes_per_element=0)


def test_a_model_of_one_layer_on_one_device_holds_what_its_formulas_say():
    shape, s = gpt(64, 1, 4, vocab=128), 32
    memory = training_memory(shape, Layouts(), tokens=s, micro_batches=1)

    parameters = 12 * 64**2 + 3 * 64 + 128 * 64
    assert memory.weights + memory.gradients + memory.optimizer == MIXED_ADAM.bytes_per_parameter * parameters
    assert memory.activations == s * 64 * (34 + 5 * 4 * s / 64) + s * 64 + 4 * s * 64 * (1 + 128 / 64)
