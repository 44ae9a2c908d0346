"""Pass blocks of keys and values around all ranks, as ring attention does."""

import torch
import torch.distributed as dist


def main(layers: int = 2) -> None:
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    block = torch.full((256,), float(rank))
    for _ in range(layers):
        for _ in range(size - 1):
            taken = torch.empty_like(block)
            calls = [
                dist.P2POp(dist.isend, block, (rank + 1) % size),
                dist.P2POp(dist.irecv, taken, (rank - 1) % size),
            ]
            for work in dist.batch_isend_irecv(calls):
                work.wait()
            block = taken
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
