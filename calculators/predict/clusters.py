"""A cluster: so many devices, joined by tiers of links, the inner ones fast and the outer ones slow."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calculators.predict.arrays import MOST, floats, said, whole
from calculators.predict.devices import Device
from calculators.predict.links import Rung


@dataclass(frozen=True, kw_only=True)
class Link:
    """What one device can send: `bytes_per_second` in one direction, and `latency_seconds` for each round (α).

    A round is one serial step of messages: everything that ranks send at the same moment. α is the time until a small
    one has arrived, software included; a call of r rounds takes r·α, and its bytes besides (the α–β model,
    `collectives.transfer_seconds`). How many rounds there are depends on how a call is carried out:

    - Large tensors go around rings, n−1 rounds for a gather or a scatter, tier by tier (training and prefill in
      `timing`).
    - Small ones are sent to everybody at once, one round (decode, in `timing` and `serving`). So a latency that was
      measured as that of a whole small all-reduce is α itself, and no share of it.
    """

    name: str
    bytes_per_second: float
    latency_seconds: float

    def __post_init__(self) -> None:
        for what in ("bytes_per_second", "latency_seconds"):
            value = getattr(self, what)
            if not isinstance(value, int | float | np.number) or not 0 < value <= MOST:
                raise ValueError(
                    f"{what} is {said(value)} on {self.name}, but it must be a number above 0, at most {MOST:g}."
                )

    @classmethod
    def on(cls, rung: Rung) -> Link:
        """A link of the ladder, with the latency of a round that is typical there."""
        return cls(
            name=rung.name,
            bytes_per_second=rung.bytes_per_second,
            latency_seconds=rung.typical_latency_seconds,
        )


@dataclass(frozen=True, kw_only=True)
class Tier:
    """All devices of each block of `devices` reach each other by `link`."""

    devices: int
    link: Link

    def __post_init__(self) -> None:
        whole("devices", self.devices)


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """`devices` accelerators; the first tier is what shares a host, the last one joins them all."""

    device: Device
    tiers: tuple[Tier, ...]

    def __post_init__(self) -> None:
        if not self.tiers:
            raise ValueError("tiers is empty, but devices reach each other by at least one. Give one.")
        sizes = [tier.devices for tier in self.tiers]
        if any(outer % inner for inner, outer in pairwise(sizes)):
            raise ValueError(
                f"tiers join {sizes} devices, but each must be a multiple of the one inside it. "
                "Change the number of devices, or of those in a host."
            )

    @property
    def devices(self) -> int:
        """All devices."""
        return self.tiers[-1].devices

    @property
    def devices_per_host(self) -> int:
        """Devices of the innermost tier."""
        return self.tiers[0].devices

    def tier_of(self, span: ArrayLike) -> NDArray[np.intp]:
        """Index of the innermost tier that holds groups reaching across `span` devices (`placement.span`).

        A group stays inside a block of n devices where its span divides n, and otherwise crosses its border somewhere.
        """
        reach = floats(span)
        index = np.full(reach.shape, len(self.tiers) - 1)
        for number, tier in reversed(list(enumerate(self.tiers))):
            index = np.where(tier.devices % reach == 0, number, index)
        return np.asarray(index, dtype=np.intp)


def two_tiers(device: Device, *, devices: int, devices_per_host: int, inside: Link, between: Link) -> Cluster:
    """Hosts of `devices_per_host`, joined by `between`; one host where there are no more devices than that.

    >>> from calculators.predict.devices import DEVICES
    >>> from calculators.predict.links import rung
    >>> nvlink, network = Link.on(rung("nvlink-4")), Link.on(rung("infiniband-ndr"))
    >>> cluster = two_tiers(DEVICES["h100"], devices=16, devices_per_host=8, inside=nvlink, between=network)
    >>> cluster.tier_of([1, 8, 16, 3]).tolist()
    [0, 0, 1, 1]
    """
    devices = whole("devices", devices)
    devices_per_host = whole("devices_per_host", devices_per_host)
    if devices <= devices_per_host:
        return Cluster(device=device, tiers=(Tier(devices=devices, link=inside),))
    return Cluster(
        device=device,
        tiers=(Tier(devices=devices_per_host, link=inside), Tier(devices=devices, link=between)),
    )
