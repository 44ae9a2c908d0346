"""A calibration's page: what was timed beside the fit, and what a step should take by it on other runs' pages."""

import math

import pytest
from django.urls import reverse

from calculators.lab.calibrations import Estimate
from calculators.lab.measurements import Series
from calculators.lab.spec import Spec
from calculators.lab.splits.calibration import timed_calls
from tests.calculators.made_runs import measured_run
from tests.calculators.reading import figure, table, words

CALIBRATION = {"job": "calibration", "call_bytes": 131_072, "repeats": 1, "steps": 10}


def swept(*, latency=1e-4, seconds_per_byte=1e-8, names=None):
    """What two ranks would time on a link of such a latency and speed, give or take a thousandth."""
    spec = Spec.parse(CALIBRATION)
    values = {
        timed.name: [
            (latency + timed.size * seconds_per_byte) * (1 + 1e-3 * (-1) ** step) for step in range(10)
        ]
        for timed in timed_calls(spec)
    }
    values |= {name: [2e-3 + 1e-6 * step for step in range(10)] for name in names or ()}
    return [
        Series(rank=rank, name=name, values=tuple(several))
        for name, several in values.items()
        for rank in range(2)
    ]


def arithmetic():
    """The names of what is timed besides calls, whatever this version of the lab times."""
    from calculators.lab.splits import calibration

    return [value for name, value in vars(calibration).items() if name.isupper() and isinstance(value, str)]


def page(client, run_id):
    return client.get(reverse("calculators:run", args=[run_id]))


def test_a_calibration_shows_what_it_timed_beside_the_fit(client, ledger):
    run_id = measured_run(ledger, events=swept(names=arithmetic()), **CALIBRATION)

    response = page(client, run_id)

    names = [trace["name"] for trace in figure(response, "timed")["data"]]
    assert "fitted: send" in names
    assert "measured: all-reduce" in names
    assert len(table(response, "timed")) == 1 + len(timed_calls(Spec.parse(CALIBRATION)))
    assert "Each call gave what it must." in words(response)
    assert "A round of messages" in words(response)


def test_a_calibration_that_lacks_what_is_needed_says_so(client, ledger):
    run_id = measured_run(ledger, events=swept(), **CALIBRATION)

    assert "which this version of the lab needs. Calibrate again." in words(page(client, run_id))


def test_a_decoding_run_says_what_its_step_should_take_and_what_decides(client, ledger):
    measured_run(ledger, events=swept(names=arithmetic()), **CALIBRATION)
    run_id = measured_run(ledger)

    response = page(client, run_id)

    assert "Calibrated by run 1" in words(response)
    assert table(response, "step-times")[0][-1] == "Predicted"
    assert figure(response, "step-times")["data"][-1]["line"]["dash"] == "dot"


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({}, "No time is predicted without a calibration of 2 ranks"),
        (
            {"phase": "training", "batch": 2, "tokens": 8},
            "No time is predicted for the job “tensor”, phase “training”",
        ),
    ],
)
def test_without_a_prediction_the_page_says_why(client, ledger, given, sentence):
    assert sentence in words(page(client, measured_run(ledger, **given)))


def test_a_speed_that_may_be_without_bound_is_no_error():
    speed = Estimate(value=0.5, low=0.0, high=1.0).per(1)

    assert (speed.value, speed.low, speed.high) == (2.0, 1.0, math.inf)
