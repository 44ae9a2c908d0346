"""Where a router sends tokens: what each expert gets, what is dropped, and what each rank sends to each other.

The mean hides what matters: an all-to-all ends when the busiest rank has finished. Everything here is for one layer and
one pass, with numbers, not arrays of cases; `traffic.expert_parallel` has the uniform case as a formula.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calculators.predict.arrays import Floats, amounts, counts, floats, positive, whole
from calculators.predict.traffic.expert import capacity, check_experts

MOST_EXPERTS = 100_000

MOST_CHOICES = 20_000_000
"""Tokens × experts that may be drawn at once: more would take more than about half a gigabyte."""


def uniform(experts: int) -> Floats:
    """Every expert is wanted alike: shares that add up to 1.

    >>> uniform(4).tolist()
    [0.25, 0.25, 0.25, 0.25]
    """
    return power_law(experts, 0)


def power_law(experts: int, exponent: float, *, rng: np.random.Generator | None = None) -> Floats:
    """The r-th most wanted expert gets r^−exponent of the load (Zipf's law at 1), as shares that add up to 1.

    The most wanted expert is number 0, the next 1, so they are neighbours, on one rank; `rng` deals them out in random
    order instead.

    >>> power_law(4, 1).round(2).tolist()
    [0.48, 0.24, 0.16, 0.12]
    """
    number = whole("experts", experts, high=MOST_EXPERTS)
    steep = _number(exponent=exponent)
    ranks = np.arange(1, number + 1, dtype=np.float64)
    wanted = (ranks[0] / ranks) ** min(steep, 300.0)  # 2^300 is as good as all for one
    shares = wanted / wanted.sum()
    return shares if rng is None else rng.permutation(shares)


def histogram(loads: ArrayLike) -> Floats:
    """Measured loads of the experts, in whatever unit, as shares that add up to 1.

    >>> histogram([30, 10]).tolist()
    [0.75, 0.25]
    """
    return _shares(loads=loads)


@dataclass(frozen=True, kw_only=True, eq=False)
class Spread:
    """How unequal a figure is among ranks or experts."""

    mean: float
    hottest: float
    index: int

    @property
    def imbalance(self) -> float:
        """Hottest ÷ mean (λ): how much longer the exchange takes than a balanced one. 1 where there is nothing."""
        return self.hottest / self.mean if self.mean else 1.0


@dataclass(frozen=True, kw_only=True, eq=False)
class Routed:
    """Where the tokens of every rank go in one layer.

    wanted     copies that each rank's tokens want of each expert: (ranks, experts)
    kept       of these, the ones that found a place: (ranks, experts)
    capacity   places of an expert: for each rank's tokens, or for all of them together; None without a limit
    copies     copies that cross from each rank (row) to each other: (ranks, ranks). As many as kept, or fewer where a
               token is sent once to a rank that has several of its experts
    """

    wanted: Floats
    kept: Floats
    capacity: float | None
    copies: Floats

    @property
    def ranks(self) -> int:
        """Ranks that share the experts, and as many that send."""
        return int(self.wanted.shape[0])

    @property
    def loads(self) -> Floats:
        """Copies that each expert gets, (experts,)."""
        return floats(self.kept.sum(axis=0))

    @property
    def dropped(self) -> float:
        """Copies that found no place, all experts together."""
        return float((self.wanted - self.kept).sum())

    @property
    def drop_rate(self) -> float:
        """Of all copies, those that found no place."""
        return self.dropped / float(self.wanted.sum())

    @property
    def expert_spread(self) -> Spread:
        """Of the experts' loads."""
        return _spread(self.loads)

    @cached_property
    def rank_loads(self) -> Floats:
        """Copies that each rank's experts compute, its own tokens' among them, (ranks,)."""
        return floats(self.loads.reshape(self.ranks, -1).sum(axis=1))

    def pairs(self, *, hidden_size: int, bytes_per_element: float = 2) -> Floats:
        """Bytes from each rank (row) to each other (column) in the dispatch; the combine is its transpose [bytes]."""
        width = (
            counts(hidden_size=hidden_size)["hidden_size"]
            * positive(bytes_per_element=bytes_per_element)["bytes_per_element"]
        )
        table = self.copies * width
        np.fill_diagonal(table, 0.0)
        return table


@dataclass(frozen=True, kw_only=True, eq=False)
class ExpertExchange:
    """Bytes of one layer's exchange: dispatch and combine of each, sent and received, (ranks,) [bytes]."""

    dispatch: Floats
    combine: Floats

    @property
    def sent(self) -> Floats:
        """What each rank sends: its tokens out, and the results of others back."""
        return floats(self.dispatch.sum(axis=1) + self.combine.sum(axis=1))

    @property
    def received(self) -> Floats:
        """What each rank receives."""
        return floats(self.dispatch.sum(axis=0) + self.combine.sum(axis=0))

    @property
    def pairs(self) -> Floats:
        """From each rank (row) to each other (column), both ways together."""
        return self.dispatch + self.combine

    @property
    def sent_spread(self) -> Spread:
        """Of the dispatch: what ranks send. Equal where each has as many tokens and none is dropped."""
        return _spread(floats(self.dispatch.sum(axis=1)))

    @property
    def received_spread(self) -> Spread:
        """Of the dispatch: what ranks receive. The hottest one sets the time; in the combine it sends as much."""
        return _spread(floats(self.dispatch.sum(axis=0)))


@dataclass(frozen=True, kw_only=True, eq=False)
class RoutedLayer:
    """One sparse layer: what was asked, where its tokens go, and the bytes that this moves."""

    tokens: int
    experts_per_token: int
    hidden_size: int
    skew: float
    capacity_factor: float | None
    copies: str
    dispatch_bytes_per_element: float
    routed: Routed
    exchange: ExpertExchange


def skewed_layer(
    *,
    experts: int,
    experts_per_token: int,
    hidden_size: int,
    ranks: int,
    tokens: int,
    skew: float = 0.0,
    capacity_factor: float | None = None,
    copies: str = "expert",
    dispatch_bytes_per_element: float = 2,
    combine_bytes_per_element: float = 2,
    padded: bool = False,
) -> RoutedLayer:
    """One layer whose experts are wanted by a power law, on average: `power_law`, `route` and `exchange` in one.

    Arguments as there; `tokens` are those of each rank.

    >>> layer = skewed_layer(experts=8, experts_per_token=2, hidden_size=4096, ranks=8, tokens=4096, skew=0.5)
    >>> round(layer.exchange.received_spread.imbalance, 2)
    1.83
    """
    routed = route(
        power_law(experts, _number(skew=skew)),
        tokens=tokens,
        experts_per_token=experts_per_token,
        ranks=ranks,
        capacity_factor=capacity_factor,
        copies=copies,
    )
    return RoutedLayer(
        tokens=tokens,
        experts_per_token=experts_per_token,
        hidden_size=hidden_size,
        skew=skew,
        capacity_factor=capacity_factor,
        copies=copies,
        dispatch_bytes_per_element=dispatch_bytes_per_element,
        routed=routed,
        exchange=exchange(
            routed,
            hidden_size=hidden_size,
            dispatch_bytes_per_element=dispatch_bytes_per_element,
            combine_bytes_per_element=combine_bytes_per_element,
            padded=padded,
        ),
    )


def route(
    shares: ArrayLike,
    *,
    tokens: int,
    experts_per_token: int,
    ranks: int,
    capacity_factor: float | None = None,
    capacity_over: str = "rank",
    copies: str = "expert",
    rng: np.random.Generator | None = None,
) -> Routed:
    """Tokens of every rank, dealt out to experts that are wanted in proportion to `shares`.

    Expert j is on rank j ÷ (experts/ranks). A token visits each expert once at most, so no expert gets more than one
    copy of every token, however much it is wanted.

    tokens           on each rank
    capacity_factor  an expert takes ⌈factor·tokens·k/E⌉ tokens; None for all of them
    capacity_over    whose tokens these are: "rank" each rank's own (Megatron-LM), "group" those of all ranks together,
                     each rank's in turn being cut by the same part
    copies           "expert": a copy for each expert; "rank": one for each rank with some of a token's experts
    rng              given, tokens are drawn one by one; else everything is the average over many draws

    Raises ValueError where a size cannot be, or a name is not known.

    >>> hot = route(power_law(8, 1.0), tokens=1000, experts_per_token=2, ranks=4)
    >>> hot.rank_loads.round().tolist()
    [4415.0, 1717.0, 1079.0, 788.0]
    """
    wanted_of = _shares(shares=shares)
    n, k, t = (
        _count(name, value)
        for name, value in (("ranks", ranks), ("experts_per_token", experts_per_token), ("tokens", tokens))
    )
    experts = wanted_of.size
    check_experts(floats(experts), floats(k), floats(n))
    _check_room(experts, ranks=n, experts_per_token=k)
    if copies not in ("expert", "rank"):
        raise ValueError(f"copies is {copies!r}, which is not known here. Use one of: expert, rank.")
    if rng is not None:
        return route_choices(
            draw_choices(wanted_of, tokens=n * t, experts_per_token=k, rng=rng),
            experts=experts,
            ranks=n,
            capacity_factor=capacity_factor,
            capacity_over=capacity_over,
            copies=copies,
        )
    chances = _chances(wanted_of, k)
    wanted = np.tile(t * chances, (n, 1))
    kept, places = _kept(wanted, t, k, capacity_factor, capacity_over)
    sent = _by_rank(kept)
    if copies == "rank":
        kept_part = kept[0] / np.maximum(wanted[0], np.finfo(float).tiny)
        sent = np.tile(t * (1 - _missed(chances, k, kept_part, n)), (n, 1))
    return Routed(wanted=wanted, kept=kept, capacity=places, copies=sent)


def draw_choices(
    shares: ArrayLike, *, tokens: int, experts_per_token: int, rng: np.random.Generator
) -> NDArray[np.intp]:
    """The experts that each token visits, drawn without repetition in proportion to `shares`: (tokens, k).

    Raises ValueError where too much would have to be drawn at once.
    """
    wanted = _shares(shares=shares)
    t, k = _count("tokens", tokens), _count("experts_per_token", experts_per_token)
    check_experts(floats(wanted.size), floats(k), floats(1))
    if t * wanted.size > MOST_CHOICES:
        raise ValueError(
            f"tokens is {t:,} with {wanted.size:,} experts, but at most {MOST_CHOICES // wanted.size:,} tokens are "
            "drawn at once. Use fewer, or averages (no rng)."
        )
    # Systematic sampling (Madow 1949) over experts in a random order: put the chances end to end, and take the experts
    # in which the points u, u+1, u+2 … fall. Every expert is chosen with exactly its chance, k in all.
    order = np.argsort(rng.random((t, wanted.size)), axis=1)
    ends = np.cumsum(_chances(wanted, k)[order], axis=1)
    ends[:, -1] = k
    points = np.floor(ends + rng.random((t, 1)))
    chosen = np.diff(points, axis=1, prepend=0.0)
    picked = np.argpartition(-chosen, k - 1, axis=1)[:, :k]
    return np.take_along_axis(order, picked, axis=1)


def route_choices(
    choices: ArrayLike,
    *,
    experts: int,
    ranks: int,
    capacity_factor: float | None = None,
    capacity_over: str = "rank",
    copies: str = "expert",
) -> Routed:
    """Recorded or drawn choices, (tokens, k) numbers of experts: the first tokens/ranks tokens are rank 0's, and so on.

    Where an expert is full, the tokens that come later lose their place. Arguments as in `route`.

    >>> route_choices([[0, 1], [0, 2], [3, 1], [0, 3]], experts=4, ranks=2).copies.tolist()
    [[3.0, 1.0], [2.0, 2.0]]
    """
    try:
        chosen = np.asarray(choices)
    except ValueError:
        raise ValueError(
            "choices has rows of unequal lengths, but it is a table: each token visits as many experts."
        ) from None
    n, e = _count("ranks", ranks), whole("experts", experts, high=MOST_EXPERTS)
    if chosen.ndim != 2 or not chosen.size or not np.issubdtype(chosen.dtype, np.integer):
        raise ValueError(
            f"choices has the shape {chosen.shape} of {chosen.dtype}, but it is a table: for each token the whole "
            "numbers of its experts."
        )
    if chosen.min() < 0 or chosen.max() >= e:
        wrong = chosen[(chosen < 0) | (chosen >= e)].flat[0]
        raise ValueError(f"choices names expert {wrong}, but {e} experts are numbered 0 to {e - 1}.")
    ordered = np.sort(chosen, axis=1)
    if np.any(ordered[:, 1:] == ordered[:, :-1]):
        row = int(np.flatnonzero(np.any(ordered[:, 1:] == ordered[:, :-1], axis=1))[0])
        raise ValueError(
            f"choices names an expert twice for token {row}, but a token visits each once. Change one."
        )
    total, k = chosen.shape
    if total % n:
        raise ValueError(
            f"choices has {total} tokens, which {n} ranks cannot share equally. Use a multiple of {n}."
        )
    if copies not in ("expert", "rank"):
        raise ValueError(f"copies is {copies!r}, which is not known here. Use one of: expert, rank.")
    check_experts(floats(e), floats(k), floats(n))
    _check_room(e, ranks=n, experts_per_token=k)
    if total * e > MOST_CHOICES:
        raise ValueError(
            f"choices has {total:,} tokens with {e:,} experts, but at most {MOST_CHOICES // e:,} are counted at once. "
            "Give fewer."
        )
    t = total // n
    visits = np.zeros((total, e), dtype=bool)
    visits[np.arange(total)[:, None], chosen] = True
    by_rank = visits.reshape(n, t, e)
    wanted = floats(by_rank.sum(axis=1))
    places = _places(t, k, e, n, capacity_factor, capacity_over)
    if places is not None:
        order = (
            np.cumsum(by_rank, axis=1)
            if capacity_over == "rank"
            else np.cumsum(visits, axis=0).reshape(n, t, e)
        )
        by_rank = by_rank & (order <= places)
    kept = floats(by_rank.sum(axis=1))
    sent = (
        _by_rank(kept) if copies == "expert" else floats(by_rank.reshape(n, t, n, -1).any(axis=3).sum(axis=1))
    )
    return Routed(wanted=wanted, kept=kept, capacity=places, copies=sent)


def exchange(
    routed: Routed,
    *,
    hidden_size: int,
    dispatch_bytes_per_element: float = 2,
    combine_bytes_per_element: float = 2,
    padded: bool = False,
) -> ExpertExchange:
    """Bytes that a layer's dispatch and combine move from rank to rank.

    padded  every rank sends buffers of the whole capacity to every expert, whatever is in them. Needs a capacity.

    >>> there = exchange(route(uniform(8), tokens=16, experts_per_token=2, ranks=4), hidden_size=64)
    >>> there.sent.tolist(), there.received_spread.imbalance
    ([6144.0, 6144.0, 6144.0, 6144.0], 1.0)
    """
    positive(
        dispatch_bytes_per_element=dispatch_bytes_per_element,
        combine_bytes_per_element=combine_bytes_per_element,
    )
    if padded:
        if routed.capacity is None:
            raise ValueError(
                "padded is on, but there is no capacity to pad to. Give a capacity_factor, or pad nothing."
            )
        n, experts = routed.wanted.shape
        each = routed.capacity * experts / n
        routed = Routed(
            wanted=routed.wanted, kept=routed.kept, capacity=routed.capacity, copies=np.full((n, n), each)
        )
    dispatch = routed.pairs(hidden_size=hidden_size, bytes_per_element=dispatch_bytes_per_element)
    combine = routed.pairs(hidden_size=hidden_size, bytes_per_element=combine_bytes_per_element).T
    return ExpertExchange(dispatch=dispatch, combine=combine)


def _chances(shares: Floats, k: int) -> Floats:
    """Chance that a token visits each expert: k·share, but never above 1; what is too much goes to the others alike."""
    chances, certain = np.zeros(shares.size), np.zeros(shares.size, dtype=bool)
    while True:
        open_places, open_shares = k - certain.sum(), shares[~certain].sum()
        if open_places == 0:
            break
        if open_shares == 0:  # fewer experts are wanted than a token visits
            chances[~certain] = open_places / (~certain).sum()
            break
        chances[~certain] = open_places * shares[~certain] / open_shares
        above = ~certain & (chances >= 1)
        if not above.any():
            break
        certain |= above
        chances[certain] = 1.0
    return chances


def _missed(chances: Floats, k: int, kept_part: Floats, ranks: int) -> Floats:
    """Chance that a token has no copy on each rank: (ranks,).

    Of all choices of k experts, weighted by the product of their odds, the part that has none on the rank, or only
    copies that found no place. Exact where all experts are wanted alike: C(E−E/n, k)/C(E, k).
    """
    experts = chances.size
    home = np.arange(experts) // (experts // ranks) == np.arange(ranks)[:, None]
    lost = np.where(home, 1 - kept_part, 1.0)
    certain = chances >= 1 - 1e-12
    missed = np.prod(np.where(certain, lost, 1.0), axis=1)
    left = k - int(certain.sum())
    if left == 0:
        return floats(missed)
    odds = np.zeros(experts)
    odds[~certain] = _odds(chances[~certain], left)
    with_lost = np.vstack([odds * lost, odds])  # the last row counts all choices
    sums = _symmetric_sums(with_lost, left)[:, -1, left]
    return floats(missed * sums[:-1] / sums[-1])


def _odds(chances: Floats, k: int) -> Floats:
    """Odds with which choices of k, weighted by the product of their odds, have each expert with its chance.

    The fixed point of Chen, Dempster and Liu 1994: odds ← chance × weight of all choices ÷ weight of those of k−1 from
    the other experts.
    """
    odds = chances / (1 - chances)
    for _ in range(50):
        odds = odds / odds.max()
        both_ways = _symmetric_sums(np.vstack([odds, odds[::-1]]), k)
        before, after = both_ways[0], both_ways[1, ::-1]
        others = np.sum(before[:-1, :k] * after[1:, k - 1 :: -1], axis=1)
        have = odds * others / before[-1, k]
        if np.allclose(have, chances, rtol=1e-3):
            break
        odds = chances * before[-1, k] / others
    return odds


def _symmetric_sums(odds: Floats, k: int) -> Floats:
    """Weights of all choices of 0 … k from the first 0 … E experts, for several rows of odds: (rows, E+1, k+1).

    Every choice of j has a last expert, and one of j−1 before it.
    """
    rows, experts = odds.shape
    sums = np.zeros((rows, experts + 1, k + 1))
    sums[:, :, 0] = 1.0
    for chosen in range(1, k + 1):
        sums[:, 1:, chosen] = np.cumsum(odds * sums[:, :-1, chosen - 1], axis=1)
    return sums


def _kept(
    wanted: Floats, tokens: int, k: int, factor: float | None, over: str
) -> tuple[Floats, float | None]:
    n, experts = wanted.shape
    places = _places(tokens, k, experts, n, factor, over)
    if places is None:
        return wanted, None
    if over == "rank":
        return np.minimum(wanted, places), places
    total = wanted.sum(axis=0)
    part = np.minimum(1, places / np.maximum(total, np.finfo(float).tiny))
    return wanted * part, places


def _places(tokens: int, k: int, experts: int, ranks: int, factor: float | None, over: str) -> float | None:
    if over not in ("rank", "group"):
        raise ValueError(f"capacity_over is {over!r}, which is not known here. Use one of: rank, group.")
    if factor is None:
        return None
    limit = positive(capacity_factor=factor)["capacity_factor"]
    balanced = tokens if over == "rank" else tokens * ranks
    return float(capacity(balanced, k, experts, limit))


def _by_rank(copies: Floats) -> Floats:
    """Copies for experts, as copies for the ranks that have them: (ranks, ranks)."""
    n = copies.shape[0]
    return floats(copies.reshape(n, n, -1).sum(axis=2))


def _spread(values: Floats) -> Spread:
    hottest = int(np.argmax(values))
    return Spread(mean=float(values.mean()), hottest=float(values[hottest]), index=hottest)


def _shares(**given: ArrayLike) -> Floats:
    (name,) = given
    loads = amounts(**given)[name]
    if loads.ndim != 1 or not loads.size:
        raise ValueError(
            f"{name} has the shape {loads.shape}, but it is one number for each expert. Give a list."
        )
    if loads.sum() == 0:
        raise ValueError(f"{name} are all 0, but somebody gets the tokens. Give one above 0.")
    return floats(loads / loads.sum())


def _check_room(experts: int, **given: int) -> None:
    for name, value in given.items():
        if value * experts > MOST_CHOICES:
            raise ValueError(
                f"{name} is {value:,} with {experts:,} experts, but a table has at most {MOST_CHOICES:,} numbers. "
                f"Use {MOST_CHOICES // experts:,} or fewer."
            )


def _number(**given: ArrayLike) -> float:
    (name,) = given
    found = amounts(**given)[name]
    if found.ndim:
        raise ValueError(f"{name} has the shape {found.shape}, but it is one number. Give one.")
    return float(found)


def _count(name: str, value: float) -> int:
    given = counts(**{name: value})[name]
    if given.ndim or given != int(given):
        raise ValueError(f"{name} is {value}, but it counts things: use one whole number.")
    return int(given)
