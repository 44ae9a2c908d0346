"""What every calculation does with its arguments first: make them float64 arrays, and refuse what cannot be.

Arrays keep their own shapes. Nothing here broadcasts them: what depends on few axes stays small.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
_FLOAT64 = np.dtype(np.float64)

MOST = 1e18
"""Counts and sizes above this are refused: products of a few of them would overflow to infinity unseen."""

MOST_MULTIPLIED = 1e100
"""The same for what may already be a product of several sizes: bytes, operations, seconds."""


def floats(values: ArrayLike) -> Floats:
    """The values as float64: exact for whole numbers of bytes up to 2⁵³ (9 PB)."""
    return np.asarray(values, dtype=np.float64)


def counts(**given: ArrayLike) -> dict[str, Floats]:
    """Arguments that count things or are sizes: each value finite and 1 or more, all of them broadcasting.

    Raises ValueError that names the argument and its value, or the shapes that do not broadcast.

    >>> counts(layers=[32, 64], ranks=2)["layers"].tolist()
    [32.0, 64.0]
    """
    return _checked(given, low=1.0, low_words="1 or more")


def amounts(**given: ArrayLike) -> dict[str, Floats]:
    """Arguments that may also be zero: each value finite and not negative, all of them broadcasting.

    Raises ValueError like `counts`.
    """
    return _checked(given, low=0.0, low_words="0 or more")


def positive(**given: ArrayLike) -> dict[str, Floats]:
    """Speeds, rates and the like: each value finite and above zero, all of them broadcasting.

    Raises ValueError like `counts`.
    """
    return _checked(given, low=float(np.nextafter(0, 1)), low_words="more than 0")


def products(**given: ArrayLike) -> dict[str, Floats]:
    """Arguments that another calculation may have given, such as bytes and seconds: like `amounts`, but larger.

    Raises ValueError like `counts`.
    """
    return _checked(given, low=0.0, low_words="0 or more", high=MOST_MULTIPLIED)


def numbers(**given: ArrayLike) -> dict[str, Floats]:
    """Arguments with limits of their own: numbers, whichever. They may be not-a-number, and need not broadcast.

    Raises ValueError that names the argument and what was given, where that is no number.
    """
    return {name: _array(name, values) for name, values in given.items()}


def whole(name: str, value: object, *, low: int = 1, high: int = int(MOST)) -> int:
    """One whole number from `low` to `high`: for what cannot be an array, because it is built or played.

    Raises ValueError that names the argument and what was given.

    >>> whole("ranks", 8.0)
    8
    """
    if is_whole(value, least=low, most=high):
        return int(value)
    raise ValueError(f"{name} is {said(value)}, but it must be a whole number from {low:,} to {high:,}.")


def is_whole(value: object, *, least: int, most: float = MOST) -> TypeGuard[int]:
    """Whether it is one whole number from `least` to `most`; 8.0 is one, too."""
    return isinstance(value, int | float | np.number) and bool(least <= value <= most and value == int(value))


def check_group(ranks: object) -> None:
    """Raises ValueError where these cannot be the ranks of a group, each followed on its own."""
    if not isinstance(ranks, int | float | np.number) or not ranks >= 1:  # not-a-number is not
        raise ValueError(f"ranks is {said(ranks)}, but a group has at least 1 rank.")


def said(value: object) -> str:
    """A given value as an error repeats it: never at length."""
    if isinstance(value, int) and abs(value) > MOST:  # Python prints none of more than 4,300 digits
        return "an integer of more than 18 digits"
    return f"{value:g}" if isinstance(value, float | np.floating) else f"{value!r:.60}"


def check_broadcast(given: Mapping[str, Floats]) -> None:
    """Raises ValueError that names every shape where the arrays do not broadcast against each other."""
    shaped = {values.shape for values in given.values()} - {()}
    if len(shaped) < 2:
        return
    try:
        np.broadcast_shapes(*shaped)
    except ValueError:
        shapes = ", ".join(f"{name} {values.shape}" for name, values in given.items() if values.ndim)
        raise ValueError(
            f"The arrays do not broadcast: {shapes}. Give them one shape, or shapes that differ only where one of "
            "them is 1."
        ) from None


def everywhere(mask: NDArray[Any]) -> bool:
    """Whether it holds for all of them. `np.all` takes ten times as long for one, which most masks are of."""
    return bool(mask.all() if mask.ndim else mask)


def anywhere(mask: NDArray[Any]) -> bool:
    """Whether it holds for any of them."""
    return bool(mask.any() if mask.ndim else mask)


def _checked(
    given: Mapping[str, ArrayLike], *, low: float, low_words: str, high: float = MOST
) -> dict[str, Floats]:
    arrays = {name: _array(name, values) for name, values in given.items()}
    shaped = 0
    for name, values in arrays.items():
        if values.ndim:
            shaped += 1
            wrong = _outside(values, low, high)
        else:  # most are one number, and plain Python compares those ten times as fast
            value = values.item()
            wrong = None if low <= value <= high else value
        if wrong is not None:
            raise ValueError(
                f"{name} is {wrong:g}, but it must be a number, {low_words} and at most {high:g}."
            )
    if shaped > 1:
        check_broadcast(arrays)
    return arrays


def _outside(values: Floats, low: float, high: float) -> float | None:
    """A value that is not from `low` to `high`, as not-a-number is not; None where all are."""
    fine = (values >= low) & (values <= high)
    return None if fine.all() else float(values[~fine].flat[0])


def _array(name: str, values: Any) -> Floats:
    given = type(values)
    if given is np.ndarray and values.dtype is _FLOAT64:
        same: Floats = values
        return same
    # the usual cases, quickly; larger integers may not have a float64
    if given in (float, np.float64) or (given is int and abs(values) <= MOST_MULTIPLIED):
        return np.array(values, dtype=np.float64)
    try:
        array = np.asarray(values)
        if (
            values is None or array.dtype.kind == "c"
        ):  # NumPy takes None for not-a-number, and half of a complex one
            raise TypeError
        return floats(array)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{name} is {said(values)}, which is not a number or an array of numbers.") from None
