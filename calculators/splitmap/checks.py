"""Which layouts have a map. Each refusal says what was given, why it cannot be drawn, and the nearest that can."""

from __future__ import annotations

from calculators.predict.shapes import Layout, ModelShape, Phase

MOST_DEVICES = 64
MOST_OF_REPLICAS = 32
"""Devices of a layout all of whose replicas are drawn."""
MOST_COUNTED = 4096
"""Devices of a layout of which only some replicas are drawn."""
AXES = ("tp", "cp", "dp", "pp")
"""The axes that multiply to the devices, in the order in which predict places their ranks, innermost first."""


def check(
    layout: Layout,
    shape: ModelShape,
    *,
    phase: Phase,
    batch: int,
    tokens: int,
    ranks_per_host: int,
    order: tuple[str, ...],
) -> None:
    """Raises ValueError for a layout whose parts are not equal, or that nobody could read.

    Only what the map shows is checked: attention heads, say, are for `predict.rules`.
    """
    if ranks_per_host < 1:
        raise ValueError(f"ranks_per_host is {ranks_per_host}, but a host has at least 1 device.")
    if sorted(order) != sorted(AXES):
        raise ValueError(f"order is {', '.join(order)}, but it must name each of {', '.join(AXES)} once.")
    chunks = layout.pp * layout.vpp
    if shape.layers % chunks:
        raise ValueError(_uneven_stages(layout, shape.layers))
    if layout.sp and layout.tp == 1:
        raise ValueError(
            "sp is on, but without tensor parallelism there is no group to share the tokens among. "
            "Turn sp off, or make tp 2."
        )
    _check_shares(layout, phase=phase, batch=batch, tokens=tokens)
    _check_experts(layout, shape)
    if drawn_replicas(layout) is None:
        raise ValueError(_too_many(layout))


def drawn_replicas(layout: Layout) -> int | None:
    """How many replicas of the model are drawn: all while they can be read, else two or one; None if not even that.

    Replicas are alike, so that the others need no picture; experts that are spread over several need them all.
    """
    model = layout.tp * layout.cp * layout.pp
    spread = layout.ep * layout.etp > 1
    if layout.world_size <= (MOST_DEVICES if spread or layout.dp == 1 else MOST_OF_REPLICAS):
        return layout.dp
    if spread or layout.world_size > MOST_COUNTED:
        return None
    fitting = [replicas for replicas in (2, 1) if replicas <= layout.dp and model * replicas <= MOST_DEVICES]
    return fitting[0] if fitting else None


def nearest(size: int, working: list[int]) -> str:
    """The nearest sizes that work, as a sentence; empty where there are none."""
    below = [other for other in working if other < size][-1:]
    near = below + [other for other in working if other > size][:1]
    if not near:
        return ""
    return (
        f"Nearest that {'work' if len(near) > 1 else 'works'}: {' or '.join(f'{size:,}' for size in near)}."
    )


def _check_shares(layout: Layout, *, phase: Phase, batch: int, tokens: int) -> None:
    for name, value in (("batch", batch), ("tokens", tokens)):
        if not 1 <= value <= 10**18:
            raise ValueError(f"{name} is {value:,}, but it must be a number, 1 or more and at most 1e+18.")
    if batch % layout.dp:
        raise ValueError(
            f"batch is {batch:,}, but {layout.dp} replicas cannot share {_counted(batch, 'sequence')} equally. "
            f"{nearest(batch, _multiples(layout.dp, batch))}"
        )
    parts = layout.cp * (layout.tp if layout.sp and phase is not Phase.DECODE else 1)
    if tokens % parts:
        raise ValueError(
            f"tokens is {tokens:,}, but {parts} devices cannot share {_counted(tokens, 'token')} equally. "
            f"{nearest(tokens, _multiples(parts, tokens))}"
        )
    if layout.sp and phase is Phase.DECODE and batch // layout.dp % layout.tp:
        each = batch // layout.dp
        raise ValueError(
            f"sp is on, but {_counted(each, 'sequence')} with one token in flight cannot be shared by {layout.tp} "
            "devices equally. Take prefill or training, or turn sp off."
        )


def _check_experts(layout: Layout, shape: ModelShape) -> None:
    stage = layout.dp * layout.tp * layout.cp
    if shape.experts is None:
        if layout.ep > 1:
            raise ValueError(
                f"ep is {layout.ep}, but a dense model has no experts to place. Give experts, or make ep 1."
            )
        return
    routed = shape.experts.routed
    if routed % layout.ep:
        sizes = [
            size for size in range(1, min(routed, stage) + 1) if routed % size == 0 and stage % size == 0
        ]
        raise ValueError(
            f"ep is {layout.ep}, but {layout.ep} devices cannot share {routed} experts equally. "
            f"{nearest(layout.ep, sizes)}"
        )
    if stage % (layout.ep * layout.etp):
        sizes = [
            size for size in range(1, stage + 1) if routed % size == 0 and stage % (size * layout.etp) == 0
        ]
        raise ValueError(
            f"ep is {layout.ep}, but experts share the devices of the other axes, and here a stage has {stage}. "
            f"{nearest(layout.ep, sizes) or 'Make dp larger.'}"
        )


def _uneven_stages(layout: Layout, layers: int) -> str:
    sizes = [size for size in range(1, layers + 1) if layers % (size * layout.vpp) == 0]
    if layout.vpp == 1:
        return (
            f"pp is {layout.pp}, but {_counted(layers, 'layer')} do not make {layout.pp} stages of equal depth. "
            f"{nearest(layout.pp, sizes)}"
        )
    return (
        f"pp is {layout.pp} and vpp {layout.vpp}, but {_counted(layers, 'layer')} do not make "
        f"{layout.pp * layout.vpp} runs of equal depth. {nearest(layout.pp, sizes)}"
    )


def _too_many(layout: Layout) -> str:
    sizes = " × ".join(
        f"{axis} {size}" for axis in ("dp", "tp", "pp", "cp") if (size := getattr(layout, axis)) > 1
    )
    return (
        f"{sizes} is {layout.world_size:,} devices, but nobody can read a map of more than {MOST_DEVICES}. "
        "Make one of them smaller."
    )


def _multiples(parts: int, value: int) -> list[int]:
    return [parts * times for times in (value // parts, value // parts + 1) if times]


def _counted(how_many: int, thing: str) -> str:
    return f"{how_many:,} {thing}{'' if how_many == 1 else 's'}"
