"""What a forward pass exchanges between devices, along the way of one group of sequences through the model.

Counted is what waits for one another: every all-reduce of a tensor-parallel group, every dispatch and combine of
experts, every send from stage to stage. What each rank sends in a phase, family by family, is in `traffic`.
"""

from __future__ import annotations

from dataclasses import dataclass

from numpy.typing import ArrayLike

from calculators.predict.arrays import Floats, check_broadcast, counts, floats, positive, products
from calculators.predict.collectives import (
    ALL_REDUCE_ALGORITHMS,
    all_gather_bytes,
    all_reduce_bytes,
    all_reduce_rounds,
    all_to_all_bytes,
)
from calculators.predict.shapes import Layouts, ModelShape, activation_bytes
from calculators.predict.traffic.context import LOG_SUM_BYTES
from calculators.predict.traffic.pipeline import TOKEN_ID_BYTES

Q80_BYTES_PER_ELEMENT = 34 / 32
"""distributed-llama's Q80 buffers: blocks of 32 numbers of one byte, and a 16-bit scale for each block."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Exchanges:
    """What a pass over all layers exchanges, the exchanges that wait for one another counted together, as arrays.

    Calls, the rounds in them, and their bytes [bytes], one after another:

    tensor_…    all-reduces of tensor-parallel groups, and gathering what experts gave
    context_…   parts of attention added up by ranks that share a sequence's cache, and gathering what experts gave
    expert_…    all-to-alls, dispatch and combine
    sliced_…    all-reduces of ranks that share each expert, or gathering copies and scattering their results
    pipeline_…  sends from stage to stage
    control_…   the token ids on their way from the last stage to the first
    """

    tensor_calls: Floats
    tensor_rounds: Floats
    tensor_bytes: Floats
    context_calls: Floats
    context_rounds: Floats
    context_bytes: Floats
    expert_calls: Floats
    expert_rounds: Floats
    expert_bytes: Floats
    sliced_calls: Floats
    sliced_rounds: Floats
    sliced_bytes: Floats
    pipeline_calls: Floats
    pipeline_rounds: Floats
    pipeline_bytes: Floats
    control_rounds: Floats
    control_bytes: Floats

    @property
    def calls(self) -> Floats:
        """Collectives and sends; the token ids' way back is not counted, as a textbook does not."""
        inside = self.tensor_calls + self.context_calls + self.expert_calls + self.sliced_calls
        return inside + self.pipeline_calls

    @property
    def rounds(self) -> Floats:
        """Latencies that are waited for, the token ids' way back included."""
        inside = self.tensor_rounds + self.context_rounds + self.expert_rounds + self.sliced_rounds
        return inside + self.pipeline_rounds + self.control_rounds

    @property
    def sent_bytes(self) -> Floats:
        """Bytes that cross one after another, the token ids included [bytes]."""
        inside = self.tensor_bytes + self.context_bytes + self.expert_bytes + self.sliced_bytes
        return inside + self.pipeline_bytes + self.control_bytes


