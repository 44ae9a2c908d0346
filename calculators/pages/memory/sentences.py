"""The sentences of the page *Memory*: whether it fits, where most of it goes, and what to make of the changes."""

from calculators.pages.memory.parts import MEANINGS, NAMES
from calculators.predict.devices import Device
from calculators.predict.memory import Memory
from calculators.predict.memory.levers import largest_part
from calculators.units import iec_bytes, whole_percent


def verdict(chosen: Device, *, total: float, limit: float) -> str:
    """How what is held compares with what the device has."""
    free = f"{chosen.name} has {iec_bytes(chosen.memory_bytes)}, of which {iec_bytes(limit)} are to be filled"
    over = total - limit
    return f"{free}: {iec_bytes(abs(over))} {'too little' if over > 0 else 'to spare'}."


def largest(memory: Memory) -> str:
    """Where most of it goes."""
    part = largest_part(memory)
    share = getattr(memory, part).item() / memory.total.item()
    percent = whole_percent(share).replace(" ", "\N{NO-BREAK SPACE}")
    return f"Most of it, {percent}, is {NAMES[part].lower()}: {MEANINGS[part]}."


def advice(*, fits: bool, alone: int, pulled: int, any_lever: bool) -> str:
    """What to make of the changes: how many fit alone, and how many were pulled one after another."""
    if not any_lever:
        return "Nothing on this page would make it smaller."
    if fits:
        return (
            "It fits as it is. This would leave room for longer sequences, or let a smaller device hold it:"
        )
    if alone == 1:
        return "One of these changes alone makes it fit:"
    if alone:
        return f"Any of {alone} changes alone makes it fit:"
    if pulled:
        return "None of these changes alone makes it fit. One after another they do:"
    return "No change on this page makes it fit, nor do several: take more devices, larger ones, or a smaller model."
