"""What is guessed from calls alone, with every sentence that says why; and how sockets are joined."""

import pytest

from calculators.lab.foreign.expected import GroupCalls, expect
from calculators.lab.foreign.families import guess
from calculators.lab.foreign.records import RECEIVE, Called, Group, Record, Socket
from calculators.lab.foreign.wires import join


def call(kind: str, size: int = 1_024, times: int = 4, **more: object) -> Called:
    given: dict[str, object] = {
        "world": 1,
        "group": "0",
        "kind": kind,
        "function": kind,
        "device": "cpu",
        "in_backward": False,
        "sizes": (size,),
        "element_bytes": 4,
        "peer": None,
        "times": times,
        "handed_bytes": size * times,
    }
    return Called(**{**given, **more})  # type: ignore[arg-type]


def group(*of_each: tuple[Called, ...], backend: str = "gloo") -> GroupCalls:
    ranks = tuple(range(len(of_each)))
    one = Group(world=1, name="0", description="", ranks=ranks, backends={"cpu": backend})
    return GroupCalls(group=one, calls=of_each)


def everywhere(*calls: Called, ranks: int = 2) -> GroupCalls:
    return group(*[calls] * ranks)


def sends(ranks: int, *edges: tuple[int, int]) -> GroupCalls:
    return group(
        *(
            tuple(call("send", peer=receiver) for sender, receiver in edges if sender == rank)
            for rank in range(ranks)
        )
    )


BACKWARD = {"in_backward": True}
ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL = (
    "all-reduce",
    "all-gather",
    "reduce-scatter",
    "all-to-all",
)


@pytest.mark.parametrize(
    ("seen", "family", "reason"),
    [
        (everywhere(call(ALL_REDUCE), ranks=1), "none", "has one rank"),
        (everywhere(), "I cannot tell", "nothing was called on it."),
        (everywhere(call("broadcast")), "I cannot tell", "nothing but what any program may do at its start"),
        (everywhere(call(ALL_REDUCE, times=1)), "I cannot tell", "one call is no pattern."),
        (everywhere(call(ALL_REDUCE, **BACKWARD)), "data parallelism", "all in the backward pass and none"),
        (
            everywhere(call(ALL_REDUCE), call(ALL_REDUCE, 4_096)),
            "data parallelism",
            "8 all-reduces of 2 sizes, none within a backward pass",
        ),
        (everywhere(call(ALL_REDUCE)), "tensor parallelism", "a model that only runs forward."),
        (
            everywhere(call(ALL_REDUCE), call(ALL_REDUCE, **BACKWARD), call(ALL_REDUCE, 900, times=1)),
            "tensor parallelism",
            "8 of 9 all-reduces have one size (1,024 B), forward (5 in all) and backward (4)",
        ),
        (
            everywhere(call(ALL_REDUCE, times=3)),
            "I cannot tell",
            "3 all-reduces of 1 sizes, 3 outside and 0 within a backward pass, fit neither",
        ),
        (
            everywhere(call(ALL_GATHER), call(REDUCE_SCATTER), call(REDUCE_SCATTER, **BACKWARD)),
            "tensor parallelism with sequence",
            "in the forward pass as well as in the backward one",
        ),
        (everywhere(call(ALL_GATHER), call(REDUCE_SCATTER)), "I cannot tell", "none within a backward pass"),
        (
            everywhere(call(ALL_GATHER), call(REDUCE_SCATTER, **BACKWARD)),
            "sharded data parallelism, or context parallelism by all-gather",
            "I cannot tell which.",
        ),
        (everywhere(call(ALL_GATHER)), "context parallelism", "all-gathers of one size (1,024 B a rank)"),
        (everywhere(call(ALL_GATHER), call(ALL_GATHER, 8)), "context parallelism", "of one size"),
        (everywhere(call(ALL_GATHER), call(ALL_GATHER, 800)), "I cannot tell", "all-gathers of 2 sizes"),
        (
            everywhere(call(ALL_TO_ALL)),
            "Ulysses context parallelism, or experts of fixed capacity",
            "equal parts",
        ),
        (
            everywhere(call(ALL_TO_ALL, sizes=(), parts=(1_000, 3_096))),
            "expert parallelism",
            "uneven parts, 4 a rank, an even number (there and back)",
        ),
        (
            everywhere(call(ALL_TO_ALL), call(ALL_REDUCE)),
            "I cannot tell",
            "it carries all-reduce and all-to-all calls, which no one family makes.",
        ),
        (sends(3, (0, 1), (1, 2)), "pipeline parallelism", "sends between neighbours only, one way only"),
        (
            sends(4, (0, 2), (2, 0), (1, 3), (3, 1)),
            "pipeline parallelism",
            "ranks 2 apart only, forward and back",
        ),
        (sends(3, (0, 1), (1, 2), (2, 0)), "context parallelism by ring", "every rank sends to the next"),
        (sends(3, (0, 2), (1, 0), (2, 1)), "context parallelism by ring", "sends to the one before"),
        (
            sends(3, (0, 1), (1, 2), (2, 0), (1, 0), (2, 1), (0, 2)),
            "pipeline parallelism with interleaved stages",
            "each rank has more than one stage.",
        ),
        (sends(5, (0, 1), (0, 2)), "I cannot tell", "neither a chain nor a ring: 0 → 1, 0 → 2."),
        (
            group((call("send", peer=1),), (call(RECEIVE, 0), call("send", peer=0))),
            "pipeline parallelism",
            "the second begins by waiting for the first",
        ),
        (
            group((call("send", peer=1),), (call("send", peer=0),)),
            "context parallelism by ring",
            "neither begins by waiting",
        ),
        (
            group((call("send", peer=1),), (call("send", peer=0, **BACKWARD),)),
            "context parallelism by ring",
            "in the backward pass too",
        ),
        (
            group((call(RECEIVE, 0), call("send", peer=1)), (call("send", peer=0),)),
            "I cannot tell",
            "two stages of a pipeline do, and a ring of two as well.",
        ),
    ],
)
def test_a_family_is_guessed_for_a_reason(seen: GroupCalls, family: str, reason: str) -> None:
    guessed = guess(seen)

    assert guessed.family == family
    assert reason in guessed.reason


