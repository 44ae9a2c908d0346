"""The planner again, slowly: one layout at a time in plain Python, with its own rules and formulas.

Nothing here comes from `calculators.predict` but the descriptions of a model and a cluster: what a rule says, what a
rank holds and what a step waits for is written again from the papers, so that the fast planner has something to be
wrong against. No arrays, no closed form where a loop says the same: stages, layers, matrices and members of a group are
walked one by one.

    Korthikanti 2022   arXiv 2205.05198: activations, sequence parallelism, recomputation
    Narayanan 2021     arXiv 2104.04473: pipeline schedules, tensor parallelism
    ZeRO               arXiv 1910.02054: model states
    DeepSeek-V2        arXiv 2405.04434: latent attention
    Megatron-LM        transformer_config.py, parallel_state.py, schedules.py, arguments.py: the rules
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, sqrt
from typing import NamedTuple

from calculators.predict.clusters import Cluster
from calculators.predict.shapes import ModelShape, Recompute


class Split(NamedTuple):
    """One layout, its axes in the planner's order."""

    dp: int
    tp: int
    cp: int
    pp: int
    ep: int
    etp: int
    sp: bool
    vpp: int
    micro_batch: int
    zero: int
    recompute: int

    @property
    def expert_dp(self) -> int:
        """Replicas of an expert among the devices of a stage."""
        return self.dp * self.tp * self.cp // (self.ep * self.etp)


@dataclass(frozen=True, kw_only=True)
class Work:
    """What is to be done, and what a device reaches of its data sheet.

    weight, gradient, state   bytes of a parameter, its gradient and the optimizer's memory of it
    exchanged                 bytes of a gradient on its way between replicas
    matmul, bandwidth         the two fitted shares
    """

    shape: ModelShape
    cluster: Cluster
    tokens: int
    batch: int
    training: bool
    uneven_stages: bool
    weight: float
    gradient: float
    state: float
    exchanged: float
    matmul: float
    bandwidth: float

    @property
    def flops(self) -> float:
        """Operations that a device reaches in a second."""
        return self.matmul * self.cluster.device.flops_per_second

    @property
    def memory_speed(self) -> float:
        """Bytes that its memory gives in a second."""
        return self.bandwidth * self.cluster.device.memory_bytes_per_second

    @property
    def outputs(self) -> float:
        """Outputs of a matrix product that it works on at once: an A100's 108 × 128 × 256, fewer on slower memory."""
        return 108 * 128 * 256 * min(1.0, self.cluster.device.memory_bytes_per_second / 2.039e12)

    def micro_batches(self, split: Split) -> float:
        """Of one replica in a step."""
        return self.batch / (split.dp * split.micro_batch)


Row = dict[str, float]


def plan(work: Work, space: Mapping[str, Sequence[int]]) -> list[tuple[Split, Row]]:
    """Every legal layout with what it takes, the best first: by time, then memory, then how little is split."""
    rows = [(split, evaluate(work, split)) for split in legal_splits(work, space)]
    return sorted(rows, key=lambda found: order(*found))


def order(split: Split, row: Row) -> tuple[object, ...]:
    """What comes first. Times and memories that agree to ten digits are the same: sums round differently."""
    parts = split.tp * split.cp * split.pp * split.ep * split.etp * split.vpp
    time, memory = float(f"{row['step_seconds']:.9e}"), float(f"{row['memory_bytes']:.9e}")
    return time, memory, parts, *reversed(split)


def evaluate(work: Work, split: Split) -> Row:
    """Every column of the planner but the axes."""
    memory = training_memory(work, split) if work.training else serving_memory(work, split)
    time = training_time(work, split) if work.training else decode_time(work, split)
    step = sum(time.values())
    return {
        "micro_batches": work.micro_batches(split) if work.training else 1,
        **{f"{name}_bytes": value for name, value in memory.items()},
        "memory_bytes": sum(memory.values()),
        **{f"{name}_seconds": value for name, value in time.items()},
        "step_seconds": step,
        "tokens_per_second": work.batch * (work.tokens if work.training else 1) / step,
    }


# --- Which layouts are legal ----------------------------------------------------------------------------------------


