"""Where the ranks of a run live: on this machine as it is, or on emulated hosts of it."""

import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import wait
from multiprocessing.context import ForkServerContext
from multiprocessing.reduction import DupFd
from typing import Any

from calculators.lab.emulation import entering
from calculators.lab.emulation.network import Network
from calculators.lab.lifeline import die_with_launcher
from calculators.lab.plan import Plan

LOOPBACK = "127.0.0.1"
NO_DELAY = "Latency is not emulated: this kernel has no netem."
_BUILD_SECONDS = 30.0
_CHECK_SECONDS = 0.1


class CannotEmulate(RuntimeError):
    """Emulated hosts cannot be had here; the text says why, and what to change."""


@dataclass(frozen=True, kw_only=True)
class Namespace:
    """A namespace by its descriptor, which travels to a process that the fork server starts."""

    descriptor: int
    kind: int

    def enter(self) -> None:
        """Go in and let go of the descriptor."""
        entering.enter(self.descriptor, self.kind)
        os.close(self.descriptor)

    def __reduce__(self) -> tuple[Any, ...]:
        return _arrived, (DupFd(self.descriptor), self.kind)


def _arrived(handle: Any, kind: int) -> Namespace:
    return Namespace(descriptor=handle.detach(), kind=kind)


@dataclass(frozen=True, kw_only=True)
class Home:
    """What a rank must know of the host it lives on: its address, and the namespaces to go into first."""

    address: str = LOOPBACK
    namespaces: tuple[Namespace, ...] = ()

    def enter(self) -> None:
        """Go there; only a process with one thread can."""
        for namespace in self.namespaces:
            namespace.enter()


@dataclass(frozen=True, kw_only=True)
class Homes:
    """The homes of all ranks, and a socket on the first rank's home at which ranks can meet.

    `remark` says what the network cannot do although the spec asks for it.
    """

    of_rank: tuple[Home, ...]
    listener: socket.socket
    remark: str = ""

    @property
    def meeting_point(self) -> tuple[str, int]:
        """Address and port of the listening socket."""
        address, port = self.listener.getsockname()
        return str(address), int(port)


def _always() -> None:
    """What is called meanwhile by those who do not give up."""


@contextmanager
def homes(plan: Plan, context: ForkServerContext, *, check: Callable[[], None] = _always) -> Iterator[Homes]:
    """The homes of a plan's ranks; emulated hosts end with the context, and with this process.

    `check` is called while they are made, and ends that by raising. Raises `CannotEmulate`.
    """
    if plan.spec.hosts == 1:
        # A port that is taken from the moment it is chosen.
        with socket.create_server((LOOPBACK, 0), backlog=128) as listener:
            yield Homes(of_rank=(Home(),) * plan.world_size, listener=listener)
        return
    network = Network.of(plan.spec)
    said, descriptors = _built(network, context, check)
    try:
        user = [Namespace(descriptor=descriptors[0], kind=entering.USER)] if said["has_user"] else []
        _, listening, *hosts = descriptors[len(user) :]
        with socket.socket(fileno=os.dup(listening)) as listener:
            on_host = [
                Home(
                    address=network.address(host),
                    namespaces=(*user, Namespace(descriptor=descriptor, kind=entering.NET)),
                )
                for host, descriptor in enumerate(hosts)
            ]
            yield Homes(
                of_rank=tuple(on_host[network.host_of(rank)] for rank in range(plan.world_size)),
                listener=listener,
                remark="" if said["delay_is_emulated"] else NO_DELAY,
            )
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _built(
    network: Network, context: ForkServerContext, check: Callable[[], None]
) -> tuple[dict[str, Any], list[int]]:
    """What the building process said, and the descriptors it handed over."""
    mine, theirs = socket.socketpair()
    with mine:
        with theirs:
            process = context.Process(target=_building_process, args=(network, theirs), daemon=True)
            process.start()
        said, descriptors = b"", list[int]()
        until = time.monotonic() + _BUILD_SECONDS
        try:
            while not wait([mine], _CHECK_SECONDS):
                check()
                if time.monotonic() > until:
                    break
            else:
                said, descriptors, _, _ = socket.recv_fds(mine, 65_536, network.hosts + 3)
        finally:
            process.kill()  # it has nothing more to do: what it made lives by its descriptors
            process.join()
    if not said:
        raise CannotEmulate(
            f"The process that makes emulated hosts ended without a word, or said none for {_BUILD_SECONDS:.0f} s. "
            "It may have been killed: start the run again."
        )
    answer: dict[str, Any] = json.loads(said)
    if "problem" in answer:
        raise CannotEmulate(f"Emulated hosts cannot be had here. {answer['problem']}")
    return answer, list(descriptors)


def _building_process(network: Network, end: socket.socket) -> None:
    die_with_launcher()
    from calculators.lab.emulation.builder import build_and_hand_over

    build_and_hand_over(network, end)
