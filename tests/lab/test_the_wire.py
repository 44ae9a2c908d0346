"""Measured against predicted, to the byte, on ranks that really run: the promise of the product."""

from collections.abc import Callable

import pytest

from calculators.lab.devices import Placement
from calculators.lab.measurements import Log, Progress, Quantity, StepSeconds
from tests.lab.conftest import Outcome

pytestmark = pytest.mark.distributed

RATES = {"layers": 4, "hidden_size": 256, "attention_heads": 8, "ffn_width": 512, "vocab_size": 256}
TRAINING = {"phase": "training", "tokens": 64, "steps": 10, "warmup_steps": 1, **RATES}
DECODE = {"phase": "decode", "batch": 8, "steps": 64, "warmup_steps": 2, **RATES}
MESSAGE_FRAMING = 144  # 96 bytes to the receiver and 48 back


def wire_of(outcome: Outcome) -> list:
    return [c for c in outcome.comparisons if c.quantity is Quantity.WIRE]


def assert_counts_are_exact_and_idle_is_silent(outcome: Outcome) -> None:
    for comparison in outcome.comparisons:
        assert comparison.steps >= 10
        if comparison.quantity in (Quantity.CALLS, Quantity.HANDED, Quantity.IDLE):
            assert comparison.unexplained == 0, comparison
    assert sum(c.quantity is Quantity.IDLE for c in outcome.comparisons) == outcome.plan.world_size


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize(
    "job",
    [
        {"job": "tensor", "batch": 4},
        {"job": "pipeline", "batch": 16, "microbatches": 4},
        {"job": "pipeline", "batch": 16, "microbatches": 4, "schedule": "gpipe"},
    ],
    ids=["tensor", "pipeline 1F1B", "pipeline GPipe"],
)
def test_training_at_256_kib_a_call_leaves_at_most_one_percent_unexplained(
    run: Callable[..., Outcome], ranks: int, job: dict[str, object]
) -> None:
    outcome = run(ranks=ranks, **job, **TRAINING)

    assert outcome.plan.spec.activation_bytes >= 256 * 1024
    assert outcome.is_verified
    assert [c.rank for c in wire_of(outcome)] == list(range(ranks))
    for comparison in wire_of(outcome):
        assert abs(comparison.unexplained) <= 0.01 * comparison.predicted, comparison
    assert_counts_are_exact_and_idle_is_silent(outcome)


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("job", ["tensor", "pipeline"])
def test_decode_at_8_kib_a_call_is_within_one_message_per_pair_over_64_tokens(
    run: Callable[..., Outcome], ranks: int, job: str
) -> None:
    outcome = run(job=job, ranks=ranks, **DECODE)

    assert outcome.plan.spec.activation_bytes == 8_192
    assert outcome.is_verified
    pairs = [c for c in outcome.comparisons if c.quantity is Quantity.PAIR]
    assert len(pairs) == ranks * (ranks - 1)
    for comparison in pairs:
        assert abs(comparison.unexplained) <= 8_192 + MESSAGE_FRAMING, comparison
    assert_counts_are_exact_and_idle_is_silent(outcome)


def test_separate_projections_move_half_as_much_again(run: Callable[..., Outcome]) -> None:
    fused = run(job="tensor", ranks=2, batch=1, **TRAINING)
    separate = run(job="tensor", ranks=2, batch=1, qkv="separate", **TRAINING)

    assert fused.is_verified
    assert separate.is_verified
    handed = [
        next(c.measured for c in outcome.comparisons if c.quantity is Quantity.HANDED)
        for outcome in (fused, separate)
    ]
    assert handed[1] == 1.5 * handed[0]


def test_half_precision_is_counted_at_two_bytes_an_element(run: Callable[..., Outcome]) -> None:
    outcome = run(job="tensor", ranks=2, dtype="bfloat16", **{**DECODE, "steps": 10})

    assert outcome.is_verified
    assert wire_of(outcome)[0].prediction.formula == 10 * 4 * 2 * 8 * 256 * 2
    assert wire_of(outcome)[0].unexplained == 0


def test_sizes_that_no_ring_divides_still_leave_nothing_unexplained(run: Callable[..., Outcome]) -> None:
    sizes = {"layers": 1, "hidden_size": 315, "attention_heads": 3, "ffn_width": 300, "batch": 1, "steps": 10}

    outcome = run(job="tensor", ranks=3, **sizes)

    assert outcome.is_verified
    assert [c.unexplained for c in wire_of(outcome)] == [0, 0, 0]
    assert any(c.prediction.backend_excess for c in wire_of(outcome))


@pytest.mark.parametrize(
    "given",
    [
        {"job": "tensor", "ranks": 2, "batch": 1, **TRAINING},
        {"job": "pipeline", "ranks": 2, "batch": 4, "microbatches": 2, **TRAINING},
        {"job": "pipeline", "ranks": 2, **{**DECODE, "steps": 10}},
    ],
    ids=["tensor training", "pipeline training", "pipeline decode"],
)
def test_staging_through_host_memory_changes_neither_result_nor_bytes(
    run: Callable[..., Outcome], given: dict[str, object]
) -> None:
    # What ranks on a shared GPU do, here with tensors that are in host memory already: every copy is made.
    staged = Placement(device="cpu", backend="gloo", staged=True, note="")

    outcome = run(staged, **given)

    assert outcome.is_verified
    assert [c.unexplained for c in wire_of(outcome)] == [0, 0]
    assert any("staging through host memory took" in log.text for log in outcome.all(Log))


def test_every_rank_reports_its_progress_and_every_steps_time(run: Callable[..., Outcome]) -> None:
    outcome = run(job="pipeline", ranks=2, **{**DECODE, "steps": 12})

    assert {e.rank: len(e.seconds) for e in outcome.all(StepSeconds)} == {0: 12, 1: 12}
    assert all(second > 0 for event in outcome.all(StepSeconds) for second in event.seconds)
    for rank in (0, 1):
        parts = [event.part for event in outcome.all(Progress) if event.rank == rank]
        assert list(dict.fromkeys(parts)) == ["join", "verify", "warm up", "measure", "timeline", "done"]
