"""Which experts each token visits: drawn from the seed, so that every rank and the plan know it before the run."""

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from calculators.lab.calls import Counts
from calculators.lab.spec import Spec
from calculators.predict.traffic.expert import capacity

RECEIVED, DROPPED = "copies received in a layer", "copies dropped in a layer"
"""What a rank follows through the measured steps."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Copies:
    """The copies of a rank's tokens that go to experts, in the order of the experts: one entry a copy."""

    tokens: NDArray[np.int64]
    """Whose copy it is, as a place among the rank's own tokens."""
    experts: NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, eq=False)
class Arrivals:
    """The copies that come to a rank, which lie by the rank they come from, then by expert."""

    loads: tuple[int, ...]
    """How many each of its experts gets."""
    by_expert: NDArray[np.int64]
    """Which to take one after another, so that each expert's lie together."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Routing:
    """The experts that tokens visit in every layer of a step, where `ranks` share tokens and experts equally.

    `chosen` names the distinct experts of each token, (tokens, experts a token), the tokens of the first rank first.
    `kept` says which of these copies found a place; the others are dropped before they are sent.
    """

    chosen: NDArray[np.int64]
    kept: NDArray[np.bool_]
    experts: int
    ranks: int

    def copies_of(self, rank: int) -> Copies:
        """What `rank` sends, one copy for each expert, even where two of a token's are on one rank."""
        chosen, kept = self.chosen[self._tokens_of(rank)], self.kept[self._tokens_of(rank)]
        tokens, slots = np.nonzero(kept)
        experts = chosen[tokens, slots]
        order = np.argsort(experts, kind="stable")
        return Copies(tokens=tokens[order], experts=experts[order])

    def loads(self, rank: int) -> NDArray[np.int64]:
        """How many copies `rank` sends to each expert."""
        return np.bincount(self.copies_of(rank).experts, minlength=self.experts)

    def experts_of(self, rank: int) -> range:
        """The experts that live on `rank`."""
        each = self.experts // self.ranks
        return range(rank * each, (rank + 1) * each)

    def counts(self) -> Counts:
        """How many copies each rank (row) sends to each (column)."""
        return tuple(
            tuple(int(part.sum()) for part in np.split(self.loads(rank), self.ranks))
            for rank in range(self.ranks)
        )

    def arrivals_at(self, rank: int) -> Arrivals:
        """What comes to the experts of `rank`, its own tokens' copies among it."""
        here = self.experts_of(rank)
        loads = np.stack([self.loads(source)[here.start : here.stop] for source in range(self.ranks)])
        expert = np.repeat(np.tile(np.arange(len(here)), self.ranks), loads.ravel())
        return Arrivals(
            loads=tuple(int(load) for load in loads.sum(axis=0)), by_expert=np.argsort(expert, kind="stable")
        )

    def received(self, rank: int) -> int:
        """Copies that the experts of `rank` compute in one layer."""
        return sum(row[rank] for row in self.counts())

    def dropped(self, rank: int) -> int:
        """Copies of the tokens of `rank` that find no place in one layer."""
        return int((~self.kept[self._tokens_of(rank)]).sum())

    def on_one_rank(self) -> "Routing":
        """The same tokens, experts and drops, where one rank has them all."""
        return replace(self, ranks=1)

    def among(self, group: int, groups: int) -> "Routing":
        """That of one of `groups` groups of ranks, each with equally many neighbouring ranks and all the experts."""
        each = len(self.chosen) // groups
        tokens = slice(group * each, (group + 1) * each)
        return replace(self, chosen=self.chosen[tokens], kept=self.kept[tokens], ranks=self.ranks // groups)

    def _tokens_of(self, rank: int) -> slice:
        each = len(self.chosen) // self.ranks
        return slice(rank * each, (rank + 1) * each)


@lru_cache(maxsize=8)
def routing_of(spec: Spec) -> Routing:
    """The routing of all tokens of a step of `spec`, dealt to all its ranks.

    Each token's experts are drawn without replacement, the r-th wanted as r^−skew (Zipf): those of the largest
    log-weight plus Gumbel noise (arXiv 1903.06059). With a capacity factor each expert takes so many of each
    rank's copies at most, the earlier tokens' first, so no rank has to ask another.
    """
    tokens = spec.batch * spec.tokens_in_flight
    wanted = -spec.skew * np.log(np.arange(1, spec.experts + 1))
    noise = np.random.default_rng(spec.seed).gumbel(size=(tokens, spec.experts))
    chosen = np.argsort(-(wanted + noise), axis=1, kind="stable")[:, : spec.top_k]
    kept = np.concatenate([_placed(part, spec) for part in np.split(chosen, spec.ranks)])
    return Routing(chosen=chosen, kept=kept, experts=spec.experts, ranks=spec.ranks)


def _placed(chosen: NDArray[np.int64], spec: Spec) -> NDArray[np.bool_]:
    """Which copies of one rank's tokens find a place at their expert."""
    if not spec.capacity:
        return np.ones(chosen.shape, dtype=bool)
    places = capacity(len(chosen), spec.top_k, spec.experts, spec.capacity).item()
    flat = chosen.ravel()
    order = np.argsort(flat, kind="stable")
    firsts = np.searchsorted(flat[order], flat[order])
    kept = np.empty(flat.shape, dtype=bool)
    kept[order] = np.arange(len(flat)) - firsts < places
    return kept.reshape(chosen.shape)
