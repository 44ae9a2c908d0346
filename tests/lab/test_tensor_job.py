"""Tensor parallelism with and without sequence parallelism, on real ranks: results, calls, bytes and memory."""

from collections.abc import Callable
from functools import cache

import pytest

from calculators.lab.compare import Comparison, compare
from calculators.lab.launch import LocalLauncher
from calculators.lab.measurements import Measurement, Quantity
from calculators.lab.plan import make_plan
from calculators.lab.spec import Spec, SpecError
from tests.lab.conftest import ON_CPU, Outcome

SIZES = {
    "job": "tensor",
    "steps": 10,
    "layers": 1,
    "hidden_size": 64,
    "attention_heads": 4,
    "ffn_width": 64,
    "vocab_size": 16,
    "batch": 64,
    "tokens": 64,
}
"""One call moves a hidden state of 1 MiB, and one layer computes next to nothing."""

Run = Callable[..., Outcome]

FORWARD = {"phase": "prefill"}
TRAINING = {"phase": "training"}
SEQUENCE = {"sequence": True}
AGAIN = {"sequence": True, "regather": True}
ALL_TO_ALL = {"reduce_scatter": "all-to-all"}
SEPARATE = {"qkv": "separate", "dtype": "bfloat16", "layers": 2, "batch": 2, "tokens": 8}

CASES = (
    {"ranks": 1, **TRAINING, **AGAIN},
    {"ranks": 2, **FORWARD},
    {"ranks": 2, **TRAINING},
    {"ranks": 2, **FORWARD, **SEQUENCE},
    {"ranks": 2, **TRAINING, **SEQUENCE},
    {"ranks": 2, **TRAINING, **AGAIN},
    {"ranks": 2, **FORWARD, **SEQUENCE, **ALL_TO_ALL},
    {"ranks": 2, **TRAINING, **AGAIN, **ALL_TO_ALL},
    {"ranks": 2, **TRAINING, **SEQUENCE, **SEPARATE},
    {"ranks": 4, **FORWARD},
    {"ranks": 4, **TRAINING},
    {"ranks": 4, **FORWARD, **SEQUENCE},
    {"ranks": 4, **TRAINING, **AGAIN},
)


def name_of(case: dict[str, object]) -> str:
    return " ".join(key if value is True else f"{value}" for key, value in case.items())


@pytest.fixture(scope="module")
def of(launcher: LocalLauncher) -> Run:
    """What a run of `SIZES`, with what is given changed, said; each is run once for all tests."""

    @cache
    def outcome(given: frozenset[tuple[str, object]]) -> Outcome:
        outcome = Outcome(make_plan(Spec.parse({**SIZES, **dict(given)}), ON_CPU))
        outcome.events = [event for event in launcher.run(outcome.plan) if event is not None]
        assert outcome.failed is None, outcome.failed
        return outcome

    return lambda **given: outcome(frozenset(given.items()))


def compared(outcome: Outcome, quantity: Quantity, detail: str = "") -> list[Comparison]:
    return [c for c in outcome.comparisons if (c.quantity, c.detail) == (quantity, detail)]


def moved(outcome: Outcome) -> tuple[float, float]:
    """What rank 0 sends by the textbook for the hidden states, and what of it gloo put on the wire."""
    (wire, *_) = compared(outcome, Quantity.WIRE)
    return wire.prediction.formula, wire.measured - wire.prediction.framing - wire.prediction.control


def calls(outcome: Outcome) -> dict[str, float]:
    """How often rank 0 made each call in one step."""
    measured = [m for m in outcome.all(Measurement) if m.quantity is Quantity.CALLS and m.rank == 0]
    return {m.detail: m.value / m.steps for m in measured if m.detail}


def saved(outcome: Outcome) -> Comparison:
    """What rank 0 keeps for the backward pass."""
    return compared(outcome, Quantity.MEMORY, "saved for backward")[0]


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_a_run_is_verified_and_every_byte_that_it_hands_over_sends_and_holds_is_predicted(
    of: Run, case: dict[str, object]
) -> None:
    outcome = of(**case)

    assert outcome.is_verified
    assert outcome.plan.spec.activation_bytes >= 2**20 or "dtype" in case
    seen = {c.quantity for c in outcome.comparisons}
    assert seen >= {Quantity.CALLS, Quantity.HANDED, Quantity.WIRE, Quantity.IDLE}
    assert (Quantity.MEMORY in seen) is (case["phase"] == "training")
    assert [c for c in outcome.comparisons if c.unexplained] == []
    assert {c.measured for c in compared(outcome, Quantity.IDLE)} == {0}


def test_a_layer_makes_two_all_reduces_forward_and_two_backward(of: Run) -> None:
    assert calls(of(ranks=2, **FORWARD)) == {"tp all-reduce": 2}
    assert calls(of(ranks=2, **TRAINING)) == {"tp all-reduce": 4}


def test_with_sequence_parallelism_each_all_reduce_is_an_all_gather_and_a_reduce_scatter(of: Run) -> None:
    sums = {"sp all-reduce": 1}  # gradients of what every rank holds whole, once a step

    assert calls(of(ranks=2, **FORWARD, **SEQUENCE)) == {"sp all-gather": 2, "sp reduce-scatter": 2}
    assert calls(of(ranks=2, **TRAINING, **SEQUENCE)) == {"sp all-gather": 4, "sp reduce-scatter": 4, **sums}


