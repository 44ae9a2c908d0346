"""A group that counts changes nothing; one that stages brings every result back to where it came from."""

import multiprocessing
import socket
from typing import Any

import pytest

pytestmark = pytest.mark.distributed


def talk(rank: int, port: int, answers: Any) -> None:
    """Both ways one after the other, in one process: importing torch is what takes time here."""
    import torch.distributed as dist

    store = dist.TCPStore("127.0.0.1", port, 2, rank == 0)
    for staged in (False, True):
        say_everything(rank, dist.PrefixStore(str(staged), store), staged, answers)


def say_everything(rank: int, store: Any, staged: bool, answers: Any) -> None:
    """Every kind of call, on two ranks; what came out, and what was counted."""
    import torch
    import torch.distributed as dist

    from calculators.lab import groups

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
    seven, log = (group.calls, group.handed_bytes), dict(group.log)
    others = less_usual_calls(rank)
    more = {key: times - log.get(key, 0) for key, times in group.log.items() if times > log.get(key, 0)}
    answers.put(
        {
            "rank": rank,
            "staged": staged,
            "summed": summed.tolist(),
            "shared": shared.tolist(),
            "passed": passed.item(),
            "swapped": incoming.tolist(),
            "gathered": gathered.tolist(),
            "half": half.tolist(),
            "routed": routed.tolist(),
            "calls": seven[0],
            "handed": seven[1],
            "log": log,
            "others": others,
            "their log": more,
            "sums": (sum(group.log.values()), sum(size * times for (_, size), times in group.log.items())),
            "totals": (group.calls, group.handed_bytes),
            "staging": group.staging_seconds,
        }
    )
    dist.barrier()
    dist.destroy_process_group()


def less_usual_calls(rank: int) -> dict[str, Any]:
    """The calls that DTensor, fully_shard, object collectives and older programs make."""
    import torch
    import torch.distributed as dist
    from torch.distributed import _functional_collectives as functional
    from torch.distributed.distributed_c10d import _coalescing_manager

    mine, world = torch.full((2,), float(rank)), dist.group.WORLD
    parts = [torch.zeros(2), torch.zeros(2)]
    dist.all_gather(parts, mine)
    total = torch.full((3,), float(rank + 1))
    dist.reduce(total, dst=1)
    collected = [torch.zeros(2), torch.zeros(2)] if rank == 0 else None
    dist.gather(mine, collected, dst=0)
    dealt = torch.zeros(1)
    dist.scatter(dealt, [torch.tensor([5.0]), torch.tensor([6.0])] if rank == 0 else None, src=0)
    one, two = torch.ones(1), torch.full((5,), 2.0)
    with _coalescing_manager():
        dist.all_reduce(one)
        dist.all_reduce(two)
    wide, wider = torch.zeros(4), torch.zeros(2)
    with _coalescing_manager():
        dist.all_gather_single(wide, mine)
        dist.all_gather_single(wider, torch.tensor([10.0 + rank]))
    thin, thinner = torch.zeros(2), torch.zeros(1)
    with _coalescing_manager():
        dist.reduce_scatter_single(thin, torch.arange(4.0))
        dist.reduce_scatter_single(thinner, torch.arange(2.0))
    gathered = functional.all_gather_tensor(mine, 0, world)
    scattered = functional.reduce_scatter_tensor(torch.arange(4.0), "sum", 0, world)
    pair = functional.all_gather_into_tensor_coalesced([mine, mine + 1], world)
    said: list[Any] = [None, None]
    dist.all_gather_object(said, f"I am {rank}")
    if rank == 0:
        dist.send(torch.tensor([9]), dst=1)
        caught = torch.tensor([9])
    else:
        caught = torch.zeros(1, dtype=torch.int64)
        dist.recv(caught)  # from anybody
    world.monitored_barrier()
    return {
        "parts": [part.tolist() for part in parts],
        "total": total.tolist() if rank == 1 else None,
        "collected": [part.tolist() for part in collected] if collected else None,
        "dealt": dealt.item(),
        "coalesced": [tensor.tolist() for tensor in (one, two, wide, wider, thin, thinner)],
        "functional": [gathered.tolist(), scattered.tolist(), *(tensor.tolist() for tensor in pair)],
        "said": said,
        "caught": caught.item(),
    }


@pytest.fixture(scope="module")
def answers() -> list[dict[str, Any]]:
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ranks = [context.Process(target=talk, args=(rank, port, answers)) for rank in (0, 1)]
    for process in ranks:
        process.start()
    said = sorted((answers.get(timeout=60) for _ in range(4)), key=lambda answer: answer["rank"])
    for process in ranks:
        process.join(timeout=30)
        assert process.exitcode == 0
    return said


BOTH_WAYS = pytest.mark.parametrize("staged", [False, True], ids=["as it is", "staged through host memory"])


@BOTH_WAYS
def test_results_are_right_and_calls_and_bytes_counted_at_their_sender(
    answers: list[dict[str, Any]], staged: bool
) -> None:
    first, second = (answer for answer in answers if answer["staged"] is staged)

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
    assert first["log"] == {
        ("all-reduce", 16): 1,
        ("broadcast", 8): 1,
        ("send", 8): 1,
        ("send", 12): 1,
        ("all-gather", 8): 1,
        ("reduce-scatter", 16): 1,
        ("all-to-all", 16): 1,
    }
    assert (first["staging"] > 0) is staged


@BOTH_WAYS
def test_lists_roots_coalesced_functional_and_object_calls_are_right_and_counted_too(
    answers: list[dict[str, Any]], staged: bool
) -> None:
    first, second = (answer for answer in answers if answer["staged"] is staged)

    for rank, answer in enumerate((first, second)):
        assert answer["sums"] == answer["totals"]
        others = answer["others"]
        assert others["parts"] == [[0.0, 0.0], [1.0, 1.0]]
        assert others["dealt"] == 5.0 + rank
        assert others["said"] == ["I am 0", "I am 1"]
        assert others["caught"] == 9
        thin, thinner = [[0.0, 2.0], [4.0, 6.0]][rank], [[0.0], [2.0]][rank]
        assert others["coalesced"] == [[2.0], [4.0] * 5, [0.0, 0.0, 1.0, 1.0], [10.0, 11.0], thin, thinner]
        assert others["functional"] == [
            [0.0, 0.0, 1.0, 1.0],
            thin,
            [0.0, 0.0, 1.0, 1.0],
            [1.0, 1.0, 2.0, 2.0],
        ]
    assert first["others"]["collected"] == [[0.0, 0.0], [1.0, 1.0]]
    assert second["others"]["total"] == [3.0] * 3
    expected = {
        ("all-gather", 8): 3,  # a list, a functional one, and the sizes of the two objects
        ("reduce", 12): 1,
        ("gather", 8): 1,
        ("scatter", 8): 1,
        ("all-reduce", 24): 1,  # two tensors in one call
        ("all-gather", 12): 1,
        ("reduce-scatter", 24): 1,
        ("reduce-scatter", 16): 1,
        ("all-gather", 16): 1,
        ("send", 8): 1,
        ("barrier", 0): 1,
    }
    said = {key: times for key, times in first["their log"].items() if key[0] != "all-gather" or key[1] < 17}
    assert said == expected
    assert second["their log"].get(("scatter", 0)) == 1  # only the one who deals hands something over
    assert ("send", 8) not in second["their log"]
