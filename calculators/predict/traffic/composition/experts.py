"""What the groups of experts move: tokens to other ranks and back, and parts of each expert."""

from __future__ import annotations

from calculators.predict.arrays import anywhere
from calculators.predict.collectives import Kind
from calculators.predict.traffic.composition.case import Case
from calculators.predict.traffic.composition.shares import Share


def expert_shares(case: Case) -> list[Share]:
    """The two all-to-alls of each sparse layer."""
    n = case.axes["ep"]
    if not case.shape.is_sparse or not anywhere(n > 1):
        return []
    calls = {"sparse": case.m * (case.forward + case.training)}
    return [
        case.share(
            "ep", Kind.ALL_TO_ALL, what, ranks=n, calls=calls, size=case.routed_bytes * case.widths[width]
        )
        for what, width in (
            ("tokens to their experts", "dispatch_bytes_per_element"),
            ("results back", "combine_bytes_per_element"),
        )
    ]


def expert_tensor_shares(case: Case, *, regather: bool) -> list[Share]:
    """Calls of the ranks that share each expert, which are tp's group where nothing is sent."""
    n, sp, m = case.axes["etp"], case.more["sp"], case.m
    if not case.shape.is_sparse or not anywhere(n > 1):
        return []
    blocks, both = case.experts_are_blocks, case.forward + case.training
    again = both + case.training * regather
    x = case.hidden_bytes
    arrived = n * case.routed_bytes * case.shape.bytes_per_element
    shares = []
    if anywhere(blocks * (1 - sp) > 0):
        whole = {"sparse": m * both * blocks * (1 - sp)}
        shares.append(
            case.share("etp", Kind.ALL_REDUCE, "outputs of the experts", ranks=n, calls=whole, size=x)
        )
    for kind, what, times in (
        (Kind.ALL_GATHER, "inputs of the experts", again),
        (Kind.REDUCE_SCATTER, "outputs of the experts", both),
    ):
        like_a_block, routed = m * times * blocks * sp, m * both * (1 - blocks)
        calls = {"sparse": like_a_block + routed}
        full = {"sparse": like_a_block * x + routed * arrived}
        shares.append(case.share("etp", kind, what, ranks=n, calls=calls, full=full))
    return shares
