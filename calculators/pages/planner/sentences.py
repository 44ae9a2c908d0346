"""The sentences of the page *Planner*: the quickest layout, how many were searched, and why there is none."""

from django.utils.html import format_html
from django.utils.safestring import SafeString

from calculators.pages.planner.found import in_words
from calculators.pages.planner.numbers import rate
from calculators.predict.planner import Plan
from calculators.predict.shapes import Phase
from calculators.units import counted, iec_bytes, plain, seconds


def headline(found: Plan) -> SafeString:
    """The quickest layout that fits: what it does in a second, and what it holds."""
    task, best = found.task, found.best
    together = rate(best["tokens_per_second"][0])
    does = (
        format_html("trains on <strong>{}</strong> tokens a second", together)
        if task.phase is Phase.TRAINING
        else format_html("writes <strong>{}</strong> tokens a second", together)
        if task.batch == 1
        else format_html(
            "writes <strong>{}</strong> tokens a second, {} for each of {} sequences",
            together,
            rate(1 / best["step_seconds"][0]),
            f"{task.batch:,}",
        )
    )
    return format_html(
        "The quickest layout that fits {}: <strong>{}</strong>. {} takes {}, and the fullest device needs {} of its "
        "{}.",
        does,
        in_words(best, 0),
        "A step" if task.phase is Phase.TRAINING else "A token",
        seconds(best["step_seconds"][0]),
        iec_bytes(best["memory_bytes"][0]),
        iec_bytes(task.cluster.device.memory_bytes),
    )


def searched(found: Plan) -> str:
    """How many layouts were calculated, and how many of them fit."""
    if not found.legal:
        return ""
    return (
        f"{counted(found.legal, 'layout')} kept every rule and {plain(found.fitting)} of them "
        f"{'fits' if found.fitting == 1 else 'fit'}. All were calculated; none was guessed or sampled."
    )


def nothing_fits(found: Plan) -> str:
    """Why there is no plan, and what would help."""
    task = found.task
    if found.smallest is None:
        sizes = (
            f"{counted(task.shape.layers, 'layer')}, {counted(task.shape.attention_heads, 'attention head')}"
            + (f", {counted(task.batch, 'sequence')}" if task.phase is Phase.TRAINING else "")
        )
        even = "" if task.uneven_stages else ", or let stages differ by a layer"
        return (
            f"No layout of {counted(task.cluster.devices, 'device')} keeps every rule: {sizes} do not share out among "
            f"so many. Change the number of devices{' or of sequences' if task.phase is Phase.TRAINING else ''}{even}."
        )
    least, limit = found.smallest["memory_bytes"][0], max(0.0, task.limit_bytes)
    shorter = "shorter sequences" if task.phase is Phase.TRAINING else "fewer or shorter sequences"
    return (
        f"{counted(found.legal, 'layout')} {'keeps' if found.legal == 1 else 'keep'} every rule, but none fits: the "
        f"one that needs least, {in_words(found.smallest, 0)}, takes {iec_bytes(least)} of each device, and "
        f"{iec_bytes(limit)} is there. Take more devices, larger ones, or {shorter}."
    )