def exchanges(
    shape: ModelShape,
    layouts: Layouts,
    *,
    batch: ArrayLike = 1,
    tokens: ArrayLike = 1,
    algorithm: str = "best",
    wire_bytes_per_element: ArrayLike | None = None,
    tensors_per_boundary: ArrayLike = 1,
) -> Exchanges:
    """What `batch` sequences with `tokens` in flight each (decode: 1) exchange on their way through the model.

    tensor    one all-reduce of b·s·h·e after attention and one after the feed-forward block of every layer, 2·L
    expert    a sparse layer has, in place of its second all-reduce, one among the ranks of a tensor-parallel group that
              share its experts (ep 1, etp = tp). Otherwise two all-to-alls of b·s/(tp·cp)·k·h·e: every rank sends its
              share of the tokens to k experts, wherever they are with equal likelihood; ranks that share an expert
              (etp) gather the copies before and scatter the results after it, and all ranks gather what experts gave.
              A shared expert is a block like any other
    context   of every layer's attention the normalisers gathered, b·s heads of 4 bytes from each rank, and the outputs
              added up: the cache is in slices (decode; prefill is in `traffic.context_parallel`)
    pipeline  p−1 sends of b·s·h·e, and the token ids back to the first stage (8 bytes a sequence)

    These are the calls that `traffic.composed` counts in decode, one after another.

    algorithm               of the all-reduce: "best" (one round and the ring's bytes, less than which no all-reduce
                            without a switch's help needs), "star" (distributed-llama: all to the root, and back), or
                            one of collectives.ALL_REDUCE_ALGORITHMS, with all of its rounds. Every other call is one
                            round: each rank sends to all others at once
    wire_bytes_per_element  where activations travel narrower than the model computes; None for the model's own
    tensors_per_boundary    1 in the textbook; vLLM hands over two, the hidden states and the residual

    Source: Narayanan 2021 §3.2 for the all-reduces; LLMKube issue 1423 and distributed-llama's pull request 64 for
    figures. Raises ValueError where a size is below 1 or the algorithm is unknown.

    >>> from calculators.predict.models.catalogue import MODELS
    >>> both = exchanges(MODELS["lesson"].shape, Layouts(tp=[2, 1], pp=[1, 2]))
    >>> both.calls.tolist(), both.sent_bytes.tolist(), both.rounds.tolist()
    ([128.0, 1.0], [1048576.0, 8200.0], [128.0, 2.0])
    """
    given = counts(batch=batch, tokens=tokens, tensors_per_boundary=tensors_per_boundary, **sizes(layouts))
    element = shape.bytes_per_element if wire_bytes_per_element is None else wire_bytes_per_element
    width = positive(wire_bytes_per_element=element)["wire_bytes_per_element"]
    check_broadcast({**given, "wire_bytes_per_element": width})
    b, s = given["batch"], given["tokens"]
    tp, pp, cp, ep, etp = (given[axis] for axis in ("tp", "pp", "cp", "ep", "etp"))
    message = activation_bytes(b, s, shape.hidden_size, width)

    experts, sparse = shape.experts, shape.sparse_layers
    sent_out = floats(
        (ep > 1) | (etp != tp)
    )  # tokens go to experts that more than a tensor-parallel group shares
    shared = sent_out * bool(experts and experts.shared_width)
    own = message * (experts.per_token if experts else 0) / (tp * cp)  # copies of one rank's tokens
    whole = (shape.layers + shape.dense_layers + sparse * shared) * (tp > 1)
    results = sparse * sent_out
    over_tp, over_cp = results * (tp > 1), results * (cp > 1)
    blocks, routed = sparse * (1 - sent_out) * (etp > 1), 2 * results * (etp > 1)
    pairs = floats(2 * sparse * (ep > 1))
    added = floats(shape.layers * (cp > 1))
    heads = shape.attention_heads / tp
    value = shape.latent.value_dim if shape.latent else shape.head_dim
    outputs = b * s * heads * value * width
    boundaries = given["tensors_per_boundary"] * (pp - 1)
    returns = floats(pp > 1)
    return Exchanges(
        tensor_calls=whole + over_tp,
        tensor_rounds=whole * _rounds(tp, algorithm) + over_tp,
        tensor_bytes=whole * _waited_bytes(message, tp, algorithm)
        + over_tp * all_gather_bytes(message / cp, tp),
        context_calls=2 * added + over_cp,
        context_rounds=added * (1 + _rounds(cp, algorithm)) + over_cp,
        context_bytes=added * all_gather_bytes(b * s * cp * heads * LOG_SUM_BYTES, cp)
        + added * _waited_bytes(outputs, cp, algorithm)
        + over_cp * all_gather_bytes(message, cp),
        expert_calls=pairs,
        expert_rounds=pairs,
        expert_bytes=pairs * all_to_all_bytes(own, ep),
        sliced_calls=blocks + routed,
        sliced_rounds=blocks * _rounds(etp, algorithm) + routed,
        sliced_bytes=blocks * _waited_bytes(message, etp, algorithm)
        + routed * all_gather_bytes(etp * own, etp),
        pipeline_calls=boundaries,
        pipeline_rounds=boundaries,
        pipeline_bytes=boundaries * message,
        control_rounds=returns,
        control_bytes=returns * TOKEN_ID_BYTES * b,
    )


def sizes(layouts: Layouts) -> dict[str, ArrayLike]:
    """The axes that a forward pass depends on, by name."""
    return {axis: getattr(layouts, axis) for axis in ("dp", "tp", "pp", "cp", "ep", "etp")}


def star_all_reduce_bytes(full_size: ArrayLike, ranks: ArrayLike) -> Floats:
    """Bytes that the root sends, and receives as many, when all ranks add through it: (n−1)·S (distributed-llama).

    >>> star_all_reduce_bytes(1_000, [1, 2, 4]).tolist()
    [0.0, 1000.0, 3000.0]
    """
    given = {**products(full_size=full_size), **counts(ranks=ranks)}
    check_broadcast(given)
    return given["full_size"] * (given["ranks"] - 1)


def expert_exchange_bytes(
    *,
    tokens: ArrayLike,
    destinations: ArrayLike,
    hidden_size: ArrayLike,
    dispatch_bytes_per_element: ArrayLike = 1,
    combine_bytes_per_element: ArrayLike = 2,
) -> Floats:
    """Bytes that one rank sends and gets back for one sparse layer when every token goes to `destinations` other ranks.

    tokens·destinations·hidden·(dispatch + combine); 8-bit numbers there and 16-bit back by default (DeepSeek-V3's
    hardware paper, arXiv 2505.09343 §2.3).

    >>> expert_exchange_bytes(tokens=32, destinations=9, hidden_size=7_000).item()
    6048000.0
    """
    given = counts(tokens=tokens, destinations=destinations, hidden_size=hidden_size)
    widths = positive(
        dispatch_bytes_per_element=dispatch_bytes_per_element,
        combine_bytes_per_element=combine_bytes_per_element,
    )
    check_broadcast({**given, **widths})
    each = widths["dispatch_bytes_per_element"] + widths["combine_bytes_per_element"]
    return given["tokens"] * given["destinations"] * given["hidden_size"] * each


def _rounds(ranks: Floats, algorithm: str) -> Floats:
    if algorithm == "best":
        return floats(ranks > 1)
    if algorithm == "star":
        return floats(2.0 * (ranks > 1))
    _known(algorithm)
    return all_reduce_rounds(ranks, algorithm=algorithm)


def _waited_bytes(size: Floats, ranks: Floats, algorithm: str) -> Floats:
    if algorithm == "star":  # the root first receives them all, then sends as many
        return 2 * star_all_reduce_bytes(size, ranks)
    if algorithm != "best":
        _known(algorithm)
    return all_reduce_bytes(size, ranks, algorithm="ring" if algorithm == "best" else algorithm)


def _known(algorithm: str) -> None:
    if algorithm not in ALL_REDUCE_ALGORITHMS:
        known = ", ".join(("best", "star", *ALL_REDUCE_ALGORITHMS))
        raise ValueError(
            f"algorithm is {algorithm!r}, which is not an all-reduce known here. Use one of: {known}."
        )
