"""The sentences of the page *One layout*: what follows from its sizes, what it does, and whether it fits."""

from django.utils.html import format_html
from django.utils.safestring import SafeString

from calculators.pages.layout.case import LayoutCase
from calculators.predict.shapes import Phase
from calculators.units import counted, iec_bytes, plain, seconds


def what_follows(case: LayoutCase) -> str:
    """How many replicas there are, and why so many."""
    layout, devices = case.layout, case.cluster.devices
    replica = layout.tp * layout.cp * layout.pp
    product = f"tp {layout.tp} × cp {layout.cp} × pp {layout.pp} = {counted(replica, 'device')}"
    if devices % replica:
        return f"A replica takes {product}, and {counted(devices, 'device')} do not make a whole number of those."
    return f"A replica takes {product}, so {counted(devices, 'device')} make dp = {plain(devices / replica)}."


def headline(case: LayoutCase) -> SafeString:
    """What it moves, how quick it is, and what it holds."""
    moved = (
        format_html(
            'for each {} the busiest rank sends <strong class="num"><span class="swatch predicted"></span> {}</strong>',
            case.phase.unit,
            iec_bytes(case.sent_bytes),
        )
        if case.axes
        else "one device has all of it, so nothing travels"
    )
    return format_html(
        "{}: {}. {}; {} <strong>{}</strong> of its {}.",
        case.says,
        moved,
        _speed(case),
        "the device holds" if case.cluster.devices == 1 else "the fullest device holds",
        iec_bytes(case.memory_bytes),
        iec_bytes(case.cluster.device.memory_bytes),
    )


def _speed(case: LayoutCase) -> SafeString:
    rate = plain(round(case.tokens_per_second, 1 if case.tokens_per_second < 100 else None))
    if case.phase is Phase.DECODE:
        each = 1 / case.seconds
        return format_html(
            "A token takes <strong>{}</strong>, so {} gets {} tokens a second{}",
            seconds(case.seconds),
            "each sequence" if case.batch > 1 else "the sequence",
            plain(round(each, 1 if each < 100 else None)),
            f", and all {case.batch:,} together {rate}" if case.batch > 1 else "",
        )
    what = "The step takes" if case.is_training else "Reading the prompts takes"
    return format_html(
        "{} <strong>{}</strong>, which is {} tokens a second", what, seconds(case.seconds), rate
    )


def misfit(case: LayoutCase) -> str:
    """By how much it does not fit, if so."""
    if case.fits:
        return ""
    return (
        f"It does not fit: {iec_bytes(case.memory_bytes)} is more than the {iec_bytes(max(case.limit_bytes, 0))} "
        f"that {case.cluster.device.name} has beside the reserve. What follows is what it would do if it did."
    )


def left_out(case: LayoutCase) -> str:
    """What the form says that the phase does not have."""
    if case.is_training:
        return ""
    return (
        "Micro-batches, chunks, recomputation, ZeRO stages and optimizers belong to training"
        + (", and one token cannot be cut as sequence parallelism does" if case.phase is Phase.DECODE else "")
        + ": what the form says of them is not read."
    )


def busiest(case: LayoutCase) -> str:
    """Which ranks send most, where stages differ."""
    sent = case.sent_by_stage
    if len(sent) == 1:
        return "There is one stage, so every rank has the same calls to make."
    most, least = int(sent.argmax()), int(sent.argmin())
    if sent[most] - sent[least] < 0.005 * sent[most]:
        return f"All {len(sent)} stages are equally busy."
    return (
        f"Stages differ: ranks of stage {most} send most, {iec_bytes(sent[most])}, those of stage {least} least, "
        f"{iec_bytes(sent[least])}."
    )
