"""Runs of the lab that show the widest splits of a layout at work."""

from collections.abc import Iterator
from dataclasses import replace

from calculators.families import WAYS
from calculators.families import Case as FamilyCase
from calculators.predict.memory.levers import Case, Training
from calculators.predict.shapes import Phase
from calculators.workbench import RunIt, run_it

_TRAFFIC_ONLY = "It measures the bytes that cross between ranks, not yet the memory that each of them holds."


def runs(case: Case, back: str) -> Iterator[RunIt]:
    """The widest splits of the layout, each alone, as the lab runs them."""
    layout, training = case.layout, isinstance(case, Training)
    data = "zero-3" if layout.zero == 3 else "dp"
    sizes = {"tp": layout.tp, "pp": layout.pp, "cp": layout.cp, "ep": layout.ep}
    if training:
        sizes[data] = layout.dp
    widest = sorted((key for key, size in sizes.items() if size > 1), key=lambda key: -sizes[key])
    for key in widest[:2]:
        way = WAYS[key]
        wanted = FamilyCase(
            shape=case.shape,
            phase=Phase.TRAINING if training else Phase.DECODE,
            devices=sizes[key],
            batch=case.micro_batch if isinstance(case, Training) else case.batch,
            tokens=case.tokens,
            micro_batches=case.micro_batches if isinstance(case, Training) else 1,
        )
        found = way.trial(wanted) if way.is_for(wanted) else None
        if found is not None:
            found = replace(found, differences=(*found.differences, _TRAFFIC_ONLY))
        yield from run_it(found, label=f"Run its {way.short} for real", family=way.family, back=back)
