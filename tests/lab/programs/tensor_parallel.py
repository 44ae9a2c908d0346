"""Train blocks whose matrices are split over the ranks with DTensor; data-parallel beyond four ranks' worth.

With an argument, a mesh of that many replicas is laid around the tensor-parallel groups.
"""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.relu(self.up(x)))


def main(replicas: int, steps: int = 3) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    split = dist.get_world_size() // replicas
    mesh = init_device_mesh("cpu", (replicas, split), mesh_dim_names=("dp", "tp"))
    model = nn.Sequential(nn.Linear(32, 32), Block(32), Block(32))
    for name in ("1", "2"):
        parallelize_module(
            model, mesh["tp"], {f"{name}.up": ColwiseParallel(), f"{name}.down": RowwiseParallel()}
        )
    for _ in range(steps):
        model(torch.randn(16, 32)).square().mean().backward()
        for parameter in model.parameters():
            if replicas > 1 and parameter.grad is not None:
                gradient = parameter.grad
                local = gradient.to_local() if hasattr(gradient, "to_local") else gradient
                dist.all_reduce(local, group=mesh.get_group("dp"))
            parameter.grad = None
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
