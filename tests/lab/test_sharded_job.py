"""Replicas that keep slices of their model states: what ZeRO's stages gather, reduce, broadcast and hold."""

import pytest

from calculators.lab.calls import Call
from calculators.lab.measurements import Quantity
from calculators.lab.spec import Spec, SpecError
from calculators.lab.splits import calls_of
from calculators.predict.collectives import Kind, sent_bytes
from calculators.predict.memory.states import PLAIN_ADAM, model_states
from calculators.predict.traffic.data import data_parallel
from tests.lab.replicas import UNEVEN, WIDE, Runs, assert_nothing_is_unexplained, moved, of, once, series

__all__ = ["once"]

pytestmark = pytest.mark.distributed


def sharded_spec(**given: object) -> Spec:
    return Spec.parse({"job": "sharded", "phase": "training", **given})


def ring_bytes(calls: list[Call], ranks: int) -> float:
    """What a rank sends in these calls by the textbook's ring."""
    return float(
        sum(call.times * sent_bytes(call.op, call.payload_bytes, ranks, algorithm="ring") for call in calls)
    )


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("zero", [1, 2, 3])
def test_training_equals_the_unsharded_models_and_every_byte_is_explained(
    once: Runs, zero: int, ranks: int
) -> None:
    outcome = once(job="sharded", phase="training", zero=zero, ranks=ranks, **WIDE)

    assert min(call.payload_bytes for call in outcome.plan.calls) >= 2**20 // (2 if zero == 1 else 1)
    assert_nothing_is_unexplained(outcome)
    losses = series(outcome, "loss")
    assert len(losses) == ranks
    assert all(values[-1] < values[0] for values in losses.values())


@pytest.mark.parametrize("zero", [1, 3])
def test_rows_that_ranks_cannot_share_equally_leave_nothing_unexplained(once: Runs, zero: int) -> None:
    outcome = once(job="sharded", phase="training", zero=zero, ranks=3, **UNEVEN | {"batch": 3})

    assert_nothing_is_unexplained(outcome)


def test_reduce_scatter_as_an_all_to_all_moves_on_the_wire_what_the_formula_says(once: Runs) -> None:
    by_backend = once(job="sharded", phase="training", zero=3, ranks=4, **WIDE)
    by_parts = once(job="sharded", phase="training", zero=3, ranks=4, reduce_scatter="all-to-all", **WIDE)

    assert_nothing_is_unexplained(by_parts)
    for twice, once_only in zip(of(by_backend, Quantity.WIRE), of(by_parts, Quantity.WIRE), strict=True):
        assert twice.prediction.backend_excess == twice.prediction.formula / 3
        assert once_only.prediction.backend_excess == 0
        assert once_only.measured == once_only.prediction.formula + once_only.prediction.framing


@pytest.mark.parametrize(("phase", "ranks"), [("prefill", 2), ("prefill", 4), ("decode", 2)])
def test_stage_3_gathers_each_layer_once_to_serve(once: Runs, phase: str, ranks: int) -> None:
    outcome = once(job="sharded", phase=phase, zero=3, ranks=ranks, **WIDE)

    assert_nothing_is_unexplained(outcome)
    assert {call.op: call.times for call in outcome.plan.calls} == {Kind.ALL_GATHER: 1}
    assert of(outcome, Quantity.CALLS)[0].measured == 10 * 2
    assert moved(outcome) > 0


@pytest.mark.parametrize("zero", [1, 2])
def test_stages_1_and_2_serve_without_a_word(once: Runs, zero: int) -> None:
    outcome = once(job="sharded", phase="prefill", zero=zero, ranks=2, **UNEVEN)

    assert_nothing_is_unexplained(outcome)
    assert moved(outcome) == 0


def test_one_rank_alone_runs_and_sends_nothing(once: Runs) -> None:
    for zero in (1, 3):
        outcome = once(job="sharded", phase="training", zero=zero, ranks=1, **UNEVEN)

        assert_nothing_is_unexplained(outcome)
        assert moved(outcome) == 0


@pytest.mark.parametrize("zero", [2, 3])
@pytest.mark.parametrize("ranks", [1, 2, 8])
def test_a_step_moves_what_predict_says_of_the_stage(zero: int, ranks: int) -> None:
    spec = sharded_spec(zero=zero, ranks=ranks, **WIDE)

    moved = data_parallel(
        parameters=spec.parameters,
        ranks=ranks,
        stage=f"zero-{zero}",
        gradient_bytes_per_element=4,
        weight_bytes_per_element=4,
    )

    assert ring_bytes(list(calls_of(spec)), ranks) == pytest.approx(moved.wire_bytes.item(), rel=1e-12)


def test_stage_1_sums_what_plain_replicas_do_and_broadcasts_every_weight_once() -> None:
    spec = sharded_spec(zero=1, ranks=4, **WIDE)

    by_kind = {
        kind: [c for c in calls_of(spec) if c.op is kind] for kind in (Kind.ALL_REDUCE, Kind.BROADCAST)
    }

    plain = data_parallel(parameters=spec.parameters, ranks=4, gradient_bytes_per_element=4)
    assert ring_bytes(by_kind[Kind.ALL_REDUCE], 4) == pytest.approx(plain.wire_bytes.item(), rel=1e-12)
    assert [call.source for call in by_kind[Kind.BROADCAST]] == [0, 1, 2, 3]
    assert sum(call.payload_bytes for call in by_kind[Kind.BROADCAST]) == 4 * spec.parameters


@pytest.mark.parametrize("zero", [1, 2, 3])
def test_ranks_hold_the_share_that_their_stage_leaves_them(once: Runs, zero: int) -> None:
    outcome = once(job="sharded", phase="training", zero=zero, ranks=4, **WIDE)

    parameters = outcome.plan.spec.parameters
    # FSDP2 keeps slices of the weights between two steps, in stage 2 as well.
    states = model_states(parameters, optimizer=PLAIN_ADAM, zero=1 if zero == 1 else 3, replicas=4)
    for part in ("weights", "gradients"):
        held = [c.measured for c in of(outcome, Quantity.MEMORY, part)]
        assert held == [getattr(states, part).item()] * 4
    moments = [c.measured for c in of(outcome, Quantity.MEMORY, "optimizer")]
    assert sum(moments) == 4 * states.optimizer.item()
    if zero > 1:  # stage 1 deals whole matrices, so its shares differ
        assert moments == [states.optimizer.item()] * 4


def test_a_batch_that_ranks_cannot_share_is_refused() -> None:
    with pytest.raises(SpecError, match="A batch of 3 sequences cannot be dealt to 2 replicas evenly"):
        sharded_spec(ranks=2, batch=3)
