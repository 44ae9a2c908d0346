"""A cluster: so many devices, joined by tiers of links, the inner ones fast and the outer ones slow."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calculators.predict.arrays import floats
from calculators.predict.devices import Device
from calculators.predict.links import Rung


@dataclass(frozen=True, kw_only=True)
class Link:
    """What one device can send: `bytes_per_second` in one direction, after `latency_seconds` for each round."""

    name: str
    bytes_per_second: float
    latency_seconds: float

    def __post_init__(self) -> None:
        for what in ("bytes_per_second", "latency_seconds"):
            value = getattr(self, what)
            if not 0 < value < np.inf:
                raise ValueError(f"{what} is {value:g} on {self.name}, but it must be a number above 0.")

    @classmethod
    def on(cls, rung: Rung) -> Link:
        """A link of the ladder, with the latency that is typical there."""
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


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """`devices` accelerators; the first tier is what shares a host, the last one joins them all."""

    device: Device
    tiers: tuple[Tier, ...]

    def __post_init__(self) -> None:
        if not self.tiers:
            raise ValueError("tiers is empty, but devices reach each other by at least one. Give one.")
        sizes = [tier.devices for tier in self.tiers]
        if any(size < 1 for size in sizes):
            raise ValueError(f"tiers join {sizes} devices, but each joins at least 1.")
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
    if devices <= devices_per_host:
        return Cluster(device=device, tiers=(Tier(devices=devices, link=inside),))
    return Cluster(
        device=device,
        tiers=(Tier(devices=devices_per_host, link=inside), Tier(devices=devices, link=between)),
    )
