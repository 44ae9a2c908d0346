"""How fast a split can write: the ceiling that memory sets, what the link adds, and the link speed you can buy.

One decode step gives every sequence one token. For that the devices read weights and cached keys and values from their
memory, and exchange activations. Everything here is a ceiling: memory and links run at their peak, an exchange is one
round and takes one latency (`clusters.Link`), nothing else takes time. A real server is slower, so what fails here
fails at home.

The sequences of a replica go round the pipeline in as many groups as there are stages (or sequences, if those are
fewer), so that no stage waits for another group. A group's way through all stages is called its pass.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calculators.predict.arrays import Floats, amounts, check_broadcast, counts, floats, numbers, positive
from calculators.predict.clusters import Link
from calculators.predict.collectives import transfer_seconds
from calculators.predict.compute import decode_flops
from calculators.predict.devices import Device
from calculators.predict.exchanges import exchanges, sizes
from calculators.predict.reading import reading
from calculators.predict.shapes import Layouts, ModelShape


class Limit(IntEnum):
    """What takes the largest part of a token's time."""

    MEMORY = 0
    ARITHMETIC = 1
    INSIDE = 2
    LATENCY = 3
    BANDWIDTH = 4

    @property
    def words(self) -> str:
        """As a page says it."""
        return (
            "memory",
            "arithmetic",
            "the link inside",
            "latency",
            "bandwidth",
        )[self]


class Verdict(IntEnum):
    """Whether a link reaches the wanted speed, and else what stands in the way."""

    REACHES = 0
    BANDWIDTH = 1
    LATENCY = 2
    DEVICES = 3

    @property
    def words(self) -> str:
        """As a page says it."""
        return (
            "reaches it",
            "too slow: a faster link of the same latency could reach it",
            "answers too late: at this latency no cable is fast enough",
            "the devices read too slowly: no link helps",
        )[self]


def decode_ceiling(memory_bytes_per_second: ArrayLike, bytes_read: ArrayLike) -> Floats:
    """Tokens/s that memory allows: Σ bandwidth of the devices that read in parallel ÷ bytes read for each token.

    Two devices of 273 GB/s on 141 GB of weights, each reading its half:

    >>> decode_ceiling(2 * 273e9, 141e9).round(1).item()
    3.9
    """
    given = positive(memory_bytes_per_second=memory_bytes_per_second, bytes_read=bytes_read)
    return np.asarray(given["memory_bytes_per_second"] / given["bytes_read"])


