"""Decoding over a link put into formulas: what the devices take, what the link adds, and the link that is needed."""

from __future__ import annotations

from calculators.predict.arrays import positive
from calculators.predict.clusters import Link
from calculators.predict.devices import Device
from calculators.predict.formulas import Formula, legend_of, tex_scaled
from calculators.predict.serving import DecodeWork

_LEGEND = {
    "R": "bytes of weights that a device reads, along all stages",
    "K": "bytes of cached keys and values that it reads",
    "M": "memory bytes/s of a device",
    "D": "seconds in which the devices read and compute",
    "x": "exchanges that wait for one another",
    r"\alpha": "latency of one, in seconds",
    "V": "bytes that cross one after another",
    r"\beta": "bytes/s of the link in one direction",
    "w": "tokens/s that are wanted",
}


def decode_formulas(work: DecodeWork, *, device: Device, link: Link, wanted: float) -> tuple[Formula, ...]:
    r"""How fast one layout writes over `link`, the most that any link of its latency allows, and the one it needs.

    `work` is of one layout (scalars). Raises ValueError where `wanted` is not above 0.

    >>> from calculators.predict.models.catalogue import MODELS
    >>> from calculators.predict.devices import DEVICES
    >>> from calculators.predict.serving import decode_work
    >>> from calculators.predict.shapes import Layouts
    >>> card, cable = DEVICES["rtx-4090"], Link(name="cable", bytes_per_second=1.25e9, latency_seconds=120e-6)
    >>> work = decode_work(MODELS["lesson"].shape, Layouts(tp=2), device=card)
    >>> print(decode_formulas(work, device=card, link=cable, wanted=20)[-1].numbers)
    \frac{1{,}048{,}576}{\frac{1}{20} - 0.01437 - 128 \cdot 0.00012} = 51.73 \cdot 10^{6}\,\text{B/s}
    """
    positive(wanted=wanted)
    latency, speed = link.latency_seconds, link.bytes_per_second
    over = work.over(bytes_per_second=speed, latency_seconds=latency)
    d, rounds, sent = work.device_seconds.item(), work.rounds.item(), work.sent_bytes.item()
    waits = _waits(work, latency)
    formulas = [_device(work, device)]
    if not rounds:
        return tuple(formulas)
    return (
        *formulas,
        _formula(
            f"Tokens/s over {link.name}",
            r"\frac{1}{D + x\,\alpha + \frac{V}{\beta}}",
            rf"\frac{{1}}{{{tex_scaled(d)} + {waits} + \frac{{{tex_scaled(sent)}}}{{{tex_scaled(speed)}}}}}"
            rf" = {tex_scaled(over.tokens_per_second.item())}",
            ("D", "x", r"\alpha", "V", r"\beta"),
        ),
        _formula(
            "Tokens/s that no faster cable of this latency exceeds",
            r"\frac{1}{D + x\,\alpha}",
            rf"\frac{{1}}{{{tex_scaled(d)} + {waits}}} = {tex_scaled(over.latency_ceiling.item())}",
            ("D", "x", r"\alpha"),
        ),
        _needed(work, latency=latency, wanted=wanted),
    )


def _device(work: DecodeWork, device: Device) -> Formula:
    read, cached, seconds = work.weight_bytes.item(), work.kv_bytes.item(), work.device_seconds.item()
    if work.arithmetic_seconds > work.memory_seconds or work.inside_seconds > 0:
        return _formula("Seconds of the devices", "D", tex_scaled(seconds) + r"\,\text{s}", ("D",))
    speed = tex_scaled(device.memory_bytes_per_second)
    return _formula(
        "Seconds in which the devices read",
        r"D = \frac{R + K}{M}",
        rf"\frac{{{tex_scaled(read)} + {tex_scaled(cached)}}}{{{speed}}} = {tex_scaled(seconds)}\,\text{{s}}",
        ("D", "R", "K", "M"),
    )


def _needed(work: DecodeWork, *, latency: float, wanted: float) -> Formula:
    needed = work.link_needed(tokens_per_second=wanted, latency_seconds=latency)
    left = rf"\frac{{1}}{{{tex_scaled(wanted)}}} - {tex_scaled(work.device_seconds.item())} - {_waits(work, latency)}"
    if not needed.can_be_bought:
        return _formula(
            "Seconds left for bytes: none, so no link of this latency is fast enough",
            r"\frac{1}{w} - D - x\,\alpha",
            rf"{left} = {tex_scaled(needed.seconds_left.item())}\,\text{{s}}",
            ("w", "D", "x", r"\alpha"),
        )
    sent, speed = tex_scaled(work.sent_bytes.item()), tex_scaled(needed.bytes_per_second.item())
    return _formula(
        "Bytes/s that are needed at this latency",
        r"\frac{V}{\frac{1}{w} - D - x\,\alpha}",
        rf"\frac{{{sent}}}{{{left}}} = {speed}\,\text{{B/s}}",
        ("V", "w", "D", "x", r"\alpha"),
    )


def _waits(work: DecodeWork, latency: float) -> str:
    return rf"{tex_scaled(work.rounds.item())} \cdot {tex_scaled(latency)}"


def _formula(gives: str, symbols: str, numbers: str, letters: tuple[str, ...]) -> Formula:
    return Formula(
        gives=gives,
        symbols=symbols,
        numbers=numbers,
        legend=legend_of(letters, _LEGEND),
    )
