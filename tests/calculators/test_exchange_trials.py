"""Calculated calls made small enough to run keep their bytes, and say what else had to give."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calculators.exchange_trials import MOST_REPEATS, CalculatedCalls, calculated_calls, exchange_trial
from calculators.lab.devices import Placement
from calculators.lab.measurements import Quantity
from calculators.lab.plan import make_plan
from calculators.lab.spec import ALONE, Pattern, Spec
from calculators.predict.shapes import Phase
from calculators.predict.traffic import context_parallel, data_parallel, expert_parallel
from calculators.trials import MOST_RANKS


def trial(**given):
    usual = {"pattern": Pattern.RING, "call_bytes": 524_288, "repeats": 8, "ranks": 4}
    return exchange_trial(CalculatedCalls(**(usual | given)))


def test_calls_that_fit_are_made_as_they_were_calculated():
    found = trial()

    assert (found.spec.call_bytes, found.spec.repeats, found.spec.ranks) == (524_288, 8, 4)
    assert found.kept == (
        "The run has the same 4 ranks, the same 8 repeats of the calls and the same bytes in each call, 512 KiB "
        "(524,288 B)."
    )
    assert found.differences == (ALONE,)


def test_every_trial_says_first_that_no_model_computes():
    assert all(trial(pattern=pattern).differences[0] == ALONE for pattern in Pattern)


def test_a_models_whole_gradient_is_cut_to_a_power_of_two_and_that_is_said():
    # 70 billion parameters in bfloat16
    found = trial(pattern=Pattern.GRADIENTS, call_bytes=140e9, repeats=1, ranks=64)

    assert (found.spec.call_bytes, found.spec.ranks) == (32 * 2**20, MOST_RANKS)
    assert found.kept == "The run has the same 1 repeat of the calls."
    assert found.differences[1:] == (
        "Each call moves 32 MiB (33,554,432 B) instead of 130 GiB, so that the run ends within seconds. Bytes "
        "follow in proportion.",
        "It has 4 ranks instead of 64; the lab starts no more unasked, as ranks share this machine's cores. Change "
        "the number below if the machine is larger.",
    )


def test_calls_of_more_layers_than_a_short_run_has_are_said():
    found = trial(repeats=126)

    assert found.spec.repeats == MOST_REPEATS
    assert "A step makes the calls 32 times instead of 126; each time is the same again." in found.differences


def test_a_size_that_ranks_cannot_share_is_rounded_and_that_is_said():
    found = trial(pattern=Pattern.KEY_VALUE_GATHER, call_bytes=10_001, ranks=3)

    assert found.spec.call_bytes == 9_996
    assert found.differences[1] == (
        "Each call moves 9.76 KiB (9,996 B) instead of 10,001 B, the nearest size of whole elements, the same number "
        "on each rank. Bytes follow in proportion."
    )


def test_experts_keep_their_rows_and_say_how_they_are_routed():
    # 256 tokens of 4,096 elements in bfloat16
    found = trial(pattern=Pattern.EXPERTS, call_bytes=256 * 8_192, skew=1.2, row_bytes=8_192)

    assert (found.spec.row_bytes, found.spec.call_bytes, found.spec.skew) == (8_192, 256 * 8_192, 1.2)
    assert found.differences[1:] == (
        "Each rank stands for one expert, and every call uses the same routing, drawn from the spec's seed. "
        "Rank 0 holds the expert that is wanted most.",
    )


def test_a_row_wider_than_the_lab_takes_is_said():
    found = trial(pattern=Pattern.EXPERTS, call_bytes=2**20, row_bytes=131_072)

    assert "A row has 65,536 B instead of 131,072 B, the nearest width." in found.differences


@pytest.mark.parametrize("given", [{"ranks": 1}, {"call_bytes": 0}, {"repeats": 0}])
def test_where_nothing_travels_nothing_can_be_measured(given):
    assert trial(**given) is None


# Small models, whose calls fit as they are. 4 key-value heads and 4 query heads: Ulysses' calls are of one size.
ATTENTION = {"attention_heads": 4, "kv_heads": 4, "head_dim": 64, "layers": 3, "ranks": 4, "tokens": 512}
EXPERTS = {"hidden_size": 256, "layers": 2, "tokens": 128, "experts": 8, "experts_per_token": 2, "ranks": 4}


def data(stage):
    return data_parallel(parameters=100_000, ranks=4, stage=stage, units=2, micro_batches=1)


def context(kind, phase=Phase.PREFILL, **given):
    return context_parallel(**(ATTENTION | given), kind=kind, phase=phase)


CASES = {
    "plain": (data("ddp"), Pattern.GRADIENTS),
    "zero-1": (data("zero-1"), Pattern.ZERO_1),
    "zero-2": (data("zero-2"), Pattern.ZERO_2),
    "zero-3": (data("zero-3"), Pattern.ZERO_3),
    "ring": (context("ring"), Pattern.RING),
    "ring in training": (context("ring", Phase.TRAINING), Pattern.RING),
    "gathered": (context("all-gather"), Pattern.KEY_VALUE_GATHER),
    "Ulysses": (context("ulysses"), Pattern.ULYSSES),
    "Ulysses in training": (context("ulysses", Phase.TRAINING), Pattern.ULYSSES),
    "Ulysses with grouped heads": (context("ulysses", attention_heads=8), Pattern.ULYSSES),
}


@pytest.mark.parametrize(("traffic", "pattern"), CASES.values(), ids=CASES)
def test_the_run_of_a_calculation_sends_what_was_calculated(traffic, pattern):
    found = exchange_trial(calculated_calls(traffic, pattern))

    plan = make_plan(found.spec, Placement(device="cpu", backend="gloo"))
    sent = [
        p.formula / found.spec.steps for p in plan.predictions if p.quantity is Quantity.WIRE and not p.detail
    ]
    handed = [
        p.formula / found.spec.steps
        for p in plan.predictions
        if p.quantity is Quantity.HANDED and not p.detail
    ]
    assert sent == pytest.approx([traffic.wire_bytes.item()] * 4, rel=1e-12)
    assert handed == pytest.approx([traffic.handed_bytes.item()] * 4, rel=1e-12)


def test_experts_hand_over_what_was_calculated_and_a_uniform_routing_sends_nearly_as_much():
    traffic = expert_parallel(**EXPERTS, phase=Phase.PREFILL)

    found = exchange_trial(calculated_calls(traffic, Pattern.EXPERTS, row_bytes=256 * 2))

    plan = make_plan(found.spec, Placement(device="cpu", backend="gloo"))
    sent = [
        p.formula / found.spec.steps for p in plan.predictions if p.quantity is Quantity.WIRE and not p.detail
    ]
    handed = [
        p.formula / found.spec.steps
        for p in plan.predictions
        if p.quantity is Quantity.HANDED and not p.detail
    ]
    assert sum(handed) / 4 == traffic.handed_bytes.item()
    # 1,024 rows are drawn, each leaving its rank 3 times in 4: ± 4 standard deviations are 7 %.
    assert sum(sent) / 4 == pytest.approx(traffic.wire_bytes.item(), rel=0.07)


def test_calls_of_several_sizes_are_made_of_their_mean_and_that_is_said():
    found = exchange_trial(calculated_calls(context("ulysses", attention_heads=8), Pattern.ULYSSES))

    assert "the same bytes a call on average" in found.kept
    assert "Its calls are all of one size, the mean of those that were calculated." in found.differences


def test_what_a_pattern_has_none_of_is_left_out_and_that_is_said():
    gathered = exchange_trial(
        calculated_calls(context("all-gather", Phase.TRAINING), Pattern.KEY_VALUE_GATHER)
    )
    across = data_parallel(parameters=100_000, ranks=4, stage="hsdp", replica_groups=2)
    sharded = exchange_trial(calculated_calls(across, Pattern.ZERO_3))

    assert "It leaves out 3 reduce-scatters (gradients of keys and values)." in gathered.differences
    assert "It leaves out 1 all-reduce (gradients of the slices, across the groups)." in sharded.differences


@pytest.mark.parametrize(
    ("traffic", "pattern"),
    [
        (context("ring", Phase.DECODE), Pattern.RING),
        (data("ddp"), Pattern.ZERO_3),
        (
            data_parallel(parameters=1_000, ranks=4, stage="zero-3", reshard_after_forward=False),
            Pattern.ZERO_3,
        ),
        (data_parallel(parameters=1_000, ranks=1), Pattern.GRADIENTS),
    ],
    ids=["decode has no ring", "other calls", "gathered once only", "one rank"],
)
def test_calls_that_a_pattern_does_not_make_are_not_taken_for_its_own(traffic, pattern):
    assert calculated_calls(traffic, pattern) is None


calls = {
    "pattern": st.sampled_from(list(Pattern)),
    "call_bytes": st.floats(1, 1e15),
    "repeats": st.integers(1, 10_000),
    "ranks": st.integers(2, 16_384),
    "skew": st.floats(0, 20),
    "row_bytes": st.integers(1, 10**6),
}


@given(st.fixed_dictionaries(calls))
def test_every_trial_is_a_spec_that_the_lab_takes(given):
    found = exchange_trial(CalculatedCalls(**given))

    assert Spec.parse(found.spec.to_dict()) == found.spec
    assert found.kept.endswith(".")
    assert all(sentence.endswith(".") for sentence in found.differences)
