"""The wire meter reads the kernel's own counters of this process's sockets, and says where it cannot."""

import socket
import sys
from collections.abc import Iterator

import pytest

from calculators.lab.meters import CannotSee, wire
from calculators.lab.meters.sockets import Connection, why_wire_is_unseen


@pytest.fixture
def two_ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        server, _ = listener.accept()
        with client, server:
            yield client, server


def connection_of(end: socket.socket) -> Connection:
    return wire.open_connections()[end.getsockname(), end.getpeername()]


def test_counters_are_the_bytes_that_were_sent_and_received(
    two_ends: tuple[socket.socket, socket.socket],
) -> None:
    client, server = two_ends
    mine, theirs = connection_of(client), connection_of(server)

    client.sendall(b"x" * 300_000)
    received = 0
    while received < 300_000:
        received += len(server.recv(65_536))
    server.sendall(b"y" * 48)
    client.recv(48)

    assert mine.counters() == (300_000, 48)
    assert theirs.counters() == (48, 300_000)


def test_both_ends_of_a_connection_are_known_by_the_same_two_addresses(
    two_ends: tuple[socket.socket, socket.socket],
) -> None:
    client, server = two_ends

    mine, theirs = connection_of(client), connection_of(server)

    assert (mine.local, mine.remote) == (theirs.remote, theirs.local)


def test_listening_sockets_and_pipes_are_no_connections(
    two_ends: tuple[socket.socket, socket.socket],
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socketpair()[0]:
        ends = wire.open_connections()

    assert listener.fileno() == -1
    assert {local[1] for local, _ in ends} >= {end.getsockname()[1] for end in two_ends}
    assert all(remote[1] for _, remote in ends)


def test_counters_go_on_after_the_job_has_closed_its_own_descriptor(
    two_ends: tuple[socket.socket, socket.socket],
) -> None:
    client, server = two_ends
    mine = connection_of(client)
    client.sendall(b"x" * 10)
    server.recv(10)

    client.close()

    assert mine.counters()[0] == 10


def test_a_closed_connection_is_no_byte(two_ends: tuple[socket.socket, socket.socket]) -> None:
    client, server = two_ends
    client.sendall(b"x" * 10)
    client.close()
    while server.recv(10):
        pass

    assert connection_of(server).counters() == (0, 10)


def test_a_kernel_without_byte_counters_is_named() -> None:
    class OldKernel:
        def getsockopt(self, *_: int) -> bytes:
            return bytes(192)

    old = Connection(("127.0.0.1", 1), ("127.0.0.1", 2), OldKernel())  # type: ignore[arg-type]

    with pytest.raises(CannotSee) as caught:
        old.counters()
    assert str(caught.value) == "this kernel's TCP_INFO has 192 bytes; this needs 216 (Linux 4.19)"


def test_the_meter_says_what_it_cannot_see(monkeypatch: pytest.MonkeyPatch) -> None:
    assert why_wire_is_unseen("gloo") is None
    assert why_wire_is_unseen("nccl") == (
        "nccl moves bytes over NVLink, PCIe or shared memory, which have no TCP counters"
    )
    monkeypatch.setattr(sys, "platform", "darwin")
    assert why_wire_is_unseen("gloo") == "the wire meter reads Linux's TCP_INFO, and this is darwin"
