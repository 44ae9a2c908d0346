"""What a split map shows: which device holds what, and what travels between them. No drawing here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise, product

from calculators.predict.shapes import Layout, ModelShape, Phase
from calculators.splitmap.checks import AXES, check, drawn_replicas
from calculators.splitmap.messages import Message, Sent, sent_in

Run = tuple[int, int]
"""The first and the last of a run of layers, tokens, sequences or experts, counted from 0."""


@dataclass(frozen=True, kw_only=True)
class Device:
    """One device: where it is, and the part of the model and of the work that it holds.

    Ranks, hosts and places on an axis count from 0, as torch counts them. `runs` are its layers, several with
    interleaved stages; `tokens` those of every sequence that it works on (whose keys and values it keeps, in decode),
    `beside` those that it works on beside its blocks under sequence parallelism; `experts` is None in a dense model.
    """

    rank: int
    host: int
    at: Mapping[str, int]  # tp, cp, dp, pp, etp, ep, edp, and shard
    runs: tuple[Run, ...]
    tokens: Run
    beside: Run
    sequences: Run
    experts: Run | None

    @property
    def stage(self) -> int:
        return self.at["pp"]


@dataclass(frozen=True, kw_only=True)
class Scene:
    """Everything that the picture and the sentences say about one layout, in one phase.

    `devices` are those that are drawn: all of them, or those of `replicas` replicas where more would be too many.
    `crossings` counts, for each axis, its links between hosts and all its links, drawn or not: boundaries of a
    pipeline, else neighbours in a group.
    """

    layout: Layout
    shape: ModelShape
    phase: Phase
    batch: int
    tokens: int
    context: str
    regather: bool
    ranks_per_host: int
    order: tuple[str, ...]
    replicas: int
    devices: tuple[Device, ...]
    crossings: Mapping[str, tuple[int, int]]
    sent: Sent

    @property
    def tp(self) -> int:
        return self.layout.tp

    @property
    def pp(self) -> int:
        return self.layout.pp

    @property
    def layers(self) -> int:
        return self.shape.layers

    @property
    def layers_per_stage(self) -> int:
        return self.layers // self.pp

    @property
    def shards(self) -> int:
        """Devices among which ZeRO shares out what replicas hold: those that hold the same weights."""
        return self.layout.dp * self.layout.cp

    @property
    def is_sharded(self) -> bool:
        return self.layout.zero > 0 and self.shards > 1

    @property
    def training(self) -> bool:
        return self.phase is Phase.TRAINING

    @property
    def hosts(self) -> int:
        """Hosts of all devices, drawn or not."""
        return -(-self.layout.world_size // self.ranks_per_host)

    @property
    def drawn(self) -> Layout:
        """The layout of the devices that are drawn."""
        return replace(self.layout, dp=self.replicas)

    @property
    def is_collapsed(self) -> bool:
        return self.replicas < self.layout.dp

    def stage(self, number: int) -> tuple[Device, ...]:
        """The devices of one stage, by rank."""
        return self._stages[number]

    def messages(self, axis: str) -> tuple[Message, ...]:
        """What travels on one axis, kind by kind; of the stage where it is most."""
        return self.sent.of(axis)

    def groups(self, axis: str) -> tuple[tuple[Device, ...], ...]:
        """The drawn devices that talk to each other on `axis`, group by group."""
        return self._groups[axis]

    @cached_property
    def _stages(self) -> tuple[tuple[Device, ...], ...]:
        found: tuple[list[Device], ...] = tuple([] for _ in range(self.pp))
        for device in self.devices:
            found[device.stage].append(device)
        return tuple(tuple(devices) for devices in found)

    @cached_property
    def _groups(self) -> dict[str, tuple[tuple[Device, ...], ...]]:
        return {axis: _grouped(self.devices, apart) for axis, apart in _APART.items()}


_APART = {
    "tp": ("cp", "dp", "pp"),
    "cp": ("tp", "dp", "pp"),
    "pp": ("tp", "cp", "dp"),
    "dp": ("tp", "pp"),  # gradients are summed over cp, too
    "ep": ("etp", "edp", "pp"),
    "etp": ("ep", "edp", "pp"),
    "edp": ("etp", "ep", "pp"),
}
"""Axis → the places in which members of one group are alike."""


def make_scene(
    layout: Layout,
    *,
    shape: ModelShape,
    ranks_per_host: int,
    phase: Phase,
    batch: int,
    tokens: int,
    micro_batches: int,
    context: str,
    regather: bool,
    order: tuple[str, ...] = AXES,
) -> Scene:
    """The scene of a layout, its ranks numbered in `order`, innermost axis first.

    Raises ValueError where the layout cannot be drawn: what was given, why not, what to change.
    """
    check(
        layout,
        shape,
        phase=phase,
        batch=batch,
        tokens=tokens,
        ranks_per_host=ranks_per_host,
        order=order,
    )
    replicas = drawn_replicas(layout) or 1
    sent = sent_in(
        layout,
        shape,
        phase=phase,
        batch=batch,
        tokens=tokens,
        micro_batches=micro_batches,
        context=context,
        regather=regather,
    )
    places = _places(layout, replicas, order)
    return Scene(
        layout=layout,
        shape=shape,
        phase=phase,
        batch=batch,
        tokens=tokens,
        context=context,
        regather=regather,
        ranks_per_host=ranks_per_host,
        order=order,
        replicas=replicas,
        devices=tuple(
            _device(layout, shape, rank, at, host=rank // ranks_per_host, batch=batch, tokens=tokens)
            for rank, at in places
        ),
        crossings={axis: _crossings(layout, axis, order, ranks_per_host) for axis in sent.axes},
        sent=sent,
    )


def _crossings(layout: Layout, axis: str, order: tuple[str, ...], ranks_per_host: int) -> tuple[int, int]:
    groups: dict[tuple[int, ...], list[int]] = {}
    for rank, at in _places(layout, layout.dp, order):
        groups.setdefault(tuple(at[other] for other in _APART[axis]), []).append(rank // ranks_per_host)
    links = [[one != other for one, other in pairwise(hosts)] for hosts in groups.values()]
    if axis == "pp":
        links = [[any(boundary) for boundary in zip(*links, strict=True)]]
    return sum(map(sum, links)), sum(map(len, links))


def _places(layout: Layout, replicas: int, order: tuple[str, ...]) -> list[tuple[int, dict[str, int]]]:
    """Each drawn rank and its place on every axis, by rank."""
    sizes = {axis: getattr(layout, axis) for axis in AXES}
    found = []
    for indices in product(*(range(replicas if axis == "dp" else sizes[axis]) for axis in order)):
        at = dict(zip(order, indices, strict=True))
        rank, stride = 0, 1
        for axis in order:
            rank += at[axis] * stride
            stride *= sizes[axis]
        # Experts regroup the devices of one stage, tensor parallelism innermost (predict.placement).
        local = at["tp"] + layout.tp * (at["cp"] + layout.cp * at["dp"])
        at |= {
            "etp": local % layout.etp,
            "ep": local // layout.etp % layout.ep,
            "edp": local // (layout.etp * layout.ep),
            "shard": at["dp"] * layout.cp + at["cp"],
        }
        found.append((rank, at))
    return sorted(found, key=lambda each: each[0])


def _device(
    layout: Layout, shape: ModelShape, rank: int, at: dict[str, int], *, host: int, batch: int, tokens: int
) -> Device:
    depth = shape.layers // (layout.pp * layout.vpp)
    mine = _share(tokens, at["cp"], layout.cp)
    beside = mine
    if layout.sp and (mine[1] - mine[0] + 1) % layout.tp == 0:
        first, last = _share(mine[1] - mine[0] + 1, at["tp"], layout.tp)
        beside = (mine[0] + first, mine[0] + last)
    return Device(
        rank=rank,
        host=host,
        at=at,
        runs=tuple(
            _share(shape.layers, chunk * layout.pp + at["pp"], layout.pp * layout.vpp)
            for chunk in range(layout.vpp)
            if depth
        ),
        tokens=mine,
        beside=beside,
        sequences=_share(batch, at["dp"], layout.dp),
        experts=_share(shape.experts.routed, at["ep"], layout.ep) if shape.experts else None,
    )


def _share(total: int, part: int, parts: int) -> Run:
    each = total // parts
    return part * each, (part + 1) * each - 1


def _grouped(devices: Iterable[Device], alike: tuple[str, ...]) -> tuple[tuple[Device, ...], ...]:
    found: dict[tuple[int, ...], list[Device]] = {}
    for device in devices:
        found.setdefault(tuple(device.at[axis] for axis in alike), []).append(device)
    return tuple(tuple(group) for group in found.values())
