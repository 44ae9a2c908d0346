"""Each algorithm carried out on real arrays: the result is right, and what was sent is what the formulas say."""

import numpy as np
import pytest

from calculators.predict import collectives, gloo
from calculators.predict.collectives import BACKENDS, GLOO, Backend, Kind
from calculators.predict.routes import routes
from tests.predict.sentences import exactly

COUNTS = [1, 2, 3, 4, 5, 6, 7, 8, 12, 16]


class Wire:
    """Ranks that hand arrays to each other; every byte is counted, and so is every step."""

    def __init__(self, ranks):
        self.sent, self.steps = np.zeros((ranks, ranks)), 0

    def step(self, messages):
        """All messages (sender, receiver, array) of one step, delivered together; empty ones are not sent."""
        self.steps += 1
        for sender, receiver, array in messages:
            assert sender != receiver
            self.sent[sender, receiver] += array.nbytes
        return [(receiver, array.copy()) for _, receiver, array in messages]


def ring_reduce_scatter(wire, data):
    """Chunks travel to the next rank and are added to; rank r ends with the sum of chunk (r+1) mod n."""
    n = len(data)
    for turn in range(n - 1):
        moved = wire.step([(r, (r + 1) % n, data[r][(r - turn) % n]) for r in range(n)])
        for receiver, chunk in moved:
            data[receiver][(receiver - 1 - turn) % n] += chunk


def ring_all_gather(wire, data, *, first):
    """Every rank passes on the chunk it got last, beginning with the one of index `first(rank)`."""
    n = len(data)
    for turn in range(n - 1):
        moved = wire.step([(r, (r + 1) % n, data[r][(first(r) - turn) % n]) for r in range(n)])
        for receiver, chunk in moved:
            data[receiver][(first(receiver - 1) - turn) % n] = chunk


def all_reduce_ring(wire, data):
    ring_reduce_scatter(wire, data)
    ring_all_gather(wire, data, first=lambda rank: rank + 1)


def all_reduce_recursive_doubling(wire, data):
    n, distance = len(data), 1
    while distance < n:
        moved = wire.step([(r, r ^ distance, data[r]) for r in range(n)])
        for receiver, array in moved:
            data[receiver] += array
        distance *= 2


def all_reduce_halving_doubling(wire, data):
    reduce_scatter_halving(wire, data)
    all_gather_doubling(wire, data)


def reduce_scatter_halving(wire, data):
    """With partners n/2, n/4 … away, hand over the half of what is still mine that is not; add the rest."""
    n = len(data)
    distance = n // 2
    while distance:
        messages = []
        for r in range(n):
            partner = r ^ distance
            block = partner // distance * distance
            messages.append((r, partner, data[r][block : block + distance]))
        for receiver, array in wire.step(messages):
            block = receiver // distance * distance
            data[receiver][block : block + distance] += array
        distance //= 2


def all_gather_doubling(wire, data):
    n, distance = len(data), 1
    while distance < n:
        messages = []
        for r in range(n):
            block = r // distance * distance
            messages.append((r, r ^ distance, data[r][block : block + distance]))
        for receiver, array in wire.step(messages):
            block = (receiver ^ distance) // distance * distance
            data[receiver][block : block + distance] = array
        distance *= 2


def all_reduce_one_shot(wire, data):
    n = len(data)
    for receiver, array in wire.step([(r, q, data[r]) for r in range(n) for q in range(n) if r != q]):
        data[receiver] += array


def all_reduce_tree(wire, data):
    """Each half of the tensor up its own tree, then the sum down again; edges are those that the matrix names."""
    n = len(data)
    if n == 1:
        return
    halves = np.array_split(np.arange(data[0].shape[1]), 2)
    for columns, parent in zip(halves, trees(n), strict=True):
        depth = {r: height(parent, r) for r in range(n)}
        for level in range(max(depth.values()), 0, -1):
            up = [(r, parent[r], data[r][:, columns]) for r in range(n) if depth[r] == level]
            for receiver, array in wire.step(up):
                data[receiver][:, columns] += array
        for level in range(1, max(depth.values()) + 1):
            down = [(parent[r], r, data[parent[r]][:, columns]) for r in range(n) if depth[r] == level]
            for receiver, array in wire.step(down):
                data[receiver][:, columns] = array


