"""Pipeline parallelism: every rank holds stages of consecutive layers; hidden states are sent at each boundary.

Decoding is autoregressive: the last stage samples, and the token ids go back to stage 0 before a request's next token
can start; several requests fill the pipeline (`decoding.py`). Prefill and training cut the batch into micro-batches
and run one of PyTorch's own schedules (`scheduled.py`).
"""

from typing import Any

import torch

from calculators.lab.jobs import transformer
from calculators.lab.jobs.staged import StagedJob
from calculators.lab.spec import Spec
from calculators.lab.splits.stages import stages_of


class PipelineJob(StagedJob):
    """The stages of one rank among all of them."""

    def __init__(self, spec: Spec, *, rank: int, group: Any, device: torch.device) -> None:
        self.rank = rank
        stages = stages_of(spec)
        whole = transformer.whole_model(spec, device=device)
        modules = [transformer.copy_of(whole, spec, stages.layers_of(stage)) for stage in stages.on(rank)]
        self._hold(
            spec,
            whole,
            modules,
            stages=stages,
            place=rank,
            rows=slice(spec.batch),
            group=group,
            device=device,
        )
