"""Train a stack that is cut into stages, one a rank, with torch.distributed.pipelining."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B


def main(steps: int = 2, microbatches: int = 4) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    stage = PipelineStage(nn.Linear(32, 32), rank, size, torch.device("cpu"))
    schedule = Schedule1F1B(stage, microbatches, loss_fn=lambda out, want: (out - want).square().mean())
    whole = torch.randn(4 * microbatches, 32)
    for _ in range(steps):
        if rank == 0:
            schedule.step(whole)
        elif rank == size - 1:
            schedule.step(target=whole)
        else:
            schedule.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
