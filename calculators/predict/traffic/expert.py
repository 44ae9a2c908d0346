"""What expert parallelism moves: tokens to the experts that they were routed to, and the results back."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from calculators.predict.arrays import Floats, anywhere, check_broadcast, counts, floats, positive
from calculators.predict.collectives import TEXTBOOK, Backend, Kind
from calculators.predict.shapes import Phase
from calculators.predict.traffic.figures import Factors, Row, Traffic, number, summed

DISPATCHERS = ("all-to-all", "all-gather")
COPIES = ("expert", "rank")


def expert_parallel(
    *,
    hidden_size: ArrayLike,
    layers: ArrayLike,
    tokens: ArrayLike,
    experts: ArrayLike,
    experts_per_token: ArrayLike,
    ranks: ArrayLike,
    phase: Phase,
    micro_batches: ArrayLike = 1,
    dispatch_bytes_per_element: ArrayLike = 2,
    combine_bytes_per_element: ArrayLike = 2,
    dispatcher: str = "all-to-all",
    copies: str = "expert",
    capacity_factor: ArrayLike | None = None,
    padded: bool = True,
    full_recompute: bool = False,
    backend: Backend = TEXTBOOK,
) -> Traffic:
    """Traffic of `layers` layers of `experts` each, spread equally over `ranks`, when routing is uniform.

    Each rank sends its `tokens` to the ranks of their experts, and gets the results back: two all-to-alls a layer
    forward, two backward. The send buffer is tokens·experts_per_token·hidden, and (n−1)/n of it leaves the rank
    (GShard, arXiv 2006.16668). What skewed routing does is in `routing`.

    tokens           on each rank, of one micro-batch in training; in decode, sequences of that rank
    layers           that have experts
    dispatcher       "all-gather": every rank gathers all tokens, and the results are reduce-scattered (default in vLLM
                     and Megatron-LM). More bytes unless tokens visit many ranks
    copies           "expert": one copy for each expert; "rank": one for each rank that has some of them (DeepEP), on
                     average n·(1 − C(E−E/n, k)/C(E, k))
    capacity_factor  given, an expert takes at most ⌈factor·tokens·k/E⌉ tokens of each rank. `padded`: buffers have that
                     size whatever is in them; otherwise what does not fit is dropped and does not travel
    dispatch_bytes_per_element, combine_bytes_per_element   1 and 2 where tokens go out in 8 bits (DeepSeek-V3)

    Raises ValueError where a size cannot be, or a name is not known.

    >>> layer = expert_parallel(hidden_size=7168, layers=1, tokens=128, experts=256, experts_per_token=8, ranks=[1, 8],
    ...                         phase=Phase.PREFILL)
    >>> layer.wire_bytes.tolist()
    [0.0, 25690112.0]
    """
    for name, value, known in (("dispatcher", dispatcher, DISPATCHERS), ("copies", copies, COPIES)):
        if value not in known:
            raise ValueError(f"{name} is {value!r}, which is not known here. Use one of: {', '.join(known)}.")
    given = {
        **counts(
            hidden_size=hidden_size,
            layers=layers,
            tokens=tokens,
            experts=experts,
            experts_per_token=experts_per_token,
            ranks=ranks,
            micro_batches=micro_batches,
        ),
        **positive(
            dispatch_bytes_per_element=dispatch_bytes_per_element,
            combine_bytes_per_element=combine_bytes_per_element,
            capacity_factor=1 if capacity_factor is None else capacity_factor,
        ),
    }
    check_broadcast(given)
    check_experts(given["experts"], given["experts_per_token"], given["ranks"])
    n, k, h = given["ranks"], given["experts_per_token"], given["hidden_size"]
    phase = Phase(phase)
    training = phase == Phase.TRAINING
    passes = (2 if training and full_recompute else 1) + training
    times: Factors = {
        **number(passes),
        "L": given["layers"],
        **({"m": given["micro_batches"]} if training else {}),
    }
    out: Factors = {"h": h, "i": given["dispatch_bytes_per_element"]}
    back: Factors = {"h": h, "j": given["combine_bytes_per_element"]}
    if dispatcher == "all-gather":
        everything: Factors = {"n": n, "T": given["tokens"]}
        kinds = (Kind.ALL_GATHER, Kind.REDUCE_SCATTER)
    elif capacity_factor is not None:
        places = capacity(given["tokens"], k, given["experts"], given["capacity_factor"])
        if not padded:
            places = np.minimum(places, given["tokens"] * k / given["experts"])
        everything = {"E": given["experts"], "C": places}
        kinds = (Kind.ALL_TO_ALL, Kind.ALL_TO_ALL)
    elif copies == "rank":
        everything = {
            "T": given["tokens"],
            "D": expected_ranks(experts=experts, experts_per_token=k, ranks=n),
        }
        kinds = (Kind.ALL_TO_ALL, Kind.ALL_TO_ALL)
    else:
        everything = {"T": given["tokens"], "x": k}
        kinds = (Kind.ALL_TO_ALL, Kind.ALL_TO_ALL)
    dispatch = Row(
        kind=kinds[0],
        what="tokens to their experts",
        times=times,
        tensor={**everything, **out},
        letter="n",
        ranks=n,
    )
    combine = replace(dispatch, kind=kinds[1], what="results back", tensor={**everything, **back})
    return summed("expert", phase, [dispatch, combine], given=given, backend=backend)


def check_experts(experts: Floats, per_token: Floats, ranks: Floats) -> None:
    """Raises ValueError where a token visits more experts than there are, or ranks cannot share them equally."""
    e, k, n = np.broadcast_arrays(experts, per_token, ranks)
    if anywhere(k > e):
        wrong = np.flatnonzero(k > e)[0]
        raise ValueError(
            f"experts_per_token is {k.flat[wrong]:g}, but a layer has only {e.flat[wrong]:g} experts. "
            f"Use {e.flat[wrong]:g} or less."
        )
    if anywhere(e % n):
        wrong = np.flatnonzero(e % n)[0]
        count, size = int(e.flat[wrong]), int(n.flat[wrong])
        works = [other for other in range(1, count + 1) if count % other == 0]
        near = [other for other in works if other < size][-1:] + [other for other in works if other > size][
            :1
        ]
        raise ValueError(
            f"ranks is {size}, which cannot share {count} experts equally. "
            f"Nearest that work: {' or '.join(map(str, near))}."
        )


def capacity(
    tokens: ArrayLike, experts_per_token: ArrayLike, experts: ArrayLike, factor: ArrayLike
) -> Floats:
    """Tokens that one expert takes: ⌈factor·tokens·k/E⌉, `tokens` being those that the router balances over.

    Megatron-LM balances over each rank's own tokens, Switch over those of a whole group (arXiv 2101.03961 §2.2).

    >>> capacity(1024, 2, 8, [1.0, 1.25]).tolist()
    [256.0, 320.0]
    """
    given = {
        **counts(tokens=tokens, experts_per_token=experts_per_token, experts=experts),
        **positive(factor=factor),
    }
    check_broadcast(given)
    places = given["factor"] * given["tokens"] * given["experts_per_token"] / given["experts"]
    return floats(np.ceil(np.round(places, 9)))  # 1.1·30 is 33, not the next number above it


def expected_ranks(*, experts: ArrayLike, experts_per_token: ArrayLike, ranks: ArrayLike) -> Floats:
    """Ranks that have at least one of a token's experts, on average over all choices of k of E experts.

    n·(1 − C(E−E/n, k)/C(E, k)): one minus the chance that all k are elsewhere.

    >>> expected_ranks(experts=256, experts_per_token=8, ranks=[1, 8, 256]).round(3).tolist()
    [1.0, 5.295, 8.0]
    """
    given = counts(experts=experts, experts_per_token=experts_per_token, ranks=ranks)
    e, k, n = given["experts"], given["experts_per_token"], given["ranks"]
    check_experts(e, k, n)
    missed: Floats = _MISSED(e, e / n, k)
    return n * (1 - missed)


def host_copies(*, experts_per_token: ArrayLike, hosts: ArrayLike, most_hosts: ArrayLike) -> Floats:
    """Copies of a token that cross between hosts at most, when its experts may be on `most_hosts` of them.

    The router first picks M hosts, and a token goes to each once, to be handed on inside (DeepSeek-V3, arXiv 2412.19437
    §3.2.2: M = 4, k = 8): min(M, k, hosts), of which the token's own host needs none when it is among them:
    times (hosts−1)/hosts.

    >>> host_copies(experts_per_token=8, hosts=8, most_hosts=4).item()
    3.5
    """
    given = counts(experts_per_token=experts_per_token, hosts=hosts, most_hosts=most_hosts)
    visited = np.minimum(np.minimum(given["most_hosts"], given["experts_per_token"]), given["hosts"])
    return visited * (given["hosts"] - 1) / given["hosts"]


def _missed(experts: float, on_rank: float, per_token: float) -> float:
    """Chance that none of a token's k experts is among the E/n of a rank."""
    chosen = int(per_token)
    return float(math.comb(int(experts - on_rank), chosen) / math.comb(int(experts), chosen))


_MISSED = np.vectorize(_missed, otypes=[np.float64])