def trees(n):
    """Two binary trees, built by halving: in-order positions 1…n−1 below rank 0, and the same mirrored or shifted."""

    def below(low, high, above, parent):
        if low > high:
            return
        reach = 1
        while low + 2 * reach - 1 <= high:
            reach *= 2
        node = low + reach - 1
        parent[node] = above
        below(low, node - 1, node, parent)
        below(node + 1, high, node, parent)

    first = {0: None}
    below(1, n - 1, 0, first)

    def moved(r):
        return n - 1 - r if n % 2 == 0 else (r + 1) % n

    second = {moved(r): above if above is None else moved(above) for r, above in first.items()}
    return first, second


def height(parent, rank):
    steps = 0
    while parent[rank] is not None:
        rank, steps = parent[rank], steps + 1
    return steps


def reduce_scatter_direct(wire, data):
    n = len(data)
    for receiver, chunk in wire.step([(r, q, data[r][q]) for r in range(n) for q in range(n) if r != q]):
        data[receiver][receiver] += chunk


def all_gather_direct(wire, data):
    n = len(data)
    messages = [(r, q, data[r][r]) for r in range(n) for q in range(n) if r != q]
    for (sender, _, _), (receiver, chunk) in zip(messages, wire.step(messages), strict=True):
        data[receiver][sender] = chunk


def all_to_all_pairwise(wire, data, *, at_once=False):
    n = len(data)
    out = [rows.copy() for rows in data]
    turns = [[(r, (r + turn) % n) for r in range(n)] for turn in range(1, n)]
    for turn in [[pair for each in turns for pair in each]] if at_once else turns:
        for (sender, _), (receiver, part) in zip(
            turn, wire.step([(r, q, data[r][q]) for r, q in turn]), strict=True
        ):
            out[receiver][sender] = part
    return out


def all_to_all_ring(wire, data):
    """Each rank's parts go round together; every rank takes its own out and passes on the rest."""
    n = len(data)
    out = [rows.copy() for rows in data]
    travelling = [[(r, q, data[r][q]) for q in range(n) if q != r] for r in range(n)]
    for _ in range(n - 1):
        wire.step([(r, (r + 1) % n, np.array([part for *_, part in travelling[r]])) for r in range(n)])
        travelling = [travelling[(r - 1) % n] for r in range(n)]
        for r in range(n):
            for source, goal, part in travelling[r]:
                if goal == r:
                    out[r][source] = part
            travelling[r] = [entry for entry in travelling[r] if entry[1] != r]
    return out


def all_to_all_as_all_gather(wire, data):
    n = len(data)
    everything = [np.zeros((n, *data[0].shape)) for _ in range(n)]
    for r in range(n):
        everything[r][r] = data[r]
    ring_all_gather(wire, everything, first=lambda rank: rank)
    return [everything[r][:, r] for r in range(n)]


def broadcast(wire, data, algorithm):
    n = len(data)
    if algorithm == "ring":
        steps = [[(r, r + 1)] for r in range(n - 1)]
    elif algorithm == "direct":
        steps = [[(0, r) for r in range(1, n)]]
    else:
        steps, holders = [], 1
        while holders < n:
            steps.append([(r, r + holders) for r in range(min(holders, n - holders))])
            holders *= 2
    for step in steps:
        for receiver, array in wire.step([(r, q, data[r]) for r, q in step]):
            data[receiver][:] = array


