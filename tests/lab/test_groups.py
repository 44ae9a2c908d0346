"""A group that counts changes nothing; one that stages brings every result back to where it came from."""

import multiprocessing
import socket
from typing import Any

import pytest

pytestmark = pytest.mark.distributed


def talk(rank: int, port: int, staged: bool, answers: Any) -> None:
    """Every kind of call that jobs make, on two ranks; what came out, and what was counted."""
    import torch
    import torch.distributed as dist

    from calculators.lab import groups

    store = dist.TCPStore("127.0.0.1", port, 2, rank == 0)
    group = groups.join(store, rank=rank, size=2, backend="gloo", staged=staged, timeout_seconds=30)
    summed = torch.full((4,), float(rank + 1))
    dist.all_reduce(summed)
    shared = torch.full((2,), float(rank))
    dist.broadcast(shared, src=1)
    passed = torch.tensor([7 + rank])
    if rank == 0:
        dist.send(passed, dst=1)
    else:
        dist.recv(passed, src=0)
    # Receives posted before sends, as pipelines do: a staged receive must not block the send behind it.
    incoming, outgoing = torch.zeros(3), torch.full((3,), float(rank))
    operations = [
        dist.P2POp(dist.irecv, incoming, 1 - rank),
        dist.P2POp(dist.isend, outgoing, 1 - rank),
    ]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    gathered, halves = torch.zeros(4), torch.arange(4.0) + 10 * rank
    dist.all_gather_single(gathered, torch.full((2,), float(rank)))
    half = torch.zeros(2)
    dist.reduce_scatter_single(half, halves)
    # Rank 0 keeps 1 of its 4 numbers, rank 1 gives 2 of its own away.
    sent, taken = ([1, 3], [1, 2]) if rank == 0 else ([2, 2], [3, 2])
    routed = torch.zeros(sum(taken))
    dist.all_to_all_single(routed, halves, taken, sent)
    answers.put(
        {
            "rank": rank,
            "summed": summed.tolist(),
            "shared": shared.tolist(),
            "passed": passed.item(),
            "swapped": incoming.tolist(),
            "gathered": gathered.tolist(),
            "half": half.tolist(),
            "routed": routed.tolist(),
            "calls": group.calls,
            "handed": group.handed_bytes,
            "staging": group.staging_seconds,
        }
    )
    dist.barrier()
    dist.destroy_process_group()


def both(staged: bool) -> list[dict[str, Any]]:
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ranks = [context.Process(target=talk, args=(rank, port, staged, answers)) for rank in (0, 1)]
    for process in ranks:
        process.start()
    said = sorted((answers.get(timeout=60) for _ in ranks), key=lambda answer: answer["rank"])
    for process in ranks:
        process.join(timeout=30)
        assert process.exitcode == 0
    return said


@pytest.mark.parametrize("staged", [False, True], ids=["as it is", "staged through host memory"])
def test_results_are_right_and_calls_and_bytes_counted_at_their_sender(staged: bool) -> None:
    first, second = both(staged)

    for answer in (first, second):
        assert answer["summed"] == [3.0] * 4
        assert answer["shared"] == [1.0] * 2
        assert answer["passed"] == 7
        assert answer["gathered"] == [0.0, 0.0, 1.0, 1.0]
    assert (first["swapped"], second["swapped"]) == ([1.0] * 3, [0.0] * 3)
    assert (first["half"], second["half"]) == ([10.0, 12.0], [14.0, 16.0])
    assert (first["routed"], second["routed"]) == ([0.0, 10.0, 11.0], [1.0, 2.0, 3.0, 12.0, 13.0])
    # all-reduce 16 B, broadcast 8 B, swap 12 B, all-gather 8 B, reduce-scatter and all-to-all 16 B each;
    # rank 0's send 8 B more
    assert (first["calls"], first["handed"]) == (7, 84)
    assert (second["calls"], second["handed"]) == (6, 76)
    assert (first["staging"] > 0) is staged
