"""Tensor and pipeline traffic: published figures, properties, and every call counted one by one."""

import re
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calculators.predict.collectives import GLOO, Kind
from calculators.predict.shapes import Phase
from calculators.predict.traffic import pipeline_parallel, tensor_parallel
from calculators.predict.traffic.tensor import SEQUENCE_PARALLEL
from tests.predict.sentences import exactly

SMALL = st.integers(min_value=1, max_value=12)
RANKS = st.integers(min_value=1, max_value=16)
PHASES = st.sampled_from(Phase)
SPLIT = {Kind.ALL_GATHER, Kind.REDUCE_SCATTER}


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
    plain = plain.replace(r"\min", "min")
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
    ("how", "units", "kinds"),
    [("off", 8, {Kind.ALL_REDUCE}), ("kept", 8, SPLIT), ("regather", 10, SPLIT)],
)
def test_sequence_parallelism_moves_8_units_in_training_or_10_where_inputs_are_gathered_again(
    how, units, kinds
):
    step = tensor_parallel(
        hidden_size=64, layers=3, ranks=4, phase=Phase.TRAINING, tokens=16, sequence_parallel=how
    )

    assert step.wire_bytes == units * 3 * (16 * 64 * 2) * 3 / 4
    assert {part.kind for part in step.parts} == kinds


@given(h=SMALL, layers=SMALL, t=RANKS, s=SMALL, phase=st.sampled_from([Phase.DECODE, Phase.PREFILL]))
def test_sequence_parallelism_moves_tensor_parallelism_s_bytes_forward(h, layers, t, s, phase):
    off, kept, regather = (
        tensor_parallel(hidden_size=h, layers=layers, ranks=t, phase=phase, tokens=s, sequence_parallel=how)
        for how in ("off", "kept", "regather")
    )

    assert kept.wire_bytes == regather.wire_bytes == pytest.approx(off.wire_bytes)
    assert kept.calls == 2 * off.calls


def test_a_40_layer_step_with_sequence_parallelism_has_aicb_s_240_gathers_and_160_scatters():
    # aliyun/aicb, Megatron workload of 40 layers with sequence parallelism
    step = tensor_parallel(
        hidden_size=5120,
        layers=40,
        ranks=8,
        phase=Phase.TRAINING,
        tokens=2048,
        sequence_parallel="regather",
    )

    assert (step.calls_of(Kind.ALL_GATHER), step.calls_of(Kind.REDUCE_SCATTER)) == (240, 160)


def test_o_12_aicb_s_vocabulary_adds_two_all_reduces_and_three_of_the_cross_entropy():
    # AICB, G13B, TP 8, micro-batch 1 (h 5120, 40 layers, s 2048): + 1 forward, 1 backward, 3 × 8,192 bytes
    step = tensor_parallel(
        hidden_size=5120, layers=40, ranks=8, phase=Phase.TRAINING, tokens=2048, vocab_size=50_257
    )

    assert [(part.calls, part.bytes_per_call) for part in step.parts] == [
        (80 + 80, 20_971_520),
        (1 + 1, 20_971_520),
        (3, 8_192),
    ]
    assert step.calls == 165


def test_section_5_4_aicb_s_pipeline_file_counts_all_layers_on_each_of_8_stages():
    # AICB's shipped 65B TP 2 PP 8 file has 1,280 forward all-reduces a stage for 8 micro-batches: 8 times too many
    one_stage = tensor_parallel(
        hidden_size=8192, layers=80 / 8, ranks=2, phase=Phase.PREFILL, tokens=2048, batch=1
    )

    assert 1_280 / (8 * one_stage.calls) == 8


def test_a_full_recomputation_runs_the_forward_all_reduces_once_more():
    plain, again = (
        tensor_parallel(hidden_size=8, layers=3, ranks=2, phase=Phase.TRAINING, full_recompute=full)
        for full in (False, True)
    )

    assert (plain.calls, again.calls) == (12, 18)
    assert (
        tensor_parallel(hidden_size=8, layers=3, ranks=2, phase=Phase.PREFILL, full_recompute=True).calls == 6
    )


