"""Start the ranks from here, twice: torch.multiprocessing, a file as the store, and no environment variables."""

import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing


def work(rank: int, size: int, folder: str) -> None:
    for attempt in (1, 2):
        dist.init_process_group(
            "gloo", init_method=f"file://{folder}/store-{attempt}", rank=rank, world_size=size
        )
        pair = dist.new_group([0, 1])
        dist.all_reduce(torch.ones(100 * attempt))
        dist.all_reduce(torch.ones(7), group=pair)
        dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.spawn(work, args=(2, folder), nprocs=2)
