"""The sentences of the page *Link speed*: the time there is, what a faster cable gains, and what does not fit."""

from collections.abc import Iterator

from calculators.pages.link_speed.case import FAMILIES, LinkCase
from calculators.pages.link_speed.numbers import three_digits, times
from calculators.pages.link_speed.split import NAMES, Split
from calculators.predict.links import rung
from calculators.predict.memory import fits, room, serving_memory
from calculators.units import counted, iec_bytes, seconds


def headline(case: LinkCase, tp: Split) -> str:
    """The time that a token has, and what of it is left for exchanges."""
    ceiling = tp.work.device_ceiling.item()
    if case.devices == 1:
        return (
            f"One {case.device.name} reads what a token needs {three_digits(ceiling)} times a second, so it "
            f"writes at most {three_digits(ceiling)} tokens/s, over no link at all. Take two or more."
        )
    return (
        f"A token is due every {seconds(1 / case.wanted)}. Sharing every layer, {case.devices:,} devices spend "
        f"{seconds(tp.device_seconds)} of that reading; the {counted(tp.work.rounds.item(), 'exchange')} have "
        + (f"the other {seconds(tp.seconds_left)}." if tp.seconds_left > 0 else "no time left.")
    )


def lesson_of_the_cable(case: LinkCase, tp: Split) -> str:
    """What a faster cable does for tensor parallelism over TCP, beside what a quicker answer does."""
    if case.devices == 1:
        return ""
    keys = [step.key for step in case.steps]
    speeds = tp.over.tokens_per_second
    slow, fast, quick = (speeds[keys.index(key)] for key in ("ethernet-10", "ethernet-400", "roce-400"))
    waits = tp.work.rounds.item() * rung("ethernet-400").typical_latency_seconds
    return (
        f"Over TCP a cable 40 times as fast, 400 instead of 10 Gbit/s, makes tensor parallelism "
        f"{times(fast / slow)} as fast: {three_digits(slow)} → {three_digits(fast)} tokens/s, because "
        f"{counted(tp.work.rounds.item(), 'exchange')} still wait {seconds(waits)} in all for answers. The same cable "
        f"with RDMA, which answers sooner, makes it {times(quick / slow)} as fast."
    )


def warnings(case: LinkCase) -> Iterator[str]:
    """Which layouts a device has no room for."""
    sizes = {
        "batch": case.batch,
        "context_tokens": case.context,
        "weight_bytes_per_element": case.weight_bytes,
    }
    for family in FAMILIES[: case.devices]:
        held = serving_memory(case.shape, case.layouts[family], **sizes)
        if not fits(held, case.device):
            split = f" under {NAMES[family].lower()}" if case.devices > 1 else ""
            yield (
                f"It does not fit{split}: a device would hold {iec_bytes(held.total.item())}, and a {case.device.name} "
                f"has room for {iec_bytes(room(case.device).item())}. Take more devices or fewer bits per weight."
            )
