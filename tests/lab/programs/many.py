"""Run programs one after another, each on as many ranks as it is given, from one process that has torch imported.

Importing torch, and what several programs need of it, is most of what they take.

Usage: many.py FOLDER RANKS:PROGRAM[:ARGUMENT…] …
Output of program number i goes to FOLDER/i.out, and where the meter's variable is set, records to FOLDER/i.
"""

import faulthandler
import os
import runpy
import socket
import sys
import traceback
from pathlib import Path

import torch

if len(sys.argv) > 3:
    import torch._dynamo
    import torch.distributed.fsdp
    import torch.distributed.pipelining
    import torch.distributed.tensor.parallel

HERE = Path(__file__).parent
HANGS_AFTER_SECONDS = 45


def run(folder: Path, index: int, ranks: int, program: str, arguments: list[str]) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    (folder / str(index)).mkdir()
    children = []
    for rank in range(ranks):
        child = os.fork()
        if child == 0:
            become_rank(folder, index, rank, ranks, port, program, arguments)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)


def become_rank(
    folder: Path, index: int, rank: int, ranks: int, port: int, program: str, arguments: list[str]
) -> None:
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    if "SIXFOLD_METER_RECORDS" in os.environ:
        os.environ["SIXFOLD_METER_RECORDS"] = str(folder / str(index))
    out = os.open(folder / f"{index}.out", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(out, 1)
    os.dup2(out, 2)
    faulthandler.dump_traceback_later(HANGS_AFTER_SECONDS, exit=True)  # a rank that hangs says where
    sys.argv = [program, *arguments]
    torch.set_num_threads(1)
    status = 0
    try:
        runpy.run_path(str(HERE / program), run_name="__main__")
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    for index, what in enumerate(sys.argv[2:]):
        ranks, program, *arguments = what.split(":")
        run(Path(sys.argv[1]), index, int(ranks), program, arguments)
