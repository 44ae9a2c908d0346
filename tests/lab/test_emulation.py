"""Emulated hosts: ranks talk over their own links, the meters still see every byte, and nothing outlives a run."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable

import psutil
import pytest

from calculators.lab.emulation import homes
from calculators.lab.emulation.homes import NO_DELAY
from calculators.lab.emulation.network import Network
from calculators.lab.launch import LocalLauncher
from calculators.lab.measurements import Failed, Log, Progress, Quantity
from calculators.lab.meters.interfaces import CannotSee, most_header_bytes, read_interface
from calculators.lab.plan import Plan, make_plan
from calculators.lab.spec import Spec
from tests.lab import emulated_ranks, failing_ranks
from tests.lab.conftest import ON_CPU, Outcome

pytestmark = [
    pytest.mark.distributed,
    pytest.mark.skipif(sys.platform != "linux", reason="network namespaces are Linux's"),
]

SMALL = {"layers": 2, "hidden_size": 64, "attention_heads": 4, "ffn_width": 128, "vocab_size": 64, "batch": 2}
ORDINARY_USER = 65_534
LEAST_HEADER_BYTES = 52  # IPv4, and TCP with timestamps


def plan_of(**given: object) -> Plan:
    return make_plan(Spec.parse({"job": "tensor", "ranks": 2, "hosts": 2, "steps": 10, **given}), ON_CPU)


def trial(*before: str) -> dict[str, dict[str, object]]:
    """What the trial of each part says, started by the command `before`."""
    command = [*before, sys.executable, "-m", "calculators.lab.emulation.trial"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return {found["part"]: found for found in map(json.loads, said.splitlines())}


@pytest.fixture(scope="module")
def parts() -> dict[str, dict[str, object]]:
    return trial()


@pytest.mark.parametrize(("hosts", "ranks"), [(2, 2), (2, 4)], ids=["2 × 1", "2 × 2"])
def test_every_byte_between_and_within_hosts_is_still_explained(
    run: Callable[..., Outcome], parts: dict[str, dict[str, object]], hosts: int, ranks: int
) -> None:
    outcome = run(
        job="tensor", ranks=ranks, hosts=hosts, link_mbit=200, delay_ms=0.5, steps=10, warmup_steps=1, **SMALL
    )

    assert outcome.is_verified
    wire = [c for c in outcome.comparisons if c.quantity in (Quantity.WIRE, Quantity.PAIR, Quantity.IDLE)]
    assert len(wire) == ranks + ranks * (ranks - 1) + ranks
    assert [c.unexplained for c in wire] == [0] * len(wire)
    assert all(c.measured > 0 for c in wire if c.quantity is Quantity.WIRE)
    assert (NO_DELAY in [log.text for log in outcome.all(Log)]) is not parts["netem"]["works"]


class Living:
    """A run whose ranks sleep on their hosts: where they are, and what must be gone afterwards."""

    def __init__(self, launcher_pid: int, said: list[str]) -> None:
        words = [part.split() for part in said]
        self.pids = [int(pid) for pid, *_ in words]
        self.inside = [namespace for _, namespace, *_ in words]
        self.addresses = [address for _, _, address, _ in words]
        self.interfaces = [names for *_, names in words]
        self.namespaces = emulated_ranks.namespaces_held_by(launcher_pid)

    def assert_nothing_is_left(self) -> None:
        _, alive = psutil.wait_procs(
            [psutil.Process(p) for p in self.pids if psutil.pid_exists(p)], timeout=5
        )
        assert alive == []
        assert emulated_ranks.namespaces_alive(self.namespaces) == set()


def start(work: Callable[..., None], plan: Plan) -> tuple[object, Living]:
    stream = LocalLauncher(work=work).run(plan)
    said: list[str] = []
    while len(said) < plan.world_size:
        event = next(stream)
        if isinstance(event, Progress):
            said.append(event.part)
    return stream, Living(os.getpid(), said)


def test_ranks_of_a_host_share_its_namespace_and_closing_the_run_leaves_none(launcher: LocalLauncher) -> None:
    interfaces, descriptors = socket.if_nameindex(), len(os.listdir("/proc/self/fd"))
    stream, living = start(emulated_ranks.say_where, plan_of(ranks=4))

    assert len(living.namespaces) == 3  # two hosts and the switch
    assert set(living.inside) < living.namespaces
    assert sorted(living.addresses) == ["10.0.0.1", "10.0.0.1", "10.0.0.2", "10.0.0.2"]
    assert living.interfaces == ["lo,eth0"] * 4
    assert socket.if_nameindex() == interfaces
    stream.close()
    living.assert_nothing_is_left()
    assert len(os.listdir("/proc/self/fd")) == descriptors


def test_a_killed_rank_ends_the_run_and_its_hosts(launcher: LocalLauncher) -> None:
    stream, living = start(emulated_ranks.say_where, plan_of())

    os.kill(living.pids[1], signal.SIGKILL)
    failed = [event for event in stream if event is not None][-1]

    assert isinstance(failed, Failed)
    assert failed.reason.startswith("The process was killed by SIGKILL")
    living.assert_nothing_is_left()


def test_a_rank_that_raises_on_an_emulated_host_is_named(launcher: LocalLauncher) -> None:
    held = emulated_ranks.namespaces_held_by(os.getpid())

    *_, failed = (e for e in LocalLauncher(work=failing_ranks.one_raises).run(plan_of()) if e is not None)

    assert isinstance(failed, Failed)
    assert (failed.rank, failed.reason) == (1, "ArithmeticError: the hidden state of layer 3 is not a number")
    assert emulated_ranks.namespaces_held_by(os.getpid()) == held


def test_the_time_limit_ends_the_hosts_too(launcher: LocalLauncher) -> None:
    stream, living = start(emulated_ranks.say_where, plan_of(time_limit_seconds=1))

    failed = [event for event in stream if event is not None][-1]

    assert isinstance(failed, Failed)
    assert failed.reason.startswith("The time limit of 1 s ended the run: ")
    living.assert_nothing_is_left()


PROGRAM = """
import sys
from calculators.lab.launch import LocalLauncher
from calculators.lab.measurements import Progress
from tests.lab import emulated_ranks
from tests.lab.test_emulation import plan_of
if __name__ == "__main__":
    for event in LocalLauncher(work=emulated_ranks.say_where).run(plan_of()):
        if isinstance(event, Progress):
            print(event.part, flush=True)
