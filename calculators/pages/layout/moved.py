"""What an axis of a layout moves, stage by stage."""

from dataclasses import dataclass
from functools import cached_property

from calculators.predict.arrays import Floats, floats
from calculators.predict.traffic.composition import Share


@dataclass(frozen=True, kw_only=True, eq=False)
class Part:
    """Calls of one kind on one axis: how many in all stages, and their full size on each, (stages,) [bytes].

    The figures of a `Composition`'s axis stage by stage, all calculated at once.
    """

    share: Share
    calls: float
    full: Floats

    @property
    def bytes_per_call(self) -> float:
        """Full size of one call, the mean where stages differ [bytes]."""
        return float(self.full.sum()) / max(self.calls, 1)

    @property
    def rounds(self) -> float:
        return self.calls * float(self.share.rounds)

    @cached_property
    def sent(self) -> Floats:
        """Bytes that the busiest rank of each stage sends."""
        return floats(self.full * self.share.sent)


@dataclass(frozen=True, kw_only=True, eq=False)
class Moved:
    """What one axis moves: the parts of it, and what a rank of each stage hands over and sends [bytes]."""

    parts: tuple[Part, ...]

    @property
    def calls(self) -> float:
        return sum(part.calls for part in self.parts)

    @property
    def rounds(self) -> float:
        return sum(part.rounds for part in self.parts)

    @property
    def ranks(self) -> int:
        """Members of a group."""
        return round(float(self.parts[0].share.ranks))

    @cached_property
    def handed(self) -> Floats:
        return floats(sum(part.full * part.share.handed for part in self.parts))

    @cached_property
    def sent(self) -> Floats:
        return floats(sum(part.sent for part in self.parts))

    @property
    def busiest_stage(self) -> int:
        return int(self.sent.argmax())

    @property
    def sent_bytes(self) -> float:
        """Bytes that the busiest rank sends."""
        return float(self.sent.max())
