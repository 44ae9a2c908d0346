"""Guided experiments judge a lesson's claim by what real runs measured, and say so when they cannot."""

import json
from dataclasses import replace

import pytest

from calculators.lab.guided import GUIDED, command, guided, trials
from calculators.lab.guided.claims import Outcome, Verdict
from calculators.lab.measurements import Measurement, Quantity
from calculators.lab.problems import SpecError
from calculators.lab.store import RunState
from tests.lab.ledgers import NOON, fresh_ledger


@pytest.mark.parametrize("one", GUIDED.values(), ids=GUIDED)
def test_every_experiment_says_what_it_claims_and_which_lesson_does(one) -> None:
    assert one.claim.endswith(".")
    assert one.about.endswith(".")
    assert len({variant.name for variant in one.variants}) == len(one.variants)


def test_a_name_that_no_experiment_has_names_those_there_are() -> None:
    with pytest.raises(
        SpecError, match=r"There is no guided experiment “nonsense”\. There are .*two-all-reduces"
    ):
        guided("nonsense")


def test_one_that_did_not_hold_outweighs_one_that_could_not_run() -> None:
    held, did_not, could_not = (Verdict(outcome=outcome, sentence="") for outcome in Outcome)

    assert command.exit_code([held]) == 0
    assert command.exit_code([held, could_not]) == 3
    assert command.exit_code([held, could_not, did_not]) == 1


def ended(sessions, one, *, calls: dict[str, int], state=RunState.DONE, verified=True) -> str:
    """A trial of `one` whose runs are over: each counted `calls` all-reduces in all its steps."""
    with sessions.begin() as session:
        trial = trials.submit(session, one, submitted_by="ada", now=NOON)
    for variant in one.variants:
        with sessions.begin() as session:
            run = trials.store.claim(session, owner="worker", now=NOON)
            counted = Measurement(
                quantity=Quantity.CALLS,
                rank=0,
                detail="tp all-reduce",
                value=calls[variant.name],
                steps=variant.spec.steps,
            )
            trials.store.record_events(session, run.id, [counted], owner="worker", now=NOON)
            trials.store.finish(
                session, run.id, owner="worker", state=state, verified=verified, failed=None, now=NOON
            )
    return trial


def verdict_on(tmp_path, **given) -> Verdict:
    sessions, one = fresh_ledger(tmp_path), guided("two-all-reduces")
    trial = ended(sessions, one, **given)
    with sessions.reading() as session:
        return trials.read(session, one, trial).verdict


def test_a_claim_holds_or_does_not_by_what_was_counted(tmp_path) -> None:
    # 4 layers and 10 steps: 2 forward and 2 backward are 80 and 160.
    assert verdict_on(tmp_path, calls={"decode": 80, "training": 160}).outcome is Outcome.HELD


def test_another_count_is_said_with_its_numbers(tmp_path) -> None:
    verdict = verdict_on(tmp_path, calls={"decode": 80, "training": 240})

    assert verdict.outcome is Outcome.DID_NOT_HOLD
    assert verdict.sentence == "Each layer made 2 all-reduces forward and 4 backward."


def test_a_run_that_was_cancelled_leaves_the_claim_untested(tmp_path) -> None:
    verdict = verdict_on(tmp_path, calls={"decode": 80, "training": 160}, state=RunState.CANCELLED)

    assert verdict.outcome is Outcome.COULD_NOT_RUN
    assert verdict.sentence == (
        "Could not run here: “Decode, 2 ranks” (run 1) did not end well: it was cancelled."
    )


def test_a_run_that_is_not_verified_proves_nothing(tmp_path) -> None:
    verdict = verdict_on(tmp_path, calls={"decode": 80, "training": 160}, verified=False)

    assert verdict.outcome is Outcome.DID_NOT_HOLD
    assert "is not verified: its split result differs from the whole one" in verdict.sentence


def test_a_number_that_no_meter_saw_leaves_the_claim_untested(tmp_path) -> None:
    sessions, one = fresh_ledger(tmp_path), guided("two-all-reduces")
    trial = ended(sessions, one, calls={"decode": 80, "training": 160})
    with sessions.reading() as session:
        blind = {
            name: replace(trials.result(session, run), measurements=())
            for name, run in trials.read(session, one, trial).runs.items()
        }

    verdict = trials.judge(one, blind)

    assert verdict.outcome is Outcome.COULD_NOT_RUN
    assert verdict.sentence == "Could not run here: run 1 measured no calls (tp all-reduce)."


def test_the_verdict_is_also_an_object_that_other_programs_read(tmp_path) -> None:
    said = command.as_dict(
        guided("two-all-reduces"), verdict_on(tmp_path, calls={"decode": 80, "training": 160})
    )

    back = json.loads(json.dumps(said))
    assert (back["experiment"], back["outcome"]) == ("two-all-reduces", "held")
    assert back["figures"][0]["measured"] == back["figures"][0]["predicted"] == 2
