"""Where a composition's bytes go: from rank to rank, and over which tier of a cluster's links."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calculators.predict import placement
from calculators.predict.arrays import MOST, Floats, floats, said
from calculators.predict.clusters import Cluster
from calculators.predict.collectives import Kind, group_bytes
from calculators.predict.routes import Routes, routes
from calculators.predict.traffic.composition import ENDS, FAMILIES, NEXT, Composition, Share

MOST_RANKS_IN_A_MATRIX = 1024
MOST_RANKS = 16_384

Members = NDArray[np.intp]
"""Ranks of every group: (stages, groups of a stage, members); of a pipeline (1, lines, stages)."""


def pair_matrix(composition: Composition, *, axis: str | None = None) -> Floats:
    """Bytes that each rank (row) sends to each other (column) per token, prompt or step, of one layout [bytes].

    All axes together, or one of them. Ranks are numbered as in `placement`.

    Raises ValueError where there is more than one layout, or more than 1,024 ranks; and for what a switch carries out.

    >>> from calculators.predict.models.catalogue import MODELS
    >>> from calculators.predict.shapes import Layout, Phase
    >>> from calculators.predict.traffic.composition import composed
    >>> pair_matrix(composed(MODELS["lesson"].shape, Layout(pp=2), phase=Phase.DECODE)).tolist()
    [[0.0, 8192.0], [0.0, 0.0]]
    """
    world = _world(composition, MOST_RANKS_IN_A_MATRIX, "matrices of pairs", "Ask for its bytes per tier")
    table = np.zeros((world, world))
    for share, on_stages, members in _placed(composition, axis):
        if share.to:
            for sender, receiver in _crossings(share, members):
                sent = on_stages * share.sent.item()
                np.add.at(table, (sender, receiver), np.broadcast_to(sent, sender.shape))
            continue
        shares = routes(share.kind, members.shape[-1], algorithm=share.algorithm).matrix
        for stage, full in enumerate(on_stages):
            rows = members[stage][:, :, None]
            table[rows, members[stage][:, None, :]] += full * shares
    return table


def block_matrix(composition: Composition, *, devices: int, axis: str | None = None) -> Floats:
    """Bytes that each block of `devices` ranks (row) sends to each other one (column), of one layout [bytes].

    Blocks are hosts, or racks: ranks are numbered as in `placement`, so that the first `devices` of them share the
    first one. What stays inside a block is on the diagonal. All axes together, or one of them. Work grows with ranks
    and with pairs of blocks, not with pairs of ranks.

    Raises ValueError where there is more than one layout, or more than 1,024 blocks; and for what a switch carries out.

    >>> from calculators.predict.models.catalogue import MODELS
    >>> from calculators.predict.shapes import Layout, Phase
    >>> from calculators.predict.traffic.composition import composed
    >>> shape = MODELS["lesson"].shape
    >>> block_matrix(composed(shape, Layout(tp=2, pp=2), phase=Phase.DECODE), devices=2).tolist()
    [[1048576.0, 16384.0], [0.0, 1048576.0]]
    """
    tables = block_matrices(composition, devices=devices, axis=axis)
    blocks = _blocks(composition, devices)
    return floats(sum(tables.values(), np.zeros((blocks, blocks))))


def block_matrices(composition: Composition, *, devices: int, axis: str | None = None) -> dict[str, Floats]:
    """`block_matrix` of each axis on which anything moves, all in one pass: axis → matrix. Blocks of 1 are ranks."""
    blocks = _blocks(composition, devices)
    tables: dict[str, Floats] = {}
    for share, on_stages, members in _placed(composition, axis):
        if share.ranks > 1:
            table = tables.setdefault(share.axis, np.zeros((blocks, blocks)))
            _add_share(table, share, on_stages, members // devices)
    return {name: tables[name] for name in FAMILIES if name in tables}


@dataclass(frozen=True, kw_only=True, eq=False)
class TierBytes:
    """Bytes that all ranks together send over each tier, the innermost first: (tiers,) arrays for each axis [bytes]."""

    tiers: tuple[str, ...]
    axes: dict[str, Floats]

    @property
    def total(self) -> Floats:
        """All axes together, (tiers,) [bytes]."""
        return floats(np.sum(list(self.axes.values()), axis=0))


def tier_bytes(composition: Composition, cluster: Cluster) -> TierBytes:
    """Bytes that cross each tier of `cluster` per token, prompt or step, of one layout [bytes].

    A message crosses the innermost tier whose blocks hold both ranks. What a switch carries out counts for the tier
    that holds the whole group. For any layout of up to 16,384 ranks: work grows with ranks, not with pairs.

    Raises ValueError where there is more than one layout, or fewer devices than ranks.
    """
    world = _world(composition, MOST_RANKS, "tiers", "Use fewer")
    if world > cluster.devices:
        raise ValueError(
            f"The layout has {world:,} ranks, but the cluster {cluster.devices:,} devices. Use a smaller layout."
        )
    blocks = [tier.devices for tier in cluster.tiers]
    axes = {axis: np.zeros(len(blocks)) for axis in FAMILIES}
    reaches: dict[tuple[str, Kind, str], Floats] = {}
    for share, on_stages, members in _placed(composition, None):
        if share.to:
            for sender, receiver in _crossings(share, members):
                sent = np.broadcast_to(on_stages * share.sent.item(), sender.shape)
                axes[share.axis] += np.bincount(
                    _tier(sender, receiver, blocks).ravel(), weights=sent.ravel(), minlength=len(blocks)
                )
            continue
        key = share.axis, share.kind, share.algorithm
        if key not in reaches:
            reaches[key] = _reach(share, members, blocks)
        axes[share.axis] += on_stages @ reaches[key]
    return TierBytes(tiers=tuple(tier.link.name for tier in cluster.tiers), axes=axes)


def _world(composition: Composition, most: int, what: str, instead: str) -> int:
    world = composition.layouts.world_size
    if world.ndim or any(floats(share.ranks).ndim for share in composition.shares):
        raise ValueError(f"There are {world.size} layouts, but {what} are of one each. Give one.")
    ranks = int(world.item())
    if ranks > most:
        raise ValueError(f"The layout has {ranks:,} ranks, but {what} go to {most:,}. {instead}.")
    return ranks


def _blocks(composition: Composition, devices: int) -> int:
    if not isinstance(devices, int) or not 1 <= devices <= MOST:
        raise ValueError(f"devices is {said(devices)}, but a block has at least 1.")
    blocks = -(-_world(composition, MOST_RANKS, "matrices of blocks", "Use fewer") // devices)
    if blocks > MOST_RANKS_IN_A_MATRIX:
        raise ValueError(
            f"The layout has {blocks:,} blocks of {devices:,}, but matrices go to {MOST_RANKS_IN_A_MATRIX:,}. "
            "Use larger blocks."
        )
    return blocks


def _add_share(table: Floats, share: Share, on_stages: Floats, block: Members) -> None:
    """Adds what a share sends to a table, in place; `block` has each member's block in place of its rank."""
    if share.to:
        for sender, receiver in _crossings(share, block):
            _add(table, sender, receiver, on_stages * share.sent.item())
        return
    edges = routes(share.kind, block.shape[-1], algorithm=share.algorithm)
    if not edges.to_each:
        weight = on_stages[:, None, None] * edges.share
        _add(table, block[:, :, edges.sender], block[:, :, edges.receiver], weight)
        return
    # Everybody to everybody: members of each group in each block, all pairs of them but each with itself.
    groups, blocks = block.shape[0] * block.shape[1], len(table)
    cells = np.arange(groups)[:, None] * blocks + block.reshape(groups, -1)
    held = np.bincount(cells.ravel(), minlength=groups * blocks).reshape(groups, blocks)
    each = np.repeat(on_stages * edges.to_each, block.shape[1])
    weighted = held * each[:, None]
    table += weighted.T @ held
    table[np.diag_indices(blocks)] -= weighted.sum(axis=0)


