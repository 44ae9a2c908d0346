"""Runs of the lab that measure what each axis of a layout moves."""

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from calculators.exchange_trials import calculated_calls, exchange_trial
from calculators.lab.spec import Job, Pattern
from calculators.pages.layout.case import LayoutCase
from calculators.pages.layout.families import of_a_rank
from calculators.pages.layout.words import AXIS_FAMILIES
from calculators.predict.shapes import Phase
from calculators.trials import Calculation, Trial, trial
from calculators.workbench import RunIt, run_it

PATTERNS = {0: Pattern.GRADIENTS, 1: Pattern.ZERO_1, 2: Pattern.ZERO_2, 3: Pattern.ZERO_3}
"""ZeRO stage → what the lab's exchange calls it."""


def runs(case: LayoutCase, back: str) -> Iterator[RunIt]:
    """A run for each axis that the lab can run."""
    for name in case.axes:
        found = run_of(case, name)
        if found is None:
            continue
        if name == "tp" and case.layout.sp:
            gathers = (
                "It makes all-reduces: sequence parallelism makes a gather and a scatter of each, which move as many "
                "bytes, and gathers once more on the way back."
            )
            found = replace(found, differences=(*found.differences, gathers))
        yield from run_it(
            found,
            label=f"Run it for real: {name.upper()}",
            family=AXIS_FAMILIES[name],
            back=back,
        )


def run_of(case: LayoutCase, axis: str) -> Trial | None:
    """The run that makes the calls of this axis; None where the lab has none for it, or nothing travels."""
    if axis in ("tp", "pp"):
        return _trial(
            Calculation(
                job=Job.TENSOR if axis == "tp" else Job.PIPELINE,
                phase=case.phase,
                hidden_size=case.shape.hidden_size,
                bytes_per_element=case.shape.bytes_per_element,
                layers=case.shape.layers,
                batch=case.micro_batch if case.is_training else case.sequences_of_a_replica,
                tokens=max(1, case.tokens // case.layout.cp),
                devices=getattr(case.layout, axis),
                micro_batches=round(case.micro_batches) if case.is_training else 1,
            )
        )
    pattern = _pattern(case, axis)
    if pattern is None:
        return None
    traffic = of_a_rank(case, axis) or case.composition.axes[axis]  # of one stage, or else of all together
    row_bytes = case.shape.hidden_size * case.shape.bytes_per_element
    return exchange_trial(calculated_calls(traffic, pattern, row_bytes=row_bytes))


_trial = lru_cache(maxsize=256)(trial)
"""It halves a size until the run is short, and most changes leave it alone."""


def _pattern(case: LayoutCase, axis: str) -> Pattern | None:
    if axis == "cp":
        return None if case.phase is Phase.DECODE else Pattern.RING
    if axis == "ep":
        return Pattern.EXPERTS
    return PATTERNS[case.layout.zero] if axis in ("dp", "edp") and case.is_training else None
