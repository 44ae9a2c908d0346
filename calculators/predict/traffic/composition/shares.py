"""A share of the traffic: calls of one kind on one axis, and what one of each layer, stage and so on moves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from calculators.predict.arrays import Floats, floats
from calculators.predict.collectives import CallFigures, Kind, call_figures, rounds

FAMILIES = {
    "tp": "tensor",
    "cp": "context",
    "pp": "pipeline",
    "ep": "expert",
    "etp": "tensor",
    "dp": "data",
    "edp": "data",
}
"""Axis → its family, in the order in which they are shown."""

NEXT, PREVIOUS, ENDS = 1, -1, 2


@dataclass(frozen=True, kw_only=True, eq=False)
class Share:
    """Calls of one kind on one axis: what they move for each layer, stage and so on that a rank has."""

    axis: str
    kind: Kind
    algorithm: str
    what: str
    ranks: Floats
    calls: Mapping[str, Floats]
    full: Mapping[str, Floats]
    to: int = 0  # NEXT or PREVIOUS stage, or between both ENDS; 0 among the axis's own group

    @cached_property
    def sent(self) -> Floats:
        """Bytes that the busiest rank sends for each byte of full size."""
        if self.to:
            return floats(self.ranks > 1) * (2 if self.to == ENDS else 1)  # of one call, each end has half
        return self._of_one_byte.sent_bytes

    @cached_property
    def handed(self) -> Floats:
        """Bytes that a rank puts in for each byte of full size."""
        if self.to:
            return self.sent
        return (self.ranks > 1) / (self.ranks if self.kind == Kind.ALL_GATHER else floats(1))

    @cached_property
    def of_group(self) -> Floats:
        """Bytes that all ranks of the group send for each byte of full size; of a send, the sender."""
        return self.sent if self.to else self._of_one_byte.group_bytes

    @cached_property
    def rounds(self) -> Floats:
        """Message steps of one call."""
        if self.to:
            return (self.ranks > 1) * rounds(self.kind, 2, algorithm=self.algorithm)
        return self._of_one_byte.rounds

    @cached_property
    def _of_one_byte(self) -> CallFigures:
        return call_figures(self.kind, 1, self.ranks, algorithm=self.algorithm)
