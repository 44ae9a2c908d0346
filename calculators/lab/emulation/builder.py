"""Builds the hosts of a network in a process of its own, which hands over their descriptors and ends.

A namespace lives as long as somebody is in it or holds a descriptor of it, and no name is given to any of these.
So whatever ends the run, kill -9 of everything included, the kernel takes the network down.
"""

import os
import socket
from dataclasses import dataclass
from typing import Any

from calculators.lab.emulation import entering, shaping
from calculators.lab.emulation.network import MTU_BYTES, Network

INTERFACE = "eth0"
"""What each host calls its end of the cable."""
SWITCH = "switch"


@dataclass(frozen=True, kw_only=True)
class Built:
    """Descriptors of a network that is up: its namespaces, and a socket that listens on its first host.

    `user` is None where no user namespace was needed. `switch` keeps the bridge alive.
    """

    user: int | None
    switch: int
    hosts: tuple[int, ...]
    listener: int
    delay_is_emulated: bool

    @property
    def descriptors(self) -> list[int]:
        return [*([] if self.user is None else [self.user]), self.switch, self.listener, *self.hosts]


def build(network: Network) -> Built:
    """Make the network. The calling thread is afterwards in the namespace of the switch."""
    from pyroute2 import IPRoute  # type: ignore[import-untyped]  # 0.2 s; the fork server has it

    user = entering.user_namespace() if entering.become_network_administrator() else None
    shaping.quieten()
    switch = entering.network_namespace()
    with IPRoute() as route:
        route.link("add", ifname=SWITCH, kind="bridge", br_stp_state=0, br_mcast_snooping=0)
        bridge = route.link_lookup(ifname=SWITCH)[0]
        route.link("set", index=bridge, mtu=MTU_BYTES, state="up")
        hosts: list[int] = []
        delayed, listening = True, -1
        for host in range(network.hosts):
            entering.leave_for_new(entering.NET)
            shaping.quieten()
            hosts.append(entering.network_namespace())
            with IPRoute() as inside:
                entering.enter(switch, entering.NET)
                delayed &= _connect(network, host, hosts[-1], inside, route, bridge)
            shaping.keep_order(_port(host))
            entering.enter(hosts[-1], entering.NET)
            shaping.keep_order(INTERFACE)
            if host == 0:
                listening = socket.create_server((network.address(host), 0), backlog=128).detach()
            entering.enter(switch, entering.NET)
    return Built(user=user, switch=switch, hosts=tuple(hosts), listener=listening, delay_is_emulated=delayed)


def _connect(network: Network, host: int, namespace: int, inside: Any, switch: Any, bridge: int) -> bool:
    """A cable from a host to the switch, shaped at both ends; whether what was wanted of delay is there."""
    cable = {"gso_max_segs": network.segments_at_once} if network.is_shaped else {}
    peer = {"ifname": INTERFACE, "net_ns_fd": namespace, "mtu": MTU_BYTES}
    switch.link("add", ifname=_port(host), kind="veth", mtu=MTU_BYTES, peer=peer)
    port = switch.link_lookup(ifname=_port(host))[0]
    switch.link("set", index=port, master=bridge, state="up", **cable)
    inside.link("set", index=inside.link_lookup(ifname="lo")[0], state="up")
    end = inside.link_lookup(ifname=INTERFACE)[0]
    inside.link("set", index=end, state="up", **cable)
    inside.addr("add", index=end, address=network.address(host), prefixlen=24)
    shaping.shape(inside, end, network)
    shaping.shape(switch, port, network)
    return not network.wants_delay or shaping.delay(inside, end, network)


def _port(host: int) -> str:
    return f"port{host}"


def build_and_hand_over(network: Network, end: socket.socket) -> None:
    """The life of the building process: the descriptors to `end`, or the sentence that says why not."""
    import json

    try:
        built = build(network)
    except Exception as error:
        sentence = str(error.strerror) if isinstance(error, entering.Refused) else _sentence(error)
        end.sendall(json.dumps({"problem": sentence}).encode())
        os._exit(0)
    said = {
        "hosts": len(built.hosts),
        "has_user": built.user is not None,
        "delay_is_emulated": built.delay_is_emulated,
    }
    socket.send_fds(end, [json.dumps(said).encode()], built.descriptors)
    os._exit(0)


def _sentence(error: Exception) -> str:
    return (
        f"The network of emulated hosts could not be made: {type(error).__name__}: {error}. "
        "`python -m calculators.lab doctor` tries its parts one by one."
    )
