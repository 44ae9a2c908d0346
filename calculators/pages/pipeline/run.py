"""The run of the lab that comes nearest to a pipeline of the page."""

from dataclasses import replace

from calculators.lab.spec import Job
from calculators.lab.spec import Schedule as LabSchedule
from calculators.pages.pipeline.case import PipelineCase
from calculators.predict.schedules import SCHEDULES, Schedule
from calculators.predict.shapes import Phase
from calculators.trials import Calculation, Trial, trial

_MODEL = {"hidden_size": 512, "bytes_per_element": 4, "batch": 1, "tokens": 64}
"""The run's own small model: a schedule says nothing about widths."""


def trial_of(case: PipelineCase) -> Trial | None:
    """A run of the lab with this schedule, or with the one of its two that comes nearest."""
    found = trial(
        Calculation(
            job=Job.PIPELINE,
            phase=Phase.TRAINING,
            layers=case.stages,
            devices=case.stages,
            micro_batches=case.micro_batches,
            **_MODEL,
        )
    )
    if found is None:
        return None
    gpipe = case.schedule in (Schedule.GPIPE, Schedule.NAIVE)
    taken = LabSchedule.GPIPE if gpipe else LabSchedule.ONE_F_ONE_B
    differences = [*found.differences]
    if case.schedule.value != taken.value:
        differences.append(
            f"It follows {'GPipe' if gpipe else '1F1B'} instead of {SCHEDULES[case.schedule].name}: the lab runs "
            "those two."
        )
    differences.append(
        "It measures the bytes that stages send, not yet who works when: ranks that share a processor’s cores "
        "wait for one another in ways that devices of their own do not."
    )
    return replace(found, spec=replace(found.spec, schedule=taken), differences=tuple(differences))
