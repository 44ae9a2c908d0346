"""Which rank has which part of every axis, and how far apart the members of a group are.

Ranks are numbered with tensor parallelism innermost, then context, then data, then pipeline outermost, so that the axes
that talk most are nearest (Megatron-LM parallel_state.py, order tp-cp-ep-dp-pp). Experts regroup the same devices of
one stage: tensor parallelism inside experts innermost, then expert parallelism, then replicas of experts.
"""

from __future__ import annotations

from collections.abc import Callable

from calculators.predict.arrays import Floats, floats
from calculators.predict.shapes import Layout, Layouts

AXES = ("tp", "cp", "dp", "pp", "etp", "ep", "edp")
"""Every axis that has groups of its own; `edp` is the data parallelism of experts."""


def size(layouts: Layouts, axis: str) -> Floats:
    """Members of one group of `axis`, an array of the layouts' shape on that axis.

    >>> size(Layouts(dp=8, tp=2, ep=[1, 4]), "edp").tolist()
    [16.0, 4.0]
    """
    _known(axis)
    return layouts.expert_dp if axis == "edp" else floats(getattr(layouts, axis))


def stride(layouts: Layouts, axis: str) -> Floats:
    """Distance in rank numbers between neighbours of one group of `axis`.

    >>> [stride(Layouts(dp=4, tp=8, cp=2, pp=3), axis).item() for axis in ("tp", "cp", "dp", "pp")]
    [1.0, 8.0, 16.0, 64.0]
    """
    _known(axis)
    return _STRIDES[axis](layouts)


def span(layouts: Layouts, axis: str) -> Floats:
    """Devices that one group of `axis` reaches across, its gaps included: stride × size.

    A group stays in a host of n devices where its span divides n.
    """
    return stride(layouts, axis) * size(layouts, axis)


def groups(layout: Layout, axis: str) -> tuple[tuple[int, ...], ...]:
    """The members of every group of `axis`, by rank.

    >>> groups(Layout(tp=2, pp=2), "pp")
    ((0, 2), (1, 3))
    """
    layouts = Layouts.of(layout)
    step, members = stride(layouts, axis).item(), size(layouts, axis).item()
    if members != int(members):
        raise ValueError(
            f"ep is {layout.ep} and etp {layout.etp}, but a stage has {layout.dp * layout.tp * layout.cp} devices, "
            f"which groups of {layout.ep * layout.etp} do not share equally. Change one of them."
        )
    step, members = int(step), int(members)
    return tuple(
        tuple(range(first, first + members * step, step))
        for first in range(layout.world_size)
        if first // step % members == 0
    )


_STRIDES: dict[str, Callable[[Layouts], Floats]] = {
    "tp": lambda layouts: floats(1),
    "cp": lambda layouts: floats(layouts.tp),
    "dp": lambda layouts: floats(layouts.tp) * floats(layouts.cp),
    "pp": lambda layouts: floats(layouts.tp) * floats(layouts.cp) * floats(layouts.dp),
    "etp": lambda layouts: floats(1),
    "ep": lambda layouts: floats(layouts.etp),
    "edp": lambda layouts: floats(layouts.etp) * floats(layouts.ep),
}


def _known(axis: str) -> None:
    if axis not in AXES:
        raise ValueError(f"axis is {axis!r}, but ranks are grouped by {', '.join(AXES)}. Use one of those.")
