"""Pipeline schedules: who works when, and who waits. Two ways to the same figures.

`closed` has the published formulas for the bubble, the activations in flight and the sends, as arrays.
`timetable` plays a schedule operation by operation from each stage's order of work. Where stages take equal
times the two agree, and where they do not the timetable is the truth.
"""

from calculators.predict.schedules.closed import (
    bubble_over_ideal,
    bubble_seconds,
    ideal_seconds,
    idle_share,
    in_flight,
    parameter_copies,
    peak_in_flight,
    sends_per_micro_batch,
    sends_per_pass,
)
from calculators.predict.schedules.kinds import SCHEDULES, Kind, Schedule, check, kind_of, problems
from calculators.predict.schedules.timetable import Operation, Timetable, Work, timetable

__all__ = [
    "SCHEDULES",
    "Kind",
    "Operation",
    "Schedule",
    "Timetable",
    "Work",
    "bubble_over_ideal",
    "bubble_seconds",
    "check",
    "ideal_seconds",
    "idle_share",
    "in_flight",
    "kind_of",
    "parameter_copies",
    "peak_in_flight",
    "problems",
    "sends_per_micro_batch",
    "sends_per_pass",
    "timetable",
]
