"""One call of a step as the plan knows it: what goes to whom, how often, and how many bytes."""

from dataclasses import dataclass

from calculators.lab.choices import Family
from calculators.predict.collectives import Kind

Counts = tuple[tuple[int, ...], ...]
"""A whole number for each sender (row) and receiver (column)."""

Groups = tuple[tuple[int, ...], ...]
"""Ranks that make a call among themselves, one tuple for each group, each in the group's own order."""


@dataclass(frozen=True, kw_only=True)
class Call:
    """One kind of call, made `times` times a step; its full size is `payload_bytes` each time.

    Every rank of a group enters a collective; `groups` are those that make it, each by itself (empty: all ranks
    together). A send goes from `source` to `destination`, a broadcast from `source` to its group. An uneven
    all-to-all says in `parts` how many bytes go from whom to whom within its one group, and its full size is the
    largest send buffer. `axis` is the family whose group it is made in. `is_control` marks what the job needs
    besides its formula.
    """

    op: Kind
    payload_bytes: int
    times: int
    what: str
    axis: Family
    source: int = 0
    destination: int = 0
    parts: Counts = ()
    groups: Groups = ()
    is_control: bool = False

    @property
    def is_collective(self) -> bool:
        return self.op is not Kind.SEND

    @property
    def name(self) -> str:
        """The kind of call and the group it is made in, as meters count it: “tp all-reduce”."""
        return f"{self.axis} {self.op}"

    def groups_among(self, ranks: int) -> Groups:
        """The groups that make this call, in a run of `ranks`."""
        return self.groups or (tuple(range(ranks)),)

    def is_made_by(self, rank: int) -> bool:
        """Whether `rank` hands this call a tensor: all of its groups do in a collective, the sender alone in a send."""
        if not self.is_collective:
            return rank == self.source
        return not self.groups or any(rank in group for group in self.groups)

    def step_bytes(self, rank: int, ranks: int) -> int:
        """Bytes that `rank`, which makes this call in a run of `ranks`, hands over in one step: what it puts in."""
        group = next((g for g in self.groups_among(ranks) if rank in g), ())
        if self.parts:
            return self.times * sum(self.parts[group.index(rank)])
        if self.op is Kind.ALL_GATHER:
            return self.times * (self.payload_bytes // len(group))
        return self.times * self.payload_bytes
