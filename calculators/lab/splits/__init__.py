"""What each job asks of its sizes, calls and holds, a module a job: the torch-free side of `jobs`.

A plan is made from these alone, so a site without torch can predict every run.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol, cast

from calculators.lab.calls import Call
from calculators.lab.choices import Job
from calculators.lab.measurements import Prediction
from calculators.lab.problems import Problem
from calculators.lab.spec import Spec
from calculators.lab.splits import (
    calibration,
    context,
    data,
    exchange,
    expert,
    mesh,
    pipeline,
    sharded,
    tensor,
)


class Split(Protocol):
    """What a module of this package offers."""

    def contradictions(self, spec: Spec) -> Iterator[Problem]:
        """What cannot be run although each field is fine alone."""

    def calls(self, spec: Spec) -> Iterator[Call]:
        """The calls of one step, textbook ones first (`docs/lab.md` derives each)."""

    def layers_by_rank(self, spec: Spec) -> tuple[Sequence[int], ...]:
        """The layers that each rank holds something of; empty where no model computes."""

    def memory(self, spec: Spec) -> Iterable[Prediction]:
        """What each rank should hold, by part; empty where nothing is predicted."""


_SPLITS: dict[Job, object] = {
    Job.DATA: data,
    Job.SHARDED: sharded,
    Job.TENSOR: tensor,
    Job.PIPELINE: pipeline,
    Job.CONTEXT: context,
    Job.EXPERT: expert,
    Job.MESH: mesh,
    Job.EXCHANGE: exchange,
    Job.CALIBRATION: calibration,
}


def split_of(spec: Spec) -> Split:
    """The module for the job of `spec`."""
    return cast(Split, _SPLITS[spec.job])


def calls_of(spec: Spec) -> tuple[Call, ...]:
    """The calls of one step of `spec`."""
    return tuple(split_of(spec).calls(spec))
