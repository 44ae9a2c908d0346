"""The timeline meter tells what a rank did, without gaps, from the waits of its calls."""

import time
from itertools import pairwise

from calculators.lab.measurements import Doing
from calculators.lab.meters.timeline import Recorder


def told() -> Recorder:
    """20 ms busy, 30 ms in a call, 10 ms in a receive, then the end."""
    recorder = Recorder()
    time.sleep(0.02)
    with recorder.wait(Doing.WAITING, "tp all-reduce"):
        time.sleep(0.03)
    with recorder.wait(Doing.IDLE, "pp receive"):
        time.sleep(0.01)
    recorder.stop()
    return recorder


def test_spans_follow_each_other_without_gaps() -> None:
    spans = told().spans()

    assert spans[0].start == 0
    assert all(before.end == after.start for before, after in pairwise(spans))


def test_a_wait_is_named_by_its_call_and_the_rest_is_busy() -> None:
    spans = told().spans()

    named = [(span.doing, span.what) for span in spans if span.doing is not Doing.BUSY]
    assert named == [(Doing.WAITING, "tp all-reduce"), (Doing.IDLE, "pp receive")]
    assert spans[0].doing is Doing.BUSY


def test_the_seconds_of_all_that_it_did_are_the_whole_time() -> None:
    recorder = told()

    spans = recorder.spans()
    assert abs(sum(recorder.seconds().values()) - spans[-1].end) < 1e-9
    assert recorder.seconds()[Doing.WAITING] >= 0.03


def test_waits_that_overlap_count_once() -> None:
    recorder = Recorder()
    with recorder.wait(Doing.WAITING, "outer"), recorder.wait(Doing.IDLE, "inner"):
        time.sleep(0.01)
    recorder.stop()

    spans = recorder.spans()
    assert sum(span.end - span.start for span in spans) == spans[-1].end
    assert spans[-1].end < 0.02 + 0.01
