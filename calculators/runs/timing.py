"""How long a step of a run should have taken, by the newest calibration of the same ranks and links on its machine."""

from sqlalchemy.orm import Session

from calculators.lab.calibrations import latest
from calculators.lab.clock import StepTime, predicted_step, why_untimed
from calculators.lab.store import Run


def step_time(session: Session, run: Run) -> tuple[StepTime | None, str]:
    """What the calibration says, or why there is nothing to say; neither where no model computes or the run failed."""
    if not run.spec.has_model or not run.succeeded:
        return None, ""
    if why_untimed(run.spec, None).startswith("No time is predicted for"):  # no calibration would help
        return None, why_untimed(run.spec, None)
    try:
        found = latest(session, run.spec, machine=run.machine, backend=run.backend, device=run.device)
    except KeyError:  # the newest is of another version of the lab, which timed other things
        found = None
    if reason := why_untimed(run.spec, found):
        return None, reason
    assert found is not None  # noqa: S101 `why_untimed` has a reason without one
    return predicted_step(run.spec, found), ""
