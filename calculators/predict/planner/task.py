"""What is asked: a task, and the space of the layouts that may do it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import pairwise

from calculators.predict.arrays import MOST, is_whole, said
from calculators.predict.clusters import Cluster
from calculators.predict.memory import MIXED_ADAM, Optimizer
from calculators.predict.shapes import ModelShape, Phase, Recompute

MOST_DEVICES = 16_384
_RANGES = {"sp": (0, 1), "zero": (0, 3), "recompute": (0, int(max(Recompute)))}


@dataclass(frozen=True, kw_only=True)
class Task:
    """What is to be done, and where.

    tokens    length of a sequence [tokens]; in decode, of the context that each sequence has by then
    batch     sequences of a step in training; in decode, sequences in flight on the whole cluster
    reserve   memory of a device that nothing here accounts for [bytes]: contexts, buffers, fragments
    uneven_stages  whether stages may differ by a layer; otherwise the layers divide by pp (rule R4)
    """

    shape: ModelShape
    cluster: Cluster
    tokens: int
    batch: int
    phase: Phase = Phase.TRAINING
    optimizer: Optimizer = MIXED_ADAM
    reserve: float = 0.0
    uneven_stages: bool = False

    def __post_init__(self) -> None:
        for name in ("tokens", "batch"):
            value = getattr(self, name)
            if not is_whole(value, least=1, most=10**12):
                raise ValueError(f"{name} is {said(value)}, but it must be a whole number from 1 to 10¹².")
        if not isinstance(self.reserve, int | float) or not 0 <= self.reserve <= MOST:
            raise ValueError(f"reserve is {said(self.reserve)}, but it must be 0 bytes or more.")
        if self.cluster.devices > MOST_DEVICES:
            raise ValueError(
                f"The cluster has {self.cluster.devices:,} devices, but the planner goes to {MOST_DEVICES:,}. "
                "Use fewer."
            )
        object.__setattr__(self, "phase", Phase(self.phase))
        if self.phase is Phase.PREFILL:
            raise ValueError(
                "phase is prefill, but plans are made for training and for decode. Use one of those."
            )

    @property
    def limit_bytes(self) -> float:
        """Memory that a layout may take on each device [bytes]."""
        return self.cluster.device.memory_bytes - self.reserve


@dataclass(frozen=True, kw_only=True)
class Space:
    """The values that each axis may take, ascending; dp follows from the others and the number of devices."""

    tp: tuple[int, ...] = (1,)
    cp: tuple[int, ...] = (1,)
    pp: tuple[int, ...] = (1,)
    ep: tuple[int, ...] = (1,)
    etp: tuple[int, ...] = (1,)
    sp: tuple[bool, ...] = (False,)
    vpp: tuple[int, ...] = (1,)
    micro_batch: tuple[int, ...] = (1,)
    zero: tuple[int, ...] = (0,)
    recompute: tuple[int, ...] = (int(Recompute.NONE),)

    def __post_init__(self) -> None:
        for axis in fields(self):
            values = getattr(self, axis.name)
            if not isinstance(values, Sequence):
                raise ValueError(f"{axis.name} is {said(values)}, but it is all values to try. Give a list.")
            if not values:
                raise ValueError(f"{axis.name} has no values, but a layout needs one. Give at least one.")
            least, most = _RANGES.get(axis.name, (1, MOST_DEVICES))
            fine = all(is_whole(value, least=least, most=most) for value in values)
            if not fine or any(after <= before for before, after in pairwise(values)):
                given = ", ".join(said(value) for value in values)
                raise ValueError(
                    f"{axis.name} is {given}, but its values are whole numbers from {least} to {most:,}, ascending. "
                    "Change them, and give each once."
                )


def space_of(task: Task) -> Space:
    """Every value of every axis that could be legal for `task`, within what is ever used in practice.

    tp and etp to 64 ways, cp, pp and ep to the number of devices, micro-batches in powers of two to 32 sequences,
    chunks to 16 a stage: those that divide the layers, or powers of two where stages may differ. In decode sequences,
    ZeRO stages and the rest stay as they are, for nothing there depends on them.
    """
    shape, devices = task.shape, task.cluster.devices
    of_devices = _divisors(devices)
    tp = tuple(n for n in of_devices if n <= 64 and shape.attention_heads % n == 0)
    pp = tuple(n for n in of_devices if n <= shape.layers and (task.uneven_stages or shape.layers % n == 0))
    experts = shape.experts
    ep = tuple(n for n in of_devices if experts.routed % n == 0) if experts else (1,)
    etp = tuple(n for n in of_devices if n <= 64 and experts.width % n == 0) if experts else (1,)
    if task.phase == Phase.DECODE:
        return Space(tp=tp, pp=pp, ep=ep, etp=etp)
    cp = tuple(n for n in of_devices if task.tokens % (2 * n) == 0 or n == 1)
    chunks = {n for stages in pp for n in _divisors(shape.layers // stages) if n <= 16}
    if task.uneven_stages:
        chunks = {2**power for power in range(5) if 2**power * min(pp[1:2] or pp) <= shape.layers}
    return Space(
        tp=tp,
        cp=cp,
        pp=pp,
        ep=ep,
        etp=etp,
        sp=(False, True),
        vpp=tuple(sorted(chunks)),
        micro_batch=tuple(2**power for power in range(6) if 2**power <= task.batch),
        zero=(0, 1, 2, 3),
        recompute=tuple(int(mode) for mode in Recompute),
    )


def _divisors(number: int) -> list[int]:
    return [n for n in range(1, number + 1) if number % n == 0]
