"""What every axis of a composed layout moves: dp, tp (with sp), pp, cp, ep and etp at once, for many layouts.

Ranks are placed as in `placement`, layers on stages as in `stages`. Everything is a sum over what a rank has of the
model (dense and sparse layers, the first and the last stage's own parts) times what one of each moves, so nothing is
larger than the axes that it depends on, until somebody asks for a total.

What is assumed beyond the families' own pages:
- Gradients are summed over dp·cp ranks, since ranks that share a sequence hold the same weights; those of experts over
  edp = dp·tp·cp/(ep·etp) ranks.
- Experts that tp's group shares (ep = 1, etp = tp) work like any feed-forward block. Otherwise each rank sends its own
  1/tp of the tokens to the experts; without sequence parallelism its tensor-parallel group gathers the results
  afterwards. Ranks of an etp group gather the copies that arrived at them, and reduce-scatter the results, as
  Megatron-LM's all-to-all dispatcher does. The shared expert is split by tp, as a block beside the others.
- In decode, tokens of one sequence are on every cp rank, and their caches in slices (`context_parallel`).
Left out: the small sums of norms' gradients under sequence parallelism, and routing scores.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from calculators.predict.arrays import Floats, amounts, check_broadcast, counts, floats, positive
from calculators.predict.collectives import TEXTBOOK, Backend, Kind, group_bytes, rounds, sent_bytes
from calculators.predict.memory.states import attention_of_rank
from calculators.predict.models import parameters
from calculators.predict.schedules import sends_per_pass
from calculators.predict.shapes import Layout, Layouts, ModelShape, Phase, Recompute, activation_bytes
from calculators.predict.stages import fullest_stages, layers_of_stage
from calculators.predict.traffic.context import (
    LOG_SUM_BYTES,
    TORCH_GRADIENT_BYTES,
    check_context,
)
from calculators.predict.traffic.figures import Calls, Traffic
from calculators.predict.traffic.pipeline import TOKEN_ID_BYTES
from calculators.predict.traffic.tensor import CROSS_ENTROPY_ALL_REDUCES, CROSS_ENTROPY_BYTES

FAMILIES = {
    "tp": "tensor",
    "cp": "context",
    "pp": "pipeline",
    "ep": "expert",
    "etp": "tensor",
    "dp": "data",
    "edp": "data",
}
"""Axis → its family, in the order in which they are shown."""


NEXT, PREVIOUS, ENDS = 1, -1, 2


@dataclass(frozen=True, kw_only=True, eq=False)
class Has:
    """How much of the model a stage has, or all stages together: arrays that broadcast against the layouts.

    dense, sparse      layers
    first, last        1 on that stage
    stage              1, or the number of stages
    forward, backward  sends of a micro-batch to the next stage, and back
    """

    dense: Floats
    sparse: Floats
    first: Floats
    last: Floats
    stage: Floats
    forward: Floats
    backward: Floats

    def of(self, amount: Mapping[str, Floats]) -> Floats:
        """The sum of what there is of each, times its amount; "layer" is a layer of either kind."""
        total = floats(0.0)
        for name, each in amount.items():
            total = total + each * (self.dense + self.sparse if name == "layer" else getattr(self, name))
        return total


@dataclass(frozen=True, kw_only=True, eq=False)
class Share:
    """Calls of one kind on one axis: what they move for each layer, stage and so on that a rank has."""

    axis: str
    kind: Kind
    algorithm: str
    what: str
    ranks: Floats
    calls: Mapping[str, Floats]
    full: Mapping[str, Floats]
    to: int = 0  # NEXT or PREVIOUS stage, or between both ENDS; 0 among the axis's own group

    @cached_property
    def sent(self) -> Floats:
        """Bytes that the busiest rank sends for each byte of full size."""
        if self.to:
            return floats(self.ranks > 1) * (2 if self.to == ENDS else 1)  # of one call, each end has half
        return sent_bytes(self.kind, 1, self.ranks, algorithm=self.algorithm)

    @cached_property
    def handed(self) -> Floats:
        """Bytes that a rank puts in for each byte of full size."""
        if self.to:
            return self.sent
        return (self.ranks > 1) / (self.ranks if self.kind == Kind.ALL_GATHER else floats(1))

    @cached_property
    def of_group(self) -> Floats:
        """Bytes that all ranks of the group send for each byte of full size; of a send, the sender."""
        return self.sent if self.to else group_bytes(self.kind, 1, self.ranks, algorithm=self.algorithm)

    @cached_property
    def rounds(self) -> Floats:
        """Message steps of one call."""
        if self.to:
            return (self.ranks > 1) * rounds(self.kind, 2, algorithm=self.algorithm)
        return rounds(self.kind, self.ranks, algorithm=self.algorithm)


@dataclass(frozen=True, kw_only=True, eq=False)
class Composition:
    """What composed layouts move per token, prompt or step: a `Traffic` of every axis, and the totals.

    Of each axis, `calls` and `rounds` are those of all stages together, `handed_bytes` and `wire_bytes` of the busiest
    rank, `group_wire_bytes` of one group of each stage together. Arrays keep the shapes of the axes they depend on.
    """

    shape: ModelShape
    layouts: Layouts
    phase: Phase
    shares: tuple[Share, ...]
    control_bytes: Floats
    control_calls: Floats
    _stages: tuple[Has, ...] = field(repr=False)
    _all: Has = field(repr=False)

    @property
    def unit(self) -> str:
        """What the figures are counted for: token, prompt or step."""
        return self.phase.unit

    @cached_property
    def axes(self) -> dict[str, Traffic]:
        """Axis (tp, cp, pp, ep, etp, dp, edp) → its traffic. `dp` is gradients over dp·cp ranks."""
        return {axis: self._traffic(axis) for axis in FAMILIES}

    @cached_property
    def wire_bytes(self) -> Floats:
        """Bytes that the busiest rank sends on all axes together [bytes]."""
        return self._busiest("sent", self.shares)

    @cached_property
    def handed_bytes(self) -> Floats:
        """Bytes of the tensors that the busiest rank puts into its calls [bytes]."""
        return self._busiest("handed", self.shares)

    @cached_property
    def world_wire_bytes(self) -> Floats:
        """Bytes that all ranks send together [bytes]."""
        return _sum(self.world_wire_bytes_of(axis) for axis in FAMILIES)

    def world_wire_bytes_of(self, axis: str) -> Floats:
        """Bytes that all ranks send together on one axis [bytes]."""
        on_stage = floats(self.layouts.tp) * floats(self.layouts.cp) * floats(self.layouts.dp)
        return _sum(
            share.of_group * self._all.of(share.full) * (on_stage / (1 if axis == "pp" else share.ranks))
            for share in self.shares
            if share.axis == axis
        )

    @property
    def exchanges(self) -> Floats:
        """Calls of all axes and stages for one token, prompt or step, and the token's return."""
        return (
            _sum(self._all.of(share.calls) * (share.ranks > 1) for share in self.shares) + self.control_calls
        )

    def on_stage(self, stage: ArrayLike) -> Has:
        """What one stage has of the model."""
        return _has(self.shape, self.layouts, floats(stage))

    def _busiest(self, which: str, shares: tuple[Share, ...]) -> Floats:
        most = floats(0.0)
        for stage in self._stages:
            most = np.maximum(most, _sum(getattr(share, which) * stage.of(share.full) for share in shares))
        return most

    def _traffic(self, axis: str) -> Traffic:
        shares = tuple(share for share in self.shares if share.axis == axis)
        parts = tuple(self._calls(share) for share in shares)
        largest = floats(0.0)
        for part in parts:
            largest = np.maximum(largest, part.bytes_per_call)
        pipeline = axis == "pp"
        return Traffic(
            phase=self.phase,
            family=FAMILIES[axis],
            calls=_sum(part.calls for part in parts),
            bytes_per_call=largest,
            rounds=_sum(part.rounds for part in parts),
            handed_bytes=self._busiest("handed", shares),
            wire_bytes=self._busiest("sent", shares),
            group_wire_bytes=_sum(part.group_wire_bytes for part in parts),
            control_calls=self.control_calls if pipeline else floats(0.0),
            control_bytes=self.control_bytes if pipeline else floats(0.0),
            parts=parts,
        )

    def _calls(self, share: Share) -> Calls:
        calls, full = self._all.of(share.calls) * (share.ranks > 1), self._all.of(share.full)
        return Calls(
            kind=share.kind,
            algorithm=share.algorithm,
            what=share.what,
            ranks=share.ranks,
            calls=calls,
            full_bytes=full * (share.ranks > 1),
            rounds=calls * share.rounds,
            handed_bytes=self._busiest("handed", (share,)),
            wire_bytes=self._busiest("sent", (share,)),
            group_wire_bytes=full * share.of_group,
        )