@dataclass(frozen=True, kw_only=True, eq=False)
class DecodeWork:
    """What stands between a split and its next token, before any link is chosen, as arrays.

    weight_bytes        of the weights that one device of each stage reads in a pass, all stages together [bytes]
    kv_bytes            of the cached keys and values, likewise [bytes]
    memory_seconds      for reading both; 0 where no device is given [s]
    arithmetic_seconds  at the device's peak, 2 operations for each parameter that a token is multiplied by, and
                        those of attention [s]
    inside_seconds      exchanges that stay on the link inside a host, where one is given [s]
    rounds, sent_bytes  what is left to the link in question: latencies, and bytes that cross one after another
    calls               collectives and sends among them, without the token ids' way back
    groups              of sequences that go round the pipeline
    batch, replicas     sequences of one replica, and replicas that write side by side
    """

    weight_bytes: Floats
    kv_bytes: Floats
    memory_seconds: Floats
    arithmetic_seconds: Floats
    inside_seconds: Floats
    calls: Floats
    rounds: Floats
    sent_bytes: Floats
    groups: Floats
    batch: Floats
    replicas: Floats

    @property
    def device_seconds(self) -> Floats:
        """What a pass takes whatever the link: memory and arithmetic overlap, the host's own link comes on top [s]."""
        return np.maximum(self.memory_seconds, self.arithmetic_seconds) + self.inside_seconds

    @property
    def device_ceiling(self) -> Floats:
        """Tokens/s of each sequence over a link without latency and without end; inf where no device is given."""
        return _per_second(self.device_seconds)

    def latency_ceiling(self, latency_seconds: ArrayLike) -> Floats:
        """Tokens/s of each sequence when bytes cost nothing: what the fastest cable of this latency [s] could give."""
        latency = amounts(latency_seconds=latency_seconds)["latency_seconds"]
        return _per_second(self.device_seconds + self.rounds * latency)

    def over(self, *, bytes_per_second: ArrayLike, latency_seconds: ArrayLike) -> DecodeSpeed:
        """How fast it writes over such a link: `bytes_per_second` in one direction, `latency_seconds` a round.

        Raises ValueError where the speed is not above 0 or the latency below 0.
        """
        speed = positive(bytes_per_second=bytes_per_second)["bytes_per_second"]
        latency = amounts(latency_seconds=latency_seconds)["latency_seconds"]
        return DecodeSpeed(
            work=self, latency_seconds=self.rounds * latency, bandwidth_seconds=self.sent_bytes / speed
        )

    def link_needed(self, *, tokens_per_second: ArrayLike, latency_seconds: ArrayLike = 0.0) -> LinkNeeded:
        """The link that gives each sequence `tokens_per_second`, on a link whose rounds take `latency_seconds`.

        bytes/s = bytes ÷ (1/wanted − device − rounds·latency); inf where devices and latency leave no time for bytes.

        Raises ValueError where a speed is not above 0 or the latency below 0.
        """
        wanted = positive(tokens_per_second=tokens_per_second)["tokens_per_second"]
        latency = amounts(latency_seconds=latency_seconds)["latency_seconds"]
        device = self.device_seconds
        left = 1 / wanted - device - self.rounds * latency
        needed = np.where(left > 0, self.sent_bytes / np.where(left > 0, left, 1), np.inf)
        return LinkNeeded(
            tokens_per_second=wanted,
            bytes_per_second=needed,
            latency_ceiling=self.latency_ceiling(latency),
            device_ceiling=self.device_ceiling,
            seconds_left=left,
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class DecodeSpeed:
    """How fast a split writes over one link (or each of an array of links), and what takes the time."""

    work: DecodeWork
    latency_seconds: Floats
    bandwidth_seconds: Floats

    @property
    def seconds(self) -> Floats:
        """From one token of a sequence to its next [s]."""
        return self.work.device_seconds + self.latency_seconds + self.bandwidth_seconds

    @property
    def tokens_per_second(self) -> Floats:
        """Of each sequence; inf where neither a device nor an exchange takes time."""
        return _per_second(self.seconds)

    @property
    def total_tokens_per_second(self) -> Floats:
        """Of all sequences of all replicas together."""
        return self.work.batch * self.work.replicas * self.tokens_per_second

    @property
    def latency_ceiling(self) -> Floats:
        """Tokens/s of each sequence if bytes cost nothing: no faster cable of this latency gives more."""
        return _per_second(self.work.device_seconds + self.latency_seconds)

    @property
    def limit(self) -> Floats:
        """What takes the largest part of the time, as values of `Limit`."""
        memory, arithmetic = self.work.memory_seconds, self.work.arithmetic_seconds
        parts = (
            memory * (memory >= arithmetic),
            arithmetic * (arithmetic > memory),
            self.work.inside_seconds,
            self.latency_seconds,
            self.bandwidth_seconds,
        )
        common = np.broadcast_shapes(*(part.shape for part in parts))
        largest = np.argmax(np.stack([np.broadcast_to(part, common) for part in parts]), axis=0)
        return floats(largest)

    def verdict(self, tokens_per_second: ArrayLike) -> Floats:
        """Whether each sequence gets so many tokens/s, and if not, what has to change first, as values of `Verdict`."""
        wanted = positive(tokens_per_second=tokens_per_second)["tokens_per_second"]
        found = np.where(self.latency_ceiling >= wanted, Verdict.BANDWIDTH, Verdict.LATENCY)
        found = np.where(self.work.device_ceiling >= wanted, found, Verdict.DEVICES)
        return floats(np.where(self.tokens_per_second >= wanted, Verdict.REACHES, found))


@dataclass(frozen=True, kw_only=True, eq=False)
class LinkNeeded:
    """The link that reaches a wanted speed.

    bytes_per_second  one direction; inf where no link of this latency is enough, 0 where nothing is sent
    latency_ceiling   tokens/s of each sequence that the latency leaves, however fast the link
    device_ceiling    tokens/s that the devices leave, whatever the link
    seconds_left      of each token, for its bytes; below 0 where devices and latency take more than there is [s]
    """

    tokens_per_second: Floats
    bytes_per_second: Floats
    latency_ceiling: Floats
    device_ceiling: Floats
    seconds_left: Floats

    @property
    def gbit_per_second(self) -> Floats:
        """One direction in Gbit/s, as networks are sold."""
        return self.bytes_per_second * 8 / 1e9

    @property
    def can_be_bought(self) -> NDArray[np.bool_]:
        """Whether some link speed is enough at this latency."""
        return np.asarray(np.isfinite(self.bytes_per_second))


def decode_work(
    shape: ModelShape,
    layouts: Layouts,
    *,
    device: Device | None = None,
    inside: Link | None = None,
    batch: ArrayLike = 1,
    context_tokens: ArrayLike = 0,
    algorithm: str = "best",
    weight_bytes_per_element: ArrayLike | None = None,
    kv_bytes_per_element: ArrayLike = 2,
    wire_bytes_per_element: ArrayLike | None = None,
    tensors_per_boundary: ArrayLike = 1,
) -> DecodeWork:
    """What one decode step of a replica reads, computes and exchanges for `batch` sequences of `context_tokens` each.

    What is read is explained at `reading`, what is exchanged at `exchanges`; both for one of the groups that go round
    the pipeline. A pipeline holds more than one device, and is no faster for one sequence: its stages read in turn.

    device  None leaves memory and arithmetic out, so that only the link speaks
    inside  the link that joins the ranks of a stage where that is not the link in question: hosts with several devices,
            and a pipeline between them
    weight_bytes_per_element  e.g. 0.5 for 4-bit weights; None for the model's own

    Source: ceiling as Σ bandwidth ÷ bytes read (oracle 12); operations as `decode_flops`. Raises ValueError where a
    size is below 1, a width not above 0 or the algorithm unknown.

    >>> from calculators.predict.models.catalogue import MODELS
    >>> from calculators.predict.devices import DEVICES
    >>> sparks = decode_work(MODELS["llama-3.1-70b"].shape, Layouts(tp=[1, 2]), device=DEVICES["dgx-spark"])
    >>> sparks.device_ceiling.round(2).tolist()
    [1.96, 3.93]
    """
    given = counts(batch=batch, **sizes(layouts))
    groups = np.minimum(given["pp"], given["batch"])
    group = given["batch"] / groups  # a fraction is their mean
    read = reading(
        shape,
        layouts,
        batch=group,
        context_tokens=context_tokens,
        weight_bytes_per_element=weight_bytes_per_element,
        kv_bytes_per_element=kv_bytes_per_element,
    )
    sent = exchanges(
        shape,
        layouts,
        batch=group,
        algorithm=algorithm,
        wire_bytes_per_element=wire_bytes_per_element,
        tensors_per_boundary=tensors_per_boundary,
    )
    memory_seconds = arithmetic_seconds = inside_seconds = floats(0)
    if device is not None:
        memory_seconds = read.total_bytes / device.memory_bytes_per_second
        each = decode_flops(shape, context_tokens=context_tokens, tp=given["tp"], cp=given["cp"])
        arithmetic_seconds = group * each / device.flops_per_second
    calls, rounds, sent_bytes = sent.calls, sent.rounds, sent.sent_bytes
    if inside is not None:
        calls = sent.pipeline_calls
        rounds_inside, rounds = rounds, sent.pipeline_rounds + sent.control_rounds
        bytes_inside, sent_bytes = sent_bytes, sent.pipeline_bytes + sent.control_bytes
        inside_seconds = transfer_seconds(
            bytes_inside - sent_bytes,
            rounds_inside - rounds,
            bytes_per_second=inside.bytes_per_second,
            latency_seconds=inside.latency_seconds,
        )
    return DecodeWork(
        weight_bytes=read.weight_bytes,
        kv_bytes=read.kv_bytes,
        memory_seconds=memory_seconds,
        arithmetic_seconds=arithmetic_seconds,
        inside_seconds=inside_seconds,
        calls=calls,
        rounds=rounds,
        sent_bytes=sent_bytes,
        groups=groups,
        batch=given["batch"],
        replicas=given["dp"],
    )


def link_speed(
    shape: ModelShape,
    layouts: Layouts,
    *,
    tokens_per_second: ArrayLike,
    latency_seconds: ArrayLike = 0.0,
    device: Device | None = None,
    inside: Link | None = None,
    batch: ArrayLike = 1,
    context_tokens: ArrayLike = 0,
    algorithm: str = "best",
    weight_bytes_per_element: ArrayLike | None = None,
    kv_bytes_per_element: ArrayLike = 2,
) -> LinkNeeded:
    """The link speed you can buy: what gives each sequence `tokens_per_second`, `decode_work` and `link_needed` in one.

    At the lessons' sizes and 20 tokens/s, two ranks of tensor parallelism: without latency, at RDMA's, at kernel TCP's
    of 300 µs and at that of Wi-Fi, where no cable is fast enough.

    >>> from calculators.predict.models.catalogue import MODELS
    >>> needed = link_speed(
    ...     MODELS["lesson"].shape, Layouts(tp=2), tokens_per_second=20, latency_seconds=[0, 5e-6, 300e-6, 10e-3]
    ... )
    >>> needed.gbit_per_second.round(2).tolist()
    [0.17, 0.17, 0.72, inf]
    >>> needed.latency_ceiling.round(1).tolist()
    [inf, 1562.5, 26.0, 0.8]
    """
    check_broadcast(
        numbers(
            tokens_per_second=tokens_per_second,
            latency_seconds=latency_seconds,
            batch=batch,
            context_tokens=context_tokens,
            weight_bytes_per_element=1 if weight_bytes_per_element is None else weight_bytes_per_element,
            kv_bytes_per_element=kv_bytes_per_element,
        )
    )
    work = decode_work(
        shape,
        layouts,
        device=device,
        inside=inside,
        batch=batch,
        context_tokens=context_tokens,
        algorithm=algorithm,
        weight_bytes_per_element=weight_bytes_per_element,
        kv_bytes_per_element=kv_bytes_per_element,
    )
    return work.link_needed(tokens_per_second=tokens_per_second, latency_seconds=latency_seconds)


def _per_second(seconds: Floats) -> Floats:
    return np.where(seconds > 0, 1 / np.where(seconds > 0, seconds, 1), np.inf)
