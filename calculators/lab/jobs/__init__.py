"""The jobs that ranks run, one module each."""

from typing import Any

import torch

from calculators.lab.choices import Job
from calculators.lab.jobs.base import RankJob as RankJob
from calculators.lab.jobs.calibration import CalibrationJob
from calculators.lab.jobs.context import ContextJob
from calculators.lab.jobs.data import DataJob
from calculators.lab.jobs.exchange import ExchangeJob
from calculators.lab.jobs.expert import ExpertJob
from calculators.lab.jobs.mesh import MeshJob
from calculators.lab.jobs.pipeline import PipelineJob
from calculators.lab.jobs.replicated_experts import ReplicatedExpertsJob
from calculators.lab.jobs.sharded import ShardedJob
from calculators.lab.jobs.tensor import TensorJob
from calculators.lab.spec import Spec

KINDS: dict[Job, type[RankJob]] = {
    Job.DATA: DataJob,
    Job.SHARDED: ShardedJob,
    Job.TENSOR: TensorJob,
    Job.PIPELINE: PipelineJob,
    Job.CONTEXT: ContextJob,
    Job.EXPERT: ExpertJob,
    Job.MESH: MeshJob,
    Job.EXCHANGE: ExchangeJob,
    Job.CALIBRATION: CalibrationJob,
}


def build(spec: Spec, *, rank: int, group: Any, device: torch.device) -> RankJob:
    """This rank's part of the job that `spec` names, talking over `group`."""
    kind = ReplicatedExpertsJob if spec.job is Job.MESH and spec.ep > 1 else KINDS[spec.job]
    return kind(spec, rank=rank, group=group, device=device)