def carry_out(kind, algorithm, n):
    """The call on arrays of n rows: bytes from whom to whom as shares of the full size, and the steps taken."""
    rng = np.random.default_rng(7)
    before = [rng.integers(0, 99, (n, 8)).astype(float) for _ in range(n)]
    data, wire = [rows.copy() for rows in before], Wire(n)
    total = sum(before)
    if kind == Kind.ALL_REDUCE:
        globals()[f"all_reduce_{algorithm.replace('-', '_')}"](wire, data)
        assert all(np.array_equal(rows, total) for rows in data)
    elif kind == Kind.REDUCE_SCATTER:
        if algorithm == "as-all-reduce":
            all_reduce_ring(wire, data)
        elif algorithm == "ring":
            ring_reduce_scatter(wire, data)
        else:
            {"direct": reduce_scatter_direct, "halving": reduce_scatter_halving}[algorithm](wire, data)
        kept = 1 if algorithm == "ring" else 0  # which chunk a rank ends up with
        assert all(np.array_equal(data[r][(r + kept) % n], total[(r + kept) % n]) for r in range(n))
    elif kind == Kind.ALL_GATHER:
        for r in range(n):
            data[r][np.arange(n) != r] = np.nan
        if algorithm == "ring":
            ring_all_gather(wire, data, first=lambda rank: rank)
        else:
            {"direct": all_gather_direct, "doubling": all_gather_doubling}[algorithm](wire, data)
        whole = np.array([before[r][r] for r in range(n)])
        assert all(np.array_equal(rows, whole) for rows in data)
    elif kind == Kind.ALL_TO_ALL:
        out = {
            "pairwise": all_to_all_pairwise,
            "direct": lambda w, d: all_to_all_pairwise(w, d, at_once=True),
            "ring": all_to_all_ring,
            "as-all-gather": all_to_all_as_all_gather,
        }[algorithm](wire, data)
        assert all(np.array_equal(out[r][q], before[q][r]) for r in range(n) for q in range(n))
    else:
        broadcast(wire, data, algorithm)
        assert all(np.array_equal(rows, before[0]) for rows in data)
    return wire.sent / before[0].nbytes, wire.steps


CASES = [
    (kind, algorithm, n)
    for kind in Kind
    for algorithm in collectives.algorithms(kind)
    for n in COUNTS
    if kind != Kind.SEND and algorithm != "in-switch"
    if n & (n - 1) == 0 or algorithm not in ("recursive-doubling", "halving-doubling", "halving", "doubling")
]


@pytest.mark.parametrize(("kind", "algorithm", "n"), CASES)
def test_carrying_it_out_on_real_arrays_sends_what_the_matrix_and_the_formulas_say(kind, algorithm, n):
    sent, steps = carry_out(kind, algorithm, n) if n > 1 else (np.zeros((1, 1)), 0)

    assert routes(kind, n, algorithm=algorithm).matrix == pytest.approx(sent)
    assert collectives.sent_bytes(kind, 1, n, algorithm=algorithm) == pytest.approx(sent.sum(axis=1).max())
    assert collectives.group_bytes(kind, 1, n, algorithm=algorithm) == pytest.approx(sent.sum())
    if (
        algorithm != "tree" or kind == Kind.BROADCAST
    ):  # the two trees' steps overlap, and are not all equally deep
        assert collectives.rounds(kind, n, algorithm=algorithm) == steps


@pytest.mark.parametrize("n", [2, 3, 4, 5, 7, 8, 13, 16, 64, 100])
def test_no_rank_of_a_double_tree_is_deeper_than_its_rounds_say(n):
    deepest = max(height(parent, rank) for parent in trees(n) for rank in range(n))

    assert 2 * deepest <= collectives.all_reduce_rounds(n, algorithm="tree")


@pytest.mark.parametrize("n", [1, 2, 3, 8, 100])
def test_in_a_double_tree_the_busiest_of_many_ranks_sends_everything_twice(n):
    table = routes(Kind.ALL_REDUCE, n, algorithm="tree").matrix

    assert table.sum(axis=1).max() == collectives.all_reduce_bytes(1, n, algorithm="tree")
    assert table.sum() == 2 * (n - 1)
    assert table.sum(axis=0) == pytest.approx(table.sum(axis=1))  # what goes up comes down


def test_in_the_switch_half_of_the_ring_s_bytes_leave_a_rank_of_a_large_group():
    ring = collectives.all_reduce_bytes(1, 1024)

    assert collectives.all_reduce_bytes(1, 1024, algorithm="in-switch") / ring == pytest.approx(0.5, rel=1e-3)
    assert collectives.all_gather_bytes(1_000, 4, algorithm="in-switch") == 250
    assert collectives.reduce_scatter_bytes(1_000, 4, algorithm="in-switch") == 1_000


def test_a_ring_carries_an_all_to_all_s_bytes_half_of_the_way_round():
    # jax-ml/scaling-book, sharding: a unidirectional ring, per link S_total/2·(1−1/n), against an all-gather's
    # S_total·(1−1/n); S_total is the array over all ranks, n times one rank's buffer
    n, local = 8, 1_000
    total = n * local

    assert collectives.all_to_all_bytes(local, n, algorithm="ring") == total / 2 * (1 - 1 / n)
    assert collectives.all_gather_bytes(total, n) == total * (1 - 1 / n)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 8])
