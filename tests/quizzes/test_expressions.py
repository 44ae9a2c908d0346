"""Expressions calculate with the calculator's functions and nothing else."""

from pathlib import Path

import pytest

from calculators.predict.collectives import all_reduce_bytes
from quizzes.calculations import FUNCTIONS
from quizzes.expressions import ExpressionError, evaluate, holds, names_in, signatures


def test_an_expression_calculates_with_names_and_functions():
    value = evaluate("2 * layers * all_reduce_bytes(h * 2, t) + ceil(1.5)", {"layers": 64, "h": 4096, "t": 2})

    assert value == 128 * float(all_reduce_bytes(8192, 2)) + 2


def test_the_lesson_ratio_comes_out_of_the_calculator():
    ratio = evaluate("tensor_parallel_bytes(4096, 64, 2) / pipeline_parallel_bytes(4096, 2)")

    assert ratio == 128


def test_a_condition_is_true_or_false():
    assert holds("layers % stages == 0 and not stages > layers", {"layers": 64, "stages": 4})
    assert not holds("1 < x < 3", {"x": 3})


def test_names_of_functions_are_not_parameters():
    assert names_in("min(a, ceil(b))") == {"a", "b"}


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("", "is empty"),
        ("1 +", "cannot be read"),
        ("(" * 200, "cannot be read"),
        ("x", "unknown name x"),
        ("min + 1", "unknown name min"),
        ("1 / 0", "divides by zero"),
        ("9 ** 9 ** 9", "too large"),
        ("10 ** 400", "too large"),
        ("1e400", "not a finite number"),
        ("1" * 399, "too large"),
        ("(-1) ** 0.5", "not a real number"),
        ("sqrt(-1)", "cannot be calculated"),
        ("tensor_parallel_calls(0)", "layers is 0"),
        ("ceil(1, 2)", "Call it as ceil(x)"),
        ("frobnicate(1)", "does not have"),
        ("__import__('os').system('true')", "not a name"),
        ("(1).real", "dot (attribute access)"),
        ("a[0]", "square brackets"),
        ("'a' * 3", "not a number"),
        ("True", "not a number"),
        ("lambda: 1", "a lambda"),
        ("[x for x in (1,)]", "ListComp"),
        ("ceil(**a)", "a call may not"),
        ("1 < 2", "a comparison"),
        ("+".join("1" * 190), "parts"),
        ("1" + " " * 400, "at most 400"),
    ],
)
def test_what_cannot_be_calculated_says_why(expression, reason):
    with pytest.raises(ExpressionError) as caught:
        evaluate(expression)

    assert reason in str(caught.value)


def test_a_condition_that_is_a_number_is_refused():
    with pytest.raises(ExpressionError, match="number, not true or false"):
        holds("1 + 1")


def test_every_function_shows_how_it_is_called():
    assert signatures()["all_reduce_bytes"] == "all_reduce_bytes(full_size, ranks)"


