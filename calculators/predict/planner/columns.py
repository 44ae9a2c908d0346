"""What is known of each layout, in columns by name, and how the columns of a block are written out flat."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields

import numpy as np
from numpy.typing import NDArray

from calculators.predict.arrays import Floats
from calculators.predict.memory import Memory
from calculators.predict.shapes import Layouts
from calculators.predict.timing import StepTime

AXES = ("dp", "tp", "cp", "pp", "ep", "etp", "sp", "vpp", "micro_batch", "zero", "recompute")
MEMORY_PARTS = tuple(part.name for part in fields(Memory))
TIME_PARTS = tuple(part.name for part in fields(StepTime))
MEMORY_COLUMNS = tuple(f"{name}_bytes" for name in MEMORY_PARTS)
TIME_COLUMNS = tuple(f"{name}_seconds" for name in TIME_PARTS)
COLUMNS = (
    *AXES,
    "micro_batches",
    *MEMORY_COLUMNS,
    "memory_bytes",
    *TIME_COLUMNS,
    "step_seconds",
    "tokens_per_second",
)
"""Everything that is calculated of a layout."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Evaluated:
    """Legal layouts with everything that was calculated of them: flat arrays of one length, in columns by name."""

    columns: Mapping[str, NDArray[np.float64]]

    def __len__(self) -> int:
        return len(self.columns["step_seconds"])

    def __getitem__(self, name: str) -> Floats:
        return self.columns[name]

    def rows(self, which: NDArray[np.intp]) -> Evaluated:
        """Some of the layouts, in the order that `which` names them."""
        if isinstance(self.columns, BlockColumns):
            return Evaluated(columns=self.columns.rows(which))
        return Evaluated(columns={name: values[which] for name, values in self.columns.items()})

    def layout(self, row: int) -> Layouts:
        """One of them, to calculate on with."""
        return Layouts(**{axis: self.columns[axis][row].item() for axis in AXES})


def joined(first: Evaluated | None, second: Evaluated) -> Evaluated:
    """The layouts of both, those of `first` first."""
    if first is None:
        return second
    return Evaluated(
        columns={name: np.concatenate((first.columns[name], second.columns[name])) for name in COLUMNS}
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class BlockColumns(Mapping[str, Floats]):
    """The columns of a block, each written out flat when somebody asks for it.

    arrays       the columns of six dimensions, each as large as what it depends on
    free, ruled  the dimensions of the block: two that no rule is about, and four that rules are about
    kept         which places of the latter are legal, in order; None for all of them
    """

    arrays: Mapping[str, Floats]
    free: tuple[int, int]
    ruled: tuple[int, ...]
    kept: NDArray[np.intp] | None
    _written: dict[str, Floats] = field(default_factory=dict)
    _positions: dict[tuple[int, ...], NDArray[np.intp]] = field(default_factory=dict)

    def __iter__(self) -> Iterator[str]:
        return iter(self.arrays)

    def __len__(self) -> int:
        return len(self.arrays)

    def __getitem__(self, name: str) -> Floats:
        if name not in self._written:
            self._written[name] = self._flat(self.arrays[name])
        return self._written[name]

    @property
    def places(self) -> int:
        """How many places are legal: there are as many rows for each choice of the free axes."""
        return int(np.prod(self.ruled)) if self.kept is None else len(self.kept)

    def rows(self, which: NDArray[np.intp]) -> dict[str, Floats]:
        """Some rows of all columns, without writing out the rest."""
        *chosen, place = np.unravel_index(which, (*self.free, self.places))
        at = (*chosen, *np.unravel_index(place if self.kept is None else self.kept[place], self.ruled))
        return {
            name: np.asarray(
                values[tuple(index if size > 1 else 0 for index, size in zip(at, values.shape, strict=True))]
                if values.size > 1
                else np.full(len(which), values.item())
            )
            for name, values in self.arrays.items()
        }

    def _flat(self, values: Floats) -> Floats:
        if values.size == 1:
            return np.full(self.free[0] * self.free[1] * self.places, values.item())
        if self.kept is None:
            return np.broadcast_to(values, (*self.free, *self.ruled)).reshape(-1)
        free, ruled = values.shape[:2], values.shape[2:]
        parts = values.reshape(*free, -1)
        if parts.shape[-1] > 1:
            parts = parts.take(self._legal_places(ruled), axis=-1)
        return np.broadcast_to(parts, (*self.free, self.places)).reshape(-1)

    def _legal_places(self, shape: tuple[int, ...]) -> NDArray[np.intp]:
        """Where the legal places are in an array of this shape; the same for all columns on the same axes."""
        if shape not in self._positions:
            numbers = np.arange(int(np.prod(shape))).reshape(shape)
            self._positions[shape] = np.broadcast_to(numbers, self.ruled).reshape(-1)[self.kept]
        return self._positions[shape]