"""


def test_a_launcher_that_is_killed_takes_ranks_and_hosts_with_it() -> None:
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        living = Living(parent.pid, [parent.stdout.readline() for _ in range(2)])
        assert len(living.namespaces) == 3
        family = psutil.Process(parent.pid).children(recursive=True)

        parent.kill()

    _, alive = psutil.wait_procs(family, timeout=5)
    assert alive == []
    living.assert_nothing_is_left()


def test_a_builder_that_is_killed_is_answered_with_a_sentence(
    launcher: LocalLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(homes, "_building_process", emulated_ranks.killed_builder)

    (failed,) = (e for e in LocalLauncher(work=emulated_ranks.say_where).run(plan_of()) if e is not None)

    assert isinstance(failed, Failed)
    assert failed.reason.startswith("The process that makes emulated hosts ended without a word")
    assert emulated_ranks.namespaces_held_by(os.getpid()) == set()


# A user namespace in which we are nobody special, and which may have no other.
FORBIDDEN = """
import ctypes, os, sys
assert ctypes.CDLL(None).unshare(0x10000000) == 0
open("/proc/self/setgroups", "w").write("deny")
open("/proc/self/uid_map", "w").write(f"1000 {os.geteuid()} 1")
open("/proc/self/gid_map", "w").write(f"1000 {os.getegid()} 1")
open("/proc/sys/user/max_user_namespaces", "w").write("0")
os.execv(sys.argv[1], sys.argv[1:])
"""
WHAT_TO_CHANGE = (
    "This user may not make network namespaces: the kernel says “No space left on device”. "
    "user.max_user_namespaces is 0; let an administrator run `sysctl user.max_user_namespaces=10000`."
)


REFUSED = """
import multiprocessing
from calculators.lab.devices import Placement
from calculators.lab.emulation.homes import CannotEmulate, homes
from calculators.lab.plan import make_plan
from calculators.lab.spec import Spec
spec = Spec.parse({"job": "tensor", "ranks": 2, "hosts": 2})
try:
    with homes(make_plan(spec, Placement(device="cpu", backend="gloo")), multiprocessing.get_context("fork")):
        print("there are hosts")
except CannotEmulate as error:
    print(error)
