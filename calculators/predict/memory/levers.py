"""What to change where a layout does not fit: each lever with the memory it leaves, calculated by the same formulas.

A case is everything that memory depends on; a lever is another case that differs in one thing. All levers of a case are
calculated in one pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from calculators.predict.arrays import floats, positive, whole
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
_NOT_YET = Memory(**dict.fromkeys(PARTS, floats(0)))


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
        found = known or _levers(case, memory, limit=limit)
        known = ()
        if not found or len(pulled) == MOST_STEPS:
            return ()
        best = min(found, key=_price)
        if pulled and _kind(best) in _SETTINGS and _kind(best) == _kind(pulled[-1]):
            pulled.pop()  # what it set is set further
        pulled.append(best)
        case, memory = best.case, best.memory
    return tuple(pulled)


def _levers(case: Case, memory: Memory, *, limit: float) -> tuple[Lever, ...]:
    now = memory.total.item()
    proposed = _legal(case, list(_proposals(case)))
    found = memories([each.case for each in proposed])
    totals = [each.total.item() for each in found]
    shrinking = [
        replace(lever, memory=each, saved_bytes=now - total, fits=total <= limit)
        for lever, each, total in zip(proposed, found, totals, strict=True)
        if total < now
    ]
    return tuple(sorted(shrinking, key=lambda lever: (-lever.saved_bytes, lever.devices)))


def memories(cases: Sequence[Case]) -> list[Memory]:
    """The memory of each, in one pass. All train or all serve the same model with the same optimizer."""
    if not cases:
        return []
    first = cases[0]
    axes = {
        axis: np.array([getattr(case.layout, axis) for case in cases])
        for axis in ("dp", "tp", "pp", "cp", "ep", "etp", "vpp", "sp", "zero")
    }
    tokens = np.array([case.tokens for case in cases])
    if isinstance(first, Training):
        training = [case for case in cases if isinstance(case, Training)]
        found = training_memory(
            first.shape,
            Layouts(
                **axes,
                micro_batch=np.array([case.micro_batch for case in training]),
                recompute=np.array([int(case.recompute) for case in training]),
            ),
            tokens=tokens,
            micro_batches=np.array([case.micro_batches for case in training]),
            optimizer=first.optimizer,
        )
    else:
        serving = [case for case in cases if isinstance(case, Serving)]
        released = first.shape.bytes_per_element
        found = serving_memory(
            first.shape,
            Layouts(**axes),
            batch=np.array([case.batch for case in serving]),
            context_tokens=tokens,
            kv_bytes_per_element=np.array([case.kv_bytes for case in serving]),
            weight_bytes_per_element=np.array([case.weight_bytes or released for case in serving]),
        )
    columns = {part: np.broadcast_to(getattr(found, part), (len(cases),)) for part in PARTS}
    return [
        Memory(**{part: floats(values[row]) for part, values in columns.items()}) for row in range(len(cases))
    ]


def _proposals(case: Case) -> Iterator[Lever]:
    yield from _of_training(case) if isinstance(case, Training) else _of_serving(case)
    waiting = (
        "Stages wait while the pipeline fills and drains: use many micro-batches."
        if isinstance(case, Training)
        else "A token passes one stage after another: only many sequences in flight keep all of them busy."
    )
    for axis, does, costs in (
        (
            "tp",
            "Split every layer over",
            "Every layer then waits for all-reduces: keep the group inside a host.",
        ),
        (
            "pp",
            "Cut the layers into",
            waiting,
        ),
        ("cp", "Cut every sequence into", "Keys and values then travel in every layer."),
        (
            "ep",
            "Share the experts among",
            "Tokens then travel to their experts and back in every sparse layer.",
        ),
    ):
        if axis == "cp" and isinstance(case, Serving):
            continue  # serving engines cut prompts so, which is another figure than the cache in decode
        if axis == "ep" and case.shape.experts is None:
            continue
        size = getattr(case.layout, axis)
        parts = {"tp": "ranks", "pp": "stages", "cp": "parts", "ep": "groups of devices"}[axis]
        for factor in _FACTORS:
            wider = _wider(case.layout, axis, factor)
            yield _lever(
                f"{axis}-{size * factor}",
                f"{does} {size * factor} {parts} instead of {size}.",
                costs,
                replace(case, layout=wider),
                family=axis,
                devices=wider.world_size - case.layout.world_size,
            )


def _of_training(case: Training) -> Iterator[Lever]:
    layout = case.layout
    if layout.tp > 1 and not layout.sp and case.tokens % layout.tp == 0:
        yield _lever(
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
            yield _lever(f"recompute-{mode.name.lower()}", does, costs, replace(case, recompute=mode))
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
                yield _lever(
                    f"zero-{stage}",
                    f"ZeRO-{stage}: {does[0].lower()}{does[1:]}",
                    costs,
                    replace(case, layout=replace(layout, zero=stage)),
                    family="dp",
                )
    if case.micro_batch > 1:
        half = case.micro_batch // 2
        yield _lever(
            "micro-batch",
            f"Take {half} {_sequences(half)} at a time instead of {case.micro_batch}.",
            "Smaller products use the devices less well.",
            replace(case, micro_batch=half, micro_batches=case.micro_batches * case.micro_batch // half),
        )


def _of_serving(case: Serving) -> Iterator[Lever]:
    for width, name in ((1.0, "8"), (0.5, "4")):
        if width < case.kv_bytes:
            yield _lever(
                f"kv-{name}",
                f"Cache keys and values in {name} bits.",
                "A little accuracy, more of it the fewer bits.",
                replace(case, kv_bytes=width),
            )
        if width < (case.weight_bytes or case.shape.bytes_per_element):
            yield _lever(
                f"weights-{name}",
                f"Hold the weights in {name} bits.",
                "A little accuracy, more of it the fewer bits.",
                replace(case, weight_bytes=width),
            )
    if case.batch > 1:
        half = case.batch // 2
        yield _lever(
            "batch",
            f"Serve {half} {_sequences(half)} at once instead of {case.batch}.",
            "Fewer tokens for each reading of the weights.",
            replace(case, batch=half),
        )
    if case.tokens > 1:
        yield _lever(
            "context",
            f"Allow {case.tokens // 2:,} tokens of context instead of {case.tokens:,}.",
            "Longer conversations are cut or refused.",
            replace(case, tokens=case.tokens // 2),
        )


def _wider(layout: Layout, axis: str, factor: int) -> Layout:
    """The layout with `axis` so many times wider; replicas make room for it where they can be shared out."""
    changed = {axis: getattr(layout, axis) * factor}
    if axis == "ep":
        fits = layout.dp * layout.tp * layout.cp % (changed[axis] * layout.etp) == 0
        return replace(layout, **changed, dp=layout.dp if fits else layout.dp * factor)
    if (
        layout.dp % factor == 0
        and layout.dp // factor * layout.tp * layout.cp * factor >= layout.ep * layout.etp
    ):
        changed["dp"] = layout.dp // factor
    return replace(layout, **changed)


def _legal(case: Case, proposed: list[Lever]) -> list[Lever]:
    """Those that break no rule which holds now; of several sizes of one axis the first."""
    layouts = [case.layout, *(lever.case.layout for lever in proposed)]
    training = isinstance(case, Training)
    asked = RulesCase(
        shape=case.shape,
        layouts=Layouts(
            **{name: np.array([getattr(layout, name) for layout in layouts]) for name in vars(case.layout)}
        ),
        phase=Phase.TRAINING if training else Phase.DECODE,
        tokens=case.tokens if training else None,
        uneven_stages=not any(case.shape.layers % size == 0 for size in _FACTORS),
    )
    fine = np.ones(len(layouts), dtype=bool)
    for holds in masks(asked).values():
        each = np.broadcast_to(holds, fine.shape)
        fine &= each | ~each[0]
    kept: dict[str, Lever] = {}
    for lever, is_fine in zip(proposed, fine[1:], strict=True):
        if is_fine:
            kept.setdefault(lever.family if lever.family in ("tp", "pp", "cp", "ep") else lever.key, lever)
    return list(kept.values())


def _kind(lever: Lever) -> str:
    return lever.key.partition("-")[0]


def _price(lever: Lever) -> tuple[bool, bool, bool, float]:
    return lever.key in _LESS, lever.devices > 0, lever.key not in _GENTLE, -lever.saved_bytes


def _lever(key: str, does: str, costs: str, case: Case, *, family: str = "", devices: int = 0) -> Lever:
    return Lever(
        key=key,
        does=does,
        costs=costs,
        case=case,
        memory=_NOT_YET,
        saved_bytes=0,
        fits=False,
        family=family,
        devices=devices,
    )


def _sequences(count: int) -> str:
    return "sequence" if count == 1 else "sequences"
