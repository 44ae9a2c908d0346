"""What pipeline parallelism moves: one send per boundary and micro-batch, more with interleaved chunks."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from calculators.predict.arrays import Floats, anywhere, counts, floats
from calculators.predict.collectives import Kind
from calculators.predict.formulas import Formula, tex, tex_bytes
from calculators.predict.schedules import sends_per_pass
from calculators.predict.shapes import Phase, activation_bytes
from calculators.predict.traffic.figures import (
    Calls,
    Factors,
    Traffic,
    in_flight,
    legend,
    product,
)

TOKEN_ID_BYTES = 8  # torch.argmax gives an int64


def pipeline_parallel(
    *,
    hidden_size: ArrayLike,
    stages: ArrayLike,
    phase: Phase,
    batch: ArrayLike = 1,
    tokens: ArrayLike = 1,
    micro_batches: ArrayLike = 1,
    bytes_per_element: ArrayLike = 2,
    tensors_per_boundary: ArrayLike = 1,
    token_bytes: ArrayLike = TOKEN_ID_BYTES,
    chunks: ArrayLike = 1,
    folded: bool = False,
    tensor_ranks: ArrayLike = 1,
) -> Traffic:
    """Traffic of a stack of layers cut into `stages` blocks of whole layers, one after another.

    Each of the stages−1 boundaries is crossed by one send of batch·tokens·hidden elements. Training sends
    every micro-batch forward and its gradient back, so a stage between two others sends twice per
    micro-batch.

    In decode the last stage picks the token and returns its id to the first for the next step: one more
    send of `token_bytes` [bytes] a sequence, named as control and in none of the other figures.

    chunks         v runs of layers a stage, interleaved: p·v−1 sends a micro-batch, from the last stage to the first
                   among them (Narayanan 2021 §2.2)
    folded         two chunks a stage, the second in reverse order: down the stages and back up, 2·(p−1) sends; the
                   turn stays inside the last stage (zero bubble V, DualPipe)
    tensor_ranks   of a stage, which send 1/t of the tensor each: sequence parallelism, or Megatron-LM's
                   scatter/gather, which then gathers the parts inside the next stage (not counted here)
    tensors_per_boundary  1 in the textbook; vLLM hands over two, the hidden states and the residual
    batch, tokens, micro_batches  as in `tensor_parallel`

    Raises ValueError where a size is below 1, or a folded pipeline has other than 2 chunks.

    >>> lesson = pipeline_parallel(hidden_size=4096, stages=2, phase=Phase.DECODE)
    >>> lesson.calls.item(), lesson.wire_bytes.item(), lesson.control_bytes.item()
    (1.0, 8192.0, 8.0)
    """
    given = counts(
        hidden_size=hidden_size,
        stages=stages,
        batch=batch,
        tokens=tokens,
        micro_batches=micro_batches,
        bytes_per_element=bytes_per_element,
        tensors_per_boundary=tensors_per_boundary,
        token_bytes=token_bytes,
        chunks=chunks,
        tensor_ranks=tensor_ranks,
    )
    if folded and anywhere(given["chunks"] != 2):
        raise ValueError(
            f"chunks is {given['chunks'].flat[0]:g}, but a folded pipeline goes down the stages and back up. Use 2."
        )
    phase = Phase(phase)
    b, s, m = in_flight(given, phase)
    p, v, k = given["stages"], given["chunks"], given["tensors_per_boundary"]
    nothing = np.zeros(np.broadcast_shapes(*(values.shape for values in given.values())))
    bytes_per_call = (
        activation_bytes(b, s, given["hidden_size"], given["bytes_per_element"]) / given["tensor_ranks"]
    )
    passes = 2 if phase == Phase.TRAINING else 1
    hops = sends_per_pass(p, v, folded=folded)
    calls = k * passes * m * hops
    per_micro_batch = _busiest_sends(p, v, passes, folded=folded)
    sent = k * m * per_micro_batch * bytes_per_call
    control_calls = (phase == Phase.DECODE) * (p > 1) + nothing
    one_way = _sends_forward(p, v, folded=folded)
    parts = [
        _row(what, k * m * hops, bytes_per_call, p, one_way, hops)
        for what in ("hidden states", "gradients")[:passes]
    ]
    formulas: tuple[Formula, ...] = ()
    if sent.ndim == 0 and p > 1:
        formulas = _formulas(given, phase, per_micro_batch.item(), calls.item(), sent.item(), folded=folded)
    return Traffic(
        phase=phase,
        family="pipeline",
        calls=calls + nothing,
        bytes_per_call=bytes_per_call + nothing,
        rounds=calls + nothing,
        handed_bytes=sent + nothing,
        wire_bytes=sent + nothing,
        group_wire_bytes=calls * bytes_per_call + nothing,
        control_calls=control_calls,
        control_bytes=control_calls * given["token_bytes"] * b,
        parts=tuple(parts),
        formulas=formulas,
    )


def _sends_forward(stages: Floats, chunks: Floats, *, folded: bool) -> Floats:
    """Sends of the busiest stage in one pass: the first one sends each of its chunks' outputs."""
    return np.minimum(stages - 1, 2) if folded else chunks * (stages > 1)