@pytest.mark.parametrize(
    ("kind", "measured"),
    [
        (Kind.ALL_REDUCE, lambda size, n: gloo.all_reduce(size, n, bytes_per_element=4)),
        (Kind.REDUCE_SCATTER, lambda size, n: gloo.reduce_scatter(size, n, bytes_per_element=4)),
        (Kind.ALL_GATHER, lambda size, n: gloo.all_gather(size // n, n)),
        (Kind.ALL_TO_ALL, lambda size, n: gloo.all_to_all(size, n)),
        (Kind.BROADCAST, lambda size, n: gloo.broadcast(size, n)),
    ],
    ids=lambda value: str(value) if isinstance(value, Kind) else "",
)
def test_gloo_s_algorithms_move_the_payload_that_its_sockets_carry(kind, measured, n):
    size = 4 * 2 * 3 * 8 * 1000  # whole segments for every n here

    payload = measured(size, n).payload

    name = GLOO.algorithm_of(kind)
    assert payload.sum() == pytest.approx(collectives.group_bytes(kind, size, n, algorithm=name))
    assert payload.sum(axis=1).max() == pytest.approx(collectives.sent_bytes(kind, size, n, algorithm=name))
    # gloo's all-reduce goes to the rank before, the textbook's to the one after: the same, seen in a mirror
    ours = routes(kind, n, algorithm=name).matrix * size
    assert payload == pytest.approx(ours) or payload == pytest.approx(ours.T)


def test_gloo_s_reduce_scatter_costs_twice_the_textbook_s():
    name = GLOO.algorithm_of(Kind.REDUCE_SCATTER)

    assert collectives.reduce_scatter_bytes(1_000, [2, 4], algorithm=name).tolist() == [1_000, 1_500]
    assert collectives.reduce_scatter_rounds(4, algorithm=name) == 6


def test_every_backend_names_an_algorithm_for_each_kind_of_call():
    for backend in BACKENDS.values():
        for kind in Kind:
            assert backend.algorithm_of(kind) in collectives.algorithms(kind)


def test_nccl_inspector_s_reduce_scatter_is_counted_by_shard_and_ours_by_the_whole():
    # O-23's trap: NVIDIA/nccl ext-profiler/inspector README, reduce-scatter, 8 ranks, size 2,147,483,648 is a shard
    shard, n = 2_147_483_648, 8

    assert collectives.reduce_scatter_bytes(shard * n, n) == shard * (n - 1)
    assert collectives.reduce_scatter_bytes(shard, n) != shard * (n - 1)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (
            lambda: routes(Kind.ALL_REDUCE, 4, algorithm="in-switch"),
            "algorithm is in-switch, but then ranks send to the switch, not to each other. "
            "Use one of: ring, tree, recursive-doubling, one-shot, halving-doubling.",
        ),
        (
            lambda: routes(Kind.ALL_GATHER, 4, algorithm="star"),
            "algorithm is 'star', whose all-gather has no routes known here. Use one of: ring, direct, doubling.",
        ),
        (
            lambda: routes(Kind.ALL_GATHER, 6, algorithm="doubling"),
            "ranks is 6, but partners at distances 1, 2, 4 … need a power of two. Use the ring.",
        ),
        (lambda: routes(Kind.SEND, 0, algorithm="ring"), "ranks is 0, but a group has at least 1 rank."),
        (
            lambda: Backend(name="mine", reduce_scatter="tree"),
            "algorithm is 'tree', which is not a reduce-scatter known here. "
            "Use one of: ring, direct, halving, as-all-reduce, in-switch.",
        ),
        (
            lambda: collectives.all_gather_bytes(1, 6, algorithm="doubling"),
            "ranks is 6, but recursive doubling needs a power of two. Use the ring.",
        ),
        (
            lambda: collectives.all_to_all_bytes(1, float("nan")),
            "ranks is nan, but a group has at least 1 rank.",
        ),
    ],
)
def test_what_cannot_be_routed_is_refused_in_a_sentence(wrong, sentence):
    with pytest.raises(ValueError, match=exactly(sentence)):
        wrong()
