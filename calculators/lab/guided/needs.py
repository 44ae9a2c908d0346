"""What an experiment needs of a machine beyond CPU ranks, and why it is not there."""

from calculators.lab.devices import Devices
from calculators.lab.guided.claims import Guided
from calculators.lab.meters.sockets import why_wire_is_unseen


def why_not(guided: Guided, devices: Devices) -> str:
    """Why `guided` cannot run on this machine, as the end of a sentence; empty when it can."""
    if devices.torch is None:
        return "torch is not installed (the extra “lab” brings it)"
    if "wire" in guided.needs and (unseen := why_wire_is_unseen("gloo")):
        return unseen
    return ""
