"""Runs of the lab that show the families of an advice at work."""

from collections.abc import Mapping

from calculators.lab.spec import Job, Pattern, Spec
from calculators.lab.spec import Phase as LabPhase
from calculators.pages.which.badges import FAMILY_CODES
from calculators.predict.advisor import Advice, Facts, Technique
from calculators.trials import MOST_RANKS
from calculators.workbench import RunIt, run_address


def runs(facts: Facts, advice: Advice, back: str) -> list[RunIt]:
    """A run for each family of the advice that the lab can run, with few enough ranks for one machine."""
    found = []
    for family in advice.families:
        code = FAMILY_CODES[family]
        wanted = advice.axes.get(code) or getattr(facts, code) or facts.devices or 2
        ranks = min(max(wanted, 2), MOST_RANKS)
        if family in _JOBS:
            phase = LabPhase.TRAINING if facts.phase == "training" else LabPhase.DECODE
            spec = Spec(job=_JOBS[family], phase=phase, ranks=ranks)
            kept = f"a small model, split {ranks} ways by {family.label.lower()}"
        elif family in _PATTERNS:
            pattern, words = _PATTERNS[family]
            spec = Spec(job=Job.EXCHANGE, phase=LabPhase.TRAINING, pattern=pattern, ranks=ranks)
            kept = f"the exchanges alone: {words}, over {ranks} ranks"
        else:
            continue
        scaled = f"{ranks} ranks instead of {wanted}: they share one machine." if wanted != ranks else ""
        found.append(
            RunIt(
                label=f"Run it for real: {code.upper()}",
                address=run_address(spec, back=back),
                kept=kept,
                differences=(scaled,) if scaled else (),
                family=code,
            )
        )
    return found


_PATTERNS: Mapping[Technique, tuple[Pattern, str]] = {
    Technique.DATA: (Pattern.GRADIENTS, "gradients of replicas"),
    Technique.SHARDED_DATA: (Pattern.ZERO_3, "weights and gradients of full sharding"),
    Technique.CONTEXT: (Pattern.RING, "keys and values around a ring"),
    Technique.EXPERT: (Pattern.EXPERTS, "tokens to experts and back"),
}
_JOBS = {Technique.TENSOR: Job.TENSOR, Technique.PIPELINE: Job.PIPELINE}
