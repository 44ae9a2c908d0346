"""From what TOML or a form gives to the values of a spec, field by field, each refusal a sentence."""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

from calculators.lab import choices
from calculators.lab.limits import MAX_RANKS
from calculators.lab.problems import Problem

MODEL = ("layers", "hidden_size", "attention_heads", "ffn_width", "vocab_size")
"""The fields that a table [model] may group."""


class Unreadable(ValueError):
    """A value that is not of its field's kind; the text is the sentence to show."""


def flatten(given: Mapping[str, Any]) -> tuple[dict[str, Any], list[Problem]]:
    """The values by field name, and a problem for each key that no field has."""
    flat: dict[str, Any] = {}
    problems: list[Problem] = []
    known = set(READERS)
    for name, value in given.items():
        if name == "model" and isinstance(value, Mapping):
            for inner, size in value.items():
                if inner in MODEL:
                    flat[inner] = size
                else:
                    sizes = ", ".join(MODEL)
                    text = f"The key “{inner}” in [model] is unknown. The sizes of a model are {sizes}."
                    problems.append(Problem(inner, text))
        elif name in known:
            flat[name] = value
        else:
            keys = ", ".join(sorted(known - set(MODEL)))
            text = f"The key “{name}” is unknown. A spec may hold {keys} and a table [model]."
            problems.append(Problem(name, text))
    return flat, problems


def read(flat: Mapping[str, Any]) -> tuple[dict[str, Any], list[Problem]]:
    """Each value as its field keeps it, and a problem for each that cannot be."""
    values: dict[str, Any] = {}
    problems: list[Problem] = []
    for name, value in flat.items():
        try:
            values[name] = READERS[name](name, value)
        except Unreadable as error:
            problems.append(Problem(name, str(error)))
    return values, problems


# Smallest and largest value of each whole number, and what it counts.
_RANGES = {
    "ranks": (1, MAX_RANKS, "ranks"),
    "hosts": (1, MAX_RANKS, "emulated hosts"),
    "tp": (1, MAX_RANKS, "ranks"),
    "pp": (1, MAX_RANKS, "stages"),
    "dp": (1, MAX_RANKS, "replicas"),
    "ep": (1, MAX_RANKS, "ranks"),
    "zero": (1, 3, ""),
    "chunks": (1, 16, "chunks"),
    "experts": (1, 256, "experts"),
    "top_k": (1, 16, "experts"),
    "lost_rank": (-1, MAX_RANKS - 1, ""),
    "layers": (1, 256, "layers"),
    "hidden_size": (8, 16_384, "elements"),
    "attention_heads": (1, 256, "heads"),
    "ffn_width": (8, 65_536, "elements"),
    "vocab_size": (8, 262_144, "tokens"),
    "batch": (1, 4_096, "sequences"),
    "tokens": (1, 16_384, "tokens"),
    "microbatches": (1, 256, "micro-batches"),
    "call_bytes": (2, 2**30, "bytes"),
    "repeats": (1, 4_096, "times a step"),
    "steps": (10, 10_000, "measured steps"),
    "warmup_steps": (1, 1_000, "warm-up steps"),
    "seed": (0, 2**31 - 1, ""),
}


# Smallest and largest value of each number with a fraction, and what the two ends mean.
_SPANS = {
    "time_limit_seconds": (1, 3_600, "it must be from 1 to 3,600 seconds"),
    "skew": (0, 8, "it must be from 0 (all alike) to 8 (nearly all to one)"),
    "capacity": (0, 64, "it must be from 0 (no token is dropped) to 64 times an equal share"),
    "link_mbit": (0, 400_000, "it must be from 0 (not slowed down) to 400,000 Mbit/s"),
    "delay_ms": (0, 1_000, "it must be from 0 to 1,000 ms"),
    "jitter_ms": (0, 1_000, "it must be from 0 to 1,000 ms"),
}


def _whole_number(name: str, value: Any) -> int:
    low, high, unit = _RANGES[name]
    number = _plain_int(value)
    counted = f" {unit}" if unit else ""
    if number is None:
        raise Unreadable(
            f"{name} is “{value}”, but it must be a whole number from {low} to {high:,}{counted}."
        )
    if number < low:
        raise Unreadable(f"{name} is {number:,}, but the least that works is {low:,}{counted}.")
    if number > high:
        raise Unreadable(f"{name} is {number:,}, but this lab stops at {high:,}{counted}.")
    return number


def _plain_int(value: Any) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, str):
        text = value.strip()
        if text.removeprefix("-").isascii() and text.removeprefix("-").isdigit() and len(text) <= 20:
            return int(text)
    return None


def _choice(kind: type[StrEnum]) -> Callable[[str, Any], StrEnum]:
    def read(name: str, value: Any) -> StrEnum:
        try:
            return kind(value)
        except ValueError:
            offered = ", ".join(f"“{choice}”" for choice in kind)
            raise Unreadable(f"{name} is “{value}”, but it must be one of {offered}.") from None

    return read


_SWITCH = {"true": True, "on": True, "yes": True, "false": False, "off": False, "no": False, "": False}


def _switch(name: str, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    said = _SWITCH.get(value.strip().lower()) if isinstance(value, str) else None
    if said is None:
        raise Unreadable(f"{name} is “{value}”, but it must be true or false.")
    return said


def _number(name: str, value: Any) -> float:
    low, high, must = _SPANS[name]
    number = _plain_float(value)
    if not low <= number <= high:
        raise Unreadable(f"{name} is “{value}”, but {must}.")
    return number


def _plain_float(value: Any) -> float:
    try:
        return float("nan") if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        return float("nan")


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or len(value) > 500 or not value.isprintable():
        raise Unreadable(f"{name} must be one line of text, 500 characters at most.")
    return value


CHOICES: dict[str, type[StrEnum]] = {
    "job": choices.Job,
    "phase": choices.Phase,
    "gradients": choices.Gradients,
    "schedule": choices.Schedule,
    "qkv": choices.Qkv,
    "attention": choices.Attention,
    "reduce_scatter": choices.ReduceScatter,
    "order": choices.Order,
    "pattern": choices.Pattern,
    "dtype": choices.Dtype,
    "device": choices.Device,
}
"""The fields whose values are named, and the names."""

SWITCHES = ("sequence", "regather", "zigzag")
"""The fields that are on or off."""

READERS: dict[str, Callable[[str, Any], Any]] = {
    **{name: _choice(kind) for name, kind in CHOICES.items()},
    **dict.fromkeys(SWITCHES, _switch),
    **dict.fromkeys(_SPANS, _number),
    **dict.fromkeys(_RANGES, _whole_number),
    "note": _text,
}
"""What reads each field's value; the fields of a spec are exactly these."""
