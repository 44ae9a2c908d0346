"""Several families at once: each rank has a place on a PyTorch device mesh, and one group along each of its axes.

Tensor parallelism cuts the layers of a stage (DTensor), the stages make a pipeline (`torch.distributed.pipelining`, or
a ring of requests in decode), and replicas of that pipeline share out the batch. Their gradients are summed here, all
of a rank's end to end in one all-reduce: PyTorch's DistributedDataParallel takes no DTensors.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from calculators.lab.jobs import transformer
from calculators.lab.jobs.staged import StagedJob
from calculators.lab.spec import Spec
from calculators.lab.splits.mesh import mesh_of, stages_of

_CUTS = {
    "layers.*.attention.qkv": ColwiseParallel,
    "layers.*.attention.out": RowwiseParallel,
    "layers.*.feed_forward.up": ColwiseParallel,
    "layers.*.feed_forward.down": RowwiseParallel,
}


class MeshJob(StagedJob):
    """One slice of one stage of one replica."""

    def __init__(self, spec: Spec, *, rank: int, group: Any, device: torch.device) -> None:
        self.rank = rank
        plan, stages = mesh_of(spec), stages_of(spec)
        mesh = init_device_mesh(device.type, plan.sizes, mesh_dim_names=plan.axes)
        for axis in plan.axes:
            mesh[axis].get_group().axis = axis  # by which calls are counted
        place = mesh["pp"].get_local_rank()
        whole = transformer.whole_model(spec, device=device)
        stage = transformer.copy_of(whole, spec, stages.layers_of(place))
        if spec.tp > 1:
            cuts = {name: cut() for name, cut in _CUTS.items()}
            parallelize_module(stage, mesh["tp"], cuts, src_data_rank=None)
        share = spec.batch // spec.dp
        replica = mesh["dp"].get_local_rank()
        self._replicas = mesh["dp"].get_group()
        self._hold(
            spec,
            whole,
            [stage],
            stages=stages,
            place=place,
            rows=slice(replica * share, (replica + 1) * share),
            group=mesh["pp"].get_group(),
            device=device,
        )

    def _combine_gradients(self) -> None:
        """The mean over all replicas."""
        if self.spec.dp == 1:
            return
        gradients = [_local(weight.grad) for module in self.modules for weight in module.parameters()]
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        dist.all_reduce(flat, group=self._replicas)
        flat /= self.spec.dp
        for gradient, mean in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
            gradient.copy_(mean.view_as(gradient))

    def _difference(self, mine: Tensor, wanted: Tensor) -> float:
        """A slice is compared with its part of the whole gradient."""
        if isinstance(mine, DTensor):
            (placement,), slices = mine.placements, mine.device_mesh
            if placement.is_shard():
                wanted = wanted.chunk(slices.size(), dim=placement.dim)[slices.get_local_rank()]
        return transformer.relative_difference(_local(mine), wanted)


def _local(tensor: Any) -> Tensor:
    """What this rank holds of it."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor
