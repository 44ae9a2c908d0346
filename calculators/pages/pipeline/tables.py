"""The tables of the page *Pipeline*: what each stage does, and the formula's figures beside those that were played."""

from calculators.pages.pipeline.case import PipelineCase
from calculators.pages.pipeline.gantt import counted_micro_batches
from calculators.pages.pipeline.shares import clean, spread
from calculators.predict import schedules
from calculators.predict.schedules import Timetable
from calculators.units import plain, seconds
from calculators.workbench import Row, Table


def stages_table(played: Timetable) -> Table:
    """Each stage's work, waiting and memory."""
    return Table(
        name="stages",
        caption=(
            f"What each stage does in a step of {counted_micro_batches(played.micro_batches)}, and how many "
            "micro-batches’ activations it holds at most."
        ),
        heads=("Stage", "Works", "Waits", "Holds at most"),
        rows=tuple(
            Row(
                cells=(
                    stage,
                    seconds(float(played.busy[stage])),
                    seconds(clean(float(played.idle[stage]))),
                    plain(float(held)),
                )
            )
            for stage, held in enumerate(played.peak_in_flight)
        ),
    )


def numbers_table(case: PipelineCase, played: Timetable | None) -> Table:
    """The formula's figures beside those of the timetable."""
    shares = (
        "Time of a step",
        "Bubble: time that a stage waits",
        "Idle over useful",
        "Idle share of the whole",
    )
    formula = (
        spread(case.work_seconds, case.bubble_seconds) if case.has_formula else ("no formula",) * len(shares)
    )
    found = spread(float(played.busy.mean()), played.bubble_seconds) if played else ("",) * len(shares)
    held = float(schedules.peak_in_flight(case.schedule, **case.sizes))
    sends = float(schedules.sends_per_micro_batch(case.schedule, stages=case.stages, chunks=case.chunks))
    most = plain(float(played.peak_in_flight.max())) if played else ""
    rows = (
        *zip(shares, formula, found, strict=True),
        ("Fullest stage holds, micro-batches", plain(held), most),
        ("Messages of one micro-batch, there and back", plain(sends), ""),
        ("Copies of the weights", plain(schedules.parameter_copies(case.schedule)), ""),
    )
    heads = ["Figure", "By formula"]
    if played:
        whole = played.micro_batches == case.micro_batches
        heads.append("Played" if whole else f"Played, {played.micro_batches} micro-batches")
    return Table(
        name="numbers",
        caption="Predicted, for one training step.",
        heads=tuple(heads),
        rows=tuple(Row(cells=cells[: len(heads)]) for cells in rows),
    )
