"""Expert and data parallelism together: the experts are dealt to the ranks of a group, and every group has all of them.

Tokens travel within their group only. An expert's gradients come from the tokens of its own group, so they are summed
over the replicas of that expert; the other weights' over all ranks. The groups are those of a PyTorch device mesh.
"""

from typing import Any

import torch
from torch.distributed.device_mesh import init_device_mesh

from calculators.lab.jobs import mixture, transformer
from calculators.lab.jobs.expert import ExpertJob
from calculators.lab.jobs.shared_weights import sum_gradients
from calculators.lab.spec import Spec
from calculators.lab.splits.routing import routing_of


class ReplicatedExpertsJob(ExpertJob):
    """One rank's experts and share of the batch, in one of several groups that each hold the model."""

    def __init__(self, spec: Spec, *, rank: int, group: Any, device: torch.device) -> None:
        self._mesh = init_device_mesh(device.type, (spec.dp, spec.ep), mesh_dim_names=("dp", "ep"))
        for axis in ("dp", "ep"):
            self._mesh[axis].get_group().axis = axis  # by which calls are counted
        super().__init__(spec, rank=rank, group=self._mesh["ep"].get_group(), device=device)

    def _part(self, whole: transformer.Stack) -> transformer.Stack:
        """The experts of its place in the group, and the routing of the group's own tokens."""
        dp, ep = self._mesh.get_coordinate() or (0, 0)
        routing = routing_of(self.spec).among(dp, self.spec.dp)
        return mixture.copy_of(whole, self.spec, routing, rank=ep, group=self.group)

    def _sum_gradients(self) -> None:
        """Over all ranks where all hold the weight, and over the replicas of each expert."""
        super()._sum_gradients()
        sum_gradients(mixture.expert_weights(self.model), self._mesh["dp"].get_group())