"""


def test_without_user_namespaces_the_run_ends_with_what_to_change() -> None:
    forbidden = [sys.executable, "-c", FORBIDDEN]

    said = subprocess.run(
        [*forbidden, sys.executable, "-c", REFUSED], capture_output=True, text=True, check=True
    )

    assert said.stdout.strip() == f"Emulated hosts cannot be had here. {WHAT_TO_CHANGE}"
    assert trial(*forbidden) == {
        "network namespaces": {"part": "network namespaces", "works": False, "text": WHAT_TO_CHANGE}
    }


def test_an_ordinary_user_builds_and_enters_hosts() -> None:
    program = f"""
import ctypes, encodings.idna, os, socket
from pyroute2 import IPRoute
with IPRoute() as route:
    route.get_links()  # imports what it needs while its files can still be read
from calculators.lab.emulation import builder, entering
from calculators.lab.emulation.network import Network
if os.geteuid() == 0:
    os.setgroups([]), os.setgid({ORDINARY_USER}), os.setuid({ORDINARY_USER})
    ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # /proc/self is ours again, as if we had logged in so
child = os.fork()
if child == 0:
    built = builder.build(Network(hosts=2, ranks_per_host=1, link_mbit=100))
    assert built.user is not None
    entering.enter(built.hosts[1], entering.NET)
    server = socket.socket(fileno=built.listener)
    with socket.create_connection(server.getsockname()) as end:
        accepted, peer = server.accept()
        end.sendall(b"across")
        print(os.getuid(), peer[0], accepted.recv(6).decode(), flush=True)
    os._exit(0)
os.waitpid(child, 0)
"""
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    user = ORDINARY_USER if os.geteuid() == 0 else os.geteuid()
    assert said.stdout.split() == [str(user), "10.0.0.2", "across"], said.stderr


@pytest.fixture(scope="module")
def counted(launcher: LocalLauncher) -> list[list[float]]:
    """What rank 0 and rank 1 counted while 256 KiB went from one host to the other at 50 Mbit/s."""
    plan = plan_of(job="exchange", call_bytes=262_144, link_mbit=50)
    stream = LocalLauncher(work=emulated_ranks.talk_and_count).run(plan)
    said = sorted((e.rank, e.part) for e in stream if isinstance(e, Progress))
    return [[float(word) for word in part.split()] for _, part in said]


def test_an_interface_counts_payload_and_no_more_headers_than_there_can_be(
    counted: list[list[float]],
) -> None:
    (sent, packets, _, again, _), (answered, _, received, _, _) = counted
    most = most_header_bytes(sent_bytes=262_144, sent_messages=2, received_bytes=2, received_messages=2)

    assert 262_144 + packets * LEAST_HEADER_BYTES <= sent <= 262_144 + most + again * 2
    # The two do not look in the same moment: meanwhile a first byte may come, or the store acknowledge one.
    assert abs(sent - received) <= 2 * (LEAST_HEADER_BYTES + 1)
    assert 0 < answered < 262_144


def test_no_message_is_faster_than_its_link(counted: list[list[float]]) -> None:
    network = Network(hosts=2, ranks_per_host=1, link_mbit=50)

    # A lower bound holds on a busy machine, too. Each end of the cable lets one bucket pass.
    assert counted[0][4] >= (262_144 - 2 * network.burst_bytes) / network.bytes_per_second


def test_the_bucket_holds_little_more_than_a_packet_on_links_that_matter() -> None:
    def of(mbit: float) -> Network:
        return Network(hosts=2, ranks_per_host=1, link_mbit=mbit)

    assert [of(mbit).burst_bytes for mbit in (10, 50, 1_000)] == [1_640, 2_140, 14_015]
    assert [of(mbit).segments_at_once for mbit in (10, 100, 1_000, 10_000)] == [1, 8, 42, 42]
    assert of(100).is_shaped
    assert not of(0).is_shaped
    assert not of(100_000).is_shaped  # no kernel copies as fast
    assert str(of(20)) == "2 emulated hosts of 1 rank each, links 20 Mbit/s each way"
    assert str(of(0)) == "2 emulated hosts of 1 rank each, links not slowed down"


def test_a_host_that_is_not_emulated_has_no_interface_to_read() -> None:
    with pytest.raises(CannotSee, match="this host has no interface “none”: it is not an emulated one"):
        read_interface("none")
