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
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from calculators.predict.arrays import MOST, Floats, floats, is_whole, said, whole
from calculators.predict.clusters import Cluster
from calculators.predict.implementations import MEGATRON
from calculators.predict.memory import MIXED_ADAM, Memory, Optimizer, serving_memory, training_memory
from calculators.predict.rules import Case, legal
from calculators.predict.shapes import Layouts, ModelShape, Phase, Recompute
from calculators.predict.timing import StepTime, decode_step, training_step

LAYOUTS_IN_A_CHUNK = 60_000
"""Results of a chunk take 8 B for each of about thirty columns: this many stay near the processor."""

_WORTH_A_BLOCK = 6_000
"""What surrounds the arithmetic of a block takes as long as this many layouts."""

# C libraries give a freed array of this size back to the system, and every page of the next one must be fetched anew.
# Once a larger one was freed, glibc keeps them (mallopt(3), M_MMAP_THRESHOLD): half as long again without.
np.empty(2**21)

AXES = ("dp", "tp", "cp", "pp", "ep", "etp", "sp", "vpp", "micro_batch", "zero", "recompute")
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


@dataclass(frozen=True, kw_only=True, eq=False)
class Evaluated:
    """Legal layouts with everything that was calculated of them: flat arrays of one length, in columns by name."""

    columns: Mapping[str, NDArray[np.float64]]

    def __len__(self) -> int:
        return len(self.columns["step_seconds"])

    def __getitem__(self, name: str) -> Floats:
        return self.columns[name]

    def rows(self, which: NDArray[np.intp]) -> Evaluated:
        """Some of the layouts, in the order that `which` names them."""
        if isinstance(self.columns, _Columns):
            return Evaluated(columns=self.columns.rows(which))
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
    for layouts in _blocks(task, wanted, chunk=whole("chunk", chunk)):
        found = _evaluate(task, layouts)
        if found is not None:
            yield found


Kind = Mapping[str, tuple[int, int]]
"""What makes a layout one of a kind: for some axes the least and the most that they may be. No pipeline: pp (1, 1)."""


@dataclass(frozen=True, kw_only=True, eq=False)
class OfAKind:
    """What came of the layouts of one kind.

    best      the quickest that fits; None where none does
    smallest  the one that needs least memory, whether it fits or not; None where none is legal
    legal     how many there were
    """

    best: Evaluated | None = None
    smallest: Evaluated | None = None
    legal: int = 0

    def also(self, found: Evaluated, kind: Kind, limit_bytes: float) -> OfAKind:
        """The same after more layouts were seen."""
        rows = _of_a_kind(found, kind)
        if not len(rows):
            return self
        memory, seconds = found["memory_bytes"][rows], found["step_seconds"][rows]
        best, smallest = self.best, self.smallest
        if smallest is None or memory.min() < smallest["memory_bytes"][0]:
            smallest = found.rows(rows[memory == memory.min()])
            smallest = smallest.rows(_order(smallest)[:1])
        fits = np.flatnonzero(memory <= limit_bytes)
        if len(fits):
            near = seconds[fits].min() * (1 + _NEAR)
            if best is None or seconds[fits].min() <= best["step_seconds"][0] * (1 + _NEAR):
                best = _joined(best, found.rows(rows[fits[seconds[fits] <= near]]))
                best = best.rows(_order(best)[:1])
        return OfAKind(best=best, smallest=smallest, legal=self.legal + len(rows))


@dataclass(frozen=True, kw_only=True, eq=False)
class Plan:
    """What came of a search.

    best      the best layouts that fit, the quickest first
    frontier  those that no other beats in both memory and time, by memory
    legal, fitting   how many there were
    smallest  the one that needs least memory, whether it fits or not; None where nothing is legal
    kinds     the same of each kind that was asked about, by its name
    """

    task: Task
    best: Evaluated
    frontier: Evaluated
    legal: int
    fitting: int
    smallest: Evaluated | None
    kinds: Mapping[str, OfAKind] = field(default_factory=dict)

    @cached_property
    def reasons(self) -> tuple[str, ...]:
        """Why each of the best beats the next one, a sentence each."""
        return tuple(why(self.best, row, row + 1) for row in range(len(self.best) - 1))


