"""Route tokens to experts on other ranks and back, as a mixture-of-experts layer does; no two ranks get the same."""

import torch
import torch.distributed as dist
from torch.distributed.nn.functional import all_to_all_single


def main(steps: int = 3, tokens: int = 64, width: int = 16) -> None:
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    expert = torch.nn.Linear(width, width)
    for _ in range(steps):
        rows = torch.randn(tokens, width, requires_grad=True)
        wanted = torch.randint(0, size, (tokens,)).mul(torch.rand(tokens) < 0.7).bincount(minlength=size)
        come = torch.empty_like(wanted)
        dist.all_to_all_single(come, wanted)
        there = all_to_all_single(
            rows.new_empty(int(come.sum()), width), rows, come.tolist(), wanted.tolist()
        )
        back = all_to_all_single(torch.empty_like(rows), expert(there), wanted.tolist(), come.tolist())
        back.square().mean().backward()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