def _placed(composition: Composition, axis: str | None) -> Iterator[tuple[Share, Floats, Members]]:
    """Each share with its full size on every stage (p,) [bytes], and the groups that call."""
    if axis is not None and axis not in FAMILIES:
        raise ValueError(f"axis is {axis!r}, but traffic is on {', '.join(FAMILIES)}. Use one of those.")
    layouts = composition.layouts
    stages = int(floats(layouts.pp).item())
    stage_ranks = int(layouts.world_size.item()) // stages
    has = composition.on_stage(np.arange(stages))
    known: dict[str, Members] = {}
    on_each = np.zeros(stages)  # what all stages have alike is a number
    for share in composition.shares:
        if axis not in (None, share.axis):
            continue
        if share.axis not in known:
            size = int(share.ranks.item())
            if share.axis == "pp":
                known["pp"] = np.arange(stage_ranks * stages).reshape(stages, stage_ranks).T
            else:
                stride = int(placement.stride(layouts, "cp" if share.axis == "dp" else share.axis).item())
                if stage_ranks % (size * stride):
                    ep, etp = int(floats(layouts.ep).item()), int(floats(layouts.etp).item())
                    raise ValueError(
                        f"ep is {ep:,} and etp {etp:,}, but a stage has {stage_ranks:,} devices, which groups of "
                        f"{ep * etp:,} do not share equally. Change one of them."
                    )
                ranks = np.arange(stage_ranks * stages).reshape(stages, -1, size, stride)
                known[share.axis] = ranks.transpose(0, 1, 3, 2).reshape(stages, -1, size)
        yield share, has.of(share.full) + on_each, known[share.axis]


