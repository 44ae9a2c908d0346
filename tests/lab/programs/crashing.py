"""Sum a few times; then rank 1 fails as it is told to, while the others go on waiting for it."""

import os
import signal
import sys
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
for _ in range(5):
    dist.all_reduce(torch.ones(1024))
if dist.get_rank() == 1:
    match sys.argv[1]:
        case "raise":
            raise RuntimeError("the disk is full")
        case "kill":
            time.sleep(1.5)
            os.kill(os.getpid(), signal.SIGKILL)
        case "exit":
            os._exit(5)
dist.all_reduce(torch.ones(1024))