def _busiest_sends(stages: Floats, chunks: Floats, passes: int, *, folded: bool) -> Floats:
    """Sends of the busiest stage in all passes: one between two others sends every chunk both ways.

    Of two stages, the first has nothing to send back from its first chunk, nor the last onwards from its last.
    """
    both = passes * _sends_forward(stages, chunks, folded=folded)
    return both if folded or passes == 1 else both - (stages == 2)


def _row(
    what: str, calls: Floats, bytes_per_call: Floats, stages: Floats, busiest: Floats, hops: Floats
) -> Calls:
    share = busiest / np.maximum(hops, 1)  # of all sends, those of the busiest stage
    return Calls(
        kind=Kind.SEND,
        algorithm="direct",
        what=what,
        ranks=stages,
        calls=calls,
        full_bytes=calls * bytes_per_call,
        rounds=calls,
        handed_bytes=calls * share * bytes_per_call,
        wire_bytes=calls * share * bytes_per_call,
        group_wire_bytes=calls * bytes_per_call,
    )


def _formulas(
    given: dict[str, Floats],
    phase: Phase,
    per_micro_batch: float,
    calls: float,
    sent: float,
    *,
    folded: bool,
) -> tuple[Formula, ...]:
    p, v, t = given["stages"], given["chunks"], given["tensor_ranks"]
    several: Factors = {"k": given["tensors_per_boundary"]} if given["tensors_per_boundary"] > 1 else {}
    counted: Factors = {"m": given["micro_batches"]} if phase == Phase.TRAINING else {}
    repeated = {**several, **counted}
    tokens: Factors = {} if phase == Phase.DECODE else {"s": given["tokens"]}
    tensor: Factors = {
        "b": given["batch"],
        **tokens,
        "h": given["hidden_size"],
        "e": given["bytes_per_element"],
        **({r"\frac{1}{t}": (floats(1), t)} if t > 1 else {}),
    }
    times = (2 if phase == Phase.TRAINING else 1) * (2 if folded else 1)
    count_symbols, count_numbers = product(({str(times): floats(times)} if times > 1 else {}) | repeated)
    interleaved = v > 1 and not folded
    hops = (
        (r"(p\,v-1)", rf"({tex(p.item())} \cdot {tex(v.item())}-1)")
        if interleaved
        else ("(p-1)", f"({tex(p.item())}-1)")
    )
    if not count_symbols:
        hops = (hops[0].strip("()"), hops[1].strip("()"))
    busiest: Factors = {f"{per_micro_batch:g}": floats(per_micro_batch)} if per_micro_batch > 1 else {}
    sent_symbols, sent_numbers = product({**busiest, **repeated, **tensor})
    return (
        Formula(
            gives=f"Sends per {phase.unit}, all boundaries together",
            symbols=rf"{count_symbols} \cdot {hops[0]}" if count_symbols else hops[0],
            numbers=(rf"{count_numbers} \cdot {hops[1]}" if count_numbers else hops[1]) + f" = {tex(calls)}",
            legend=legend({**repeated, "p": p, **({"v": v} if interleaved else {})}),
        ),
        Formula(
            gives=f"Bytes that the busiest stage sends per {phase.unit}",
            symbols=sent_symbols,
            numbers=rf"{sent_numbers} = {tex_bytes(sent)}",
            legend=legend({**repeated, **tensor}),
        ),
    )
