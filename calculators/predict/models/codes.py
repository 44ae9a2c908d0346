"""A model's sizes as a short text for addresses, and back: h4096.l32.a32.k8.d128.f14336.v128256.b2~Llama_3.1_8B.

Each part is a letter and a whole number, or several joined by hyphens; after the tilde comes the name. Only characters
that an address carries as they are: letters, digits and `.-_~`. There is one code for every model, so one address.
Where the sizes were read is not in it: an address cannot vouch for that.
"""

from __future__ import annotations

import re
from dataclasses import astuple, fields
from typing import Any

from calculators.predict.shapes import Experts, LatentAttention, ModelShape, SlidingWindow

MOST = {
    "hidden_size": 1_000_000,
    "layers": 10_000,
    "attention_heads": 10_000,
    "kv_heads": 10_000,
    "head_dim": 100_000,
    "ffn_width": 10_000_000,
    "vocab_size": 100_000_000,
    "bytes_per_element": 8,
    "positions": 100_000_000,
    "routed": 100_000,
    "per_token": 100_000,
    "width": 10_000_000,
    "shared_width": 10_000_000,
    "dense_layers": 10_000,
    "kv_rank": 1_000_000,
    "rope_dim": 100_000,
    "query_rank": 1_000_000,
    "value_dim": 100_000,
    "tokens": 1_000_000_000,
}
"""The largest of each size that an address or a configuration may give: beyond any model, and soon calculated."""

LONGEST_NAME = 60
LONGEST_CODE = 1_000  # of which a name in any script takes 12 a character at most

SOURCE = "the address of this page"

_LETTERS = {
    "h": "hidden_size",
    "l": "layers",
    "a": "attention_heads",
    "k": "kv_heads",
    "d": "head_dim",
    "f": "ffn_width",
    "v": "vocab_size",
    "b": "bytes_per_element",
    "p": "positions",
}
_OPTIONAL = {"p"}
_WORDS: dict[str, tuple[str, bool]] = {"ungated": ("gated", False), "tied": ("tied_embeddings", True)}
_GROUPS: dict[str, tuple[str, type[Any]]] = {
    "e": ("experts", Experts),
    "c": ("latent", LatentAttention),  # for compressed
    "w": ("window", SlidingWindow),
}
_CAN_BE_ZERO = {"shared_width", "dense_layers", "query_rank"}


def code_of(shape: ModelShape) -> str:
    """The code of a model; `shape_of` gives it back, but for `source`.

    Raises ValueError for a name or a size that no code has.

    >>> from calculators.predict.models.catalogue import MODELS
    >>> code_of(MODELS["gpt-oss-20b"].shape)
    'h2880.l24.a64.k8.d64.f2880.v201088.b2.e32-4-2880-0-0.w128-12~gpt-oss_20B'
    """
    _check(shape)
    parts = [
        f"{letter}{getattr(shape, name)}"
        for letter, name in _LETTERS.items()
        if getattr(shape, name) or letter not in _OPTIONAL
    ]
    parts += [word for word, (name, value) in _WORDS.items() if getattr(shape, name) is value]
    parts += [
        letter + "-".join(map(str, astuple(group)))
        for letter, (name, _) in _GROUPS.items()
        if (group := getattr(shape, name))
    ]
    return ".".join(parts) + (f"~{_escaped(shape.name)}" if shape.name else "")


