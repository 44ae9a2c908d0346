"""Tries each part of emulated hosts once, for real: `python -m calculators.lab.emulation.trial` says what works.

It needs a process of its own, because it leaves the namespaces that it was started in. One line of JSON each: the
part, whether it works, and the kernel's answer if not.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from calculators.lab.emulation import entering, shaping
from calculators.lab.emulation.network import Network

_NETWORK = Network(hosts=1, ranks_per_host=1, link_mbit=10, delay_ms=1)
_UNSHAPED = replace(_NETWORK, link_mbit=0)


def main() -> None:
    """Try the parts in the order in which each needs those before it; the first that fails of those ends it."""
    try:
        needed_user = entering.become_network_administrator()
    except entering.Refused as error:
        return _say("network namespaces", False, str(error.strerror))
    _say(
        "network namespaces",
        True,
        "made without root, in a user namespace" if needed_user else "made as root",
    )
    try:
        from pyroute2 import IPRoute  # type: ignore[import-untyped]
    except ImportError as error:
        return _say("pyroute2", False, f"{error}. Install it: pip install pyroute2")
    with IPRoute() as route:
        if not _tried("veth", lambda: route.link("add", ifname="end", kind="veth", peer="other")):
            return None
        end = route.link_lookup(ifname="end")[0]
        _tried("bridge", lambda: route.link("add", ifname="switch", kind="bridge"))
        network = _NETWORK if _tried("tbf", lambda: shaping.shape(route, end, _NETWORK)) else _UNSHAPED
        _tried("netem", lambda: _delay(route, end, network))
    return None


def _delay(route: Any, index: int, network: Network) -> None:
    if not shaping.delay(route, index, network):
        raise OSError("this kernel has no netem, so latency is not emulated")


def _tried(part: str, attempt: Callable[[], object]) -> bool:
    try:
        attempt()
    except Exception as error:
        _say(part, False, str(error))
        return False
    _say(part, True, "")
    return True


def _say(part: str, works: bool, text: str) -> None:
    print(json.dumps({"part": part, "works": works, "text": text}), flush=True)


if __name__ == "__main__":
    main()