def test_attention_and_feed_forward_side_by_side_need_one_all_reduce_a_layer():
    serial, parallel = (
        tensor_parallel(hidden_size=8, layers=3, ranks=2, phase=Phase.DECODE, blocks_per_layer=blocks)
        for blocks in (2, 1)
    )

    assert serial.wire_bytes == 2 * parallel.wire_bytes


def test_serving_gathers_the_logits_of_one_token_a_sequence():
    prompt = tensor_parallel(
        hidden_size=4096, layers=1, ranks=4, phase=Phase.PREFILL, tokens=100, batch=3, vocab_size=32_000
    )

    assert prompt.parts[-1].bytes_per_call == 3 * 32_000 * 2
    assert prompt.parts[-1].handed_bytes == 3 * 8_000 * 2


def test_a_backend_that_all_reduces_to_reduce_scatter_pays_for_it_in_sequence_parallelism():
    # gloo: a reduce-scatter costs an all-reduce, so 3·(1) + 2·(2) = 7 units where the textbook has 5
    given = {
        "hidden_size": 64,
        "layers": 2,
        "ranks": 4,
        "phase": Phase.TRAINING,
        "tokens": 8,
        "sequence_parallel": "regather",
    }

    textbook, gloo = tensor_parallel(**given), tensor_parallel(**given, backend=GLOO)

    assert gloo.wire_bytes / textbook.wire_bytes == 7 / 5


def test_o_22_llmkube_s_two_devices():
    # defilantech/LLMKube issue 1423, 109 Gbit/s: 192 calls, 151 MB in 11.1 ms, 9.66 GB in 709 ms; PP 25 and 786 KB
    decode = tensor_parallel(hidden_size=12288, layers=96, ranks=2, phase=Phase.DECODE, batch=[1, 32])
    prefill = tensor_parallel(hidden_size=12288, layers=96, ranks=2, phase=Phase.PREFILL, tokens=2048)
    pipeline = pipeline_parallel(hidden_size=12288, stages=2, phase=Phase.DECODE, batch=[1, 32])

    assert decode.calls.tolist() == [192, 192]
    assert decode.wire_bytes.tolist() == [4_718_592, 150_994_944]
    assert prefill.wire_bytes == 9_663_676_416
    assert decode.wire_bytes[1] / (109e9 / 8) == pytest.approx(11.1e-3, abs=0.05e-3)
    assert prefill.wire_bytes / (109e9 / 8) == pytest.approx(709e-3, abs=0.5e-3)
    assert pipeline.wire_bytes.tolist() == [24_576, 786_432]


def walk_chunks(owners, *, backward):
    """Sends of each stage while one micro-batch visits the chunks in order, and in reverse."""
    sent = np.zeros(max(owners) + 1)
    for order in [owners, owners[::-1]] if backward else [owners]:
        for here, there in pairwise(order):
            sent[here] += here != there
    return sent


@given(stages=RANKS, chunks=st.integers(1, 4), folded=st.booleans(), phase=PHASES, m=SMALL)
def test_walking_the_chunks_of_a_pipeline_gives_the_same_sends(stages, chunks, folded, phase, m):
    training = phase == Phase.TRAINING
    once = list(range(stages))
    owners = once + once[::-1] if folded else once * chunks
    sent = walk_chunks(owners, backward=training) * (m if training else 1)

    pipeline = pipeline_parallel(
        hidden_size=8,
        stages=stages,
        phase=phase,
        micro_batches=m,
        chunks=2 if folded else chunks,
        folded=folded,
    )

    assert pipeline.calls == sent.sum()
    assert pipeline.wire_bytes == sent.max() * 16
    assert (
        pipeline.group_wire_bytes == sum(part.group_wire_bytes for part in pipeline.parts) == sent.sum() * 16
    )


