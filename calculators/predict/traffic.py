"""What tensor and pipeline parallelism move between devices, in decode, prefill and training.

Counted here: the activations (and in training their gradients) that cross between transformer layers. Not
counted: the embedding, the logits and the loss, which an implementation may split or repeat as it likes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from calculators.predict.arrays import Floats, counts, floats
from calculators.predict.collectives import all_reduce_bytes, all_reduce_rounds
from calculators.predict.shapes import Phase, activation_bytes

TOKEN_ID_BYTES = 8  # torch.argmax gives an int64


@dataclass(frozen=True, kw_only=True)
class Formula:
    """One formula as TeX: what it gives, in symbols, and with a case's numbers in their places."""

    gives: str
    symbols: str
    numbers: str
    legend: tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """What one split moves per token (decode), prompt (prefill) or step (training), as arrays.

    calls             collectives or sends, those of all stages together
    bytes_per_call    size of the tensor in one call [bytes]
    rounds            serial message steps in those calls; in training, steps of different stages overlap
    handed_bytes      bytes of the tensors that the busiest rank passes to its calls [bytes]
    wire_bytes        bytes that this rank sends by the textbook algorithm [bytes]
    group_wire_bytes  the same, all ranks of the group together [bytes]
    control_calls     sends beside the textbook figure: the token id on its way back to the first stage
    control_bytes     their payload [bytes]
    formulas          the figures as TeX where every argument is one number, else empty
    """

    phase: Phase
    calls: Floats
    bytes_per_call: Floats
    rounds: Floats
    handed_bytes: Floats
    wire_bytes: Floats
    group_wire_bytes: Floats
    control_calls: Floats
    control_bytes: Floats
    formulas: tuple[Formula, ...] = field(default=(), compare=False)

    @property
    def unit(self) -> str:
        """What the figures are counted for: token, prompt or step."""
        return self.phase.unit


