"""From runs in the ledger to a calibration, to the time that a later run is told, and to the command."""

import pytest

from calculators.lab import calibrations, cli, clock, launch, store
from calculators.lab.calibrations import NoCalibration
from calculators.lab.measurements import StepSeconds, Verified
from calculators.lab.spec import Spec
from tests.lab.ledgers import A_BOX, NOON, Script, fresh_ledger, plan_of
from tests.lab.timings import timings

CALIBRATION = Spec.parse({"job": "calibration", "steps": 10, "repeats": 1})
DECODE = Spec.parse({"job": "tensor", "layers": 2, "steps": 10})
HERE = {"machine": A_BOX.machine, "backend": "gloo", "device": "cpu"}


@pytest.fixture
def sessions(tmp_path, monkeypatch):
    monkeypatch.delenv("SIXFOLD_LEDGER_URL", raising=False)
    monkeypatch.setenv("SIXFOLD_HOME", str(tmp_path))
    return fresh_ledger(tmp_path)


def done(sessions, spec, events=(), *, state=store.RunState.DONE, verified=True):
    """The number of a run that ended."""
    with sessions.begin() as session:
        run_id = store.submit(session, spec, submitted_by="ada", now=NOON).id
        store.claim(session, owner="worker", now=NOON, run_id=run_id)
        plan = plan_of(spec)
        store.record_plan(session, run_id, plan, owner="worker", machine=A_BOX.machine, now=NOON)
        store.record_events(session, run_id, list(events), owner="worker", now=NOON)
        store.finish(session, run_id, owner="worker", state=state, verified=verified, failed=None, now=NOON)
    return run_id


def calibrated(sessions, *, latency=2e-4):
    return done(sessions, CALIBRATION, timings(CALIBRATION, latency=latency, speed=1e9))


def latest(sessions, spec=DECODE, **given):
    with sessions.reading() as session:
        return calibrations.latest(session, spec, **{**HERE, **given})


def test_the_newest_calibration_of_the_same_ranks_and_links_counts(sessions):
    assert latest(sessions) is None
    first, second = calibrated(sessions), calibrated(sessions, latency=4e-4)
    newest = latest(sessions)
    assert newest is not None
    assert newest.run_id == second
    assert newest.latency_seconds.value == pytest.approx(4e-4, rel=1e-5)
    known_then = latest(sessions, before=second)
    assert known_then is not None
    assert known_then.run_id == first


@pytest.mark.parametrize(
    "other", [{"ranks": 4}, {"hosts": 2}, {"hosts": 2, "link_mbit": 10.0}, {"dtype": "bfloat16"}]
)
def test_other_ranks_hosts_links_or_elements_are_not_calibrated_by_it(sessions, other):
    calibrated(sessions)
    assert latest(sessions, Spec.parse({"job": "tensor", "layers": 2, "steps": 10, **other})) is None


@pytest.mark.parametrize("elsewhere", [{"machine": "another"}, {"backend": "nccl"}, {"device": "cuda"}])
def test_another_machine_is_not_calibrated_by_it(sessions, elsewhere):
    calibrated(sessions)
    assert latest(sessions, **elsewhere) is None


def test_runs_that_say_nothing_of_a_link_are_refused(sessions):
    decode = done(sessions, DECODE)
    unproven = done(sessions, CALIBRATION, verified=False)
    with sessions.reading() as session:
        with pytest.raises(NoCalibration, match=r"There is no run 99 in this ledger\."):
            calibrations.of_run(session, 99)
        with pytest.raises(
            NoCalibration, match=f"Run {decode} is a run of the job “tensor”, which times no single"
        ):
            calibrations.of_run(session, decode)
        with pytest.raises(
            NoCalibration, match=f"Run {unproven} is done and not verified: what it timed is not"
        ):
            calibrations.of_run(session, unproven)


def test_a_runs_steps_stand_beside_what_was_predicted_of_them(sessions):
    calibrated(sessions)
    steps = [StepSeconds(rank=rank, seconds=(0.01,) * 9 + (0.5,)) for rank in range(2)]
    run_id = done(sessions, DECODE, steps)
    calibrated(sessions, latency=1.0)  # what came later is no prediction
    with sessions.reading() as session:
        seen = clock.time_of_run(session, run_id)
    assert seen is not None
    assert seen.measured_median == 0.01
    assert seen.predicted.latency.value < 0.1
    assert seen.error == pytest.approx(seen.predicted.seconds.value / 0.01 - 1)


def test_a_run_before_any_calibration_has_no_predicted_time(sessions):
    run_id = done(sessions, DECODE, [StepSeconds(rank=0, seconds=(0.01,) * 10)])
    with sessions.reading() as session:
        assert clock.time_of_run(session, run_id) is None


def test_the_command_calibrates_and_prints_what_it_found(sessions, tmp_path, monkeypatch, capsys):
    class Launcher(Script):
        def __init__(self, **_):
            verified = [Verified(rank=rank, worst=0.0, tolerance=0.0) for rank in range(2)]
            super().__init__(*verified, *timings(CALIBRATION, latency=2e-4, speed=1e9))

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

    monkeypatch.setattr(launch, "LocalLauncher", Launcher)
    assert cli.main(["calibrate", "--steps", "10"]) == 0
    said = capsys.readouterr().out
    assert "a round takes 200 µs (" in said
    assert "bus bandwidth, MB/s (95 %)" in said
    assert "Each rank reads 33.6 (33.6 to 33.6) GB/s" in said
    assert (
        cli.main(["run", "tensor-decode", "--dry-run", "--ledger", f"sqlite:///{tmp_path}/runs.sqlite3"]) == 0
    )
    assert "Host-bound: " in capsys.readouterr().out


def test_the_command_says_what_cannot_be_calibrated(sessions, capsys):
    assert cli.main(["calibrate", "--ranks", "1"]) == 2
    assert "a calibration times calls between ranks. Take 2 or more." in capsys.readouterr().err
