"""Sharded data parallelism: replicas that each keep a slice of the optimizer's state, the gradients and the weights.

Stage 1 is PyTorch's ZeroRedundancyOptimizer beside DistributedDataParallel. Stages 2 and 3 are FSDP2's `fully_shard`:
a unit for every layer, and one for both ends of the model. Stage 3 frees a unit's weights after its forward pass
and gathers them again for the backward pass; stage 2 keeps them from one to the other.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor

from calculators.lab.jobs import transformer
from calculators.lab.jobs.data import LEARNING_RATE, DataJob
from calculators.lab.spec import Spec


class ShardedJob(DataJob):
    """One rank's slices of the model, and its token, prompt or training step on its share of the batch."""

    def __init__(self, spec: Spec, *, rank: int, group: Any, device: torch.device) -> None:
        super().__init__(spec, rank=rank, group=group, device=device)
        if isinstance(self.optimizer, ZeroRedundancyOptimizer):
            self.optimizer = (
                self.optimizer.optim
            )  # it is in there that this rank's share of the state is kept

    @property
    def should_stay_alike(self) -> bool:
        return self.spec.zero == 1  # beyond, a rank has slices that no other has

    def _spread(self, model: transformer.Stack) -> nn.Module:
        if self.spec.zero == 1:
            return super()._spread(model)
        mesh = DeviceMesh.from_group(self.group, self.device.type)
        for unit in (*model.layers.values(), model):
            fully_shard(unit, mesh=mesh, reshard_after_forward=self.spec.zero == 3)
        for unit in model.modules():
            if isinstance(unit, FSDPModule):
                # gloo cannot average; a sum and a division give the same.
                unit.set_force_sum_reduction_for_comms(True)
        return model

    def _updates(self) -> Any:
        if self.spec.zero > 1:
            return super()._updates()
        return ZeroRedundancyOptimizer(
            self.model.parameters(),
            optimizer_class=torch.optim.AdamW,
            process_group=self.group,
            parameters_as_bucket_view=True,  # one broadcast for each rank, not one for each weight
            lr=LEARNING_RATE,
            foreach=False,
        )

    def _gradient_beside(self, weight: nn.Parameter, expected: Tensor) -> Tensor:
        """Of a slice, `expected` with this rank's rows put in: together the ranks compare all of it, without a call."""
        gradient = super()._gradient_beside(weight, expected)
        if not isinstance(gradient, DTensor):
            return gradient
        whole, mine = expected.clone(), gradient.to_local()
        if mine.numel():
            whole.chunk(self.spec.ranks)[self.rank].copy_(mine)
        return whole

    def _remember(self) -> None:
        """Nothing: a slice has no replica to be compared with."""
