"""A link as it was measured: latency and speed fitted to timed messages or collectives, each with its error.

The model is the α–β one: seconds = rounds·α + bytes sent·(1/β). What is timed may be a ping-pong (half of a round trip,
`call="send"`) or any collective, over a range of sizes; together they say what one round and one byte cost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calculators.predict.arrays import Floats, amounts, check_broadcast, counts, floats, numbers, positive
from calculators.predict.clusters import Link
from calculators.predict.collectives import (
    all_gather_bytes,
    all_gather_rounds,
    all_reduce_bytes,
    all_reduce_rounds,
    all_to_all_bytes,
    all_to_all_rounds,
    broadcast_bytes,
    broadcast_rounds,
    reduce_scatter_bytes,
    reduce_scatter_rounds,
)

FEWEST_SAMPLES = 8
"""Two numbers are fitted; with fewer samples than this about them, their errors come out too small."""


def algorithm_bandwidth(full_bytes: ArrayLike, seconds: ArrayLike) -> Floats:
    """nccl-tests' algbw [bytes/s]: full size ÷ time, the speed that the program sees.

    Full size as everywhere here: an all-gather's output, a reduce-scatter's input. Source: nccl-tests
    doc/PERFORMANCE.md. Raises ValueError where a time is not above 0.

    >>> (algorithm_bandwidth(17_179_869_184, 61_974e-6) / 1e9).round(6).item()
    277.210914
    """
    size = amounts(full_bytes=full_bytes)["full_bytes"]
    time = positive(seconds=seconds)["seconds"]
    check_broadcast({"full_bytes": size, "seconds": time})
    return floats(size / time)


def bus_bandwidth(call: str, full_bytes: ArrayLike, seconds: ArrayLike, ranks: ArrayLike) -> Floats:
    """nccl-tests' busbw [bytes/s]: algbw × the bytes that a ring moves for each byte, to compare with the hardware.

    2(n−1)/n for an all-reduce; (n−1)/n for reduce-scatter, all-gather and all-to-all; 1 for broadcast and send.
    Source: nccl-tests doc/PERFORMANCE.md. Raises ValueError for another call.

    >>> (bus_bandwidth("all-reduce", 17_179_869_184, 61_974e-6, 8) / 1e9).round(6).item()
    485.119099
    """
    number = counts(ranks=ranks)["ranks"]
    check_broadcast({**numbers(full_bytes=full_bytes, seconds=seconds), "ranks": number})
    return algorithm_bandwidth(full_bytes, seconds) * _known(call)[1](floats(1), number)


@dataclass(frozen=True, kw_only=True, eq=False)
class Fit:
    """A link's latency α and seconds for each byte 1/β, with their standard errors, and how well they explain.

    latency_seconds, latency_error            of one round [s]
    seconds_per_byte, seconds_per_byte_error  of one byte in one direction [s]
    scatter                                   typical distance of a sample from the fit, as a share of its time
    samples, outliers                         how many there were, and how many of them the fit passes over
    predicted_seconds                         what the fit says of each sample [s]
    weights                                   how much each counts, 0 (outlier) to 1
    """

    name: str
    latency_seconds: float
    latency_error: float
    seconds_per_byte: float
    seconds_per_byte_error: float
    scatter: float
    samples: int
    predicted_seconds: Floats
    weights: Floats

    @property
    def bytes_per_second(self) -> float:
        """β, one direction [bytes/s]."""
        return 1 / self.seconds_per_byte

    @property
    def bytes_per_second_error(self) -> float:
        """Its standard error [bytes/s], to first order: that of 1/β × β²."""
        return self.seconds_per_byte_error * self.bytes_per_second**2

    @property
    def outliers(self) -> int:
        """Samples so far from the fit that they do not count."""
        return int(np.sum(self.weights == 0))

    @property
    def latency_interval(self) -> tuple[float, float]:
        """95 % interval of α by Student's t [s]. Where its lower end is below 0, messages were too large to see it."""
        return self._around(self.latency_seconds, self.latency_error)

    @property
    def bytes_per_second_interval(self) -> tuple[float, float]:
        """95 % interval of β by Student's t, on 1/β [bytes/s]; up to inf where messages were too small to see it."""
        least, most = self._around(self.seconds_per_byte, self.seconds_per_byte_error)
        return 1 / most, 1 / least if least > 0 else float("inf")

    @property
    def link(self) -> Link:
        """The link, ready for a Cluster."""
        return Link(
            name=self.name, bytes_per_second=self.bytes_per_second, latency_seconds=self.latency_seconds
        )

    def _around(self, value: float, error: float) -> tuple[float, float]:
        half = _student_t_975(self.samples - 2) * error
        return value - half, value + half