def shape_of(code: str) -> ModelShape:
    """The model that a code stands for. Raises ValueError that names what is wrong with it.

    >>> shape_of("h4096.l64.a32.k8.d128.f14336.v128256.b2~Mine").layers
    64
    """
    if len(code) > LONGEST_CODE:
        raise ValueError(
            f"The code has {len(code):,} characters, but no model needs more than {LONGEST_CODE:,}. Copy it again."
        )
    body, _, name = code.partition("~")
    given: dict[str, Any] = {}
    for part in body.split("."):
        field, value = _part(part)
        if field in given:
            raise ValueError(f"The code says {field} twice. Keep one.")
        given[field] = value
    missing = [
        f"{letter} ({field})"
        for letter, field in _LETTERS.items()
        if field not in given and letter not in _OPTIONAL
    ]
    if missing:
        raise ValueError(f"The code lacks {', '.join(missing)}. Add a number for each, as in h4096.")
    shape = ModelShape(name=_unescaped(name), source=SOURCE, **given)
    written = code_of(shape)
    if written != code:
        raise ValueError(f"The code is another way to write {written}. Use that one.")
    return shape


def _part(part: str) -> tuple[str, Any]:
    """What one part of a code says: a field of ModelShape and its value."""
    if part in _WORDS:
        return _WORDS[part]
    found = re.fullmatch(r"([a-z])(\d{1,12}(?:-\d{1,12}){0,8})", part, re.ASCII)
    letter, numbers = (found[1], [int(number) for number in found[2].split("-")]) if found else ("", [])
    if letter in _LETTERS and len(numbers) == 1:
        return _LETTERS[letter], _sized(_LETTERS[letter], numbers[0])
    if letter in _GROUPS:
        field, kind = _GROUPS[letter]
        names = [each.name for each in fields(kind)]
        if len(numbers) == len(names):
            return field, kind(
                **{name: _sized(name, number) for name, number in zip(names, numbers, strict=True)}
            )
        raise ValueError(
            f"The part {part} of the code has {len(numbers)} numbers, but {field} need {len(names)}: "
            f"{', '.join(names)}. Join them with hyphens."
        )
    letters = ", ".join([*_LETTERS, *_GROUPS])
    raise ValueError(
        f"The code has the part {part[:20]!r}, which says nothing about a model. A part is one of the letters "
        f"{letters} with its numbers, or one of {', '.join(_WORDS)}."
    )


def _sized(name: str, number: int) -> int:
    least = 0 if name in _CAN_BE_ZERO else 1
    if not least <= number <= MOST[name]:
        raise ValueError(f"{name} is {number:,} in the code. Use {least} to {MOST[name]:,}.")
    return number


def _check(shape: ModelShape) -> None:
    """Raises ValueError for what a code cannot carry, or a calculation should not meet."""
    for letter, name in _LETTERS.items():
        if letter not in _OPTIONAL or getattr(shape, name):
            _sized(name, getattr(shape, name))
    for name, _ in _GROUPS.values():
        if group := getattr(shape, name):
            for each in fields(group):
                _sized(each.name, getattr(group, each.name))
    if shape.window and shape.window.layers > shape.layers:
        raise ValueError(
            f"{shape.window.layers} layers have a window, but there are only {shape.layers}. "
            f"Use {shape.layers} or fewer."
        )
    if len(shape.name) > LONGEST_NAME or not shape.name.isprintable():
        raise ValueError(
            f"The model's name is {shape.name[:40]!r}, but a name has at most {LONGEST_NAME} characters, all of them "
            "printable. Choose a simpler one."
        )


def _escaped(name: str) -> str:
    """Spaces as underscores; letters and digits of ASCII, points and hyphens as they are; the rest as ~XX in UTF-8."""
    return "".join(
        "_"
        if character == " "
        else character
        if re.fullmatch(r"[A-Za-z0-9.-]", character)
        else _hex(character)
        for character in name
    )


def _hex(character: str) -> str:
    return "".join(f"~{byte:02X}" for byte in character.encode("utf-8"))


def _unescaped(text: str) -> str:
    name = re.sub(rb"~([0-9A-F]{2})", lambda found: bytes([int(found[1], 16)]), _bytes(text))
    try:
        return name.decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError(
            f"The name in the code, {text[:40]!r}, is damaged. Copy the address again."
        ) from None


def _bytes(text: str) -> bytes:
    return text.replace("_", " ").encode("utf-8", "replace")
