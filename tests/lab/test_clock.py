"""A step's time from a calibration: parts that add up, and what decides."""

from dataclasses import replace

import pytest

from calculators.lab import calibrations
from calculators.lab.clock import predicted_step, why_untimed
from calculators.lab.devices import Placement
from calculators.lab.measurements import Quantity
from calculators.lab.plan import make_plan
from calculators.lab.spec import Spec
from tests.lab.timings import ARITHMETIC_SECONDS, timings

ON_CPU = Placement(device="cpu", backend="gloo")
MODEL = {
    "layers": 16,
    "hidden_size": 32,
    "attention_heads": 4,
    "ffn_width": 32,
    "vocab_size": 32,
    "batch": 64,
}
LATENCY = 2e-4


def _calibration(**given):
    spec = Spec.parse({"job": "calibration", "steps": 10, "repeats": 1, **given})
    speed = spec.link_mbit * 1e6 / 8 if spec.link_mbit else 1e9
    series = timings(spec, latency=LATENCY, speed=speed)
    return calibrations.of_series(spec, series, run_id=3, machine="here", backend="gloo", device="cpu")


FAST = _calibration()
SLOW_LINK = {"hosts": 2, "link_mbit": 1.0}
SLOW = _calibration(**SLOW_LINK)


def _decode(job="tensor", **given):
    return Spec.parse({"job": job, "phase": "decode", "steps": 10, **MODEL, **given})


def test_the_parts_of_a_step_add_up():
    step = predicted_step(_decode(), FAST)
    assert list(step.parts) == ["compute", "host", "latency", "transfer"]
    assert all(part.value > 0 for part in step.parts.values())
    assert step.seconds.value == pytest.approx(sum(part.value for part in step.parts.values()))
    assert step.seconds.low <= step.seconds.value <= step.seconds.high


def test_a_tensor_parallel_token_waits_for_two_all_reduces_a_layer():
    step = predicted_step(_decode(), FAST)
    all_reduces = 2 * 16
    # On a link as fast as this one hardly anything is hidden: two rounds each.
    assert all_reduces * LATENCY < step.latency.value <= 2 * all_reduces * LATENCY * 1.0001
    assert step.transfer.value == pytest.approx(all_reduces * (8_192 + 576) / 1e9, rel=1e-3)
    resumed = all_reduces * ARITHMETIC_SECONDS * 7 / 8
    assert step.host.value == pytest.approx(
        16 * ARITHMETIC_SECONDS / 8 + ARITHMETIC_SECONDS + resumed, rel=1e-3
    )


def test_a_pipelined_token_passes_all_stages_and_two_sends():
    step = predicted_step(_decode("pipeline"), FAST)
    assert step.latency.value == pytest.approx(2 * LATENCY, rel=1e-3)
    sent = 8_192 + 96 + 64 * 8 + 96  # the hidden state, and a token id of each sequence
    assert step.transfer.value == pytest.approx(sent / 1e9, rel=1e-3)
    assert step.host.value > 16 * ARITHMETIC_SECONDS / 8


def test_more_requests_than_stages_take_as_long_as_the_busiest_stage_works():
    one = predicted_step(_decode("pipeline"), FAST)
    eight = predicted_step(_decode("pipeline", microbatches=8), FAST)
    assert eight.latency.value == 0
    assert one.seconds.value < eight.seconds.value < 8 * one.seconds.value


def test_replicas_that_serve_wait_for_nobody():
    step = predicted_step(_decode("data"), FAST)
    assert (step.latency.value, step.transfer.value, step.link_share) == (0, 0, 0)


def test_a_slow_link_decides_and_a_fast_one_leaves_it_to_the_host():
    slow, fast = predicted_step(_decode(**SLOW_LINK), SLOW), predicted_step(_decode(), FAST)
    assert slow.link_share > 0.5 > fast.link_share
    assert slow.verdict.startswith("Link-bound: ")
    assert fast.verdict.startswith("Host-bound: ")
    assert "so it varies from run to run. Calibrated by run 3: a round takes 200 µs (" in fast.verdict
    assert "the link carries 1.0 Mbit/s (" in slow.verdict


def test_a_link_that_rested_lets_a_bucketful_through_at_once():
    # The pipeline's link rests while both stages compute, longer than its bucket takes to fill.
    rested = predicted_step(_decode("pipeline", layers=64, **SLOW_LINK), SLOW)
    bucket = 1_514 + 12.5 + 1
    hidden_state, ids = 8_192 + 96 + 66 * 7, 8 * 64 + 96 + 66 * 2
    assert ids < bucket
    assert rested.transfer.value == pytest.approx((hidden_state - bucket) * 8 / 1e6, rel=1e-3)


def test_emulated_delay_is_the_links_own():
    given = {"hosts": 2, "link_mbit": 1_000.0, "delay_ms": 0.1}
    step = predicted_step(_decode(**given), _calibration(**given))
    assert step.delay == pytest.approx(step.latency.value / 2, rel=1e-3)
    assert step.link_share == pytest.approx((step.transfer.value + step.delay) / step.seconds.value)


def test_a_plan_with_a_calibration_predicts_the_step_of_every_rank():
    spec = _decode()
    plan = make_plan(spec, ON_CPU, FAST)
    steps = [p for p in plan.predictions if p.quantity is Quantity.STEP_SECONDS]
    assert [p.rank for p in steps] == [0, 1]
    assert {p.predicted for p in steps} == {predicted_step(spec, FAST).seconds.value}
    assert plan.about_time == predicted_step(spec, FAST).verdict


def test_a_plan_without_one_predicts_no_time_and_says_how_to_calibrate():
    plan = make_plan(_decode(**SLOW_LINK), ON_CPU)
    assert not [p for p in plan.predictions if p.quantity is Quantity.STEP_SECONDS]
    assert plan.about_time == (
        "No time is predicted without a calibration of 2 ranks with hosts = 2, link_mbit = 1 on this machine. "
        "Make one: python -m calculators.lab calibrate --hosts 2 --link-mbit 1"
    )


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        (
            _decode(phase="training"),
            "No time is predicted for the job “tensor”, phase “training”: only where ranks compute and communicate in "
            "turn is a step the sum of both.",
        ),
        (
            _decode("pipeline", phase="prefill"),
            "No time is predicted for a pipeline in prefill: its stages work side by side, as its schedule has it.",
        ),
        (
            replace(_decode(), ranks=4),
            "No time is predicted: run 3 calibrated other ranks, hosts, links or another",
        ),
    ],
)
def test_a_time_that_cannot_be_predicted_is_refused_with_its_reason(spec, sentence):
    assert why_untimed(spec, FAST).startswith(sentence)
    with pytest.raises(ValueError, match="No time is predicted"):
        predicted_step(spec, FAST)