def tensor_parallel(
    *,
    hidden_size: ArrayLike,
    layers: ArrayLike,
    ranks: ArrayLike,
    phase: Phase,
    batch: ArrayLike = 1,
    tokens: ArrayLike = 1,
    micro_batches: ArrayLike = 1,
    bytes_per_element: ArrayLike = 2,
    algorithm: str = "ring",
    fused_qkv: bool = True,
) -> Traffic:
    """Traffic of a stack of serial attention and feed-forward blocks whose weights `ranks` devices share.

    Each block ends in one all-reduce of batch·tokens·hidden elements: two a layer. Training runs them again
    backward, on the gradients of the blocks' inputs: four a layer (Narayanan 2021 §3.2: 8·b·s·h·(t−1)/t
    elements a layer). Query, key and value as three separate column-parallel linears each all-reduce that
    gradient: six a layer, `fused_qkv=False`.

    batch          sequences (of one micro-batch in training)
    tokens         length of each [tokens]; decode has one in flight whatever is given
    micro_batches  per step; read in training only
    algorithm      of the all-reduce, one of collectives.ALL_REDUCE_ALGORITHMS

    Raises ValueError where a size is below 1 or the algorithm is unknown.

    >>> lesson = tensor_parallel(hidden_size=4096, layers=64, ranks=[1, 2, 4, 8], phase=Phase.DECODE)
    >>> lesson.calls.tolist(), lesson.wire_bytes.tolist()
    ([0.0, 128.0, 128.0, 128.0], [0.0, 1048576.0, 1572864.0, 1835008.0])
    """
    given = counts(
        hidden_size=hidden_size,
        layers=layers,
        ranks=ranks,
        batch=batch,
        tokens=tokens,
        micro_batches=micro_batches,
        bytes_per_element=bytes_per_element,
    )
    b, s, m = _in_flight(given, phase)
    h, e, n = given["hidden_size"], given["bytes_per_element"], given["ranks"]
    per_layer = _all_reduces_per_layer(phase, fused_qkv)
    bytes_per_call = activation_bytes(b, s, h, e)
    calls = per_layer * given["layers"] * m * (n > 1)
    wire_bytes = calls * all_reduce_bytes(bytes_per_call, n, algorithm=algorithm)
    nothing = np.zeros_like(wire_bytes)
    formulas: tuple[Formula, ...] = ()
    if wire_bytes.ndim == 0 and n > 1:
        formulas = _tensor_formulas(given, phase, per_layer, algorithm, calls.item(), wire_bytes.item())
    return Traffic(
        phase=phase,
        calls=calls + nothing,
        bytes_per_call=bytes_per_call + nothing,
        rounds=calls * all_reduce_rounds(n, algorithm=algorithm) + nothing,
        handed_bytes=calls * bytes_per_call,
        wire_bytes=wire_bytes,
        group_wire_bytes=wire_bytes * n,
        control_calls=nothing,
        control_bytes=nothing,
        formulas=formulas,
    )


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
) -> Traffic:
    """Traffic of a stack of layers cut into `stages` blocks of whole layers, one after another.

    Each of the stages−1 boundaries is crossed by one send of batch·tokens·hidden elements. Training sends
    every micro-batch forward and its gradient back, so a stage between two others sends twice per
    micro-batch.

    In decode the last stage picks the token and returns its id to the first for the next step: one more
    send of `token_bytes` [bytes] a sequence, named as control and in none of the other figures.

    tensors_per_boundary  1 in the textbook; vLLM hands over two, the hidden states and the residual
    batch, tokens, micro_batches  as in `tensor_parallel`

    Raises ValueError where a size is below 1.

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
    )
    b, s, m = _in_flight(given, phase)
    h, e, p, k = (
        given[name] for name in ("hidden_size", "bytes_per_element", "stages", "tensors_per_boundary")
    )
    training, decode = phase == Phase.TRAINING, phase == Phase.DECODE
    bytes_per_call = activation_bytes(b, s, h, e)
    passes = 2 if training else 1
    calls = k * passes * m * (p - 1)
    # Forward to the stage after it and, in training, back to the one before: both only where there are both.
    neighbours = np.minimum(p - 1, passes)
    sent = k * m * neighbours * bytes_per_call
    nothing = np.zeros_like(sent)
    control_calls = decode * (p > 1) + nothing
    formulas: tuple[Formula, ...] = ()
    if sent.ndim == 0 and p > 1:
        formulas = _pipeline_formulas(given, phase, int(neighbours.item()), calls.item(), sent.item())
    return Traffic(
        phase=phase,
        calls=calls + nothing,
        bytes_per_call=bytes_per_call + nothing,
        rounds=calls + nothing,
        handed_bytes=sent,
        wire_bytes=sent,
        group_wire_bytes=calls * bytes_per_call,
        control_calls=control_calls,
        control_bytes=control_calls * given["token_bytes"] * b,
        formulas=formulas,
    )


def _all_reduces_per_layer(phase: Phase, fused_qkv: bool) -> int:
    if phase != Phase.TRAINING:
        return 2
    return 4 if fused_qkv else 6


def _in_flight(given: dict[str, Floats], phase: Phase) -> tuple[Floats, Floats, Floats]:
    tokens = floats(1) if phase == Phase.DECODE else given["tokens"]
    micro_batches = given["micro_batches"] if phase == Phase.TRAINING else floats(1)
    return given["batch"], tokens, micro_batches


# TeX: plain enough for MathML. A factor that is absent in a phase (s in decode, m outside training) is left
# out.

_LEGEND = {
    "L": "layers",
    "t": "ranks that share each layer",
    "p": "stages",
    "k": "tensors handed over at a boundary",
    "m": "micro-batches in a step",
    "b": "sequences in a batch",
    "s": "tokens in each sequence",
    "h": "hidden size",
    "e": "bytes per element",
}
_ALL_REDUCE_TEX = {
    "ring": (r"2\,\frac{t-1}{t}", r"2 \cdot \frac{{{t}-1}}{{{t}}}"),
    "tree": ("2", "2"),
    "recursive-doubling": (r"\log_2 t", r"\log_2 {t}"),
    "one-shot": ("(t-1)", "({t}-1)"),
    "in-switch": ("1", "1"),
}


def _tensor_formulas(
    given: dict[str, Floats], phase: Phase, per_layer: int, algorithm: str, calls: float, wire_bytes: float
) -> tuple[Formula, ...]:
    counted = {"L": given["layers"], **_micro_batches(given, phase)}
    tensor = _tensor(given, phase)
    symbols, numbers = _ALL_REDUCE_TEX[algorithm]
    numbers = numbers.format(t=_tex(given["ranks"].item()))
    count_symbols, count_numbers = _product({str(per_layer): floats(per_layer)} | counted)
    tensor_symbols, tensor_numbers = _product(tensor)
    return (
        Formula(
            gives=f"All-reduces per {phase.unit}",
            symbols=count_symbols,
            numbers=f"{count_numbers} = {_tex(calls)}",
            legend=_legend(counted),
        ),
        Formula(
            gives=f"Bytes that each rank sends per {phase.unit}",
            symbols=rf"{count_symbols} \cdot {symbols} \cdot {tensor_symbols}",
            numbers=rf"{count_numbers} \cdot {numbers} \cdot {tensor_numbers} = {_tex_bytes(wire_bytes)}",
            legend=_legend({**counted, "t": given["ranks"], **tensor}),
        ),
    )


def _pipeline_formulas(
    given: dict[str, Floats], phase: Phase, neighbours: int, calls: float, sent: float
) -> tuple[Formula, ...]:
    stages, tensor = _tex(given["stages"].item()), _tensor(given, phase)
    several = {"k": given["tensors_per_boundary"]} if given["tensors_per_boundary"] > 1 else {}
    repeated = {**several, **_micro_batches(given, phase)}
    forward_and_back = {"2": floats(2)} if phase == Phase.TRAINING else {}
    count_symbols, count_numbers = _product(forward_and_back | repeated)
    sent_symbols, sent_numbers = _product(({"2": floats(2)} if neighbours == 2 else {}) | repeated | tensor)
    return (
        Formula(
            gives=f"Sends per {phase.unit}, all boundaries together",
            symbols=rf"{count_symbols} \cdot (p-1)" if count_symbols else "p-1",
            numbers=(rf"{count_numbers} \cdot ({stages}-1)" if count_numbers else f"{stages}-1")
            + f" = {_tex(calls)}",
            legend=_legend({**repeated, "p": given["stages"]}),
        ),
        Formula(
            gives=f"Bytes that the busiest stage sends per {phase.unit}",
            symbols=sent_symbols,
            numbers=rf"{sent_numbers} = {_tex_bytes(sent)}",
            legend=_legend({**repeated, **tensor}),
        ),
    )


def _tensor(given: dict[str, Floats], phase: Phase) -> dict[str, Floats]:
    tokens = {} if phase == Phase.DECODE else {"s": given["tokens"]}
    return {"b": given["batch"], **tokens, "h": given["hidden_size"], "e": given["bytes_per_element"]}


def _micro_batches(given: dict[str, Floats], phase: Phase) -> dict[str, Floats]:
    return {"m": given["micro_batches"]} if phase == Phase.TRAINING else {}


def _product(factors: dict[str, Floats]) -> tuple[str, str]:
    return r"\,".join(factors), r" \cdot ".join(_tex(value.item()) for value in factors.values())


def _legend(symbols: dict[str, Floats]) -> tuple[tuple[str, str], ...]:
    return tuple((symbol, _LEGEND[symbol]) for symbol in symbols)


def _tex(value: float) -> str:
    # {,} keeps TeX from setting a comma between thousands as the punctuation of a list
    return (f"{value:,.0f}" if value == int(value) else f"{value:,.2f}").replace(",", "{,}")


def _tex_bytes(value: float) -> str:
    return rf"{_tex(value)}\,\text{{B}}"
