"""A config.json as text from anybody: JSON or a sentence, and how sentences repeat what it says."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

LARGEST_BYTES = 256 * 1024
"""A configuration takes a few kilobytes. Whatever is larger is something else."""

_MOST_REPEATED = 10


class ConfigError(ValueError):
    """A configuration that cannot be read; `problems` has a sentence for each reason."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__(" ".join(self.problems))


def read_object(text: str | bytes) -> dict[str, Any]:
    """The file as JSON. Raises ConfigError that says where it stops being that."""
    size = len(text) if isinstance(text, bytes) else len(text.encode("utf-8", "replace"))
    if size > LARGEST_BYTES:
        raise ConfigError(
            [
                f"The file has {size:,} bytes, but a config.json takes a few thousand and this page reads "
                f"{LARGEST_BYTES:,} at most: give the config.json itself, not the weights or the tokenizer."
            ]
        )
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise ConfigError(
                [
                    f"Byte {error.start + 1:,} of the file is no UTF-8 text: give the config.json itself, unpacked."
                ]
            ) from None
    text = text.removeprefix("\ufeff")
    if not text.strip():
        raise ConfigError(["Nothing was given: paste the text of a config.json, or upload one."])
    repeated: list[str] = []

    def pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:
        seen: dict[str, Any] = {}
        for key, value in found:
            if key in seen:
                repeated.append(
                    f"{_bare(key)} is given twice, as {shown(seen[key])} and as {shown(value)}: keep one of them."
                )
            seen[key] = value
        return seen

    try:
        whole = json.loads(text, object_pairs_hook=pairs, parse_constant=_constant, parse_int=_integer)
    except json.JSONDecodeError as error:
        raise ConfigError([_broken(text, error)]) from None
    except RecursionError:
        raise ConfigError(
            ["The file nests lists and objects too deeply to be a config.json: give the config.json itself."]
        ) from None
    if not isinstance(whole, dict):
        raise ConfigError(
            [f"The file is {shown(whole)}, but a config.json is an object: give all of it, from {{ to }}."]
        )
    if repeated:
        raise ConfigError(repeated[:_MOST_REPEATED])
    return whole


def _broken(text: str, error: json.JSONDecodeError) -> str:
    place = f"line {error.lineno:,}, column {error.colno:,}"
    if error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated string"):
        return f"The file ends before its last bracket is closed ({place}): a part is missing, so give all of it."
    near = text[error.pos : error.pos + 20].split("\n")[0].strip()
    reason = error.msg[:1].lower() + error.msg[1:]
    return f"The file is no JSON from {place} on, near {shown(near)} ({reason}): correct it, or give it as it was."


def _constant(word: str) -> NoReturn:
    raise ConfigError(
        [f"The file holds {word}, which JSON does not have: write a number or null in its place."]
    )


def _integer(digits: str) -> int | float:
    return (
        int(digits) if len(digits) <= 18 else float(digits)
    )  # Python refuses thousands of digits; no size has 18


def shown(value: object) -> str:
    """A value as JSON writes it, never at length."""
    if isinstance(value, list) and all(isinstance(each, int) for each in value) and len(value) < 8:
        return json.dumps(value)
    if isinstance(value, list):
        return f"a list of {len(value):,}"
    if isinstance(value, dict):
        return "an object"
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:40]}…{text[0] if text[0] == text[-1] == chr(34) else ''}"


def _bare(key: str) -> str:
    """A key as a sentence begins with it."""
    return key if len(key) <= 40 and key.isascii() and key.isidentifier() else shown(key)


def listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
