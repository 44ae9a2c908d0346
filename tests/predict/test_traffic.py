"""Tensor and pipeline traffic: published figures, properties, and every call counted one by one."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calculators.predict.shapes import Phase
from calculators.predict.traffic import pipeline_parallel, tensor_parallel
from tests.predict.sentences import exactly

SMALL = st.integers(min_value=1, max_value=12)
RANKS = st.integers(min_value=1, max_value=16)
PHASES = st.sampled_from(Phase)


def walk_pipeline(stages, micro_batches, *, backward):
    """Sends of each stage while every micro-batch goes down the stages and, backward, up again."""
    sent = np.zeros(stages)
    for _ in range(micro_batches):
        for stage in range(stages - 1):
            sent[stage] += 1
        if backward:
            for stage in range(stages - 1, 0, -1):
                sent[stage] += 1
    return sent


def value_of(tex):
    """The number that a formula's left side comes to, read back from its TeX."""
    plain, _, result = tex.replace(r"\,\text{B}", "").replace("{,}", "").rpartition("=")
    plain = re.sub(r"\\frac\{(.+?)\}\{(.+?)\}", r"((\1)/(\2))", plain)
    plain = re.sub(r"\\log_2 (\d+)", r"np.log2(\1)", plain.replace(r"\cdot", "*"))
    return eval(plain), float(result)


def test_the_lesson_s_64_layers_move_a_mebibyte_by_tensor_and_8_kib_by_pipeline():
    tensor = tensor_parallel(hidden_size=4096, layers=64, ranks=2, phase=Phase.DECODE)
    pipeline = pipeline_parallel(hidden_size=4096, stages=2, phase=Phase.DECODE)

    assert (tensor.calls, tensor.wire_bytes) == (128, 1_048_576)
    assert (pipeline.calls, pipeline.wire_bytes) == (1, 8_192)
    assert tensor.wire_bytes / pipeline.wire_bytes == 128
    assert tensor.bytes_per_call == pipeline.bytes_per_call == 8_192


def test_llmkube_s_published_figures_come_out():
    # defilantech/LLMKube issue 1423: h 12288, 96 layers, bf16, two devices
    def tensor(**more):
        return tensor_parallel(hidden_size=12288, layers=96, ranks=2, **more)

    assert tensor(phase=Phase.DECODE).calls == 192
    assert tensor(phase=Phase.DECODE).wire_bytes == pytest.approx(4.7e6, rel=0.005)
    assert tensor(phase=Phase.DECODE, batch=32).wire_bytes == pytest.approx(151e6, rel=0.001)
    assert tensor(phase=Phase.PREFILL, tokens=2048).wire_bytes == pytest.approx(9.66e9, rel=0.001)
    pipeline = pipeline_parallel(hidden_size=12288, stages=2, phase=Phase.DECODE, batch=[1, 32])
    assert pipeline.calls.tolist() == [1, 1]
    assert pipeline.wire_bytes.tolist() == pytest.approx([25e3, 786e3], rel=0.02)


def test_a_13b_training_step_has_aicb_s_all_reduces():
    # AICB's list for a 13B model, TP 8: 80 forward and 80 backward, 20,971,520 bytes each
    step = tensor_parallel(hidden_size=5120, layers=40, ranks=8, phase=Phase.TRAINING, tokens=2048)

    assert step.calls == 80 + 80
    assert step.bytes_per_call == 20_971_520
    assert step.handed_bytes == 160 * 20_971_520


def test_a_7b_training_step_has_aicb_s_all_reduces():
    step = tensor_parallel(hidden_size=4096, layers=32, ranks=2, phase=Phase.TRAINING, tokens=2048)

    assert (step.calls, step.bytes_per_call) == (64 + 64, 16_777_216)


@given(b=SMALL, s=SMALL, h=SMALL, layers=SMALL, t=RANKS, m=SMALL)
def test_training_sends_narayanan_s_8_bsh_elements_per_layer_and_micro_batch(b, s, h, layers, t, m):
    step = tensor_parallel(
        hidden_size=h, layers=layers, ranks=t, phase=Phase.TRAINING, batch=b, tokens=s, micro_batches=m
    )

    assert step.wire_bytes / 2 == pytest.approx(m * layers * 8 * b * s * h * (t - 1) / t)


def test_separate_query_key_and_value_move_half_as_much_again():
    fused, separate = (
        tensor_parallel(hidden_size=64, layers=3, ranks=4, phase=Phase.TRAINING, tokens=16, fused_qkv=fused)
        for fused in (True, False)
    )

    assert separate.wire_bytes == 1.5 * fused.wire_bytes
    assert (fused.calls, separate.calls) == (12, 18)


def test_separate_query_key_and_value_change_nothing_without_a_backward_pass():
    fused, separate = (
        tensor_parallel(hidden_size=64, layers=3, ranks=4, phase=Phase.DECODE, fused_qkv=fused)
        for fused in (True, False)
    )

    assert fused.wire_bytes == separate.wire_bytes


@given(stages=RANKS, m=SMALL, phase=PHASES)
def test_walking_every_micro_batch_gives_the_same_sends(stages, m, phase):
    training = phase == Phase.TRAINING
    sent = walk_pipeline(stages, m if training else 1, backward=training)

    pipeline = pipeline_parallel(hidden_size=8, stages=stages, phase=phase, micro_batches=m)

    assert pipeline.calls == sent.sum()
    assert pipeline.wire_bytes == sent.max() * pipeline.bytes_per_call
    assert pipeline.group_wire_bytes == sent.sum() * pipeline.bytes_per_call