def fit_link(
    *,
    full_bytes: ArrayLike,
    seconds: ArrayLike,
    ranks: ArrayLike = 2,
    call: str | Sequence[str] = "send",
    algorithm: str = "ring",
    name: str = "measured link",
) -> Fit:
    """α and β of the link that these samples were taken on.

    full_bytes  full size of each call [bytes], seconds its time [s]; ranks and call one for all, or one each
    call           send (one way: half of a ping-pong), all-reduce, reduce-scatter, all-gather, all-to-all, broadcast
    algorithm      of the all-reduce, one of collectives.ALL_REDUCE_ALGORITHMS; the others go round a ring

    Method: weighted least squares on relative distances, since timings scatter by a share of their time; each sample is
    weighed by what the fit says of it, not by its own time, which would favour those that were quick by chance. Robust
    by Tukey's biweight (c = 4.685) from a start that the median of all samples chooses among lines through pairs of
    them, so that a few interrupted samples, however late, change nothing. Standard errors are those of an M-estimator
    (Huber 1981, §7.6); on simulated noise their 95 % intervals held 93 to 95 times in 100. Timings err on the late
    side, so take the best or the median of several repeats.

    Raises ValueError for fewer than 8 samples, a time that is not above 0, one size only, and where the fit gives a
    latency or a speed that is not above 0.

    >>> sizes = [0, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000]
    >>> fit = fit_link(full_bytes=sizes, seconds=[50e-6 + size / 1.25e9 for size in sizes])
    >>> round(fit.latency_seconds * 1e6, 6), round(fit.bytes_per_second / 1e9, 6)
    (50.0, 1.25)
    """
    time, rounds, sent = _samples(full_bytes, seconds, ranks, call, algorithm)
    return _fit(rounds, sent, time, name=name, sizes="full_bytes")


def fit_rounds_and_bytes(
    *, rounds: ArrayLike, sent_bytes: ArrayLike, seconds: ArrayLike, name: str = "measured link"
) -> Fit:
    """α and β where the rounds and the bytes of each sample are known otherwise, headers of a network included.

    rounds      serial message steps of each call
    sent_bytes  what the busiest rank or link carried in it, in one direction [bytes]
    seconds     its time [s]

    The same method and the same refusals as `fit_link`.

    >>> sizes = [0, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000]
    >>> fit = fit_rounds_and_bytes(rounds=2, sent_bytes=sizes, seconds=[1e-4 + size / 1.25e9 for size in sizes])
    >>> round(fit.latency_seconds * 1e6, 6), round(fit.bytes_per_second / 1e9, 6)
    (50.0, 1.25)
    """
    sent = amounts(sent_bytes=sent_bytes)["sent_bytes"]
    steps = positive(rounds=rounds)["rounds"]
    time = positive(seconds=seconds)["seconds"]
    given = {"rounds": steps, "sent_bytes": sent, "seconds": time}
    check_broadcast(given)
    shape = np.broadcast_shapes(*(values.shape for values in given.values()))
    steps, sent, time = (np.broadcast_to(values, shape).ravel() for values in given.values())
    _check_number(time.size)
    return _fit(steps, sent, time, name=name, sizes="sent_bytes")