# Figures of the packs' functions against numbers worked out by hand or printed in the papers that formulas come from.
ORACLES = [
    # Narayanan 2021: 8·b·s·h·(t−1)/t elements a layer in training, half of it forward; SP re-gathers: 10.
    ("tensor_parallel_training_bytes(4096, 1, 4, 2048)", 2 * 8 * 2048 * 4096 * 3 / 4),
    ("tensor_parallel_training_bytes(4096, 1, 4, 2048, micro_batches=8)", 8 * 2 * 8 * 2048 * 4096 * 3 / 4),
    ("tensor_parallel_prompt_bytes(4096, 1, 4, 2048)", 2 * 4 * 2048 * 4096 * 3 / 4),
    ("sequence_parallel_prompt_bytes(4096, 1, 4, 2048)", 2 * 4 * 2048 * 4096 * 3 / 4),
    ("sequence_parallel_training_bytes(4096, 1, 4, 2048)", 2 * 10 * 2048 * 4096 * 3 / 4),
    ("sequence_parallel_training_bytes(4096, 1, 4, 2048, regather=0)", 2 * 8 * 2048 * 4096 * 3 / 4),
    # One send a boundary and micro-batch each way; of two stages each sends one way, in between both.
    ("pipeline_parallel_training_bytes(4096, 2, 2048, micro_batches=8)", 8 * 2048 * 4096 * 2),
    ("pipeline_parallel_training_bytes(4096, 4, 2048, micro_batches=8)", 2 * 8 * 2048 * 4096 * 2),
    ("pipeline_parallel_prompt_bytes(4096, 4, 2048)", 2048 * 4096 * 2),
    # p = 4, m = 8: 3/11 of the whole, 0.375 over ideal; v = 2: 3/19 and 0.1875.
    ("bubble_share(4, 8)", 3 / 11),
    ("bubble_share(4, 8, 2)", 3 / 19),
    ("bubble_over_ideal(4, 8)", 0.375),
    ("bubble_over_ideal(4, 8, chunks=2)", 0.1875),
    ("micro_batches_in_flight(4, 8)", 4),
    ("micro_batches_in_flight(4, 2)", 2),
    # ZeRO: 2(n−1)/n·G plain, as much for stages 1 and 2, half as much again for 3.
    ("data_parallel_bytes(7.5e9, 4)", 2 * 0.75 * 15e9),
    ("sharded_bytes(7.5e9, 4, 1)", 2 * 0.75 * 15e9),
    ("sharded_bytes(7.5e9, 4, 2)", 2 * 0.75 * 15e9),
    ("sharded_bytes(7.5e9, 4)", 3 * 0.75 * 15e9),
    # ZeRO figure 1, Ψ = 7.5 billion, n = 64: 120, 31.4, 16.6 and 1.9 GB.
    ("state_bytes(7.5e9)", 120e9),
    ("round(state_bytes(7.5e9, 1, 64) / 1e8)", 314),
    ("round(state_bytes(7.5e9, 2, 64) / 1e8)", 166),
    ("round(state_bytes(7.5e9, 3, 64) / 1e8)", 19),
    ("state_bytes(70e9)", 1120e9),
    # Keys and values of 8 heads of 128: (c−1)/c · 2·b·s·1024 elements a layer; training 3 times as much.
    ("ring_bytes(8, 128, 1, 4, 8192)", 2 * 0.75 * 2 * 8192 * 1024),
    ("ring_training_bytes(8, 128, 1, 4, 8192)", 3 * 2 * 0.75 * 2 * 8192 * 1024),
    ("gather_kv_bytes(8, 128, 1, 4, 8192)", 2 * 0.75 * 2 * 8192 * 1024),
    ("ulysses_bytes(64, 8, 128, 1, 4, 8192)", 2 * 0.75 * 8192 / 4 * (2 * 64 + 2 * 8) * 128),
    # T·k·h·e·(n−1)/n out, and as much back.
    ("expert_parallel_bytes(7168, 1, 128, 256, 8, 8)", 2 * 128 * 8 * 7168 * 2 * 7 / 8),
    ("expert_parallel_training_bytes(7168, 1, 128, 256, 8, 8)", 4 * 128 * 8 * 7168 * 2 * 7 / 8),
    ("expert_parallel_calls(24, 8)", 48),
    ("expert_parallel_training_calls(24, 8)", 96),
    # KiB a token: Llama 3.1 70B 320, on 8 and 16 ranks 40; Llama 2 7B 512; DeepSeek-V3 61·576 elements.
    ("kv_bytes_per_token(80, 8, 128) / 1024", 320),
    ("kv_bytes_per_token(80, 8, 128, ranks=8) / 1024", 40),
    ("kv_bytes_per_token(80, 8, 128, ranks=16) / 1024", 40),
    ("kv_bytes_per_token(32, 32, 128) / 1024", 512),
    ("latent_bytes_per_token(61, 512, 64)", 61 * 576 * 2),
    # 4h² + 2·h·f matrices, of which each rank holds its share, and two norms whole.
    ("layer_parameters(256, 512)", 4 * 256**2 + 2 * 256 * 512 + 512),
    ("layer_parameters(256, 512, 4)", (4 * 256**2 + 2 * 256 * 512) / 4 + 512),
    # Korthikanti table 2, GPT-3: 5·a·s/h = 80.
    ("activation_memory(12288, 96, 2048) / (2048 * 12288)", 34 + 80),
    ("activation_memory(12288, 96, 2048, ranks=8) / (2048 * 12288)", 10 + 24 / 8 + 80 / 8),
    ("activation_memory(12288, 96, 2048, ranks=8, sequence_parallel=1) / (2048 * 12288)", 114 / 8),
    ("activation_memory(12288, 96, 2048, 1, 8, 1, 1) / (2048 * 12288)", 34 / 8),
    ("activation_memory(12288, 96, 2048, recompute=2) / (2048 * 12288)", 2),
    # Four inputs of norms and blocks, q, k, v and the heads' output; both sides of the activation function.
    ("saved_layer_bytes(256, 512, 64, bytes_per_element=4)", 64 * 4 * (8 * 256 + 2 * 512)),
    ("saved_layer_bytes(256, 512, 64, 2, 0, 4)", 64 * 4 * (4 * 256 + (4 * 256 + 2 * 512) / 2)),
    ("saved_layer_bytes(256, 512, 64, 2, 1, 4)", 64 * 4 * (8 * 256 + 2 * 512) / 2),
    ("saved_head_bytes(256, 512, 64, 4)", 64 * (2 * 4 * 256 + 4 * 512)),
    # 70 billion weights in bfloat16 (141 GB) on two devices of 273 GB/s: 3.9 tokens/s.
    ("round(10 * decode_ceiling(2 * 273e9, 141e9)) / 10", 3.9),
]

ARITHMETIC = {"min", "max", "abs", "ceil", "floor", "round", "sqrt", "log2"}


@pytest.mark.parametrize(("expression", "value"), ORACLES)
def test_a_function_gives_what_its_source_prints(expression, value):
    assert evaluate(expression) == pytest.approx(value, rel=1e-12)


def test_every_function_of_the_calculator_says_what_it_gives():
    table = Path("docs/packs.md").read_text(encoding="utf-8")

    for name, function in FUNCTIONS.items():
        assert f"`{name}" in table, f"{name} has no row in docs/packs.md"
        assert function.__doc__ or name in ARITHMETIC, f"{name} has no docstring"


def test_sizes_that_must_be_whole_say_so():
    with pytest.raises(ExpressionError, match="counts things"):
        evaluate("kv_bytes_per_token(32.5, 8, 128)")