def composed(
    shape: ModelShape,
    layouts: Layouts | Layout,
    *,
    phase: Phase,
    tokens: ArrayLike = 1,
    batch: ArrayLike = 1,
    micro_batches: ArrayLike | None = None,
    regather: bool = True,
    context: str = "ring",
    context_backward: str = "megatron",
    blocks_per_layer: int = 2,
    dispatch_bytes_per_element: float | None = None,
    combine_bytes_per_element: float | None = None,
    gradient_bytes_per_element: float = 2,
    weight_bytes_per_element: float | None = None,
    reshard_after_forward: bool = True,
    tensors_per_boundary: int = 1,
    scatter_gather: bool = False,
    vocabulary: bool = False,
    backend: Backend = TEXTBOOK,
) -> Composition:
    """The traffic of every axis of one layout, or of many at once.

    tokens           length of each sequence; decode has one of each in flight whatever is given
    batch            sequences: of a step over all replicas in training, of one replica in serving
    micro_batches    of a step; None for batch/(dp·micro_batch)
    regather         sequence parallelism keeps slices and gathers them again backward (Megatron-LM)
    context, context_backward      kind and backward pass of `context_parallel`
    dispatch_bytes_per_element …   widths on the way; None for the model's own. Gradients 2 as in the ZeRO paper;
                     `timing` waits for those of its program (`Implementation.gradient_bytes`, 4 in Megatron-LM)
    scatter_gather   without sequence parallelism, each tensor-parallel rank sends 1/tp of what crosses a boundary, and
                     the next stage gathers it (Narayanan 2021 §4.1; `Implementation.scattered_sends` in `timing`);
                     else every rank sends all of it, as in Megatron Core
    vocabulary       count the embedding, logits and loss, too, as `tensor_parallel` does with vocab_size

    Raises ValueError where a size is below 1, a name is not known, or arrays do not broadcast. Whether a layout is
    legal is for `rules`.

    >>> from calculators.predict.models.catalogue import MODELS
    >>> moved = composed(MODELS["lesson"].shape, Layouts(tp=[2, 1], pp=[1, 2]), phase=Phase.DECODE)
    >>> moved.wire_bytes.tolist(), moved.exchanges.tolist()
    ([1048576.0, 8192.0], [128.0, 2.0])
    """
    if isinstance(layouts, Layout):
        layouts = Layouts.of(layouts)
    check_context(context, context_backward)
    own = shape.bytes_per_element
    axes = counts(
        dp=layouts.dp,
        tp=layouts.tp,
        pp=layouts.pp,
        cp=layouts.cp,
        ep=layouts.ep,
        etp=layouts.etp,
        vpp=layouts.vpp,
        micro_batch=layouts.micro_batch,
        tokens=tokens,
        batch=batch,
        blocks_per_layer=blocks_per_layer,
        tensors_per_boundary=tensors_per_boundary,
        micro_batches=1 if micro_batches is None else micro_batches,
    )
    more = amounts(zero=layouts.zero, recompute=layouts.recompute, sp=floats(layouts.sp))
    check_broadcast({**axes, **more})
    widths = positive(
        dispatch_bytes_per_element=dispatch_bytes_per_element or own,
        combine_bytes_per_element=combine_bytes_per_element or own,
        gradient_bytes_per_element=gradient_bytes_per_element,
        weight_bytes_per_element=weight_bytes_per_element or own,
    )
    phase = Phase(phase)
    training = phase == Phase.TRAINING
    b = axes["micro_batch"] if training else axes["batch"]
    if not training:
        m = floats(1)
    elif micro_batches is None:
        m = axes["batch"] / (axes["dp"] * b)
    else:
        m = axes["micro_batches"]
    case = _Case(
        shape=shape,
        axes=axes,
        more=more,
        widths=widths,
        phase=phase,
        backend=backend,
        b=b,
        s=floats(1) if phase == Phase.DECODE else axes["tokens"] / axes["cp"],
        m=m,
    )
    shares = (
        *case.tensor(regather=regather, blocks=blocks_per_layer, vocabulary=vocabulary),
        *case.context(context, context_backward),
        *case.pipeline(tensors_per_boundary, scatter_gather=scatter_gather),
        *case.experts(),
        *case.expert_tensor(regather=regather),
        *case.data(reshard=reshard_after_forward),
    )
    p, v = axes["pp"], axes["vpp"]
    hops = sends_per_pass(p, v)
    returned = floats(phase == Phase.DECODE) * (p > 1)
    return Composition(
        shape=shape,
        layouts=layouts,
        phase=phase,
        shares=tuple(share for share in shares if np.any(share.ranks > 1)),
        control_calls=returned,
        control_bytes=returned * TOKEN_ID_BYTES * b,
        _stages=_candidates(shape, layouts),
        _all=Has(
            dense=floats(shape.dense_layers),
            sparse=floats(shape.sparse_layers),
            first=floats(1),
            last=floats(1),
            stage=p,
            forward=hops,
            backward=hops,
        ),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Case:
    """One call's arguments as arrays, and the shares of every axis."""

    shape: ModelShape
    axes: Mapping[str, Floats]
    more: Mapping[str, Floats]
    widths: Mapping[str, Floats]
    phase: Phase
    backend: Backend
    b: Floats  # sequences of a micro-batch
    s: Floats  # tokens of each on one rank
    m: Floats  # micro-batches

    @property
    def training(self) -> bool:
        return self.phase == Phase.TRAINING

    @cached_property
    def forward(self) -> Floats:
        """Forward passes: full recomputation makes another."""
        return floats(1.0 + self.training * (self.more["recompute"] == Recompute.FULL))

    @cached_property
    def hidden_bytes(self) -> Floats:
        """What one layer hands to the next, on one cp rank [bytes]."""
        return activation_bytes(self.b, self.s, self.shape.hidden_size, self.shape.bytes_per_element)

    @cached_property
    def experts_are_blocks(self) -> Floats:
        """1 where experts are shared by tp's group like any block, else 0: tokens are sent to them."""
        return floats((self.axes["ep"] == 1) & (self.axes["etp"] == self.axes["tp"]))

    @cached_property
    def routed_bytes(self) -> Floats:
        """Copies of one rank's tokens for all their experts, at one byte an element [bytes]."""
        if self.shape.experts is None:
            return floats(0)
        copies = self.shape.experts.per_token * self.shape.hidden_size
        mine = self.b * self.s / self.axes["tp"]
        return mine * floats(copies) / floats(self.axes["cp"] if self.phase == Phase.DECODE else 1)

    def share(
        self,
        axis: str,
        kind: Kind,
        what: str,
        *,
        ranks: Floats,
        calls: Mapping[str, Floats],
        size: Floats | None = None,
        full: Mapping[str, Floats] | None = None,
        algorithm: str | None = None,
        to: int = 0,
    ) -> Share:
        """`calls` of the same `size`, or of `full` bytes together."""
        total = (
            full
            if full is not None
            else {name: each * size for name, each in calls.items() if size is not None}
        )
        return Share(
            axis=axis,
            kind=kind,
            algorithm=algorithm or self.backend.algorithm_of(kind),
            what=what,
            ranks=ranks,
            calls=calls,
            full=total,
            to=to,
        )

    def tensor(self, *, regather: bool, blocks: int, vocabulary: bool) -> list[Share]:
        t, sp, x, m = self.axes["tp"], self.more["sp"], self.hidden_bytes, self.m
        if not np.any(t > 1):
            return []
        sent_out = 1 - self.experts_are_blocks
        shared = sent_out * bool(self.shape.experts and self.shape.experts.shared_width)
        both = self.forward + self.training
        again = both + self.training * regather

        def in_layers(times: Floats) -> dict[str, Floats]:
            return {"dense": times * blocks, "sparse": times * (1 + shared)}

        whole, gathered, scattered = (
            in_layers(m * both * (1 - sp)),
            in_layers(m * again * sp),
            in_layers(m * both * sp),
        )
        if vocabulary:
            back = floats(self.training)
            whole |= {"first": m * (1 - sp), "last": m * back * (1 - sp)}
            scattered |= {"first": m * sp, "last": m * back * sp}
            gathered |= {"first": m * back * sp, "last": m * sp * (1 + self.training * regather)}
        shares = []
        if np.any(sp < 1):
            shares.append(
                self.share("tp", Kind.ALL_REDUCE, "outputs of the blocks", ranks=t, calls=whole, size=x)
            )
        if np.any(sp > 0):
            shares += [
                self.share("tp", Kind.ALL_GATHER, "inputs of the blocks", ranks=t, calls=gathered, size=x),
                self.share(
                    "tp", Kind.REDUCE_SCATTER, "outputs of the blocks", ranks=t, calls=scattered, size=x
                ),
            ]
        if self.shape.is_sparse and np.any(sent_out * (1 - sp) > 0):
            results = {"sparse": m * both * sent_out * (1 - sp)}
            size = x / self.axes["cp"] if self.phase == Phase.DECODE else x
            shares.append(
                self.share("tp", Kind.ALL_GATHER, "results of the experts", ranks=t, calls=results, size=size)
            )
        if vocabulary and self.training:
            size = self.b * self.s * CROSS_ENTROPY_BYTES
            sums = {"last": CROSS_ENTROPY_ALL_REDUCES * m}
            shares.append(self.share("tp", Kind.ALL_REDUCE, "cross-entropy", ranks=t, calls=sums, size=size))
        elif vocabulary:
            size = self.b * self.shape.vocab_size * self.shape.bytes_per_element
            once = {"last": floats(1)}
            shares.append(
                self.share("tp", Kind.ALL_GATHER, "logits of the next token", ranks=t, calls=once, size=size)
            )
        return shares

    def context(self, kind: str, backward: str) -> list[Share]:
        c, t, m, e = self.axes["cp"], self.axes["tp"], self.m, self.shape.bytes_per_element
        if not np.any(c > 1):
            return []
        latent = self.shape.latent
        heads = self.shape.attention_heads / t
        kv_heads = heads if latent else np.maximum(self.shape.kv_heads / t, 1)
        key = self.shape.head_dim + (latent.rope_dim if latent else 0)
        value = latent.value_dim if latent else self.shape.head_dim
        tokens, both, back = self.b * self.s, self.forward + self.training, floats(self.training)
        outputs = tokens * heads * value * e

        def share(kind: Kind, what: str, times: Floats, size: Floats, algorithm: str | None = None) -> Share:
            calls = {"layer": times}
            return self.share("cp", kind, what, ranks=c, calls=calls, size=size, algorithm=algorithm)

        if self.phase == Phase.DECODE:
            shares = [
                share(
                    Kind.ALL_GATHER, "logs of the softmax sums", floats(1), self.b * c * heads * LOG_SUM_BYTES
                ),
                share(Kind.ALL_REDUCE, "attention outputs", floats(1), outputs),
            ]
            if self.shape.is_sparse and np.any(self.experts_are_blocks < 1):
                results = {"sparse": 1 - self.experts_are_blocks}
                what, size = "results of the experts", self.hidden_bytes
                shares.append(self.share("cp", Kind.ALL_GATHER, what, ranks=c, calls=results, size=size))
            return shares
        block = tokens * kv_heads * (key + value) * e
        if kind == "ring":
            hops = m * (c - 1)
            shares = [share(Kind.SEND, "keys and values", both * hops, block, "ring")]
            if self.training and backward == "megatron":
                shares.append(share(Kind.SEND, "gradients of keys and values", hops, block, "ring"))
            elif self.training:
                wide = block / e * TORCH_GRADIENT_BYTES
                shares.append(share(Kind.SEND, "gradients of keys and values", m * c, wide, "ring"))
            return shares
        if kind == "all-gather":
            shares = [share(Kind.ALL_GATHER, "keys and values", m * both, block * c)]
            if self.training:
                shares.append(share(Kind.REDUCE_SCATTER, "gradients of keys and values", m * back, block * c))
            return shares
        repeated = tokens * np.maximum(kv_heads, c) * (key + value) * e
        return [
            share(Kind.ALL_TO_ALL, "queries", m * both, tokens * heads * key * e),
            share(Kind.ALL_TO_ALL, "keys and values", 2 * m * both, repeated / 2),
            share(Kind.ALL_TO_ALL, "outputs", m * both, outputs),
        ]

    def pipeline(self, tensors: int, *, scatter_gather: bool) -> list[Share]:
        p, t, sp = self.axes["pp"], self.axes["tp"], self.more["sp"]
        if not np.any(p > 1):
            return []
        whole = (1 - sp) * (not scatter_gather)
        size = self.hidden_bytes * (whole + (1 - whole) / t)
        times = tensors * self.m
        shares = [
            self.share(
                "pp", Kind.SEND, "hidden states", ranks=p, calls={"forward": times}, size=size, to=NEXT
            )
        ]
        if self.training:
            what = "gradients"
            shares.append(
                self.share("pp", Kind.SEND, what, ranks=p, calls={"backward": times}, size=size, to=PREVIOUS)
            )
        if scatter_gather and np.any((t > 1) & (sp < 1)):
            # What a stage gets from the one before is as much as it would send back there, and the other way round.
            arriving = {"backward": times * (1 - sp)} | (
                {"forward": times * (1 - sp)} if self.training else {}
            )
            what, x = "parts from the other stage", self.hidden_bytes
            shares.append(self.share("tp", Kind.ALL_GATHER, what, ranks=t, calls=arriving, size=x))
        if self.training and self.shape.tied_embeddings:
            what, half = (
                "gradients of the embedding that both ends hold",
                {"first": floats(0.5), "last": floats(0.5)},
            )
            full = (
                self.shape.vocab_size * self.shape.hidden_size / t * self.widths["gradient_bytes_per_element"]
            )
            shares.append(self.share("pp", Kind.ALL_REDUCE, what, ranks=p, calls=half, size=full, to=ENDS))
        return shares

    def experts(self) -> list[Share]:
        n = self.axes["ep"]
        if not self.shape.is_sparse or not np.any(n > 1):
            return []
        calls = {"sparse": self.m * (self.forward + self.training)}
        return [
            self.share(
                "ep", Kind.ALL_TO_ALL, what, ranks=n, calls=calls, size=self.routed_bytes * self.widths[width]
            )
            for what, width in (
                ("tokens to their experts", "dispatch_bytes_per_element"),
                ("results back", "combine_bytes_per_element"),
            )
        ]

    def expert_tensor(self, *, regather: bool) -> list[Share]:
        n, sp, m = self.axes["etp"], self.more["sp"], self.m
        if not self.shape.is_sparse or not np.any(n > 1):
            return []
        blocks, both = self.experts_are_blocks, self.forward + self.training
        again = both + self.training * regather
        x = self.hidden_bytes
        arrived = n * self.routed_bytes * self.shape.bytes_per_element
        shares = []
        if np.any(blocks * (1 - sp) > 0):
            whole = {"sparse": m * both * blocks * (1 - sp)}
            shares.append(
                self.share("etp", Kind.ALL_REDUCE, "outputs of the experts", ranks=n, calls=whole, size=x)
            )
        for kind, what, times in (
            (Kind.ALL_GATHER, "inputs of the experts", again),
            (Kind.REDUCE_SCATTER, "outputs of the experts", both),
        ):
            like_a_block, routed = m * times * blocks * sp, m * both * (1 - blocks)
            calls = {"sparse": like_a_block + routed}
            full = {"sparse": like_a_block * x + routed * arrived}
            shares.append(self.share("etp", kind, what, ranks=n, calls=calls, full=full))
        return shares

    def data(self, *, reshard: bool) -> list[Share]:
        shape, t = self.shape, self.axes["tp"]
        stage = self.axes["dp"] * t * self.axes["cp"]
        copies = np.maximum(stage / (self.axes["ep"] * self.axes["etp"]), 1)
        table = parameters.table_parameters(shape) / t
        needs_output = (self.axes["pp"] > 1) | (not shape.tied_embeddings)
        dense = {  # a rank's parameters as in `model_states.rank_parameters`, by what a stage has
            "layer": attention_of_rank(shape, t) + parameters.norm_parameters(shape),
            "dense": parameters.feed_forward_parameters(shape) / t,
            "sparse": parameters.shared_expert_parameters(shape) / t + parameters.router_parameters(shape),
            "first": table + shape.positions * shape.hidden_size,
            "last": needs_output * table + shape.hidden_size,
        }
        shares = self._replicas("dp", self.axes["dp"] * self.axes["cp"], dense, reshard=reshard)
        if shape.experts:
            held = shape.experts.routed * parameters.expert_parameters(shape)
            sparse = {"sparse": held / (self.axes["ep"] * self.axes["etp"])}
            shares += self._replicas("edp", copies, sparse, reshard=reshard)
        return shares

    def _replicas(self, axis: str, n: Floats, held: Mapping[str, Floats], *, reshard: bool) -> list[Share]:
        zero, m = self.more["zero"], self.m
        plain, updated, sliced = floats(zero == 0), floats((zero == 1) | (zero == 2)), floats(zero >= 3)
        layers = "sparse" if axis == "edp" else "layer"
        if not np.any(n > 1) or not (self.training or np.any(sliced > 0)):
            return []
        g, w = self.widths["gradient_bytes_per_element"], self.widths["weight_bytes_per_element"]
        gathers = (1.0 + reshard) * m if self.training else floats(1)

        def share(kind: Kind, what: str, once: Floats, each: Floats, width: Floats) -> Share:
            return self.share(
                axis,
                kind,
                what,
                ranks=n,
                calls={"stage": once, layers: each},
                full={name: (once + each) * amount * width for name, amount in held.items()},
            )

        nothing, shares = floats(0), list[Share]()
        if self.training and np.any(plain > 0):
            shares.append(share(Kind.ALL_REDUCE, "gradients", plain, nothing, g))
        if np.any(plain < 1):
            if self.training:
                shares.append(share(Kind.REDUCE_SCATTER, "gradients", updated, sliced * m, g))
            weights = updated if self.training else nothing
            shares.append(share(Kind.ALL_GATHER, "weights", weights, sliced * gathers, w))
        return shares


def _candidates(shape: ModelShape, layouts: Layouts) -> tuple[Has, ...]:
    """Stages among which the busiest one always is: at either end, next to an end, and where experts begin."""
    p = floats(layouts.pp)
    last = p - 1
    fullest = fullest_stages(shape, pp=p, vpp=layouts.vpp)
    stages = [*fullest, np.minimum(1, last), np.maximum(last - 1, 0)]
    if p.ndim == 0:
        stages = [floats(stage) for stage in sorted({floats(stage).item() for stage in stages})]
    return tuple(_has(shape, layouts, stage) for stage in stages)


def _has(shape: ModelShape, layouts: Layouts, stage: Floats) -> Has:
    p, v = floats(layouts.pp), floats(layouts.vpp)
    dense, sparse = layers_of_stage(shape, stage, pp=p, vpp=v)
    first, last, several = floats(stage == 0), floats(stage == p - 1), p > 1
    return Has(
        dense=dense,
        sparse=sparse,
        first=first,
        last=last,
        stage=floats(1),
        forward=(v - last) * several,
        backward=(v - first) * several,
    )


def _sum(values: Iterable[Floats]) -> Floats:
    total = floats(0.0)
    for value in values:
        total = total + value
    return total