def _fit(rounds: Floats, sent: Floats, time: Floats, *, name: str, sizes: str) -> Fit:
    design = np.stack([rounds, sent], axis=1)
    if np.linalg.matrix_rank(design / np.maximum(design.max(axis=0), 1e-300), tol=1e-9) < 2:
        raise ValueError(
            f"All samples have the same {sizes}, so latency and speed cannot be told apart. Time a range of sizes, "
            "from a few bytes to several megabytes."
        )
    start = _line_of_least_median(design, time)
    _check(start)
    cost, weights, covariance, scatter = _biweight(design, time, start)
    _check(cost)
    latency_error, byte_error = np.sqrt(np.maximum(np.diag(covariance), 0))
    return Fit(
        name=name,
        latency_seconds=float(cost[0]),
        latency_error=float(latency_error),
        seconds_per_byte=float(cost[1]),
        seconds_per_byte_error=float(byte_error),
        scatter=scatter,
        samples=time.size,
        predicted_seconds=design @ cost,
        weights=weights,
    )


_Count = Callable[[Floats, Floats], Floats]
_CALLS: dict[str, tuple[Callable[[Floats], Floats], _Count]] = {
    "send": (lambda n: floats(1) + 0 * n, lambda size, n: size + 0 * n),
    "all-reduce": (all_reduce_rounds, all_reduce_bytes),
    "reduce-scatter": (reduce_scatter_rounds, reduce_scatter_bytes),
    "all-gather": (all_gather_rounds, all_gather_bytes),
    "all-to-all": (all_to_all_rounds, all_to_all_bytes),
    "broadcast": (broadcast_rounds, broadcast_bytes),
}


def _known(call: str) -> tuple[Callable[[Floats], Floats], _Count]:
    if call not in _CALLS:
        raise ValueError(f"call is {call!r}, which is not timed here. Use one of: {', '.join(_CALLS)}.")
    return _CALLS[call]


def _samples(
    full_bytes: ArrayLike,
    seconds: ArrayLike,
    ranks: ArrayLike,
    call: str | Sequence[str],
    algorithm: str,
) -> tuple[Floats, Floats, Floats]:
    """Time, rounds and bytes sent of each sample, one-dimensional."""
    size = amounts(full_bytes=full_bytes)["full_bytes"]
    number = counts(ranks=ranks)["ranks"]
    time = positive(seconds=seconds)["seconds"]
    calls = np.asarray(call, dtype=np.str_)
    given = {"full_bytes": size, "seconds": time, "ranks": number, "call": np.zeros(calls.shape)}
    check_broadcast(given)
    shape = np.broadcast_shapes(*(values.shape for values in given.values()))
    size, time, number = (np.broadcast_to(values, shape).ravel() for values in (size, time, number))
    calls = np.broadcast_to(calls, shape).ravel()
    _check_number(time.size)
    if np.any(number < 2):
        raise ValueError(f"ranks is {number.min():g}, but a link joins at least 2. Use 2 or more.")
    rounds, sent = np.empty_like(time), np.empty_like(time)
    for name in np.unique(calls):
        count_rounds, count_bytes = _known(str(name))
        mine = calls == name
        if name == "all-reduce":
            rounds[mine] = all_reduce_rounds(number[mine], algorithm=algorithm)
            sent[mine] = all_reduce_bytes(size[mine], number[mine], algorithm=algorithm)
        else:
            rounds[mine], sent[mine] = count_rounds(number[mine]), count_bytes(size[mine], number[mine])
    return time, rounds, sent


def _line_of_least_median(design: Floats, time: Floats) -> Floats:
    """Of the lines through pairs of samples, the one from which half of all samples are least far, relatively.

    Half of the samples may be anywhere without moving it (Rousseeuw's least median of squares). Where there are many
    samples, pairs of a few hundred of them, evenly chosen along their sizes, stand for all.
    """
    order = np.lexsort((time, design[:, 1]))
    chosen = order[np.unique(np.linspace(0, order.size - 1, min(order.size, 120)).astype(int))]
    first, second = np.triu_indices(chosen.size, 1)
    a, b = design[chosen[first]], design[chosen[second]]
    determinant = a[:, 0] * b[:, 1] - a[:, 1] * b[:, 0]
    told_apart = np.abs(determinant) > 1e-9 * np.abs(a[:, 0] * b[:, 1])
    a, b, determinant = a[told_apart], b[told_apart], determinant[told_apart]
    from_a, from_b = time[chosen[first]][told_apart], time[chosen[second]][told_apart]
    lines = np.stack(
        [
            (from_a * b[:, 1] - from_b * a[:, 1]) / determinant,
            (from_b * a[:, 0] - from_a * b[:, 0]) / determinant,
        ]
    )
    possible = np.all(lines > 0, axis=0)
    if np.any(possible):  # else the best one says what is impossible about the samples
        lines = lines[:, possible]
    distances = np.abs(design[chosen] @ lines / time[chosen, None] - 1)
    return np.asarray(lines[:, np.argmin(np.median(distances, axis=0))])


