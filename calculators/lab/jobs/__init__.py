"""The jobs that ranks run, one module each."""

from typing import Any, Protocol

import torch

from calculators.lab.jobs.exchange import ExchangeJob
from calculators.lab.jobs.pipeline import PipelineJob
from calculators.lab.jobs.tensor import TensorJob
from calculators.lab.measurements import Verified
from calculators.lab.spec import Job, Spec


class RankJob(Protocol):
    """What a rank does: prove that its results are right, then step."""

    def verify(self) -> Verified | None:
        """How far its result is from what it must be (None: this rank has none to compare).

        Leaves the job ready to step.
        """

    def step(self) -> None:
        """One token, or one training step; returns when this rank is through with it."""


def build(spec: Spec, *, rank: int, group: Any, device: torch.device) -> RankJob:
    """This rank's part of the job that `spec` names, talking over `group`."""
    kinds: dict[Job, type[TensorJob] | type[PipelineJob] | type[ExchangeJob]] = {
        Job.TENSOR: TensorJob,
        Job.PIPELINE: PipelineJob,
        Job.EXCHANGE: ExchangeJob,
    }
    return kinds[spec.job](spec, rank=rank, group=group, device=device)