def plan(
    task: Task, space: Space | None = None, *, count: int = 10, kinds: Mapping[str, Kind] | None = None
) -> Plan:
    """The `count` quickest layouts that fit, and the frontier between memory and time.

    kinds   of layouts about which the same is asked in the same pass, by names that are the caller's

    Where two take the same time (to ten digits) the one with less memory is first, then the one with fewer
    model-parallel parts, tp·cp·pp·ep·etp·vpp, then the one that recomputes less, the lower ZeRO stage, and so on.
    """
    if not isinstance(count, int) or not 1 <= count <= MOST:
        raise ValueError(
            f"count is {said(count)}, but a plan names at least the quickest layout. Use 1 or more."
        )
    kept: Evaluated | None = None
    seen = fitting = 0
    asked = {name: _checked(kind) for name, kind in (kinds or {}).items()}
    alike = dict.fromkeys(asked, OfAKind())
    for found in evaluate(task, space):
        seen += len(found)
        alike = {name: of.also(found, asked[name], task.limit_bytes) for name, of in alike.items()}
        fitting += int(np.count_nonzero(found["memory_bytes"] <= task.limit_bytes))
        kept = _joined(kept, found.rows(_worth_keeping(found, task.limit_bytes, count)))
        kept = kept.rows(_worth_keeping(kept, task.limit_bytes, count))
    if kept is None:
        nothing = Evaluated(columns={name: np.empty(0) for name in COLUMNS})
        return Plan(task=task, best=nothing, frontier=nothing, legal=0, fitting=0, smallest=None, kinds=alike)
    fits = kept.rows(np.flatnonzero(kept["memory_bytes"] <= task.limit_bytes))
    return Plan(
        task=task,
        best=fits.rows(_order(fits)[:count]),
        frontier=kept.rows(_frontier(kept["memory_bytes"], kept["step_seconds"])),
        legal=seen,
        fitting=fitting,
        smallest=kept.rows(np.argmin(kept["memory_bytes"], keepdims=True)),
        kinds=alike,
    )


def _checked(kind: Kind) -> Kind:
    for axis in kind:
        if axis not in AXES:
            raise ValueError(
                f"A kind of layouts is about {axis!r}, but the axes are {', '.join(AXES)}. Use those."
            )
    return kind


def _of_a_kind(found: Evaluated, kind: Kind) -> NDArray[np.intp]:
    mask = np.ones(len(found), dtype=bool)
    for axis, (least, most) in kind.items():
        mask &= (found[axis] >= least) & (found[axis] <= most)
    return np.flatnonzero(mask)