def test_bytes_of_another_backend_are_not_predicted() -> None:
    said = expect([group((call(ALL_REDUCE),), (call(ALL_REDUCE),), backend="nccl")], 2)

    assert said.formula.sum() == said.framing.sum() == 0
    assert said.left_out == (
        "calls on cpu tensors: nccl moves them, and only gloo's bytes are predicted; NVLink, PCIe and InfiniBand have "
        "no TCP counters",
    )


def test_sockets_are_joined_by_their_addresses_and_the_store_is_told_apart() -> None:
    a, b, c = ("10.0.0.1", 1), ("10.0.0.2", 2), ("10.0.0.2", 29_500)
    nowhere = ("10.0.0.9", 9)

    def record(rank: int, *sockets: Socket) -> Record:
        return Record(
            rank=rank,
            world_size=2,
            pid=rank,
            host="here",
            started=0,
            written=1,
            is_final=True,
            worlds=1,
            backward_passes=0,
            left_out=0,
            store_ports=(29_500,),
            groups=(),
            calls=(),
            sockets=sockets,
        )

    def end(
        local: tuple[str, int], remote: tuple[str, int], sent: int, received: int, *, opened: bool
    ) -> Socket:
        return Socket(local=local, remote=remote, opened_here=opened, sent=sent, received=received)

    wires = join(
        [
            # Read before rank 1 had sent everything: the other end knows better.
            record(
                0,
                end(a, b, 100, 20, opened=True),
                end(a, c, 5, 6, opened=True),
                end(a, nowhere, 3, 4, opened=True),
            ),
            record(1, end(b, a, 30, 100, opened=False), end(c, a, 6, 5, opened=False)),
        ]
    )

    assert wires.between_ranks.tolist() == [[0, 100], [30, 0]]
    assert wires.opening.tolist() == [[0, 8], [0, 0]]
    assert wires.store.tolist() == [[0, 5], [6, 0]]
    assert wires.elsewhere == (7, 0)
    assert wires.connections == 1
