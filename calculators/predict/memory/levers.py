"""What to change where a layout does not fit: each lever with the memory it leaves, calculated by the same formulas.

A case is everything that memory depends on; a lever is another case that differs in one thing. All levers of a case are
calculated in one pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from calculators.predict.arrays import positive, whole
from calculators.predict.devices import Device
from calculators.predict.memory import (
    MIXED_ADAM,
    PARTS,
    RESERVE,
    Memory,
    Optimizer,
    room,
    serving_memory,
    training_memory,
)
from calculators.predict.rules import Case as RulesCase
from calculators.predict.rules import masks
from calculators.predict.shapes import Layout, Layouts, ModelShape, Phase, Recompute

MOST_STEPS = 8
"""More levers than this are not pulled together: then the model is too large for such devices."""
_FACTORS = (2, 3, 4, 5, 7)
"""By how much an axis is widened: the least of these that breaks no rule."""
_GENTLE = ("sp", "recompute-selective", "zero-1", "zero-2", "kv-8", "weights-8")
"""Levers that cost next to nothing; they are pulled before others."""
_SETTINGS = ("zero", "recompute", "kv", "weights")
"""Levers that set something which another of their kind may set further."""
_LESS = ("batch", "context")
"""Levers that serve less than was asked for."""


@dataclass(frozen=True, kw_only=True)
class Training:
    """A training step.

    tokens         length of a sequence
    micro_batch    sequences that one replica takes at a time
    micro_batches  of one replica in one step
    """

    shape: ModelShape
    layout: Layout
    tokens: int
    micro_batch: int = 1
    micro_batches: int = 1
    recompute: Recompute = Recompute.NONE
    optimizer: Optimizer = MIXED_ADAM

    def __post_init__(self) -> None:
        for name in ("tokens", "micro_batch", "micro_batches"):
            whole(name, getattr(self, name))

    @cached_property
    def memory(self) -> Memory:
        """What its fullest rank holds."""
        return memories([self])[0]


@dataclass(frozen=True, kw_only=True)
class Serving:
    """Sequences in flight on one replica.

    batch          sequences
    tokens         context that each has by then
    kv_bytes       width of a cached element
    weight_bytes   width of a weight; None for what the model was released in
    """

    shape: ModelShape
    layout: Layout
    tokens: int
    batch: int = 1
    kv_bytes: float = 2
    weight_bytes: float | None = None

    def __post_init__(self) -> None:
        for name in ("tokens", "batch"):
            whole(name, getattr(self, name))
        positive(kv_bytes=self.kv_bytes)
        if self.weight_bytes is not None:
            positive(weight_bytes=self.weight_bytes)

    @cached_property
    def memory(self) -> Memory:
        """What its fullest rank holds."""
        return memories([self])[0]


Case = Training | Serving


@dataclass(frozen=True, kw_only=True)
class Lever:
    """One change: what it does and what it costs, as sentences, the case that it leads to, and what that holds.

    family   of the split that it turns, as a layout names it; empty for others
    devices  that it adds
    """

    key: str
    does: str
    costs: str
    case: Case
    memory: Memory = field(compare=False, repr=False)
    saved_bytes: float
    fits: bool
    family: str = ""
    devices: int = 0


def largest_part(memory: Memory) -> str:
    """The name of the largest part of one case's memory.

    >>> from calculators.predict.models.catalogue import MODELS
    >>> largest_part(Training(shape=MODELS["llama-3.1-8b"].shape, layout=Layout(), tokens=512).memory)
    'optimizer'
    """
    return max(PARTS, key=lambda part: getattr(memory, part).item())


def levers(case: Case, device: Device, *, reserve: float = RESERVE) -> tuple[Lever, ...]:
    """Every single change that would shrink `case`, those that leave least first, and whether each alone makes it fit.

    Considered: sequence parallelism, recomputation, ZeRO stages, the next larger tp, pp, cp and ep that breaks no rule
    (out of the replicas where they can be shared out, else with more devices), half the micro-batch, sequences or
    context, narrower caches and weights.

    >>> from calculators.predict.models.catalogue import MODELS
    >>> from calculators.predict.devices import DEVICES
    >>> case = Training(shape=MODELS["llama-3.1-8b"].shape, layout=Layout(dp=8), tokens=4096, recompute=Recompute.FULL)
    >>> [(lever.key, lever.fits) for lever in levers(case, DEVICES["h100"])][:3]
    [('zero-3', True), ('zero-2', True), ('zero-1', True)]
    """
    return _levers(case, case.memory, limit=room(device, reserve=reserve).item())


def together(
    case: Case, device: Device, *, reserve: float = RESERVE, known: tuple[Lever, ...] = ()
) -> tuple[Lever, ...]:
    """Levers to pull one after another until it fits: those that cost next to nothing first, then those that add no
    device, then those that do, and last those that serve less.

    Empty where it fits already, and where MOST_STEPS of them do not suffice. `known` are the levers of the case, where
    they have been calculated already.
    """
    limit = room(device, reserve=reserve).item()
    memory = case.memory
    pulled: list[Lever] = []
    while memory.total.item() > limit:
        best = min(known, key=_price) if known else _cheapest(case, memory, limit=limit)
        known = ()
        if best is None or len(pulled) == MOST_STEPS:
            return ()
        if pulled and _kind(best) in _SETTINGS and _kind(best) == _kind(pulled[-1]):
            pulled.pop()  # what it set is set further
        pulled.append(best)
        case, memory = best.case, best.memory
    return tuple(pulled)


def _levers(case: Case, memory: Memory, *, limit: float) -> tuple[Lever, ...]:
    found = sorted(
        _shrinking(_proposals(case), memory), key=lambda change: (-change.saved_bytes, change.devices)
    )
    return tuple(change.lever(limit) for change in found)


def _cheapest(case: Case, memory: Memory, *, limit: float) -> Lever | None:
    """The one to pull next; None where nothing shrinks the case."""
    found = _shrinking(_gentle(case), memory) or _shrinking(_proposals(case), memory)
    best = min(found, key=lambda change: (*_price(change), change.devices), default=None)
    return best and best.lever(limit)


def _shrinking(proposed: list[_Proposal], memory: Memory) -> list[_Change]:
    if not proposed:
        return []
    now, held = memory.total.item(), _held([each.case for each in proposed])
    return [
        _Change(proposal=each, held=held, row=row, saved_bytes=now - total)
        for row, (each, total) in enumerate(zip(proposed, held.total.tolist(), strict=True))
        if total < now
    ]


def memories(cases: Sequence[Case]) -> list[Memory]:
    """The memory of each, in one pass. All train or all serve the same model with the same optimizer."""
    if not cases:
        return []
    found = _held(cases)
    return [_of_row(found, row) for row in range(len(cases))]


def _held(cases: Sequence[Case]) -> Memory:
    """The same as arrays of one value for each case."""
    first = cases[0]
    axes = {
        axis: _column([getattr(case.layout, axis) for case in cases])
        for axis in ("dp", "tp", "pp", "cp", "ep", "etp", "vpp", "sp", "zero")
    }
    tokens = _column([case.tokens for case in cases])
    if isinstance(first, Training):
        training = [case for case in cases if isinstance(case, Training)]
        found = training_memory(
            first.shape,
            Layouts(
                **axes,
                micro_batch=_column([case.micro_batch for case in training]),
                recompute=_column([int(case.recompute) for case in training]),
            ),
            tokens=tokens,
            micro_batches=_column([case.micro_batches for case in training]),
            optimizer=first.optimizer,
        )
    else:
        serving = [case for case in cases if isinstance(case, Serving)]
        released = first.shape.bytes_per_element
        found = serving_memory(
            first.shape,
            Layouts(**axes),
            batch=_column([case.batch for case in serving]),
            context_tokens=tokens,
            kv_bytes_per_element=_column([case.kv_bytes for case in serving]),
            weight_bytes_per_element=_column([case.weight_bytes or released for case in serving]),
        )
    every = np.zeros(len(cases))
    return Memory(**{part: getattr(found, part) + every for part in PARTS})


def _column(values: list[Any]) -> ArrayLike:
    """A value for each case; one number where all have the same, which is calculated with sooner."""
    return values[0] if values.count(values[0]) == len(values) else np.array(values)


def _of_row(found: Memory, row: int) -> Memory:
    return Memory(**{part: getattr(found, part)[row, ...] for part in PARTS})


class _Proposal(NamedTuple):
    """A lever before its memory is known."""

    key: str
    does: str
    costs: str
    case: Case
    family: str = ""
    devices: int = 0


class _Change(NamedTuple):
    """A proposal that shrinks its case, with its row among the memories of all that were proposed."""

    proposal: _Proposal
    held: Memory
    row: int
    saved_bytes: float

    @property
    def key(self) -> str:
        return self.proposal.key

    @property
    def devices(self) -> int:
        return self.proposal.devices

    def lever(self, limit: float) -> Lever:
        memory = _of_row(self.held, self.row)
        fits = memory.total.item() <= limit
        return Lever(**self.proposal._asdict(), memory=memory, saved_bytes=self.saved_bytes, fits=fits)


_AXES = {
    "tp": (
        "Split every layer over {} ranks instead of {}.",
        "Every layer then waits for all-reduces: keep the group inside a host.",
    ),
    "pp": (
        "Cut the layers into {} stages instead of {}.",
        "Stages wait while the pipeline fills and drains: use many micro-batches.",
    ),
    "cp": (
        "Cut every sequence into {} parts instead of {}.",
        "Keys and values then travel in every layer.",
    ),
    "ep": (
        "Share the experts among {} groups of devices instead of {}.",
        "Tokens then travel to their experts and back in every sparse layer.",
    ),
}
"""What widening each axis does, and what it costs."""
_STAGES_IN_DECODE = (
    "A token passes one stage after another: only many sequences in flight keep all of them busy."
)


def _proposals(case: Case) -> list[_Proposal]:
    """Every change that breaks no rule which holds now; of several sizes of one axis the first."""
    turned = _turned(case)
    wider = [
        (axis, _wider(case.layout, axis, factor)) for axis in _axes_to_widen(case) for factor in _FACTORS
    ]
    fine = _legal(case, [*(vars(each.case.layout) for each in turned), *(sizes for _, sizes in wider)])
    least: dict[str, dict[str, Any]] = {}
    for (axis, sizes), is_fine in zip(wider, fine[len(turned) :], strict=True):
        if is_fine:
            least.setdefault(axis, sizes)
    kept = [each for each, is_fine in zip(turned, fine, strict=False) if is_fine]
    return [*kept, *(_widened(case, axis, Layout(**sizes)) for axis, sizes in least.items())]


def _gentle(case: Case) -> list[_Proposal]:
    """Those among them that cost next to nothing, which few numbers suffice for."""
    turned = [each for each in _turned(case) if each.key in _GENTLE]
    fine = _legal(case, [vars(each.case.layout) for each in turned])
    return [each for each, is_fine in zip(turned, fine, strict=True) if is_fine]


def _turned(case: Case) -> list[_Proposal]:
    """What leaves every axis as wide as it is."""
    return [*(_of_training(case) if isinstance(case, Training) else _of_serving(case))]


def _axes_to_widen(case: Case) -> Iterator[str]:
    for axis in _AXES:
        if axis == "cp" and isinstance(case, Serving):
            continue  # serving engines cut prompts so, which is another figure than the cache in decode
        if axis == "ep" and case.shape.experts is None:
            continue
        yield axis


def _widened(case: Case, axis: str, layout: Layout) -> _Proposal:
    does, costs = _AXES[axis]
    size = getattr(layout, axis)
    return _Proposal(
        f"{axis}-{size}",
        does.format(size, getattr(case.layout, axis)),
        _STAGES_IN_DECODE if axis == "pp" and isinstance(case, Serving) else costs,
        replace(case, layout=layout),
        family=axis,
        devices=layout.world_size - case.layout.world_size,
    )


def _of_training(case: Training) -> Iterator[_Proposal]:
    layout = case.layout
    if layout.tp > 1 and not layout.sp and case.tokens % layout.tp == 0:
        yield _Proposal(
            "sp",
            "Turn sequence parallelism on: activations beside the matrices are cut along the tokens too.",
            "It moves the same bytes forward, and gathers inputs once more on the way back.",
            replace(case, layout=replace(layout, sp=True)),
            family="sp",
        )
    for mode, does, costs in (
        (
            Recompute.SELECTIVE,
            "Recompute attention’s scores in the backward pass, or use a flash-attention kernel.",
            "About 3 % more arithmetic; with a flash-attention kernel none that is felt.",
        ),
        (
            Recompute.FULL,
            "Keep only each layer’s input, and recompute the rest.",
            "Every forward pass runs twice: a third more arithmetic.",
        ),
    ):
        if mode > case.recompute:
            yield _Proposal(f"recompute-{mode.name.lower()}", does, costs, replace(case, recompute=mode))
    if layout.dp * layout.cp > 1:
        for stage, does, costs in (
            (
                1,
                "Cut the optimizer’s state among the replicas.",
                "It moves no more bytes than plain replicas do.",
            ),
            (2, "Cut gradients and optimizer’s state among the replicas.", "It moves no more bytes either."),
            (
                3,
                "Cut weights, gradients and optimizer’s state among the replicas (FSDP).",
                "Weights are gathered for every pass: half as many bytes again.",
            ),
        ):
            if stage > layout.zero:
                yield _Proposal(
                    f"zero-{stage}",
                    f"ZeRO-{stage}: {does[0].lower()}{does[1:]}",
                    costs,
                    replace(case, layout=replace(layout, zero=stage)),
                    family="dp",
                )
    if case.micro_batch > 1:
        half = case.micro_batch // 2
        yield _Proposal(
            "micro-batch",
            f"Take {half} {_sequences(half)} at a time instead of {case.micro_batch}.",
            "Smaller products use the devices less well.",
            replace(case, micro_batch=half, micro_batches=case.micro_batches * case.micro_batch // half),
        )


def _of_serving(case: Serving) -> Iterator[_Proposal]:
    for width, name in ((1.0, "8"), (0.5, "4")):
        if width < case.kv_bytes:
            yield _Proposal(
                f"kv-{name}",
                f"Cache keys and values in {name} bits.",
                "A little accuracy, more of it the fewer bits.",
                replace(case, kv_bytes=width),
            )
        if width < (case.weight_bytes or case.shape.bytes_per_element):
            yield _Proposal(
                f"weights-{name}",
                f"Hold the weights in {name} bits.",
                "A little accuracy, more of it the fewer bits.",
                replace(case, weight_bytes=width),
            )
    if case.batch > 1:
        half = case.batch // 2
        yield _Proposal(
            "batch",
            f"Serve {half} {_sequences(half)} at once instead of {case.batch}.",
            "Fewer tokens for each reading of the weights.",
            replace(case, batch=half),
        )
    if case.tokens > 1:
        yield _Proposal(
            "context",
            f"Allow {case.tokens // 2:,} tokens of context instead of {case.tokens:,}.",
            "Longer conversations are cut or refused.",
            replace(case, tokens=case.tokens // 2),
        )


def _wider(layout: Layout, axis: str, factor: int) -> dict[str, Any]:
    """The layout's sizes with `axis` so many times wider; replicas make room for it where they can be shared out."""
    sizes = {**vars(layout), axis: getattr(layout, axis) * factor}
    dp, within = layout.dp, layout.tp * layout.cp
    if axis == "ep":
        fits = dp * within % (sizes["ep"] * layout.etp) == 0
        return sizes if fits else sizes | {"dp": dp * factor}
    if dp % factor == 0 and dp // factor * within * factor >= layout.ep * layout.etp:
        return sizes | {"dp": dp // factor}
    return sizes


def _legal(case: Case, proposed: list[dict[str, Any]]) -> list[bool]:
    """Which of these layouts break no rule that the case's own keeps."""
    if not proposed:
        return []
    layouts = [vars(case.layout), *proposed]
    training = isinstance(case, Training)
    asked = RulesCase(
        shape=case.shape,
        layouts=Layouts(**{name: _column([sizes[name] for sizes in layouts]) for name in layouts[0]}),
        phase=Phase.TRAINING if training else Phase.DECODE,
        tokens=case.tokens if training else None,
        uneven_stages=not any(case.shape.layers % size == 0 for size in _FACTORS),
    )
    fine = np.ones(len(layouts), dtype=bool)
    for holds in masks(asked).values():
        if not holds.ndim:
            continue  # alike for all, the case's own included
        fine &= holds | ~holds[0]
    return [*fine[1:].tolist()]


def _kind(lever: Lever) -> str:
    return lever.key.partition("-")[0]


def _price(lever: Lever | _Change) -> tuple[bool, bool, bool, float]:
    return lever.key in _LESS, lever.devices > 0, lever.key not in _GENTLE, -lever.saved_bytes


def _sequences(count: int) -> str:
    return "sequence" if count == 1 else "sequences"
