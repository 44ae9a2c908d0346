"""What every calculation does with its arguments first: make them float64 arrays, and refuse what cannot be.

Arrays keep their own shapes. Nothing here broadcasts them: what depends on few axes stays small.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

MOST = 1e18
"""Counts and sizes above this are refused: products of a few of them would overflow to infinity unseen."""


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


def check_broadcast(given: Mapping[str, Floats]) -> None:
    """Raises ValueError that names every shape where the arrays do not broadcast against each other."""
    try:
        np.broadcast_shapes(*(values.shape for values in given.values()))
    except ValueError:
        shapes = ", ".join(f"{name} {values.shape}" for name, values in given.items() if values.ndim)
        raise ValueError(
            f"The arrays do not broadcast: {shapes}. Give them one shape, or shapes that differ only where one of "
            "them is 1."
        ) from None


def _checked(given: Mapping[str, ArrayLike], *, low: float, low_words: str) -> dict[str, Floats]:
    arrays = {name: _array(name, values) for name, values in given.items()}
    for name, values in arrays.items():
        fine = (values >= low) & (values <= MOST)  # not-a-number is neither
        if not np.all(fine):
            wrong = values[~fine].flat[0]
            raise ValueError(
                f"{name} is {wrong:g}, but it must be a number, {low_words} and at most {MOST:g}."
            )
    check_broadcast(arrays)
    return arrays


def _array(name: str, values: ArrayLike) -> Floats:
    try:
        return floats(values)
    except (TypeError, ValueError):
        raise ValueError(f"{name} is {values!r:.60}, which is not a number or an array of numbers.") from None