def _biweight(
    design: Floats, time: Floats, start: Floats
) -> tuple[Floats, Floats, NDArray[np.float64], float]:
    """Costs of a round and a byte, weight of each sample, covariance of the costs, and relative scatter."""
    many = time.size
    cost = start
    relative = _distances(design, time, cost)
    scatter = _spread(relative)
    weights = np.ones(many)
    for _ in range(100):
        u = relative / (4.685 * scatter)
        weights = np.where(np.abs(u) < 1, (1 - u**2) ** 2, 0.0)
        better = _least_squares(design, time, weights / (design @ cost) ** 2)
        done = bool(np.all(np.abs(better - cost) <= 1e-12 * np.abs(cost)))
        if np.any(design @ better <= 0):  # only where latency or speed is about to be refused
            return better, weights, np.zeros((2, 2)), scatter
        cost = better
        relative = _distances(design, time, cost)
        scatter = _spread(relative)
        if done:
            break
    u = relative / (4.685 * scatter)
    inside = np.abs(u) < 1
    psi = np.where(inside, relative * (1 - u**2) ** 2, 0.0)
    slopes = np.where(inside, (1 - u**2) * (1 - 5 * u**2), 0.0)
    slope = np.mean(slopes)
    small = (
        1 + 2 / many * np.var(slopes) / slope**2
    )  # Huber 1981, §7.6: what few samples hide of their scatter
    variance = small**2 * np.sum(psi**2) / (many - 2) / slope**2
    relative_design = design / (design @ cost)[:, None]
    sizes = np.linalg.norm(relative_design, axis=0)
    inverse = np.linalg.inv((relative_design / sizes).T @ (relative_design / sizes))
    return cost, weights, variance * inverse / np.outer(sizes, sizes), scatter


def _distances(design: Floats, time: Floats, cost: Floats) -> Floats:
    """Of each sample from the fit, as a share of what the fit says."""
    predicted = design @ cost
    return np.asarray(time / predicted - 1)


def _spread(relative: Floats) -> float:
    """Standard deviation as the median distance from zero tells it; of two fitted numbers the samples are short."""
    correction = 1.4826 * (1 + 8 / max(relative.size - 2, 1))
    return max(float(np.median(np.abs(relative)) * correction), 1e-9)


def _least_squares(design: Floats, time: Floats, weights: Floats) -> Floats:
    root = np.sqrt(weights)
    scaled = design * root[:, None]
    sizes = np.linalg.norm(scaled, axis=0)
    solution, *_ = np.linalg.lstsq(scaled / sizes, time * root, rcond=None)
    return np.asarray(solution / sizes)


def _check_number(samples: int) -> None:
    if samples < FEWEST_SAMPLES:
        raise ValueError(
            f"There are {samples} samples, but a fit with its error needs {FEWEST_SAMPLES} or more. "
            "Time more sizes, or each size again."
        )


def _check(cost: Floats) -> None:
    if not cost[1] > 0:
        raise ValueError(
            "The larger samples take no longer than the smaller ones, so no speed can be told. Time larger messages."
        )
    if not cost[0] > 0:
        raise ValueError(
            f"The fit gives a latency of {cost[0] * 1e6:.3g} µs, which cannot be. The samples are too large or too "
            "scattered to show it. Time small messages as well, and each size several times."
        )


def _student_t_975(degrees: int) -> float:
    """97.5 % point of Student's t, by the expansion about the normal one (Abramowitz and Stegun 26.7.5)."""
    z = 1.959963984540054
    n = float(degrees)
    terms = (
        (z**3 + z) / (4 * n),
        (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n**2),
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * n**3),
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / (92160 * n**4),
    )
    return z + sum(terms)