def legal_splits(work: Work, space: Mapping[str, Sequence[int]]) -> Iterator[Split]:
    """Every combination of the axes that uses all devices and breaks no rule."""
    devices = work.cluster.devices
    for tp in space["tp"]:
        for cp in space["cp"]:
            for pp in space["pp"]:
                if devices % (tp * cp * pp):  # R13: whole replicas of the model
                    continue
                for ep in space["ep"]:
                    for etp in space["etp"]:
                        sizes = (devices // (tp * cp * pp), tp, cp, pp, ep, etp)
                        if sizes_are_legal(work, *sizes):
                            yield from _with_the_rest(work, space, sizes)


def _with_the_rest(work: Work, space: Mapping[str, Sequence[int]], sizes: tuple[int, ...]) -> Iterator[Split]:
    for sp in space["sp"]:
        for vpp in space["vpp"]:
            for micro_batch in space["micro_batch"]:
                split = Split(*sizes, bool(sp), vpp, micro_batch, 0, 0)
                if rest_is_legal(work, split):
                    for zero in space["zero"]:
                        for recompute in space["recompute"]:
                            yield split._replace(zero=zero, recompute=recompute)


def sizes_are_legal(work: Work, dp: int, tp: int, cp: int, pp: int, ep: int, etp: int) -> bool:
    """The rules about sizes of groups alone, for Megatron-LM without quantised blocks and with a ring for cp.

    R3, R10, R12 and R15 are about other programs, R16 to R18 are advice and notes.
    """
    shape = work.shape
    if shape.attention_heads % tp:  # R1
        return False
    if shape.latent is None and shape.kv_heads % tp and tp % shape.kv_heads:  # R2; a latent vector is whole
        return False
    if (work.uneven_stages and pp > shape.layers) or (not work.uneven_stages and shape.layers % pp):  # R4
        return False
    if shape.experts is None and (ep > 1 or etp > 1):  # R11
        return False
    if shape.experts is not None and shape.experts.routed % ep:  # R11
        return False
    stage = dp * tp * cp
    return stage >= ep * etp and stage % (ep * etp) == 0  # R14 and R13: whole replicas of the experts


def rest_is_legal(work: Work, split: Split) -> bool:
    """The rules about what comes beside the sizes."""
    shape, tokens = work.shape, work.tokens
    if split.vpp > 1:  # R5
        chunks = split.pp * split.vpp
        if split.pp == 1 or (chunks > shape.layers if work.uneven_stages else shape.layers % chunks):
            return False
    if split.sp and (split.tp == 1 or tokens % split.tp):  # R7
        return False
    if work.training and split.tp > 1 and split.ep > 1 and not split.sp:  # R8
        return False
    if split.cp > 1 and tokens % (2 * split.cp * (split.tp if split.sp else 1)):  # R9
        return False
    if not work.training:
        return True
    if work.batch % (split.dp * split.micro_batch):  # R19
        return False
    of_a_replica = work.batch // (split.dp * split.micro_batch)
    # R6: groups of pp micro-batches; what is left over must fill the pipeline, and less than pp never does
    return split.vpp == 1 or (of_a_replica >= split.pp and of_a_replica % split.pp == 0)


# --- The model, layer by layer --------------------------------------------------------------------------------------


def layer_has_experts(shape: ModelShape) -> list[bool]:
    """Of each layer in order."""
    if shape.experts is None:
        return [False] * shape.layers
    return [layer >= shape.experts.dense_layers for layer in range(shape.layers)]


def layer_looks_back(shape: ModelShape, tokens: float) -> list[float]:
    """How many of `tokens` each layer looks back on at most; windowed layers first, for their order changes nothing."""
    if shape.window is None:
        return [tokens] * shape.layers
    return [
        min(tokens, shape.window.tokens) if layer < shape.window.layers else tokens
        for layer in range(shape.layers)
    ]


def stage_layers(shape: ModelShape, stage: int, *, pp: int, vpp: int) -> list[int]:
    """Numbers of the layers of a stage: chunk c is on stage c modulo pp; the first chunks have what is left over."""
    found, start = [], 0
    for chunk in range(pp * vpp):
        length = shape.layers // (pp * vpp) + (chunk < shape.layers % (pp * vpp))
        if chunk % pp == stage:
            found += range(start, start + length)
        start += length
    return found


class Matrix(NamedTuple):
    """A matrix with weights, and how tensor parallelism cuts it: its columns, its rows, key-value heads, or not."""

    rows: int
    columns: int
    cut: str


def attention_matrices(shape: ModelShape) -> list[Matrix]:
    """Projections of one layer (DeepSeek-V2 §2.1 for latent attention)."""
    h, heads, width, latent = shape.hidden_size, shape.attention_heads, shape.head_dim, shape.latent
    if latent is None:
        return [
            Matrix(h, heads * width, "columns"),
            Matrix(h, shape.kv_heads * width, "kv"),
            Matrix(h, shape.kv_heads * width, "kv"),
            Matrix(heads * width, h, "rows"),
        ]
    queries = heads * (width + latent.rope_dim)
    if latent.query_rank:
        first = [Matrix(h, latent.query_rank, ""), Matrix(latent.query_rank, queries, "columns")]
    else:
        first = [Matrix(h, queries, "columns")]
    return [
        *first,
        Matrix(h, latent.kv_rank + latent.rope_dim, ""),
        Matrix(latent.kv_rank, heads * (width + latent.value_dim), "columns"),
        Matrix(heads * latent.value_dim, h, "rows"),
    ]


def block_matrices(shape: ModelShape, width: int) -> list[Matrix]:
    """A feed-forward block of this inner width: up, with a gate beside it or not, and down."""
    up = [Matrix(shape.hidden_size, width, "columns")] * (2 if shape.gated else 1)
    return [*up, Matrix(width, shape.hidden_size, "rows")] if width else []


def parameters_of(matrices: list[Matrix]) -> int:
    """All of their weights."""
    return sum(matrix.rows * matrix.columns for matrix in matrices)


def held_of(shape: ModelShape, matrices: list[Matrix], tp: int) -> float:
    """Weights that each of tp ranks holds. Key and value heads are repeated where there are fewer than ranks."""
    total = 0.0
    for matrix in matrices:
        ways = {"": 1, "kv": min(tp, shape.kv_heads)}.get(matrix.cut, tp)
        total += matrix.rows * matrix.columns / ways
    return total


# --- Memory ---------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=10_000)
def layer_parameters(shape: ModelShape, sparse: bool, tp: int, ways: int) -> tuple[float, float]:
    """Of one layer on one rank: what all have, and routed experts, which `ways` ranks share."""
    h = shape.hidden_size
    rest = held_of(shape, attention_matrices(shape), tp) + 2 * h  # and two norms, whole
    if not sparse or shape.experts is None:
        return rest + held_of(shape, block_matrices(shape, shape.ffn_width), tp), 0.0
    experts = shape.experts
    rest += h * experts.routed  # the router, whole
    rest += held_of(shape, block_matrices(shape, experts.shared_width), tp)
    return rest, experts.routed * parameters_of(block_matrices(shape, experts.width)) / ways


def stage_parameters(shape: ModelShape, split: Split, stage: int) -> tuple[float, float]:
    """Of a stage on one rank: what all have, and routed experts."""
    h, sparse = shape.hidden_size, layer_has_experts(shape)
    rest = experts = 0.0
    for layer in stage_layers(shape, stage, pp=split.pp, vpp=split.vpp):
        of_layer = layer_parameters(shape, sparse[layer], split.tp, split.ep * split.etp)
        rest, experts = rest + of_layer[0], experts + of_layer[1]
    if stage == 0:
        rest += shape.vocab_size * h / split.tp + shape.positions * h
    if stage == split.pp - 1:
        rest += h  # the last norm
        if (
            not shape.tied_embeddings or split.pp > 1
        ):  # tied: the last stage has a copy unless it is the first
            rest += shape.vocab_size * h / split.tp
    return rest, experts


def kept_of_layer(shape: ModelShape, split: Split, sparse: bool, tokens: int, recompute: int) -> float:
    """Bytes that a layer keeps of each token on one rank: the tensors of Korthikanti 2022 table 2, one by one."""
    e, h, heads, width, t = (
        shape.bytes_per_element,
        shape.hidden_size,
        shape.attention_heads,
        shape.head_dim,
        split.tp,
    )
    share = 1 / t if split.sp else 1.0  # of what tensor parallelism does not cut
    if recompute == Recompute.FULL:
        return e * h * share
    has_masks = not shape.gated
    kept = 4 * e * h * share  # inputs of two norms, of attention and of the feed-forward block
    kept += 2 * h * share * has_masks  # masks of the dropout behind both, a byte an element
    if shape.latent is None:
        kept += e * heads * width / t  # queries
        kept += 2 * e * shape.kv_heads * width / min(t, shape.kv_heads)  # keys and values
        kept += e * heads * width / t  # what the heads give
    else:
        latent = shape.latent
        for compressed in (
            latent.query_rank,
            latent.query_rank,
            latent.kv_rank,
            latent.kv_rank,
            latent.rope_dim,
        ):
            kept += e * compressed * share
        for of_a_head in (width + latent.rope_dim,) * 2 + (latent.value_dim,) * 2:
            kept += e * heads * of_a_head / t
    if recompute == Recompute.NONE:
        kept += (
            heads * tokens / t * (e + (1 + e) * has_masks)
        )  # softmax; its mask and what dropout leaves of it
    inside = 3 if shape.gated else 2
    if sparse and shape.experts is not None:
        experts = shape.experts
        kept += 4 * experts.routed * share  # probabilities in 32 bits
        copies = experts.per_token * split.etp / t  # of a token that a rank receives
        kept += copies * e * h
        kept += copies * inside * e * experts.width / split.etp
        return kept + inside * e * experts.shared_width / t
    return kept + inside * e * shape.ffn_width / t


def flying(split: Split, stage: int, micro_batches: float) -> float:
    """Micro-batches whose activations a stage keeps: 1F1B, or interleaved (Korthikanti 2022 §4.2.3)."""
    if split.vpp == 1:
        return min(micro_batches, split.pp - stage)
    chunks = (split.vpp - 1) * split.pp + 2 * (split.pp - stage) - 1
    return min(micro_batches, chunks / split.vpp)


def training_memory(work: Work, split: Split) -> Row:
    """Of the fullest stage, which is found by walking them all."""
    shape, sparse, t = work.shape, layer_has_experts(work.shape), split.tp
    tokens = split.micro_batch * work.tokens / split.cp
    share = 1 / t if split.sp else 1.0
    stages = []
    for stage in range(split.pp):
        rest, experts = stage_parameters(shape, split, stage)
        # ZeRO §5: stage 1 cuts the optimizer's state, 2 the gradients as well, 3 the weights as well
        cut = [(split.zero >= at) for at in (3, 2, 1)]
        states = [
            size
            * (rest / (split.dp * split.cp if is_cut else 1) + experts / (split.expert_dp if is_cut else 1))
            for size, is_cut in zip((work.weight, work.gradient, work.state), cut, strict=True)
        ]
        kept = 0.0
        for layer in stage_layers(shape, stage, pp=split.pp, vpp=split.vpp):
            kept += kept_of_layer(shape, split, sparse[layer], work.tokens, split.recompute)
        if stage == 0 and not shape.gated:
            kept += shape.hidden_size * share  # the mask behind the embedding
        activations = kept * tokens * flying(split, stage, work.micro_batches(split))
        if stage == split.pp - 1:  # inputs of the last norm and of the output matrix, logits in 32 bits
            ends = 2 * shape.bytes_per_element * shape.hidden_size * share + 4 * shape.vocab_size / t
            activations += ends * tokens
        stages.append((*states, activations))
    weights, gradients, optimizer, activations = max(stages, key=sum)
    working = 0.0
    if split.zero == 3 and split.dp * split.cp > 1:  # one layer, or the embedding, gathered whole
        units = [shape.vocab_size * shape.hidden_size / t]
        units += [sum(layer_parameters(shape, kind, t, split.ep * split.etp)) for kind in set(sparse)]
        working += (work.weight + work.gradient) * max(units)
    if split.recompute == Recompute.FULL:  # the layer that is computed again
        again = (kept_of_layer(shape, split, kind, work.tokens, Recompute.SELECTIVE) for kind in set(sparse))
        working += max(again) * tokens
    return {
        "weights": weights,
        "gradients": gradients,
        "optimizer": optimizer,
        "activations": activations,
        "kv_cache": 0.0,
        "working": working,
    }


def serving_memory(work: Work, split: Split) -> Row:
    """Of the fullest stage of a replica that decodes."""
    shape, t = work.shape, split.tp
    batch = ceil(work.batch / split.dp)
    windowed = shape.window.layers if shape.window else 0
    of_a_token = cached_elements(shape) * 2 / (1 if shape.latent else min(t, shape.kv_heads))
    widest = max(shape.hidden_size, shape.ffn_width, shape.attention_heads * shape.head_dim)
    stages = []
    for stage in range(split.pp):
        weights = shape.bytes_per_element * sum(stage_parameters(shape, split, stage))
        layers = len(stage_layers(shape, stage, pp=split.pp, vpp=1))
        # layers that look at everything are dealt evenly to the stages, and the fullest gets what is left over
        whole = min(ceil((shape.layers - windowed) / split.pp), layers)
        window = min(work.tokens, shape.window.tokens) if shape.window else 0
        kept_tokens = (whole * work.tokens + (layers - whole) * window) / split.cp
        activations = batch * shape.bytes_per_element * (shape.hidden_size + widest / t)
        if stage == split.pp - 1:
            ends = 2 * shape.bytes_per_element * shape.hidden_size + 4 * shape.vocab_size / t
            activations += batch * ends
        stages.append((weights, activations, kept_tokens * batch * of_a_token))
    weights, activations, kv_cache = max(stages, key=sum)
    return {
        "weights": weights,
        "gradients": 0.0,
        "optimizer": 0.0,
        "activations": activations,
        "kv_cache": kv_cache,
        "working": 0.0,
    }


def cached_elements(shape: ModelShape) -> int:
    """Of one token in one layer."""
    if shape.latent:
        return shape.latent.kv_rank + shape.latent.rope_dim
    return 2 * shape.kv_heads * shape.head_dim


# --- Links: a group walks over the tiers that it crosses ------------------------------------------------------------


@lru_cache(maxsize=100_000)
def members_within(block: int, devices: int, members: int, step: int) -> int:
    """Members that every group has in each block it touches; 1 where that differs from block to block.

    Ranks `step` apart form a group of so many (Megatron-LM parallel_state.py, order tp-cp-ep-dp-pp).
    """
    found = set()
    for first in range(devices):
        if first // step % members == 0:
            blocks = [(first + index * step) // block for index in range(members)]
            found |= {blocks.count(each) for each in blocks}
    return found.pop() if len(found) == 1 else 1


@dataclass(frozen=True, kw_only=True)
class Crossing:
    """One tier that a group crosses: members joined before it and with it, its speed and its latency."""

    before: int
    within: int
    speed: float
    latency: float


def crossings(work: Work, members: int, step: int) -> list[Crossing]:
    """The tiers from the inside out."""
    found, joined = [], 1
    for tier in work.cluster.tiers:
        last = tier is work.cluster.tiers[-1]
        within = members if last else members_within(tier.devices, work.cluster.devices, members, step)
        within = max(within, joined)
        found.append(
            Crossing(
                before=joined,
                within=within,
                speed=work.bandwidth * tier.link.bytes_per_second,
                latency=tier.link.latency_seconds,
            )
        )
        joined = within
    return found


def ring(work: Work, members: int, step: int, size: float, *, calls: float = 1) -> float:
    """Gathering or scattering `size` bytes in so many calls, tier by tier: each member carries its share outwards."""
    seconds, carried = 0.0, size
    for crossing in crossings(work, members, step):
        ways = crossing.within / crossing.before
        seconds += calls * (ways - 1) * crossing.latency + (ways - 1) / ways * carried / crossing.speed
        carried /= ways
    return seconds


def everybody_to_everybody(work: Work, members: int, step: int, size: float) -> float:
    """All-to-all: an equal part of `size` bytes straight to each member, over the tier where it sits."""
    seconds = 0.0
    for crossing in crossings(work, members, step):
        beyond = crossing.within - crossing.before
        if beyond:
            seconds += crossing.latency + beyond * size / members / crossing.speed
    return seconds


def outermost(work: Work, members: int, step: int, *, rounds: float, size: float) -> float:
    """Rounds and bytes over the innermost tier that holds every such group whole."""
    for tier in work.cluster.tiers:
        whole = members_within(tier.devices, work.cluster.devices, members, step) == members
        if whole or tier is work.cluster.tiers[-1]:
            speed = work.bandwidth * tier.link.bytes_per_second
            return rounds * tier.link.latency_seconds + size / speed
    raise AssertionError


# --- Time of a training step ----------------------------------------------------------------------------------------


# Bytes that element-wise operations read and write, 2 an element and 4 where noted (Megatron Core with fused kernels).
NORM, SUM = 2 + 2, 4 + 2  # a norm; adding at the residual
BESIDE = (2 * (NORM + SUM), 2 * ((4 + 2) + SUM))  # forward; back, where a norm reads two
PROJECTED = (2 + 2, 2 + 2)  # rotary positions
INNER = (4 + 2, 6 + 4)  # the gated activation
PERMUTED = 8  # into the experts' order and back
# to 32 bits, maximum, difference, exponential, sum, quotient; back: difference, to 16 bits
LOGITS = (2 + 4) + 4 + (4 + 4) + (4 + 4) + 4 + (4 + 4) + (4 + 4) + (4 + 2)
# norm of the gradient, clipped, Adam, to 16 bits, zeroed
UPDATE = 4 + (4 + 4) + (16 + 12) + (4 + 2) + 4
TAKEN = 24 / 108  # of a device's units, by a collective beside a matrix product: NCCL's 24 channels


class Seconds(NamedTuple):
    """Of matrix products: forward, back to their inputs, back to their weights."""

    forward: float
    to_inputs: float
    to_weights: float

    def plus(self, other: Seconds) -> Seconds:
        """Both, one after the other."""
        return Seconds(*(mine + its for mine, its in zip(self, other, strict=True)))


NOTHING = Seconds(0, 0, 0)


def product(work: Work, rows: float, inner: float, outer: float, *, experts: float = 1) -> Seconds:
    """`rows` × inner by inner × outer; `experts` have such a matrix and share the rows.

    A square of `outputs` is worked on at once: a step along its inner side fetches 2·√outputs operands. At the end half
    a square idles.
    """

    def one(inner: float, rows_of_square: float) -> float:
        """All outputs; `inner` is the side that is summed over."""
        arithmetic = 2 * rows * weights / work.flops
        fetched = 2 * rows * weights / sqrt(work.outputs)
        memory = 2 * max(fetched, experts * weights) / work.memory_speed
        return arithmetic + memory + min(work.outputs * inner / work.flops, arithmetic) + rows_of_square

    weights = inner * outer
    written = 2 * rows / work.memory_speed
    return Seconds(one(inner, written * outer), one(outer, written * inner), one(rows, 0))


def products(work: Work, matrices: list[Matrix], rows: float, ways: int, *, experts: float = 1) -> Seconds:
    """One after another; those that read the same input as one: query, key and value; gate and up projection."""
    total = NOTHING
    for joined in joined_by_input(matrices):
        inner = joined[0].rows / (ways if joined[0].cut == "rows" else 1)
        outer = sum(matrix.columns for matrix in joined) / (1 if joined[0].cut in ("rows", "") else ways)
        total = total.plus(product(work, rows, inner, outer, experts=experts))
    return total


def joined_by_input(matrices: list[Matrix]) -> list[list[Matrix]]:
    """Neighbours with the same input and cut by columns: one product."""
    joined: list[list[Matrix]] = []
    for matrix in matrices:
        sliced = matrix.cut in ("columns", "kv")
        if joined and sliced and joined[-1][0].rows == matrix.rows and joined[-1][0].cut in ("columns", "kv"):
            joined[-1].append(matrix)
        else:
            joined.append([matrix])
    return joined


class LayerSeconds(NamedTuple):
    """Of one layer and micro-batch; `halves` are gathers of a hidden state that its blocks end in, one way."""

    products: Seconds
    forward: float
    backward: float
    halves: int
    expert: float


def layer_seconds(work: Work, split: Split, sparse: bool, rows: float) -> LayerSeconds:
    """Matrix products and what is moved between them. Attention itself is apart."""
    shape, t = work.shape, split.tp
    found = products(work, attention_matrices(shape), rows, t)
    inner, routed, halves, expert = float(shape.ffn_width), 0.0, 2, 0.0
    if sparse and shape.experts is not None:
        experts = shape.experts
        copies = rows / t * experts.per_token * split.etp
        held = experts.routed / split.ep
        chosen = products(work, block_matrices(shape, experts.width), copies, split.etp, experts=held)
        shared = products(work, block_matrices(shape, experts.shared_width), rows, t)
        found = found.plus(chosen).plus(shared)
        inner = experts.per_token * experts.width + experts.shared_width
        routed = experts.per_token * shape.hidden_size * PERMUTED
        halves = 2 if experts.shared_width and sent_out(split) else 1
        expert = expert_exchange(work, split, rows)
    else:
        found = found.plus(products(work, block_matrices(shape, shape.ffn_width), rows, t))
    moved = []
    for way in (0, 1):
        cut = PROJECTED[way] * projected_width(shape) + INNER[way] * inner + routed
        beside = BESIDE[way] * shape.hidden_size / (t if split.sp else 1)
        moved.append(rows * (cut / t + beside) / work.memory_speed)
    return LayerSeconds(
        products=found,
        forward=found.forward + moved[0],
        backward=found.to_inputs + found.to_weights + moved[1],
        halves=halves,
        expert=expert,
    )


def projected_width(shape: ModelShape) -> int:
    """Elements of a token's queries, keys and values."""
    if shape.latent is None:
        return (shape.attention_heads + 2 * shape.kv_heads) * shape.head_dim
    key = shape.head_dim + shape.latent.rope_dim
    return shape.attention_heads * (key + key + shape.latent.value_dim)


def looked_up_width(shape: ModelShape) -> int:
    """Elements of all heads' keys and values, which a query multiplies."""
    if shape.latent is None:
        return shape.attention_heads * (shape.head_dim + shape.head_dim)
    key = shape.head_dim + shape.latent.rope_dim
    return shape.attention_heads * (key + shape.latent.value_dim)


def attention_seconds(work: Work, split: Split, rows: float) -> tuple[float, float]:
    """The fused kernel, forward and back, the mean of all layers (FlashAttention; FlashAttention-3 §2.3)."""
    shape, s = work.shape, work.tokens
    forward = backward = 0.0
    for reach in layer_looks_back(shape, s):
        looked_at = reach - reach**2 / (2 * s)  # on average: the first `reach` tokens look at fewer
        pairs = rows * looked_at / split.tp
        work_of_scores = 2 * pairs * looked_up_width(shape)
        fetched = 2 * work_of_scores / sqrt(work.outputs)
        multiplied = work_of_scores / work.flops + fetched / work.memory_speed
        exponentials = pairs * shape.attention_heads * 256 / work.flops  # as long as 256 operations each
        forward += multiplied + exponentials
        backward += 2.5 * multiplied + exponentials  # five products where forward has two
    return forward / shape.layers, backward / shape.layers


def sent_out(split: Split) -> bool:
    """Whether tokens are sent to experts; those that exactly a tensor-parallel group shares are a block of its own."""
    return split.ep > 1 or split.etp != split.tp


def expert_exchange(work: Work, split: Split, rows: float) -> float:
    """One pass of one layer: there and back, and for sliced experts a gather before and a scatter after them."""
    shape = work.shape
    if shape.experts is None:
        return 0.0
    if not sent_out(split):
        return 2 * ring(work, split.etp, 1, rows * shape.hidden_size * shape.bytes_per_element)
    sent = rows / split.tp * shape.experts.per_token * shape.hidden_size * shape.bytes_per_element
    there = everybody_to_everybody(work, split.ep, split.etp, sent)
    return 2 * (there + ring(work, split.etp, 1, sent * split.etp))


def left_of(exchange: float, beside: float) -> float:
    """What an exchange costs beside matrix products: units that it takes from them, or all that outlasts them."""
    return max(TAKEN * exchange, exchange - (1 - TAKEN) * beside)


def training_time(work: Work, split: Split) -> Row:
    """By 1F1B or interleaved (Narayanan 2021 §2.2), for Megatron Core; nothing in it that hides behind other work."""
    shape, t, p, v = work.shape, split.tp, split.pp, split.vpp
    h, e, layers = shape.hidden_size, shape.bytes_per_element, shape.layers
    rows = split.micro_batch * work.tokens / split.cp
    m = work.micro_batches(split)
    # Selective recomputation repeats what a fused kernel repeats anyway: nothing more.
    full = split.recompute == Recompute.FULL

    # The mean layer
    by_kind = {kind: layer_seconds(work, split, kind, rows) for kind in set(layer_has_experts(shape))}
    walked = [by_kind[kind] for kind in layer_has_experts(shape)]
    core_forward, core_backward = attention_seconds(work, split, rows)
    matrices = NOTHING
    forward, backward, halves, exchange = core_forward, core_backward, 0.0, 0.0
    for layer in walked:
        matrices = matrices.plus(Seconds(*(part / layers for part in layer.products)))
        forward += layer.forward / layers
        backward += layer.backward / layers
        halves += layer.halves / layers
        exchange += layer.expert / layers

    # Tensor parallelism: every block all-reduces, as a scatter and a gather (Narayanan 2021 §3.2, Korthikanti §4.2.2)
    half = ring(work, t, 1, rows * h * e)
    tensor = 2 * halves * half * (2 if full else 1)
    if not split.sp and sent_out(split):  # each rank sent a part of the tokens: all gather what came back
        tensor += sum(layer_has_experts(shape)) / layers * half * (3 if full else 2)
    if split.sp:  # back: a scatter, a gather beside the inputs' product, the saved input gathered again
        tensor += halves * half
        tensor += left_of(halves * half, matrices.to_weights) + left_of(halves * half, matrices.to_inputs)
    else:
        tensor += left_of(2 * halves * half, matrices.to_weights)

    # Context parallelism: keys and values around a ring behind attention; back they and their gradients
    if shape.latent is None:
        width = 2 * shape.kv_heads * shape.head_dim / min(t, shape.kv_heads)
    else:
        width = looked_up_width(shape) / t
    once = ring(work, split.cp, t, split.micro_batch * work.tokens * width * e)
    context = left_of(once, core_forward) * (2 if full else 1) + left_of(2 * once, core_backward)

    expert = exchange * (3 if full else 2)
    if split.sp and not sent_out(split):
        expert += exchange / 2  # inputs of the block gathered again
    again = forward if full else 0.0
    turn = forward + backward + again + tensor + context + expert
    deepest = max(len(stage_layers(shape, stage, pp=p, vpp=v)) for stage in range(p))

    # The last stage's logits; where layers do not divide it has one layer less
    end = sum(product(work, rows, h, shape.vocab_size / t))
    end += rows * LOGITS * shape.vocab_size / t / work.memory_speed
    if layers % p:
        end -= sum(matrices)

    pipeline = 0.0
    if p > 1:
        size = rows * h * e / (t if split.sp else 1)
        hop = outermost(work, p, split.dp * t * split.cp, rounds=1, size=size)
        seen = m if v == 1 else 0  # sends between chunks run beside other chunks
        pipeline = 2 * hop * (seen + p - 1)

    common, experts = timed_parameters(work, split, deepest)
    return {
        "compute": m * (deepest * (forward + backward) + max(end, 0.0)),
        "recompute": m * deepest * again,
        "tensor": m * deepest * tensor,
        "context": m * deepest * context,
        "expert": m * deepest * expert,
        "pipeline": pipeline,
        "bubble": (p - 1) / v * layers / p * turn,
        "data": data_time(work, split, common, experts, deepest, matrices) + tied_time(work, split),
        "optimizer": update_time(work, split, common, experts),
    }


def timed_parameters(work: Work, split: Split, deepest: int) -> tuple[float, float]:
    """What a device of the first stage exchanges and updates: common, and experts' parts.

    As many mean layers as the deepest stage has.
    """
    shape, h = work.shape, work.shape.hidden_size
    common = experts = 0.0
    for sparse in layer_has_experts(shape):
        of_layer = layer_parameters(shape, sparse, split.tp, split.ep * split.etp)
        common, experts = common + of_layer[0], experts + of_layer[1]
    ends = shape.vocab_size * h / split.tp + shape.positions * h
    if split.pp == 1:
        ends += h + (0 if shape.tied_embeddings else shape.vocab_size * h / split.tp)
    return common * deepest / shape.layers + ends, experts * deepest / shape.layers


def data_time(
    work: Work, split: Split, common: float, experts: float, deepest: int, matrices: Seconds
) -> float:
    """Gradients and sharded weights, a call for each layer, as far as they outlast the passes that they run beside.

    ZeRO §7: with stages 0 to 2 2Ψ in a step, with 3 weights twice as well. At least one layer's calls are seen.
    """

    def calls(bytes_each: float) -> float:
        seconds = ring(work, split.dp * split.cp, split.tp, common * bytes_each, calls=deepest)
        if work.shape.experts is not None:
            step = split.etp * split.ep
            seconds += ring(work, split.expert_dp, step, experts * bytes_each, calls=deepest)
        return seconds

    gradients, weights = calls(work.exchanged), calls(work.shape.bytes_per_element)
    there, back = 0.0, 2 * gradients  # plain replicas all-reduce
    if split.zero > 0:
        there, back = weights, gradients
    if split.zero == 3:
        back += weights
    # A chunk's last backward pass is p micro-batches before the next chunk's.
    passes = deepest / split.vpp * (1 + (split.vpp - 1) * split.pp)
    there = max(there / deepest, left_of(there, passes * matrices.forward))
    back = max(back / deepest, left_of(back, passes * (matrices.to_inputs + matrices.to_weights)))
    return (there + back) * (work.micro_batches(split) if split.zero == 3 else 1)


def tied_time(work: Work, split: Split) -> float:
    """Gradients of an embedding that is the output matrix too: both ends of a pipeline add up theirs."""
    if not work.shape.tied_embeddings or split.pp == 1:
        return 0.0
    size = work.exchanged * work.shape.vocab_size * work.shape.hidden_size / split.tp
    return outermost(work, split.pp, split.dp * split.tp * split.cp, rounds=2, size=size)


def update_time(work: Work, split: Split, common: float, experts: float) -> float:
    """The optimizer reads and writes its slice."""
    if split.zero:
        common, experts = common / (split.dp * split.cp), experts / split.expert_dp
    return (common + experts) * UPDATE / work.memory_speed


# --- Time of a decode step ------------------------------------------------------------------------------------------


def decode_time(work: Work, split: Split) -> Row:
    """One more token for each sequence: its group's way through all stages (Pope 2022, arXiv 2211.05102)."""
    shape, t, p, cp, layers = work.shape, split.tp, split.pp, split.cp, work.shape.layers
    h, e = shape.hidden_size, shape.bytes_per_element
    batch = ceil(work.batch / split.dp)
    group = batch / min(p, batch)  # as many groups as stages
    sparse = sum(layer_has_experts(shape))
    looked_back = sum(layer_looks_back(shape, work.tokens))

    # Reading: weights of all layers, a tp-th of what is cut, of the experts those that are touched; and the cache
    read = float(h)  # the last norm
    multiplied = 0.0
    for has_experts in layer_has_experts(shape):
        attention = parameters_of(attention_matrices(shape))
        read += held_of(shape, attention_matrices(shape), t) + 2 * h
        multiplied += attention + 2 * h
        if has_experts and shape.experts is not None:
            one = parameters_of(block_matrices(shape, shape.experts.width))
            shared = parameters_of(block_matrices(shape, shape.experts.shared_width))
            router = h * shape.experts.routed
            read += shared / t + router + one * experts_touched(work, split, group) / split.etp
            multiplied += shared + router + shape.experts.per_token * one
        else:
            block = parameters_of(block_matrices(shape, shape.ffn_width))
            read += block / t
            multiplied += block
    read += shape.vocab_size * h / t
    multiplied += h + shape.vocab_size * h
    cached = looked_back * cached_elements(shape) / (1 if shape.latent else min(t, shape.kv_heads)) / cp
    reading = (read * e + group * cached * 2) / work.memory_speed
    arithmetic = 2 * multiplied + 2 * looked_up_width(shape) * looked_back / cp
    computing = group * arithmetic / t / work.flops

    # Exchanges: each takes a latency of the outermost link that it crosses, and a ring's bytes
    message = group * h * e

    def all_reduces(calls: float, ways: int) -> float:
        if ways == 1:
            return 0.0
        return outermost(work, ways, 1, rounds=calls, size=calls * 2 * (ways - 1) / ways * message)

    shared = sent_out(split) and shape.experts is not None and shape.experts.shared_width > 0
    tensor = all_reduces(2 * (layers - sparse) + sparse + shared * sparse, t)
    context = expert = pipeline = 0.0
    if t > 1 and sent_out(split):  # the experts' results, gathered
        tensor += outermost(work, t, 1, rounds=sparse, size=sparse * (t - 1) / t * message / cp)
    if cp > 1:
        of_a_head = shape.latent.value_dim if shape.latent else shape.head_dim
        result = group * shape.attention_heads * of_a_head / t * e
        sums = group * shape.attention_heads / t * 4 * (cp - 1)
        size = layers * (2 * (cp - 1) / cp * result + sums)
        context = outermost(work, cp, t, rounds=2 * layers, size=size)
        if sent_out(split):
            context += outermost(work, cp, t, rounds=sparse, size=sparse * (cp - 1) / cp * message)
    if shape.experts is not None:
        sent = message * shape.experts.per_token / (t * cp)
        if split.ep > 1:
            size = 2 * sparse * sent * (split.ep - 1) / split.ep
            expert = outermost(work, split.ep, split.etp, rounds=2 * sparse, size=size)
        if split.etp > 1 and sent_out(split):
            size = 2 * sparse * sent * (split.etp - 1)
            expert += outermost(work, split.etp, 1, rounds=2 * sparse, size=size)
        elif split.etp > 1:
            expert += all_reduces(sparse, split.etp)
    if p > 1:  # hidden states from stage to stage, then the ids of the tokens back to the first, 8 bytes each
        size = (p - 1) * message + 8 * group
        pipeline = outermost(work, p, split.dp * t * cp, rounds=p, size=size)
    return {
        "compute": max(reading, computing),
        "recompute": 0.0,
        "tensor": tensor,
        "context": context,
        "expert": expert,
        "pipeline": pipeline,
        "bubble": 0.0,
        "data": 0.0,
        "optimizer": 0.0,
    }


def experts_touched(work: Work, split: Split, group: float) -> float:
    """Of a layer's experts on the fullest rank: each token misses one with probability 1 − k/E."""
    experts = work.shape.experts
    if experts is None:
        return 0.0
    tokens = group * split.dp / max(1, split.expert_dp)  # of all replicas that share these experts
    touched = experts.routed * (1 - (1 - experts.per_token / experts.routed) ** tokens)
    return max(touched / split.ep, min(touched, 1.0))