def test_gathering_again_makes_two_more_all_gathers_a_layer(of: Run) -> None:
    again = calls(of(ranks=2, **TRAINING, **AGAIN))

    assert (again["sp all-gather"], again["sp reduce-scatter"]) == (6, 4)


def test_separate_projections_each_gather_their_input_and_scatter_its_gradient(of: Run) -> None:
    layers, separate = 2, calls(of(ranks=2, **TRAINING, **SEQUENCE, **SEPARATE))

    assert (separate["sp all-gather"], separate["sp reduce-scatter"]) == (layers * 6, layers * 6)


@pytest.mark.parametrize("ranks", [2, 4])
def test_forward_sequence_parallelism_moves_the_same_bytes_and_on_gloo_half_as_much_again(
    of: Run, ranks: int
) -> None:
    (plain, plain_on_wire), (cut, cut_on_wire) = (
        moved(of(ranks=ranks, **FORWARD, **more)) for more in ({}, SEQUENCE)
    )

    assert cut == plain
    assert plain_on_wire == plain
    assert cut_on_wire == 1.5 * plain


@pytest.mark.parametrize("ranks", [2, 4])
def test_training_that_gathers_again_moves_10_to_8_and_on_gloo_14_to_8(of: Run, ranks: int) -> None:
    (plain, _), (again, again_on_wire) = (moved(of(ranks=ranks, **TRAINING, **more)) for more in ({}, AGAIN))

    assert again / plain == 10 / 8
    assert again_on_wire / plain == 14 / 8


def test_training_that_keeps_what_it_gathered_moves_8_to_8(of: Run) -> None:
    assert moved(of(ranks=2, **TRAINING, **SEQUENCE))[0] == moved(of(ranks=2, **TRAINING))[0]


def test_with_an_all_to_all_and_a_sum_the_wire_shows_what_the_textbook_says(of: Run) -> None:
    forward, training = (
        tuple(moved(of(ranks=2, **phase, **more))[1] for more in ({}, {**sequence, **ALL_TO_ALL}))
        for phase, sequence in ((FORWARD, SEQUENCE), (TRAINING, AGAIN))
    )

    assert forward[1] / forward[0] == 1
    assert training[1] / training[0] == 10 / 8


def test_on_one_rank_sequence_parallelism_sends_nothing(of: Run) -> None:
    alone = of(ranks=1, **TRAINING, **AGAIN)

    assert alone.plan.calls == ()
    (wire,) = compared(alone, Quantity.WIRE)
    assert (wire.predicted, wire.measured) == (0, 0)
    assert calls(alone) == {}


@pytest.mark.parametrize("ranks", [2, 4])
def test_sequence_parallelism_saves_activations_in_the_measure_that_is_predicted(of: Run, ranks: int) -> None:
    plain, cut = (saved(of(ranks=ranks, **TRAINING, **more)) for more in ({}, AGAIN))

    assert cut.measured < plain.measured
    for one in (plain, cut):
        assert abs(one.measured - one.prediction.formula) <= 0.05 * one.prediction.formula
    # With everything between the blocks cut as well, a rank keeps its share of what one rank alone would keep.
    assert cut.prediction.formula * ranks == saved(of(ranks=1, **TRAINING, **AGAIN)).prediction.formula


def test_tokens_that_were_gathered_and_kept_are_named_as_what_the_code_adds(of: Run) -> None:
    kept, again = (saved(of(ranks=2, **TRAINING, **more)) for more in (SEQUENCE, AGAIN))

    hidden_state = 2**20
    assert kept.prediction.formula == again.prediction.formula
    assert kept.measured - again.measured == 2 * hidden_state / 2  # two inputs, of which each rank had half


def test_a_rank_holds_its_slice_of_every_matrix_and_the_ends_whole(of: Run) -> None:
    one, two, four = (
        compared(of(ranks=ranks, **TRAINING, **more), Quantity.MEMORY, "weights")[0].measured / 4
        for ranks, more in ((1, AGAIN), (2, {}), (4, {}))
    )

    hidden, matrices = 64, 4 * 64 * 64 + 2 * 64 * 64
    whole = 2 * 16 * hidden + 3 * hidden  # embedding, head and three norms
    assert (one, two, four) == (matrices + whole, matrices / 2 + whole, matrices / 4 + whole)


def test_predictions_are_made_of_what_can_be_measured_and_of_nothing_else(of: Run) -> None:
    outcome = of(ranks=2, **TRAINING, **AGAIN)

    measured = [m for m in outcome.all(Measurement) if m.quantity is not Quantity.SECONDS]
    assert len(compare(outcome.plan.predictions, measured)) == len(outcome.plan.predictions)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"phase": "decode", **SEQUENCE},
            "sequence is on, but a decode step has one token of each sequence in flight, and one token cannot be "
            "cut. Take prefill or training, or turn it off.",
        ),
        (
            {"phase": "prefill", **SEQUENCE, "tokens": 30, "ranks": 4},
            "30 tokens cannot be cut into 4 equal parts. Sequence parallelism gives every rank the same number of "
            "tokens between the blocks. Take 28 or 32, or another number of ranks.",
        ),
    ],
    ids=["decode", "uneven"],
)
def test_tokens_that_cannot_be_shared_out_are_refused(changes: dict[str, object], sentence: str) -> None:
    with pytest.raises(SpecError) as refused:
        Spec.parse({**SIZES, **changes})

    assert str(refused.value) == sentence
