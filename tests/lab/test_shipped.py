"""The runs that come with the project: one of each experiment, verified, and explained to the byte."""

from calculators.lab import store
from calculators.lab.measurements import Quantity
from calculators.lab.shipped import NAME, take_over_shipped_runs
from calculators.lab.spec import experiment, experiment_names
from tests.lab.ledgers import fresh_ledger


def test_a_new_ledger_takes_them_over_once(tmp_path):
    sessions = fresh_ledger(tmp_path)
    with sessions.begin() as session:
        taken = take_over_shipped_runs(session)
    with sessions.begin() as session:
        again = take_over_shipped_runs(session)

    assert taken is not None
    assert len(taken.runs) == 10
    assert again is None
    with sessions.reading() as session:
        runs = store.latest_runs(session, limit=50)
        assert {run.origin.partition(" #")[0] for run in runs} == {NAME}
        assert all(run.succeeded for run in runs)


def test_each_experiment_with_a_model_is_among_them_as_it_is_shipped_and_no_byte_is_unexplained(tmp_path):
    sessions = fresh_ledger(tmp_path)
    with sessions.begin() as session:
        take_over_shipped_runs(session)
    with sessions.reading() as session:
        runs = {run.spec: run for run in store.latest_runs(session, limit=50)}
        wanted = [experiment(name) for name in experiment_names() if experiment(name).has_model]
        assert set(wanted) == set(runs)
        for run in runs.values():
            counted = [
                c for c in store.comparisons_of(session, run.id) if c.quantity is not Quantity.STEP_SECONDS
            ]
            assert counted
            assert [c for c in counted if c.quantity is Quantity.WIRE and c.unexplained] == []
            assert all(c.is_explained for c in counted if c.quantity.is_counted)