@pytest.mark.parametrize(
    ("schedule", "arguments", "factor"),
    [
        ("1F1B", {}, 1),
        ("ZB1P", {}, 1),
        ("ZB2P", {}, 1),
        ("ZBV", {"chunks": 2, "folded": True}, 2),
        ("V-Half", {"chunks": 2, "folded": True}, 2),
        ("V-Min", {"chunks": 2, "folded": True}, 2),
    ],
)
def test_o_28_zero_bubble_v_schedules_communicate_twice_as_much(schedule, arguments, factor):
    # sail-sg/zero-bubble-pipeline-parallelism README: communication 1, 1, 1, 2, 2, 2
    plain = pipeline_parallel(hidden_size=64, stages=8, phase=Phase.TRAINING, micro_batches=16)
    this = pipeline_parallel(hidden_size=64, stages=8, phase=Phase.TRAINING, micro_batches=16, **arguments)

    assert this.group_wire_bytes / plain.group_wire_bytes == factor
    assert this.wire_bytes / plain.wire_bytes == factor


def test_megatron_s_scatter_gather_sends_a_t_th_from_each_rank():
    whole, eighth = (
        pipeline_parallel(hidden_size=64, stages=4, phase=Phase.PREFILL, tokens=8, tensor_ranks=t)
        for t in (1, 8)
    )

    assert whole.wire_bytes == 8 * eighth.wire_bytes


@given(
    phase=PHASES,
    how=st.sampled_from(SEQUENCE_PARALLEL),
    n=st.integers(2, 8),
    v=st.integers(1, 3),
    vocabulary=st.booleans(),
)
def test_every_option_s_formula_comes_to_its_figure(phase, how, n, v, vocabulary):
    case = {"hidden_size": 24, "phase": phase, "batch": 2, "tokens": 6, "micro_batches": 4}

    traffics = (
        tensor_parallel(
            **case,
            layers=5,
            ranks=n,
            sequence_parallel=how,
            backend=GLOO,
            vocab_size=96 if vocabulary else None,
        ),
        pipeline_parallel(**case, stages=n, chunks=v, tensor_ranks=2),
    )

    for traffic in traffics:
        counted, sent = (value_of(formula.numbers) for formula in traffic.formulas)
        assert counted == (traffic.calls, traffic.calls)
        assert sent == pytest.approx((traffic.wire_bytes, traffic.wire_bytes), abs=0.01)


@given(h=SMALL, phase=PHASES, how=st.sampled_from(SEQUENCE_PARALLEL))
def test_doubling_hidden_doubles_the_bytes(h, phase, how):
    def sent(hidden):
        tensor = tensor_parallel(
            hidden_size=hidden, layers=3, ranks=4, phase=phase, tokens=5, sequence_parallel=how
        )
        pipeline = pipeline_parallel(hidden_size=hidden, stages=4, phase=phase, tokens=5, chunks=2)
        return [tensor.wire_bytes, tensor.group_wire_bytes, pipeline.wire_bytes, pipeline.group_wire_bytes]

    assert sent(2 * h) == pytest.approx([2 * sent_bytes for sent_bytes in sent(h)])


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
        (
            lambda: tensor_parallel(
                hidden_size=8, layers=1, ranks=2, phase=Phase.DECODE, sequence_parallel="on"
            ),
            "sequence_parallel is 'on', which is not known here. Use one of: off, regather, kept.",
        ),
        (
            lambda: pipeline_parallel(hidden_size=8, stages=2, phase=Phase.TRAINING, chunks=3, folded=True),
            "chunks is 3, but a folded pipeline goes down the stages and back up. Use 2.",
        ),
    ],
)
def test_a_size_of_nothing_is_refused_in_a_sentence(wrong, sentence):
    with pytest.raises(ValueError, match=exactly(sentence)):
        wrong()