def why(found: Evaluated, row: int, other: int) -> str:
    """Why the layout in `row` beats the one in `other`: the parts of a step in which they differ most."""
    row, other = (
        whole(name, number, low=0, high=len(found) - 1) for name, number in (("row", row), ("other", other))
    )
    gains = {name: float(found[f"{name}_seconds"][other] - found[f"{name}_seconds"][row]) for name in _TIME}
    total = float(found["step_seconds"][other] - found["step_seconds"][row])
    if total <= _NEAR * float(found["step_seconds"][other]):
        memory = float(found["memory_bytes"][other] - found["memory_bytes"][row])
        return (
            "It takes as long and needs less memory."
            if memory > _NEAR * float(found["memory_bytes"][other])
            else "It costs the same and splits less."
        )
    share = total / float(found["step_seconds"][other])
    saved = max(gains, key=lambda name: gains[name])
    lost = min(gains, key=lambda name: gains[name])
    words = f"{share:.2%}" if share >= 0.0001 else "less than 0.01%"
    sentence = f"It saves {words} of the step, most of it {_WHERE[saved]}"
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

    Sizes of tp, cp, pp, ep, etp and dp, which must use all devices, vary along the last, so that NumPy's inner loops
    are long; zero, recompute, sp, vpp and micro_batch along one each before it. A block has one pp, similar dp, and the
    same choice of sp for each of its sizes unless too few would be spared by that: so nearly all of it is legal.
    """
    sizes, choices = _sizes(task, space)
    chunks = _chunks(task, space)
    sequences = _sequences(task, space, np.unique(sizes["dp"]))
    for stages in np.unique(sizes["pp"]).tolist():
        vpp = chunks[stages]
        details = len(vpp) * len(space.micro_batch) * len(space.zero) * len(space.recompute)
        at = np.flatnonzero(sizes["pp"] == stages)
        for rows, sp_is_legal in _alike(at, choices[at], worth=_WORTH_A_BLOCK / max(1, details)):
            sp = floats(space.sp)[sp_is_legal]
            step = max(1, chunk // max(1, len(sp) * details))
            for start in range(0, len(rows), step):
                chosen = {axis: values[rows[start : start + step]] for axis, values in sizes.items()}
                micro_batch = sorted(set().union(*(sequences[dp] for dp in set(chosen["dp"].tolist()))))
                if vpp and micro_batch:
                    yield Layouts(
                        zero=_along(0, space.zero),
                        recompute=_along(1, space.recompute),
                        sp=_along(2, sp),
                        vpp=_along(3, vpp),
                        micro_batch=_along(4, micro_batch),
                        **{axis: _along(5, values) for axis, values in chosen.items() if axis != "pp"},
                        pp=stages,
                    )


def _alike(
    rows: NDArray[np.intp], choices: NDArray[np.bool_], *, worth: float
) -> Iterator[tuple[NDArray[np.intp], NDArray[np.bool_]]]:
    """Rows that have the same choices, with those; all with all of them where that adds less than it is `worth`."""
    kinds, which = np.unique(choices, axis=0, return_inverse=True)
    together = np.asarray(choices.any(axis=0))
    added = together.sum() * len(rows) - choices.sum()
    if added <= worth * (len(kinds) - 1):
        yield rows, together
        return
    for number, kind in enumerate(kinds):
        yield rows[which.ravel() == number], kind


def _chunks(task: Task, space: Space) -> Mapping[float, list[int]]:
    """For each number of stages the numbers of chunks that the rules allow."""
    legal_ones = _asked(task, Layouts(pp=np.reshape(space.pp, (-1, 1)), vpp=space.vpp))
    return {
        stages: [n for n, is_legal in zip(space.vpp, row, strict=True) if is_legal]
        for stages, row in zip(space.pp, legal_ones.tolist(), strict=True)
    }


def _sequences(task: Task, space: Space, dp: Floats) -> Mapping[float, list[int]]:
    """For each number of replicas the sizes of micro-batches that the rules allow."""
    legal_ones = _asked(task, Layouts(dp=dp[:, None], micro_batch=space.micro_batch), batch=True)
    return {
        replicas: [n for n, is_legal in zip(space.micro_batch, row, strict=True) if is_legal]
        for replicas, row in zip(dp.tolist(), legal_ones.tolist(), strict=True)
    }


def _sizes(task: Task, space: Space) -> tuple[Mapping[str, Floats], NDArray[np.bool_]]:
    """Every combination of tp, cp, pp, ep and etp that is legal, ascending in dp, and with which values of sp it is."""
    axes = ("tp", "cp", "pp", "ep", "etp")
    grid = np.meshgrid(*(np.asarray(getattr(space, axis), dtype=np.float64) for axis in axes), indexing="ij")
    sizes = {axis: values.ravel() for axis, values in zip(axes, grid, strict=True)}
    sizes["dp"] = task.cluster.devices / (sizes["tp"] * sizes["cp"] * sizes["pp"])
    shared = np.flatnonzero((sizes["dp"] == np.floor(sizes["dp"])) & (sizes["dp"] >= 1))
    sizes = {axis: values[shared] for axis, values in sizes.items()}
    layouts = Layouts(**{axis: values[:, None] for axis, values in sizes.items()}, sp=space.sp)
    choices = _asked(task, layouts, devices=task.cluster.devices)
    order = np.lexsort((sizes["tp"], sizes["dp"]))
    kept = order[choices[order].any(axis=1)]
    return {axis: values[kept] for axis, values in sizes.items()}, choices[kept]


def _asked(
    task: Task, layouts: Layouts, *, devices: int | None = None, batch: bool = False
) -> NDArray[np.bool_]:
    """What the rules say of layouts of which only some axes are known; on one replica unless told the devices."""
    training = task.phase == Phase.TRAINING
    return legal(
        Case(
            shape=task.shape,
            layouts=layouts,
            phase=task.phase,
            tokens=task.tokens,
            batch=task.batch if batch and training else None,
            devices=devices,
            uneven_stages=task.uneven_stages,
        )
    )


def _evaluate(task: Task, layouts: Layouts) -> Evaluated | None:
    """The legal layouts of a block; None where none is."""
    # No rule speaks of ZeRO or of recomputation, so that each choice of the rest is legal with all of those or none.
    mask = _asked(task, replace(layouts, zero=0, recompute=0), devices=task.cluster.devices, batch=True)
    kept = np.flatnonzero(mask)
    if not len(kept):
        return None
    micro_batches, memory, time, seconds, tokens = _costs(task, layouts)
    columns = {axis: floats(getattr(layouts, axis)) for axis in AXES}
    columns["micro_batches"] = micro_batches
    columns |= {f"{name}_bytes": getattr(memory, name) for name in _MEMORY}
    columns["memory_bytes"] = memory.total
    columns |= {f"{name}_seconds": getattr(time, name) for name in _TIME}
    columns["step_seconds"] = seconds
    columns["tokens_per_second"] = tokens
    return Evaluated(
        columns=_Columns(
            arrays={
                name: values.reshape((1,) * (6 - values.ndim) + values.shape)
                for name, values in columns.items()
            },
            free=(np.size(layouts.zero), np.size(layouts.recompute)),
            ruled=mask.shape[2:],
            kept=None if len(kept) == mask.size else kept,
        )
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Columns(Mapping[str, Floats]):
    """The columns of a block, each written out flat when somebody asks for it.

    arrays       the columns of six dimensions, each as large as what it depends on
    free, ruled  the dimensions of the block: two that no rule is about, and four that rules are about
    kept         which places of the latter are legal, in order; None for all of them
    """

    arrays: Mapping[str, Floats]
    free: tuple[int, int]
    ruled: tuple[int, ...]
    kept: NDArray[np.intp] | None
    _written: dict[str, Floats] = field(default_factory=dict)
    _positions: dict[tuple[int, ...], NDArray[np.intp]] = field(default_factory=dict)

    def __iter__(self) -> Iterator[str]:
        return iter(self.arrays)

    def __len__(self) -> int:
        return len(self.arrays)

    def __getitem__(self, name: str) -> Floats:
        if name not in self._written:
            self._written[name] = self._flat(self.arrays[name])
        return self._written[name]

    @property
    def places(self) -> int:
        """How many places are legal: there are as many rows for each choice of the free axes."""
        return int(np.prod(self.ruled)) if self.kept is None else len(self.kept)

    def rows(self, which: NDArray[np.intp]) -> dict[str, Floats]:
        """Some rows of all columns, without writing out the rest."""
        *chosen, place = np.unravel_index(which, (*self.free, self.places))
        at = (*chosen, *np.unravel_index(place if self.kept is None else self.kept[place], self.ruled))
        return {
            name: np.asarray(
                values[tuple(index if size > 1 else 0 for index, size in zip(at, values.shape, strict=True))]
                if values.size > 1
                else np.full(len(which), values.item())
            )
            for name, values in self.arrays.items()
        }

    def _flat(self, values: Floats) -> Floats:
        if values.size == 1:
            return np.full(self.free[0] * self.free[1] * self.places, values.item())
        if self.kept is None:
            return np.broadcast_to(values, (*self.free, *self.ruled)).reshape(-1)
        free, ruled = values.shape[:2], values.shape[2:]
        parts = values.reshape(*free, -1)
        if parts.shape[-1] > 1:
            parts = parts.take(self._legal_places(ruled), axis=-1)
        return np.broadcast_to(parts, (*self.free, self.places)).reshape(-1)

    def _legal_places(self, shape: tuple[int, ...]) -> NDArray[np.intp]:
        """Where the legal places are in an array of this shape; the same for all columns on the same axes."""
        if shape not in self._positions:
            numbers = np.arange(int(np.prod(shape))).reshape(shape)
            self._positions[shape] = np.broadcast_to(numbers, self.ruled).reshape(-1)[self.kept]
        return self._positions[shape]


def _costs(task: Task, layouts: Layouts) -> tuple[Floats, Memory, StepTime, Floats, Floats]:
    """Micro-batches, memory, time by part and together, and tokens a second of each layout of a block."""
    shape, cluster, batch, tokens = task.shape, task.cluster, task.batch, task.tokens
    if task.phase == Phase.DECODE:
        of_a_replica = np.ceil(batch / floats(layouts.dp))
        memory = serving_memory(shape, layouts, batch=of_a_replica, context_tokens=tokens)
        time = decode_step(shape, layouts, cluster, batch=of_a_replica, context_tokens=tokens)
        seconds = time.total
        return floats(1), memory, time, seconds, batch / seconds
    # where it would be less than one, the layout is not legal and nobody sees its row
    micro_batches = np.maximum(1, batch / (floats(layouts.dp) * floats(layouts.micro_batch)))
    memory = training_memory(
        shape, layouts, tokens=tokens, micro_batches=micro_batches, optimizer=task.optimizer
    )
    program = replace(MEGATRON, gradient_bytes=task.optimizer.exchanged_gradient_bytes)
    time = training_step(shape, layouts, cluster, tokens=tokens, batch=batch, implementation=program)
    seconds = time.total
    return micro_batches, memory, time, seconds, batch * tokens / seconds


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


def _worth_keeping(found: Evaluated, limit_bytes: float, count: int) -> NDArray[np.intp]:
    """Rows that a plan may name, in their order: the quickest that fit, the frontier, and the smallest."""
    memory, seconds = found["memory_bytes"], found["step_seconds"]
    fits = np.flatnonzero(memory <= limit_bytes)
    if len(fits) > count:
        times = seconds[fits]
        fits = fits[times <= np.partition(times, count - 1)[count - 1] * (1 + _NEAR)]
        fits = fits[_order(found.rows(fits))[:count]]
    return np.unique(np.concatenate((fits, _frontier(memory, seconds), [np.argmin(memory)])))


def _order(found: Evaluated) -> NDArray[np.intp]:
    """Rows by time, then by memory, then by how little is split, then by the axes, the last one first."""
    split = found["tp"] * found["cp"] * found["pp"] * found["ep"] * found["etp"] * found["vpp"]
    memory, seconds = _to_ten_digits(found["memory_bytes"]), _to_ten_digits(found["step_seconds"])
    return np.lexsort((*(found[axis] for axis in AXES), split, memory, seconds))


def _frontier(memory: Floats, seconds: Floats) -> NDArray[np.intp]:
    """Rows that no other beats in both, by memory: each needs more memory than the one before and is quicker."""
    rows = np.arange(len(memory))
    if len(rows) > _FEW:
        # Most are beaten by the best of a sample, which takes less than to sort them all.
        few = _frontier(memory[::_SAMPLED], seconds[::_SAMPLED]) * _SAMPLED
        at = np.searchsorted(memory[few], memory, side="right") - 1
        rows = np.flatnonzero((at < 0) | (seconds <= seconds[few][at] * (1 + _NEAR)))
    needed, takes = _to_ten_digits(memory[rows]), _to_ten_digits(seconds[rows])
    order = np.lexsort((takes, needed))
    quickest_so_far = np.minimum.accumulate(takes[order])
    improves = np.ones(len(order), dtype=bool)
    improves[1:] = takes[order][1:] < quickest_so_far[:-1]
    return np.asarray(rows[order[improves]])


_FEW = 2_000
_SAMPLED = 16
_NEAR = 1e-8  # no two that are further apart than this are equal to ten digits


def _to_ten_digits(values: Floats) -> Floats:
    """The values, all above 0, as far as they are compared: sums of the same parts round differently behind that."""
    scale = 10.0 ** (9 - np.floor(np.log10(values)))
    return np.asarray(np.round(values * scale) / scale)


def _divisors(number: int) -> list[int]:
    return [n for n in range(1, number + 1) if number % n == 0]