def _crossings(share: Share, lines: Members) -> Iterator[tuple[Members, Members]]:
    """Senders and receivers (lines, stages) of what goes along the pipeline; the last stage's next is the first."""
    if share.to == ENDS:  # only the two ends have any of it
        yield lines, lines[:, ::-1]
        return
    first = 1 if share.to == NEXT else -1
    yield lines, np.concatenate((lines[:, first:], lines[:, :first]), axis=1)


def _add(table: Floats, sender: Members, receiver: Members, weight: Floats) -> None:
    """Adds to the cells of a table, in place; `weight` broadcasts against the senders."""
    cells = (sender * len(table) + receiver).ravel()
    weights = np.zeros(sender.shape) + weight
    table += np.bincount(cells, weights=weights.ravel(), minlength=table.size).reshape(table.shape)


def _reach(share: Share, members: Members, blocks: list[int]) -> Floats:
    """Shares of the full size that cross each tier in one call of all groups of a stage: (stages, tiers)."""
    stages, _, n = members.shape
    if share.algorithm == "in-switch":
        sent = group_bytes(share.kind, 1, n, algorithm=share.algorithm).item()
        tier = _tier(members[:, :, 0], members.max(axis=2), blocks)
        return _by_stage(tier, np.full(tier.shape, sent), len(blocks), stages)
    edges: Routes = routes(share.kind, n, algorithm=share.algorithm)
    if not edges.to_each:
        tier = _tier(members[:, :, edges.sender], members[:, :, edges.receiver], blocks)
        return _by_stage(tier, np.broadcast_to(edges.share, tier.shape), len(blocks), stages)
    # Everybody to everybody: pairs of a group inside a block, less those inside a smaller one.
    inside = np.array([_pairs_inside(members, block) for block in blocks]).T
    return edges.to_each * np.diff(inside, axis=1, prepend=0.0)


def _pairs_inside(members: Members, block: int) -> Floats:
    """Ordered pairs of one group that share a block of devices, of all groups of a stage: (stages,)."""
    stages, groups, _ = members.shape
    numbered = members // block
    number_of_blocks = int(numbered.max()) + 1
    group = np.arange(stages * groups).reshape(stages, groups, 1)
    found, together = np.unique((group * number_of_blocks + numbered).ravel(), return_counts=True)
    stage = found // number_of_blocks // groups
    return floats(np.bincount(stage, weights=together * (together - 1.0), minlength=stages))


def _tier(sender: Members, receiver: Members, blocks: list[int]) -> Members:
    """The innermost tier whose blocks hold both: each block is inside the next, so it is how many are too small."""
    tier = np.zeros(sender.shape, dtype=np.intp)
    for block in blocks[:-1]:
        tier += sender // block != receiver // block
    return tier


def _by_stage(tier: Members, weight: Floats, tiers: int, stages: int) -> Floats:
    stage = np.arange(stages).reshape(-1, *[1] * (tier.ndim - 1))
    cells = np.bincount((stage * tiers + tier).ravel(), weights=weight.ravel(), minlength=stages * tiers)
    return floats(cells).reshape(stages, tiers)
