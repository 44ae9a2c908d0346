"""Runs of the lab that show the axes of the quickest layout at work."""

from collections.abc import Iterator

from calculators.lab.spec import Job
from calculators.predict.planner import Plan
from calculators.predict.shapes import Phase
from calculators.trials import Calculation, trial
from calculators.workbench import RunIt, run_it


def runs(found: Plan, back: str) -> Iterator[RunIt]:
    """Each axis of the best layout alone: the lab runs one family at a time."""
    best, task = found.best, found.task
    shape, training = task.shape, task.phase is Phase.TRAINING
    sequences = int(best["micro_batch"][0]) if training else -(-task.batch // int(best["dp"][0]))
    for name, job in (("tp", Job.TENSOR), ("pp", Job.PIPELINE)):
        calculation = Calculation(
            job=job,
            phase=task.phase,
            hidden_size=shape.hidden_size,
            bytes_per_element=shape.bytes_per_element,
            layers=shape.layers,
            batch=sequences,
            tokens=max(1, task.tokens // int(best["cp"][0])),
            devices=int(best[name][0]),
            micro_batches=int(best["micro_batches"][0]),
        )
        yield from run_it(
            trial(calculation),
            label=f"Run the {name.upper()} of the first for real",
            family=name,
            back=back,
        )