def test_a_stage_between_two_others_sends_both_ways_in_training():
    steps = pipeline_parallel(hidden_size=1, stages=[1, 2, 3, 8], phase=Phase.TRAINING, micro_batches=4)

    assert (steps.wire_bytes / steps.bytes_per_call).tolist() == [0, 4, 8, 8]
    assert steps.calls.tolist() == [0, 8, 16, 56]


def test_two_tensors_at_a_boundary_make_it_64_to_1():
    tensor = tensor_parallel(hidden_size=4096, layers=64, ranks=2, phase=Phase.DECODE)
    pipeline = pipeline_parallel(hidden_size=4096, stages=2, phase=Phase.DECODE, tensors_per_boundary=2)

    assert tensor.wire_bytes / pipeline.wire_bytes == 64
    assert pipeline.calls == 2


def test_the_token_s_way_back_is_control_and_in_no_other_figure():
    decode = pipeline_parallel(hidden_size=4096, stages=4, phase=Phase.DECODE, batch=3)

    assert (decode.control_calls, decode.control_bytes) == (1, 24)
    assert decode.calls == 3
    assert decode.group_wire_bytes == 3 * decode.bytes_per_call


@pytest.mark.parametrize("phase", [Phase.PREFILL, Phase.TRAINING])
def test_only_decode_returns_a_token(phase):
    assert pipeline_parallel(hidden_size=8, stages=4, phase=phase).control_bytes == 0


@pytest.mark.parametrize("phase", Phase)
def test_a_model_on_one_device_moves_nothing(phase):
    tensor = tensor_parallel(hidden_size=4096, layers=64, ranks=1, phase=phase)
    pipeline = pipeline_parallel(hidden_size=4096, stages=1, phase=phase)

    for alone in (tensor, pipeline):
        assert (alone.calls, alone.rounds, alone.wire_bytes, alone.control_bytes) == (0, 0, 0, 0)
        assert alone.formulas == ()


def test_tensor_parallel_rounds_grow_with_the_ring_and_pipeline_rounds_with_the_boundaries():
    tensor = tensor_parallel(hidden_size=8, layers=10, ranks=[2, 4, 8], phase=Phase.DECODE)
    pipeline = pipeline_parallel(hidden_size=8, stages=[2, 4, 8], phase=Phase.DECODE)

    assert tensor.rounds.tolist() == [20 * 2, 20 * 6, 20 * 14]
    assert pipeline.rounds.tolist() == [1, 3, 7]


def test_the_length_of_a_sequence_means_nothing_to_a_decode_step():
    short, long = (
        tensor_parallel(
            hidden_size=8, layers=2, ranks=2, phase=Phase.DECODE, tokens=tokens, micro_batches=tokens
        )
        for tokens in (1, 1_000)
    )

    assert short.wire_bytes == long.wire_bytes


def test_every_argument_broadcasts_and_every_figure_has_the_same_shape():
    layers = np.array([16, 32, 64])[:, None]
    grid = tensor_parallel(hidden_size=4096, layers=layers, ranks=[1, 2, 4, 8], phase=Phase.DECODE)

    figures = [
        getattr(grid, name) for name in ("calls", "bytes_per_call", "rounds", "wire_bytes", "control_bytes")
    ]
    assert {figure.shape for figure in figures} == {(3, 4)}
    assert grid.formulas == ()


@given(
    phase=PHASES, b=SMALL, s=SMALL, h=SMALL, layers=SMALL, n=st.integers(2, 8), m=SMALL, k=st.integers(1, 2)
)
def test_a_formula_s_numbers_come_to_the_figure_it_explains(phase, b, s, h, layers, n, m, k):
    case = {"hidden_size": h, "phase": phase, "batch": b, "tokens": s, "micro_batches": m}

    traffics = (
        tensor_parallel(**case, layers=layers, ranks=n),
        pipeline_parallel(**case, stages=n, tensors_per_boundary=k),
    )

    for traffic in traffics:
        counted, sent = (value_of(formula.numbers) for formula in traffic.formulas)
        assert counted == (traffic.calls, traffic.calls)
        assert sent == pytest.approx((traffic.wire_bytes, traffic.wire_bytes), abs=0.01)


def test_the_formula_of_the_lesson_reads_as_it_is_taught():
    calls, sent = tensor_parallel(hidden_size=4096, layers=64, ranks=2, phase=Phase.DECODE).formulas

    assert (calls.gives, calls.symbols, calls.numbers) == (
        "All-reduces per token",
        r"2\,L",
        r"2 \cdot 64 = 128",
    )
    assert sent.symbols == r"2\,L \cdot 2\,\frac{t-1}{t} \cdot b\,h\,e"
    assert sent.numbers.endswith(r"= 1{,}048{,}576\,\text{B}")
    assert dict(sent.legend)["t"] == "ranks that share each layer"


@pytest.mark.parametrize("algorithm", ["tree", "recursive-doubling", "one-shot", "in-switch"])
def test_another_algorithm_brings_its_own_factor_into_the_formula(algorithm):
    traffic = tensor_parallel(hidden_size=64, layers=3, ranks=4, phase=Phase.DECODE, algorithm=algorithm)

    left, right = value_of(traffic.formulas[1].numbers)

    assert left == right == traffic.wire_bytes


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (
            lambda: tensor_parallel(hidden_size=4096, layers=[8, 0], ranks=2, phase=Phase.DECODE),
            "layers is 0, but it must be a number, 1 or more and at most 1e+18.",
        ),
        (
            lambda: pipeline_parallel(hidden_size=float("nan"), stages=2, phase=Phase.DECODE),
            "hidden_size is nan, but it must be a number, 1 or more and at most 1e+18.",
        ),
    ],
)
def test_a_size_of_nothing_is_refused_in_a_sentence(wrong, sentence):
    with pytest.raises(ValueError, match=exactly(sentence)):
        wrong()
