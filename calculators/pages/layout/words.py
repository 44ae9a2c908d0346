"""How pages speak of layouts: in a few words, and by the axes, the parts of time and the parts of memory."""

from collections.abc import Mapping
from functools import cache

from django.utils.html import format_html
from django.utils.safestring import SafeString

from calculators.predict.shapes import Recompute
from calculators.units import plain

TIME_PARTS = {
    "compute": "arithmetic",
    "recompute": "recomputation",
    "tensor": "TP exchanges",
    "context": "CP exchanges",
    "expert": "EP exchanges",
    "pipeline": "PP sends",
    "bubble": "PP bubble",
    "data": "DP exchanges",
    "optimizer": "optimizer",
}
"""The parts of a step's time, in the order in which they are shown."""
TIME_PAINT = {
    "compute": ("ink", ""),
    "recompute": ("ink", "/"),
    "tensor": ("tp", ""),
    "context": ("cp", ""),
    "expert": ("ep", ""),
    "pipeline": ("pp", ""),
    "bubble": ("pp", "/"),
    "data": ("dp", ""),
    "optimizer": ("ink", "."),
}
"""Colour and pattern of each part."""
MEMORY_PARTS = {
    "weights": "weights",
    "gradients": "gradients",
    "optimizer": "optimizer’s state",
    "activations": "activations",
    "kv_cache": "KV cache",
    "working": "what comes and goes",
}
MEMORY_PAINT = {
    "weights": ("ink", ""),
    "gradients": ("ink", "/"),
    "optimizer": ("ink", "."),
    "activations": ("accent", "x"),
    "kv_cache": ("accent", "-"),
    "working": ("muted", "|"),
}
AXIS_FAMILIES = {"tp": "tp", "cp": "cp", "pp": "pp", "ep": "ep", "etp": "tp", "dp": "dp", "edp": "dp"}
"""Axis of a composition → the family whose colour it has."""
AXIS_NAMES = {
    "tp": "tensor parallelism",
    "cp": "context parallelism",
    "pp": "pipeline parallelism",
    "ep": "expert parallelism",
    "etp": "tensor parallelism inside experts",
    "dp": "data parallelism",
    "edp": "data parallelism of experts",
}


def describe(layout: Mapping[str, float]) -> str:
    """A layout in a few words: the axes that are split, and what is switched on.

    >>> one = dict.fromkeys(("cp", "ep", "etp", "vpp", "micro_batch"), 1)
    >>> describe({**one, "tp": 8, "pp": 4, "dp": 2, "sp": 1, "zero": 1, "recompute": 0, "micro_batches": 32})
    'TP 8 × PP 4 × DP 2, SP, ZeRO-1, 32 micro-batches of 1'
    """
    return ", ".join(filter(None, (sizes_of(layout), details_of(layout))))


def sizes_of(layout: Mapping[str, float]) -> str:
    """The axes that are split."""
    sizes = [
        f"{axis.upper()} {plain(layout[axis])}"
        for axis in ("tp", "cp", "pp", "ep", "etp", "dp")
        if layout[axis] > 1
    ]
    return " × ".join(sizes) or "one device"


def details_of(layout: Mapping[str, float]) -> str:
    """What is switched on besides, with commas between; empty where nothing is."""
    chosen = []
    if layout["sp"]:
        chosen.append("SP")
    if layout["vpp"] > 1:
        chosen.append(f"{plain(layout['vpp'])} chunks a stage")
    if layout["zero"]:
        chosen.append(f"ZeRO-{plain(layout['zero'])}")
    if layout["recompute"]:
        chosen.append(f"{Recompute(int(layout['recompute'])).name.lower()} recomputation")
    if layout["micro_batches"] > 1 or layout["micro_batch"] > 1:
        many = layout["micro_batches"]
        chosen.append(
            f"{plain(many)} micro-batch{'' if many == 1 else 'es'} of {plain(layout['micro_batch'])}"
        )
    return ", ".join(chosen)


@cache
def badge(name: str) -> SafeString:
    """The mark of an axis, in the colour of its family."""
    return format_html('<span class="badge family-{}">{}</span>', AXIS_FAMILIES[name], name.upper())


def first_up(text: str) -> str:
    """A text as it begins a sentence."""
    return text[0].upper() + text[1:]
