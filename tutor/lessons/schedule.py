"""Who works when while micro-batches pass through a pipeline once: the picture of the bubble, as a table."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from calculators.predict.schedules import Operation, Work, timetable

MAX_STAGES = 16
MAX_MICRO_BATCHES = 24  # more columns than a page can show


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """A forward pass in equal slots: `rows[stage][slot]` is the micro-batch at work, from 1, or None."""

    stages: int
    micro_batches: int
    rows: tuple[tuple[int | None, ...], ...]

    @property
    def slots(self) -> int:
        return self.stages + self.micro_batches - 1

    @property
    def idle_slots(self) -> int:
        """Idle slots of one stage; every stage has the same number, at different times."""
        return self.stages - 1


def forward_schedule(stages: int, micro_batches: int) -> Schedule:
    """Micro-batch k reaches stage i in slot i + k, when every stage takes one slot.

    Raises ValueError for sizes that no table can show.

    >>> forward_schedule(2, 3).rows
    ((1, 2, 3, None), (None, 1, 2, 3))
    """
    for name, value, most in (
        ("stages", stages, MAX_STAGES),
        ("micro-batches", micro_batches, MAX_MICRO_BATCHES),
    ):
        if not 1 <= value <= most:
            raise ValueError(f"{name} is {value}, but the picture shows 1 to {most}.")
    played = timetable("gpipe", stages=stages, micro_batches=micro_batches, **_FORWARD_ONLY)
    slots = round(played.makespan)
    rows = tuple(tuple(_in_slots(row, slots)) for row in played.rows)
    return Schedule(stages=stages, micro_batches=micro_batches, rows=rows)


_FORWARD_ONLY = {"forward": 1.0, "backward_input": 0.0, "backward_weight": 0.0}


def _in_slots(row: Sequence[Operation], slots: int) -> Iterator[int | None]:
    """What one stage does in each slot."""
    at = {round(done.start): done.micro_batch + 1 for done in row if done.work is Work.FORWARD}
    return (at.get(slot) for slot in range(slots))
