"""What a split map shows: which device holds what, and what travels between them. No drawing here."""

from __future__ import annotations

from dataclasses import dataclass

from calculators.predict.shapes import Layout, Phase
from calculators.predict.traffic import pipeline_parallel, tensor_parallel

MOST_DEVICES = 64


@dataclass(frozen=True, kw_only=True)
class Device:
    """One device: where it is, and the part of the model it holds.

    Ranks, hosts, stages and layers count from 0, as torch counts them; slices say "1 of 4", so from 1.
    """

    rank: int
    host: int
    stage: int
    slice: int
    first_layer: int
    last_layer: int


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """One kind of call that the picture draws as one mark: how often, and the size of its tensor [bytes]."""

    calls: float
    bytes_per_call: float


@dataclass(frozen=True, kw_only=True)
class Scene:
    """Everything that the picture and the sentences say about one layout, in one phase."""

    layout: Layout
    layers: int
    phase: Phase
    batch: int
    ranks_per_host: int
    devices: tuple[Device, ...]
    all_reduce: Exchange  # within one stage
    send: Exchange  # across one boundary, from one device to its counterpart
    token_return: Exchange
    bytes_sent_by_one: float

    @property
    def tp(self) -> int:
        return self.layout.tp

    @property
    def pp(self) -> int:
        return self.layout.pp

    @property
    def layers_per_stage(self) -> int:
        return self.layers // self.pp

    @property
    def hosts(self) -> int:
        return self.devices[-1].host + 1

    @property
    def tensor_groups_cross_hosts(self) -> bool:
        """Whether the devices that share a layer sit in more than one host."""
        return self.tp > self.ranks_per_host

    @property
    def all_reduces(self) -> float:
        """All-reduces of all stages together."""
        return self.all_reduce.calls * self.pp

    def stage(self, number: int) -> tuple[Device, ...]:
        """The devices of one stage, by slice."""
        return self.devices[number * self.tp : (number + 1) * self.tp]

    def boundary_crosses_hosts(self, number: int) -> bool:
        """Whether what leaves stage `number` goes to another host."""
        return self.stage(number)[0].host != self.stage(number + 1)[0].host


def make_scene(
    layout: Layout,
    *,
    layers: int,
    ranks_per_host: int,
    phase: Phase,
    batch: int,
    tokens: int,
    micro_batches: int,
    hidden_size: int,
    bytes_per_element: int,
) -> Scene:
    """The scene of a tensor and pipeline layout. Neighbouring ranks share a layer, as Megatron places them.

    Raises ValueError where the layout cannot be drawn: what was given, why not, what to change.
    """
    _check(layout, layers, ranks_per_host)
    per_stage = layers // layout.pp
    tensor = tensor_parallel(
        layers=per_stage,
        ranks=layout.tp,
        phase=phase,
        batch=batch,
        tokens=tokens,
        micro_batches=micro_batches,
        hidden_size=hidden_size,
        bytes_per_element=bytes_per_element,
    )
    pipeline = pipeline_parallel(
        stages=layout.pp,
        phase=phase,
        batch=batch,
        tokens=tokens,
        micro_batches=micro_batches,
        hidden_size=hidden_size,
        bytes_per_element=bytes_per_element,
    )
    devices = tuple(
        Device(
            rank=rank,
            host=rank // ranks_per_host,
            stage=rank // layout.tp,
            slice=rank % layout.tp + 1,
            first_layer=rank // layout.tp * per_stage,
            last_layer=(rank // layout.tp + 1) * per_stage - 1,
        )
        for rank in range(layout.world_size)
    )
    boundaries = max(layout.pp - 1, 1)
    return Scene(
        layout=layout,
        layers=layers,
        phase=phase,
        batch=batch,
        ranks_per_host=ranks_per_host,
        devices=devices,
        all_reduce=Exchange(calls=tensor.calls.item(), bytes_per_call=tensor.bytes_per_call.item()),
        send=Exchange(
            calls=pipeline.calls.item() / boundaries, bytes_per_call=pipeline.bytes_per_call.item()
        ),
        token_return=Exchange(
            calls=pipeline.control_calls.item(), bytes_per_call=pipeline.control_bytes.item()
        ),
        bytes_sent_by_one=tensor.wire_bytes.item() + pipeline.wire_bytes.item(),
    )


def _check(layout: Layout, layers: int, ranks_per_host: int) -> None:
    for axis in ("dp", "cp", "ep"):
        size = getattr(layout, axis)
        if size > 1:
            raise ValueError(
                f"{axis} is {size}, but this map draws tensor and pipeline splits only. Leave {axis} at 1."
            )
    if layout.sp:
        raise ValueError("sp is on, but this map draws tensor and pipeline splits only. Turn sp off.")
    if layers < 1:
        raise ValueError(f"layers is {layers}, but a model has at least 1 layer.")
    if ranks_per_host < 1:
        raise ValueError(f"ranks_per_host is {ranks_per_host}, but a host has at least 1 device.")
    if layout.world_size > MOST_DEVICES:
        raise ValueError(
            f"tp {layout.tp} × pp {layout.pp} is {layout.world_size} devices, but nobody can read a map "
            f"of more than {MOST_DEVICES}. Make tp or pp smaller."
        )
    if layers % layout.pp:
        raise ValueError(
            f"pp is {layout.pp}, but {layers} layers do not make {layout.pp} stages of equal depth. "
            f"{_nearest(layout.pp, [size for size in range(1, layers + 1) if layers % size == 0])}"
        )
    if layout.world_size > ranks_per_host and layout.tp % ranks_per_host and ranks_per_host % layout.tp:
        sizes = range(1, layout.world_size + 1)
        fitting = [size for size in sizes if layout.tp % size == 0 or size % layout.tp == 0]
        raise ValueError(
            f"ranks_per_host is {ranks_per_host}, but groups of {layout.tp} devices that share a layer "
            f"neither share such hosts equally nor fill them. {_nearest(ranks_per_host, fitting)}"
        )


def _nearest(size: int, working: list[int]) -> str:
    below = [other for other in working if other < size][-1:]
    near = below + [other for other in working if other > size][:1]
    return f"Nearest that {'work' if len(near) > 1 else 'works'}: {' or '.join(map(str, near))}."
