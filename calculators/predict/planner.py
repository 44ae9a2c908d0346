"""Every legal layout of a model on a cluster, evaluated at once, and the best of them with the reason why.

A layout here is a value for each of ten axes: tp, cp, pp, ep and etp (dp follows: all devices take part), sequence
parallelism, chunks of layers a stage (vpp), sequences of a micro-batch, ZeRO stage, recomputation. The rules decide
which go together (`rules.legal`), `memory` and `timing` say what each costs. Nothing is sampled and nothing is skipped.

Axes that belong together vary along one dimension of the arrays and the others along one each, so what depends on few
of them is calculated once for all the rest; only sums and the results have a value for every layout. Work is done in
chunks: memory grows with the chunk, not with the space.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calculators.predict.arrays import Floats, floats
from calculators.predict.clusters import Cluster
from calculators.predict.memory import MIXED_ADAM, Memory, Optimizer, serving_memory, training_memory
from calculators.predict.rules import Case, legal
from calculators.predict.shapes import Layouts, ModelShape, Phase, Recompute
from calculators.predict.timing import StepTime, decode_step, training_step

LAYOUTS_IN_A_CHUNK = 60_000
"""Results of a chunk take 8 B for each of about thirty columns: this many stay near the processor."""

AXES = ("dp", "tp", "cp", "pp", "ep", "etp", "sp", "vpp", "micro_batch", "zero", "recompute")
MOST_DEVICES = 16_384


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
            if not 1 <= getattr(self, name) <= 10**12:
                raise ValueError(f"{name} is {getattr(self, name)}, but it must be from 1 to 10¹².")
        if self.cluster.devices > MOST_DEVICES:
            raise ValueError(
                f"The cluster has {self.cluster.devices:,} devices, but the planner goes to {MOST_DEVICES:,}. "
                "Use fewer."
            )
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
            if not values:
                raise ValueError(f"{axis.name} has no values, but a layout needs one. Give at least one.")


def space_of(task: Task) -> Space:
    """Every value of every axis that could be legal for `task`, within what is ever used in practice.

    tp and etp to 64 ways, cp, pp and ep to the number of devices, micro-batches in powers of two to 32 sequences,
    chunks to 16 a stage.
    """
    shape, devices = task.shape, task.cluster.devices
    of_devices = _divisors(devices)
    tp = tuple(n for n in of_devices if n <= 64 and shape.attention_heads % n == 0)
    pp = tuple(n for n in of_devices if n <= shape.layers and (task.uneven_stages or shape.layers % n == 0))
    experts = shape.experts
    ep = tuple(n for n in of_devices if experts.routed % n == 0) if experts else (1,)
    etp = tuple(n for n in tp if experts.width % n == 0) if experts else (1,)
    if task.phase is Phase.DECODE:
        return Space(tp=tp, pp=pp, ep=ep, etp=etp)
    cp = tuple(n for n in of_devices if task.tokens % (2 * n) == 0 or n == 1)
    chunks = sorted({n for stages in pp for n in _divisors(max(1, shape.layers // stages)) if n <= 16})
    return Space(
        tp=tp,
        cp=cp,
        pp=pp,
        ep=ep,
        etp=etp,
        sp=(False, True),
        vpp=tuple(chunks),
        micro_batch=tuple(2**power for power in range(6) if 2**power <= task.batch),
        zero=(0, 1, 2, 3),
        recompute=tuple(int(mode) for mode in Recompute),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Evaluated:
    """Legal layouts with everything that was calculated of them: flat arrays of one length, in columns by name."""

    columns: Mapping[str, NDArray[np.float64]]

    def __len__(self) -> int:
        return len(self.columns["step_seconds"])

    def __getitem__(self, name: str) -> Floats:
        return self.columns[name]

    def rows(self, which: NDArray[np.intp] | NDArray[np.bool_]) -> Evaluated:
        """Some of the layouts, in the order that `which` names them."""
        return Evaluated(columns={name: values[which] for name, values in self.columns.items()})

    def layout(self, row: int) -> Layouts:
        """One of them, to calculate on with."""
        return Layouts(**{axis: self.columns[axis][row].item() for axis in AXES})


def evaluate(
    task: Task, space: Space | None = None, *, chunk: int = LAYOUTS_IN_A_CHUNK
) -> Iterator[Evaluated]:
    """All legal layouts of `space`, in chunks of about `chunk`, each with its memory and its time.

    The columns are those of COLUMNS: the axes; the parts of `memory.Memory` and their sum on the fullest device
    [bytes]; the parts of `timing.StepTime` and their sum [seconds]; tokens a second of the whole cluster.
    """
    wanted = space or space_of(task)
    for layouts in _blocks(task, wanted, chunk=chunk):
        found = _evaluate(task, layouts)
        if found is not None:
            yield found


@dataclass(frozen=True, kw_only=True, eq=False)
class Plan:
    """What came of a search.

    best      the best layouts that fit, the quickest first
    frontier  those that no other beats in both memory and time, by memory
    legal, fitting   how many there were
    smallest  the one that needs least memory, whether it fits or not; None where nothing is legal
    """

    task: Task
    best: Evaluated
    frontier: Evaluated
    legal: int
    fitting: int
    smallest: Evaluated | None

    @cached_property
    def reasons(self) -> tuple[str, ...]:
        """Why each of the best beats the next one, a sentence each."""
        return tuple(why(self.best, row, row + 1) for row in range(len(self.best) - 1))


def plan(task: Task, space: Space | None = None, *, count: int = 10) -> Plan:
    """The `count` quickest layouts that fit, and the frontier between memory and time.

    Where two take the same time the one with less memory is first, then the one with fewer model-parallel devices.
    """
    best: Evaluated | None = None
    frontier: Evaluated | None = None
    smallest: Evaluated | None = None
    seen = fitting = 0
    for found in evaluate(task, space):
        seen += len(found)
        smallest = _joined(smallest, found.rows(np.argmin(found["memory_bytes"], keepdims=True)))
        smallest = smallest.rows(np.argmin(smallest["memory_bytes"], keepdims=True))
        fits = np.flatnonzero(found["memory_bytes"] <= task.limit_bytes)
        fitting += len(fits)
        if len(fits):
            quick = found.rows(fits[_quickest(found["step_seconds"][fits], count)])
            best = _joined(best, quick)
            best = best.rows(_order(best)[:count])
        frontier = _joined(frontier, found.rows(_frontier(found["memory_bytes"], found["step_seconds"])))
        frontier = frontier.rows(_frontier(frontier["memory_bytes"], frontier["step_seconds"]))
    nothing = Evaluated(columns={name: np.empty(0) for name in COLUMNS})
    return Plan(
        task=task,
        best=best or nothing,
        frontier=frontier or nothing,
        legal=seen,
        fitting=fitting,
        smallest=smallest,
    )


def why(found: Evaluated, row: int, other: int) -> str:
    """Why the layout in `row` beats the one in `other`: the parts of a step in which they differ most."""
    gains = {name: float(found[f"{name}_seconds"][other] - found[f"{name}_seconds"][row]) for name in _TIME}
    total = float(found["step_seconds"][other] - found["step_seconds"][row])
    if total <= 0:
        memory = float(found["memory_bytes"][other] - found["memory_bytes"][row])
        return (
            "It takes as long and needs less memory." if memory > 0 else "It costs the same and splits less."
        )
    share = total / float(found["step_seconds"][other])
    saved = max(gains, key=lambda name: gains[name])
    lost = min(gains, key=lambda name: gains[name])
    sentence = f"It saves {share:.2%} of the step, most of it {_WHERE[saved]}"
    if gains[lost] < 0 and -gains[lost] > 0.05 * total:
        return f"{sentence}, and pays a part of that back {_WHERE[lost]}."
    return f"{sentence}."


_MEMORY = tuple(part.name for part in fields(Memory))
_TIME = tuple(part.name for part in fields(StepTime))
MEMORY_COLUMNS = tuple(f"{name}_bytes" for name in _MEMORY)
TIME_COLUMNS = tuple(f"{name}_seconds" for name in _TIME)
COLUMNS = (
    *AXES,
    "micro_batches",
    *MEMORY_COLUMNS,
    "memory_bytes",
    *TIME_COLUMNS,
    "step_seconds",
    "tokens_per_second",
)
"""Everything that is calculated of a layout."""

_WHERE = {
    "compute": "in arithmetic",
    "recompute": "in recomputation",
    "tensor": "in tensor-parallel exchanges",
    "context": "in context-parallel exchanges",
    "expert": "in expert exchanges",
    "pipeline": "in sends between stages",
    "bubble": "in the pipeline's bubble",
    "data": "in exchanging gradients and weights",
    "optimizer": "in the optimizer's update",
}


def _blocks(task: Task, space: Space, *, chunk: int) -> Iterator[Layouts]:
    """The space in blocks of about `chunk` layouts, legal or not, as arrays that vary along six dimensions.

    Sizes of tp, cp, pp, ep, etp and dp, which must use all devices, vary along the first; sp, vpp, micro_batch, zero
    and recompute along one each. Blocks have one pp and similar dp, so that nearly all of a block is legal.
    """
    sizes = _sizes(task, space)
    for stages in np.unique(sizes["pp"]):
        depth = task.shape.layers / stages
        vpp = [n for n in space.vpp if n == 1 or (stages > 1 and depth % n == 0)]
        rows = np.flatnonzero(sizes["pp"] == stages)
        details = len(space.sp) * len(vpp) * len(space.micro_batch) * len(space.zero) * len(space.recompute)
        step = max(1, chunk // details)
        for start in range(0, len(rows), step):
            chosen = rows[start : start + step]
            share = task.batch / sizes["dp"][chosen].min()
            micro_batch = [n for n in space.micro_batch if n <= share] or [1]
            yield Layouts(
                **{axis: _along(0, values[chosen]) for axis, values in sizes.items() if axis != "pp"},
                pp=float(stages),
                sp=_along(1, space.sp),
                vpp=_along(2, vpp),
                micro_batch=_along(3, micro_batch),
                zero=_along(4, space.zero),
                recompute=_along(5, space.recompute),
            )


def _sizes(task: Task, space: Space) -> Mapping[str, Floats]:
    """Every combination of tp, cp, pp, ep and etp that leaves whole numbers of replicas, of experts too, by dp."""
    axes = ("tp", "cp", "pp", "ep", "etp")
    grid = np.meshgrid(*(np.asarray(getattr(space, axis), dtype=np.float64) for axis in axes), indexing="ij")
    sizes = {axis: values.ravel() for axis, values in zip(axes, grid, strict=True)}
    sizes["dp"] = task.cluster.devices / (sizes["tp"] * sizes["cp"] * sizes["pp"])
    replicas = sizes["dp"] * sizes["tp"] * sizes["cp"] / (sizes["ep"] * sizes["etp"])
    whole = (sizes["dp"] == np.floor(sizes["dp"])) & (replicas == np.floor(replicas)) & (replicas >= 1)
    share = task.batch / sizes["dp"]
    whole &= (share == np.floor(share)) | (task.phase is Phase.DECODE)
    kept = np.flatnonzero(whole & (sizes["dp"] >= 1))
    kept = kept[np.lexsort((sizes["tp"][kept], sizes["dp"][kept]))]
    return {axis: values[kept] for axis, values in sizes.items()}


def _evaluate(task: Task, layouts: Layouts) -> Evaluated | None:
    """The legal layouts of a block; None where none is."""
    case = Case(
        shape=task.shape,
        layouts=layouts,
        phase=task.phase,
        tokens=task.tokens,
        batch=task.batch if task.phase is Phase.TRAINING else None,
        devices=task.cluster.devices,
        uneven_stages=task.uneven_stages,
    )
    mask = legal(case)
    rows = np.flatnonzero(mask)
    if not len(rows):
        return None
    micro_batches, memory, time, seconds, tokens = _costs(task, layouts)
    columns = {axis: getattr(layouts, axis) for axis in AXES}
    columns["micro_batches"] = micro_batches
    columns |= {f"{name}_bytes": getattr(memory, name) for name in _MEMORY}
    columns["memory_bytes"] = memory.total
    columns |= {f"{name}_seconds": getattr(time, name) for name in _TIME}
    columns["step_seconds"] = seconds
    columns["tokens_per_second"] = tokens
    whole = len(rows) == mask.size
    return Evaluated(
        columns={name: _flat(columns[name], mask.shape, None if whole else rows) for name in COLUMNS}
    )


def _costs(task: Task, layouts: Layouts) -> tuple[Floats, Memory, StepTime, Floats, Floats]:
    """Micro-batches, memory, time by part and together, and tokens a second of each layout of a block."""
    shape, cluster, batch, tokens = task.shape, task.cluster, task.batch, task.tokens
    if task.phase is Phase.DECODE:
        of_a_replica = np.ceil(batch / floats(layouts.dp))
        memory = serving_memory(shape, layouts, batch=of_a_replica, context_tokens=tokens)
        time = decode_step(shape, layouts, cluster, batch=of_a_replica, context_tokens=tokens)
        seconds = time.total
        return floats(1), memory, time, seconds, batch / seconds
    micro_batches = batch / (floats(layouts.dp) * floats(layouts.micro_batch))
    memory = training_memory(
        shape, layouts, tokens=tokens, micro_batches=micro_batches, optimizer=task.optimizer
    )
    time = training_step(shape, layouts, cluster, tokens=tokens, batch=batch)
    seconds = time.total
    return micro_batches, memory, time, seconds, batch * tokens / seconds


def _flat(values: ArrayLike, shape: tuple[int, ...], rows: NDArray[np.intp] | None) -> Floats:
    """A column: the values broadcast to the block, and of those the rows that are wanted."""
    whole = np.broadcast_to(floats(values), shape).reshape(-1)
    return whole if rows is None else whole.take(rows)


def _along(dimension: int, values: Sequence[float] | Floats) -> Floats:
    """The values as an array that varies along one of the six dimensions."""
    shape = [1] * 6
    shape[dimension] = len(values)
    return floats(values).reshape(shape)


def _joined(first: Evaluated | None, second: Evaluated) -> Evaluated:
    if first is None:
        return second
    return Evaluated(
        columns={name: np.concatenate((first.columns[name], second.columns[name])) for name in COLUMNS}
    )


def _quickest(seconds: Floats, count: int) -> NDArray[np.intp]:
    """Rows of the `count` quickest, and of all that tie with the last of them."""
    if len(seconds) <= count:
        return np.arange(len(seconds))
    return np.flatnonzero(seconds <= np.partition(seconds, count - 1)[count - 1])


def _order(found: Evaluated) -> NDArray[np.intp]:
    """Rows by time, then by memory, then by how little is split."""
    split = found["tp"] * found["cp"] * found["pp"] * found["ep"] * found["etp"] * found["vpp"]
    return np.lexsort((*(found[axis] for axis in AXES), split, found["memory_bytes"], found["step_seconds"]))


def _frontier(memory: Floats, seconds: Floats) -> NDArray[np.intp]:
    """Rows that no other beats in both, by memory: each needs more memory than the one before and is quicker."""
    order = np.lexsort((seconds, memory))
    quickest_so_far = np.minimum.accumulate(seconds[order])
    improves = np.ones(len(order), dtype=bool)
    improves[1:] = seconds[order][1:] < quickest_so_far[:-1]
    return order[improves]


def _divisors(number: int) -> list[int]:
    return [n for n in range(1, number + 1) if number % n == 0]
