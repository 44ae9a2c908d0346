"""Real ranks that time their calls: every result right, every byte as predicted, every time above zero."""

import statistics

import pytest

from calculators.lab.measurements import Log, Measurement, Quantity, Series
from calculators.lab.plan import make_plan
from calculators.lab.spec import Spec, SpecError
from calculators.lab.splits.calibration import ARITHMETIC, timed_calls
from calculators.predict.collectives import Kind
from tests.lab.conftest import ON_CPU, Outcome

SWEEPS = 12


@pytest.fixture(scope="module")
def calibrated(launcher):
    spec = Spec.parse(
        {"job": "calibration", "call_bytes": 2**17, "steps": SWEEPS, "repeats": 1, "device": "cpu"}
    )
    outcome = Outcome(make_plan(spec, ON_CPU))
    outcome.events = [event for event in launcher.run(outcome.plan) if event is not None]
    assert outcome.failed is None, outcome.failed
    return outcome


def test_each_timed_call_gives_what_it_must(calibrated):
    assert calibrated.is_verified
    assert any("the result of each call equals what it must be" in log.text for log in calibrated.all(Log))


def test_its_bytes_and_calls_are_those_predicted(calibrated):
    counted = [
        c for c in calibrated.comparisons if c.quantity in (Quantity.CALLS, Quantity.HANDED, Quantity.WIRE)
    ]
    assert {c.quantity for c in counted} == {Quantity.CALLS, Quantity.HANDED, Quantity.WIRE}
    assert [c for c in counted if c.unexplained] == []


def test_each_call_and_each_piece_of_arithmetic_is_timed_once_a_sweep(calibrated):
    wanted = {timed.name for timed in timed_calls(calibrated.plan.spec)} | set(ARITHMETIC)
    of_first = {series.name: series.values for series in calibrated.all(Series) if series.rank == 0}
    assert set(of_first) == wanted
    assert all(len(values) == SWEEPS and min(values) > 0 for values in of_first.values())


def test_only_the_rank_that_begins_a_ping_pong_times_it(calibrated):
    of_last = {series.name for series in calibrated.all(Series) if series.rank == 1}
    assert not any(name.startswith("send") for name in of_last)


def test_a_measurement_is_the_median_of_its_series(calibrated):
    medians = {
        (m.detail, m.rank): m.value
        for m in calibrated.all(Measurement)
        if m.quantity is Quantity.CALL_SECONDS
    }
    assert medians == {(s.name, s.rank): statistics.median(s.values) for s in calibrated.all(Series)}


def test_ping_pongs_begin_at_a_few_bytes_and_collectives_at_64_kib_up_to_the_size_given():
    calls = timed_calls(Spec.parse({"job": "calibration", "call_bytes": 4 * 2**20}))
    assert min(timed.size for timed in calls if timed.kind is Kind.SEND) == 8
    sizes = {kind: [t.size for t in calls if t.kind is kind] for kind in (Kind.ALL_REDUCE, Kind.ALL_TO_ALL)}
    doubling = [2**16, 2**17, 2**18, 2**19, 2**20, 2**21, 2**22]
    assert sizes == {Kind.ALL_REDUCE: doubling, Kind.ALL_TO_ALL: doubling}


def test_every_rank_has_an_equal_share_of_each_collective():
    calls = timed_calls(Spec.parse({"job": "calibration", "ranks": 3}))
    assert all(timed.size % 12 == 0 for timed in calls if timed.kind is not Kind.SEND)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"ranks": 1}, "ranks is 1, but a calibration times calls between ranks. Take 2 or more."),
        (
            {"call_bytes": 65_536},
            "call_bytes is 65536, but a calibration times collectives from 65,536 bytes up, at two sizes or more. "
            "Take 131,072 or more.",
        ),
        (
            {"ranks": 16, "call_bytes": 2**28},
            "The tensors of one call would need about 17.0 GiB on all ranks together, and the lab stops at 8 GiB. "
            "Take smaller calls or fewer ranks.",
        ),
    ],
)
def test_a_calibration_that_cannot_be_is_refused(given, sentence):
    with pytest.raises(SpecError) as refused:
        Spec.parse({"job": "calibration", **given})
    assert sentence in str(refused.value)
