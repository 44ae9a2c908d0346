"""The byte counts of gloo: published examples, invariants, and its message loop played through."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calculators.predict import collectives, gloo
from tests.predict.sentences import exactly

MIB = 1024 * 1024


def play_all_reduce(size, ranks, element):
    """Every message of gloo's ring, one iteration of one rank at a time, by the offset of its segment."""
    payload, framing = np.zeros((ranks, ranks)), np.zeros((ranks, ranks))
    largest = element * max(1, MIB // element)
    segments = max(-(-size // largest), 2 * ranks)
    segments += -segments % ranks
    length = -(-size // segments)
    length += -length % element
    of_each = segments // ranks
    for rank in range(ranks):
        receiver = (rank - 1) % ranks
        for first in (rank + 1, rank):  # to reduce, then to gather
            for step in range(segments - of_each):
                offset = (first * of_each + step) * length % (segments * length)
                sent = min(length, size - offset)
                if sent > 0:
                    payload[rank, receiver] += sent
                    framing[rank, receiver] += 96
                    framing[receiver, rank] += 48
    return gloo.PairBytes(payload=payload, framing=framing)


@pytest.mark.parametrize(
    ("size", "ranks", "to_the_left", "to_the_right"),
    [
        (4_000_000, 2, 4_000_384 + 192, 4_000_384 + 192),  # with two ranks left and right are the same
        (4_000_000, 4, 6_001_152, 576),
        (64 * MIB, 4, 100_672_512, 4_608),
        (8_192, 2, 8_768, 8_768),
        (8_192, 4, 13_440, 576),
    ],
)
def test_an_all_reduce_writes_the_bytes_that_were_read_from_gloo(size, ranks, to_the_left, to_the_right):
    written = gloo.all_reduce(size, ranks, bytes_per_element=4).total

    assert written[1, 0] == to_the_left
    assert written[1, 2 % ranks] == to_the_right


def test_a_small_all_reduce_spends_a_noticeable_part_on_headers():
    share = [
        (pairs.sent / pairs.payload.sum(axis=1) - 1)[0]
        for pairs in (
            gloo.all_reduce(8_192, 2, bytes_per_element=2),
            gloo.all_reduce(8_192, 4, bytes_per_element=2),
        )
    ]

    assert share == pytest.approx([0.07, 0.14], abs=0.005)


@given(
    elements=st.integers(min_value=1, max_value=3_000_000),
    ranks=st.integers(min_value=2, max_value=9),
    element=st.sampled_from([1, 2, 4, 8]),
)
def test_playing_every_message_gives_the_same_matrices(elements, ranks, element):
    size = elements * element

    assert gloo.all_reduce(size, ranks, bytes_per_element=element) == play_all_reduce(size, ranks, element)


@given(elements=st.integers(min_value=1, max_value=3_000_000), ranks=st.integers(min_value=1, max_value=9))
def test_all_ranks_together_send_the_textbook_payload_however_it_divides(elements, ranks):
    size = 2 * elements

    payload = gloo.all_reduce(size, ranks, bytes_per_element=2).payload.sum()

    assert payload == pytest.approx(ranks * collectives.all_reduce_bytes(size, ranks).item())


def test_a_tensor_of_one_element_leaves_most_segments_empty_and_unsent():
    pairs = gloo.all_reduce(4, 4, bytes_per_element=4)

    assert pairs.payload.sum() == 6 * 4  # three hops to reduce, three to gather
    assert pairs.framing.sum() == 6 * 144


def test_an_empty_tensor_is_not_reduced_at_all():
    assert gloo.all_reduce(0, 4, bytes_per_element=4) == gloo.no_bytes(4)


def test_a_send_writes_96_bytes_more_and_is_answered_with_48():
    pairs = gloo.send(8_192, 3, source=2, destination=0)

    assert pairs.total.tolist() == [[0, 0, 48], [0, 0, 0], [8_288, 0, 0]]


def test_a_broadcast_reaches_everybody_once_from_any_root():
    for ranks in range(1, 10):
        for root in range(ranks):
            payload = gloo.broadcast(100, ranks, root=root).payload
            assert payload.sum(axis=0).tolist() == [0 if rank == root else 100 for rank in range(ranks)]
            assert payload[root].sum() == 100 * collectives.broadcast_rounds(ranks, algorithm="tree")


@given(shard=st.integers(min_value=1, max_value=10**9), ranks=st.integers(min_value=1, max_value=16))
def test_an_all_gather_sends_the_textbook_payload_in_two_messages_a_shard(shard, ranks):
    pairs = gloo.all_gather(shard, ranks)

    assert np.allclose(pairs.payload.sum(axis=1), collectives.all_gather_bytes(shard * ranks, ranks))
    assert pairs.framing.sum() == 144 * ranks * 2 * (ranks - 1)


@given(part=st.integers(min_value=0, max_value=10**9), ranks=st.integers(min_value=1, max_value=16))
def test_an_all_to_all_sends_the_textbook_payload_one_message_a_peer(part, ranks):
    pairs = gloo.all_to_all(part * ranks, ranks)

    assert np.allclose(pairs.payload.sum(axis=1), collectives.all_to_all_bytes(part * ranks, ranks))
    assert pairs.framing.sum() == 144 * ranks * (ranks - 1)


@given(part=st.integers(min_value=0, max_value=10**9), ranks=st.integers(min_value=1, max_value=16))
def test_equal_parts_make_an_uneven_all_to_all_an_even_one(part, ranks):
    assert gloo.all_to_all_v([[part] * ranks] * ranks) == gloo.all_to_all(part * ranks, ranks)


@given(st.lists(st.lists(st.integers(0, 10**9), min_size=4, max_size=4), min_size=4, max_size=4))
def test_an_uneven_all_to_all_sends_every_part_but_a_ranks_own_and_an_empty_one_as_headers(parts):
    pairs = gloo.all_to_all_v(parts)

    assert pairs.payload.tolist() == [[0 if i == j else parts[i][j] for j in range(4)] for i in range(4)]
    assert pairs.framing.sum() == 144 * 4 * 3


def test_a_reduce_scatter_sends_twice_the_textbook():
    payload = gloo.reduce_scatter(4_096, 4, bytes_per_element=4).payload

    assert payload.sum(axis=1).tolist() == [2 * collectives.reduce_scatter_bytes(4_096, 4).item()] * 4


def test_a_barrier_carries_headers_and_no_payload():
    pairs = gloo.barrier(4)

    assert pairs.payload.sum() == 0
    assert pairs.sent.tolist() == [2 * 144] * 4


@pytest.mark.parametrize(
    "of_one_rank",
    [
        gloo.all_reduce(8_192, 1, bytes_per_element=2),
        gloo.broadcast(8_192, 1),
        gloo.all_gather(8_192, 1),
        gloo.all_to_all(8_192, 1),
        gloo.barrier(1),
    ],
)
def test_a_rank_alone_writes_nothing(of_one_rank):
    assert of_one_rank == gloo.no_bytes(1)


def test_calls_add_up_and_repeat():
    once = gloo.send(100, 2, source=0, destination=1)
    back = gloo.send(10, 2, source=1, destination=0)

    both = 3 * once + back * 2

    assert both.payload.tolist() == [[0, 300], [20, 0]]
    assert both.framing.tolist() == [[0, 3 * 96 + 2 * 48], [3 * 48 + 2 * 96, 0]]
    assert both != once


def test_a_group_keeps_its_bytes_when_placed_in_a_larger_world():
    pairs = gloo.all_reduce(8_192, 2, bytes_per_element=2)

    placed = pairs.placed([2, 3], 4)

    assert placed.total[2:, 2:].tolist() == pairs.total.tolist()
    assert placed.total.sum() == pairs.total.sum()


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (
            lambda: gloo.all_reduce(-4, 2, bytes_per_element=4),
            "payload_bytes is -4, but a tensor has a whole number of bytes. Use 0 or more.",
        ),
        (
            lambda: gloo.all_reduce(10, 2, bytes_per_element=4),
            "payload_bytes is 10 and bytes_per_element 4, but a tensor holds whole elements. "
            "Make the first a multiple of the second.",
        ),
        (lambda: gloo.barrier(0), "ranks is 0, but a group has at least 1 rank."),
        (
            lambda: gloo.send(8, 2, source=0, destination=2),
            "destination is 2, but 2 ranks are numbered 0 to 1.",
        ),
        (
            lambda: gloo.send(8, 2, source=1, destination=1),
            "source and destination are both 1, but a rank sends to another. Change one.",
        ),
        (lambda: gloo.broadcast(8, 2, root=-1), "root is -1, but 2 ranks are numbered 0 to 1."),
        (
            lambda: gloo.all_to_all(10, 4),
            "send_buffer_bytes is 10, which 4 ranks cannot share equally. Nearest that work: 8 or 12.",
        ),
        (
            lambda: gloo.all_to_all_v([[0, 1], [2]]),
            "parts_bytes gives rank 1 1 parts, but each of 2 ranks gets one of every rank's. Give 2 in each "
            "row, 0 where nothing is sent.",
        ),
        (
            lambda: gloo.all_to_all_v([[0, -1], [2, 0]]),
            "parts_bytes[0][1] is -1, but a tensor has a whole number of bytes. Use 0 or more.",
        ),
        (
            lambda: gloo.barrier(2) + gloo.barrier(3),
            "The bytes of 2 ranks and of 3 do not add up. Use one world for both.",
        ),
        (
            lambda: gloo.barrier(2).placed([0], 4),
            "members names 1 ranks, but these bytes are of 2. Name as many.",
        ),
        (
            lambda: gloo.barrier(2).placed([0, 4], 4),
            "members is [0, 4], but in a world of 4 ranks each is one of 0 to 3, named once.",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(wrong, sentence):
    with pytest.raises(ValueError, match=exactly(sentence)):
        wrong()
