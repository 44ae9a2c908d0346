"""One pipeline to look at: what fixes its order of work, what is known of it, and how much of it is drawn."""

from dataclasses import dataclass
from typing import Any

from calculators.predict import schedules
from calculators.predict.schedules import SCHEDULES, Schedule, Timetable, timetable

MOST_OPERATIONS = 1_600
"""Played and drawn: 16 stages of 50 micro-batches, forward and backward. More takes longer than a slider may."""
SHORTEST_SECONDS = 1e-9  # below, the work of a stage vanishes beside the longest message in a sum of floats
MOST_STAGES_DRAWN = 16


@dataclass(frozen=True, kw_only=True)
class PipelineCase:
    """One pipeline to look at; times in seconds."""

    schedule: Schedule
    stages: int
    micro_batches: int
    chunks: int | None
    times: dict[str, float]
    send: float
    last_stage: float

    def __post_init__(self) -> None:
        schedules.check(self.schedule, **self.sizes)
        if not sum(self.times.values()):
            raise ValueError(
                "Forward, input gradient and weight gradient are all 0, so there is no work to plan."
            )
        if sum(self.times.values()) < SHORTEST_SECONDS:
            raise ValueError(
                "Forward, input gradient and weight gradient take less than a nanosecond together, but no stage works "
                "so fast. Give one of them 1e-6 ms or more."
            )

    @property
    def sizes(self) -> dict[str, Any]:
        """What fixes the order of work."""
        return {"stages": self.stages, "micro_batches": self.micro_batches, "chunks": self.chunks}

    @property
    def is_even(self) -> bool:
        """Whether all stages take equal times, as the formulas say."""
        return self.last_stage == 1 or self.stages == 1

    @property
    def has_formula(self) -> bool:
        """Whether a formula is known: not for messages that take time in the newer schedules."""
        known = (Schedule.NAIVE, Schedule.GPIPE, Schedule.ONE_F_ONE_B)
        return not self.send or self.schedule in known

    @property
    def played_times(self) -> dict[str, Any]:
        """The times of every stage, one number where they are equal."""
        if self.is_even:
            return dict(self.times)
        others = self.stages - 1
        return {name: [time] * others + [time * self.last_stage] for name, time in self.times.items()}

    @property
    def bubble_seconds(self) -> float:
        """How long each stage waits in a step, by the formula."""
        return float(schedules.bubble_seconds(self.schedule, **self.sizes, **self.times, send=self.send))

    @property
    def work_seconds(self) -> float:
        """How long each stage works in a step, where all are equal."""
        return float(schedules.ideal_seconds(micro_batches=self.micro_batches, **self.times))

    def play(self, micro_batches: int) -> Timetable:
        """The step operation by operation."""
        return timetable(
            self.schedule,
            **self.sizes | {"micro_batches": micro_batches},
            **self.played_times,
            send=self.send,
        )

    def drawable_micro_batches(self) -> int:
        """As many micro-batches as the page plays: all, or fewer that fill the pipeline too; 0 where none do."""
        kind = SCHEDULES[self.schedule]
        chunks = (self.chunks or kind.chunks or 1) if self.schedule is not Schedule.DUALPIPE else 1
        each = self.stages * chunks * (3 if kind.splits else 2)
        if self.schedule is Schedule.NAIVE:
            each *= (
                4  # nothing happens at the same time, so the picture is as long as all operations in a row
            )
        most = MOST_OPERATIONS // each
        if self.stages > MOST_STAGES_DRAWN:
            return 0
        if self.micro_batches <= most:
            return self.micro_batches
        step = self.stages if self.schedule is Schedule.INTERLEAVED else 2
        fewer = most // step * step
        return (
            fewer
            if fewer >= 1 and not schedules.problems(self.schedule, **self.sizes | {"micro_batches": fewer})
            else 0
        )
