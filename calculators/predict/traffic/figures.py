"""What a traffic figure is: rows of calls of one kind, added up, and the formulas that explain them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

from calculators.predict.arrays import Floats, everywhere, floats
from calculators.predict.collectives import Backend, Kind, call_figures
from calculators.predict.formulas import Formula, tex, tex_bytes
from calculators.predict.shapes import Phase


@dataclass(frozen=True, kw_only=True)
class Calls:
    """Calls of one kind for one purpose, per token, prompt or step, as arrays.

    kind, algorithm   what is called, and how the backend carries it out
    what              the purpose: "gradients"
    ranks             members of the group that calls
    calls             how many
    full_bytes        full size of all of them together [bytes]
    rounds            serial message steps in them
    handed_bytes      bytes of the tensors that a rank puts in: of an all-gather its slice [bytes]
    wire_bytes        bytes that the busiest rank sends [bytes]
    group_wire_bytes  the same, all ranks of the group together [bytes]
    """

    kind: Kind
    algorithm: str
    what: str
    ranks: Floats
    calls: Floats
    full_bytes: Floats
    rounds: Floats
    handed_bytes: Floats
    wire_bytes: Floats
    group_wire_bytes: Floats

    @property
    def bytes_per_call(self) -> Floats:
        """Full size of one call [bytes]; 0 where there is none."""
        return self.full_bytes / np.maximum(self.calls, 1)


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """What one split moves per token (decode), prompt (prefill) or step (training), as arrays.

    family            tensor, pipeline, data, context or expert
    calls             collectives or sends, those of all stages together
    bytes_per_call    full size of the tensor in one call; of the largest kind of call where there are several [bytes]
    rounds            serial message steps in those calls; in training, steps of different stages overlap
    handed_bytes      bytes of the tensors that the busiest rank passes to its calls [bytes]
    wire_bytes        bytes that this rank sends by the backend's algorithms [bytes]
    group_wire_bytes  the same, all ranks of the group together [bytes]
    control_calls     sends beside the textbook figure: the token id on its way back to the first stage
    control_bytes     what those hand over [bytes]
    parts             the same calls kind by kind
    formulas          the figures as TeX where every argument is one number, else empty
    """

    phase: Phase
    family: str
    calls: Floats
    bytes_per_call: Floats
    rounds: Floats
    handed_bytes: Floats
    wire_bytes: Floats
    group_wire_bytes: Floats
    control_calls: Floats
    control_bytes: Floats
    parts: tuple[Calls, ...] = ()
    formulas: tuple[Formula, ...] = field(default=(), compare=False)

    @property
    def unit(self) -> str:
        """What the figures are counted for: token, prompt or step."""
        return self.phase.unit

    @property
    def exchanges(self) -> Floats:
        """How often the group talks for one token (decode), prompt or step: all its calls, and the token's return."""
        return self.calls + self.control_calls

    def calls_of(self, kind: Kind) -> Floats:
        """Calls of one kind."""
        return sum((part.calls for part in self.parts if part.kind == kind), np.zeros_like(self.calls))

    def wire_bytes_of(self, kind: Kind) -> Floats:
        """Bytes that a rank sends in calls of one kind [bytes]."""
        return sum(
            (part.wire_bytes for part in self.parts if part.kind == kind), np.zeros_like(self.wire_bytes)
        )


def calls_of_one_kind(
    kind: Kind,
    what: str,
    *,
    calls: Floats,
    full_bytes: Floats,
    ranks: Floats,
    backend: Backend,
    algorithm: str | None = None,
) -> Calls:
    """A row: `calls` calls of together `full_bytes` [bytes] among `ranks`; nothing where a rank is alone."""
    name = algorithm or backend.algorithm_of(kind)
    several = ranks > 1
    moved = call_figures(kind, full_bytes, ranks, algorithm=name)
    return Calls(
        kind=kind,
        algorithm=name,
        what=what,
        ranks=ranks,
        calls=calls * several,
        full_bytes=full_bytes * several,
        rounds=calls * moved.rounds,
        handed_bytes=full_bytes * several / (ranks if kind == Kind.ALL_GATHER else 1),
        wire_bytes=moved.sent_bytes,
        group_wire_bytes=moved.group_bytes,
    )


# --- formulas ---------------------------------------------------------------------------------------------------------
# TeX plain enough for MathML. A factor that is absent in a phase (s in decode, m outside training) is left out.

Factor = Floats | tuple[Floats, Floats]
"""A number, or a numerator and a denominator."""
Factors = Mapping[str, Factor]
"""Symbol → its number, in the order of the product. A symbol that is a number itself has no legend."""

LEGEND = {
    "L": "layers",
    "t": "ranks that share each layer",
    "p": "stages",
    "v": "chunks of layers in a stage",
    "k": "tensors handed over at a boundary",
    "m": "micro-batches in a step",
    "b": "sequences in a batch",
    "s": "tokens in each sequence",
    "h": "hidden size",
    "e": "bytes per element",
    "V": "vocabulary",
    r"\Psi": "parameters on a rank’s shard of the model",
    "U": "parameters of the embedding that two stages hold",
    "g": "bytes per gradient",
    "w": "bytes per weight",
    "d": "replicas",
    "r": "groups of replicas",
    "u": "pieces that each round of calls is cut into",
    "c": "ranks that share the sequence",
    "q": "elements of one token’s queries",
    "o": "elements of one token’s attention output",
    "y": "elements of one token’s keys and values",
    "a": "attention heads",
    "f": "bytes per element of a gradient on its way",
    "T": "tokens on each rank",
    "x": "experts that each token visits",
    "n": "ranks that share the experts",
    "E": "experts in a layer",
    "D": "copies of a token that are sent",
    "C": "places for one rank’s tokens in an expert",
    "i": "bytes per element on the way to the experts",
    "j": "bytes per element on the way back",
}

# What the busiest rank sends, as a multiple of the full size S: symbols and numbers, {n} being the group's size.
_SENT_TEX: dict[Kind, dict[str, tuple[str, bool]]] = {
    Kind.ALL_REDUCE: {
        "ring": (r"2@\frac{{{n}-1}}{{{n}}}", True),
        "tree": (r"\frac{{\min({n},4)}}{{2}}", True),
        "recursive-doubling": (r"\log_2 {n}", True),
        "one-shot": ("({n}-1)", True),
        "in-switch": ("1", False),
        "halving-doubling": (r"2@\frac{{{n}-1}}{{{n}}}", True),
    },
    Kind.REDUCE_SCATTER: {"as-all-reduce": (r"2@\frac{{{n}-1}}{{{n}}}", True), "in-switch": ("1", False)},
    Kind.ALL_GATHER: {"in-switch": (r"\frac{{1}}{{{n}}}", True)},
    Kind.ALL_TO_ALL: {"ring": (r"\frac{{{n}-1}}{{2}}", True), "as-all-gather": ("({n}-1)", True)},
    Kind.SEND: {"direct": ("", False), "ring": ("", False)},
}
_SHARE_TEX = (r"\frac{{{n}-1}}{{{n}}}", True)


@dataclass(frozen=True, kw_only=True)
class Row:
    """Calls of one kind as a product: so many times a tensor of such a size among n ranks.

    letter     the symbol for n
    pieces     how many calls each one is cut into: they are more, and move no more bytes
    algorithm  instead of the backend's
    """

    kind: Kind
    what: str
    times: Factors
    tensor: Factors
    letter: str
    ranks: Floats
    pieces: Factors = field(default_factory=dict)
    algorithm: str | None = None

    def calls(self, backend: Backend) -> Calls:
        """The same as figures, by the algorithms of `backend`."""
        times = _value(self.times)
        return calls_of_one_kind(
            self.kind,
            self.what,
            calls=times * _value(self.pieces),
            full_bytes=times * _value(self.tensor),
            ranks=self.ranks,
            backend=backend,
            algorithm=self.algorithm,
        )

    def counted(self) -> tuple[str, str]:
        """How many calls, in symbols and numbers."""
        times, pieces = product(self.times), product(self.pieces)
        symbols, numbers = (
            joint.join(side for side in sides if side)
            for joint, sides in zip((r"\,", r" \cdot "), zip(times, pieces, strict=True), strict=True)
        )
        return symbols or "1", numbers or "1"

    def sent(self, algorithm: str) -> tuple[str, str]:
        """The bytes that a rank sends, in symbols and numbers."""
        pattern, _ = self._factor(algorithm)
        factor = (
            pattern.format(n=self.letter).replace("@", r"\,"),
            pattern.format(n=tex(self.ranks.item())).replace("@", r" \cdot "),
        )
        sides = [product(self.times), factor if pattern else ("", ""), product(self.tensor)]
        symbols, numbers = (r" \cdot ".join(side[which] for side in sides if side[which]) for which in (0, 1))
        return symbols, numbers

    def letters(self, algorithm: str) -> dict[str, Factor]:
        """All symbols of the formula for the bytes."""
        _, varies = self._factor(algorithm)
        return {**self.times, **({self.letter: self.ranks} if varies else {}), **self.tensor}

    def _factor(self, algorithm: str) -> tuple[str, bool]:
        return _SENT_TEX.get(self.kind, {}).get(algorithm, _SHARE_TEX)


def summed(
    family: str,
    phase: Phase,
    rows: Sequence[Row],
    *,
    given: Mapping[str, Floats],
    backend: Backend,
) -> Traffic:
    """The sum of rows in which all ranks share alike, every figure in the shape of all that was given."""
    shape = np.broadcast_shapes(*(values.shape for values in given.values()))
    nothing = np.zeros(shape) + 0.0  # numbers give numbers, not arrays of one
    parts = [row.calls(backend) for row in rows]
    figures = {
        name: sum((getattr(part, name) for part in parts), nothing)
        for name in ("calls", "rounds", "handed_bytes", "wire_bytes", "group_wire_bytes")
    }
    largest = nothing
    for part in parts:
        largest = np.maximum(largest, part.bytes_per_call)
    moving = [
        (row, part.algorithm) for row, part in zip(rows, parts, strict=True) if everywhere(part.ranks > 1)
    ]
    formulas: tuple[Formula, ...] = ()
    if not shape and moving:
        formulas = _explained(phase, moving, figures["calls"].item(), figures["wire_bytes"].item())
    return Traffic(
        phase=phase,
        family=family,
        bytes_per_call=largest,
        control_calls=nothing,
        control_bytes=nothing,
        parts=tuple(parts),
        formulas=formulas,
        **figures,
    )


def _explained(
    phase: Phase, rows: Sequence[tuple[Row, str]], calls: float, wire_bytes: float
) -> tuple[Formula, ...]:
    count_symbols, count_numbers = _plus([row.counted() for row, _ in rows])
    sent_symbols, sent_numbers = _plus([row.sent(algorithm) for row, algorithm in rows])
    kinds = {row.kind for row, _ in rows}
    counted = f"{kinds.pop().capitalize()}s" if len(kinds) == 1 else "Collectives"
    return (
        Formula(
            gives=f"{counted} per {phase.unit}",
            symbols=count_symbols,
            numbers=f"{count_numbers} = {tex(calls)}",
            legend=legend(
                {name: value for row, _ in rows for name, value in (*row.times.items(), *row.pieces.items())}
            ),
        ),
        Formula(
            gives=f"Bytes that each rank sends per {phase.unit}",
            symbols=sent_symbols,
            numbers=f"{sent_numbers} = {tex_bytes(wire_bytes)}",
            legend=legend(
                {name: value for row, algorithm in rows for name, value in row.letters(algorithm).items()}
            ),
        ),
    )


def number(value: ArrayLike) -> Factors:
    """A factor that is its own symbol; 1 is left out."""
    array = floats(value)
    if array.ndim:
        return {"number": array}
    return {} if array == 1 else {tex(array.item()): array}


def _value(factors: Factors) -> Floats:
    total = floats(1.0)
    for value in factors.values():
        total = total * (value[0] / value[1] if isinstance(value, tuple) else value)
    return total


def _plus(sides: Sequence[tuple[str, str]]) -> tuple[str, str]:
    return " + ".join(symbols for symbols, _ in sides), " + ".join(numbers for _, numbers in sides)


def product(factors: Factors) -> tuple[str, str]:
    """Symbols side by side, numbers with dots between."""
    return r"\,".join(factors), r" \cdot ".join(_number(value) for value in factors.values())


def legend(symbols: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """What each letter stands for; numbers explain themselves, and a fraction is made of its letters."""
    letters: dict[str, str] = {}
    for symbol in symbols:
        letters |= {letter: LEGEND[letter] for letter in _letters(symbol)}
    return tuple(letters.items())


@lru_cache(maxsize=256)  # of the symbols in this package, and of the numbers that stand among them
def _letters(symbol: str) -> tuple[str, ...]:
    inside = symbol.replace(r"\frac", "").replace(r"\log", "")
    return tuple(letter for letter in re.findall(r"\\?[A-Za-z]+", inside) if letter in LEGEND)


def _number(value: Factor) -> str:
    if isinstance(value, tuple):
        return rf"\frac{{{tex(value[0].item())}}}{{{tex(value[1].item())}}}"
    return tex(value.item())


def in_flight(given: Mapping[str, Floats], phase: Phase) -> tuple[Floats, Floats, Floats]:
    """Sequences, tokens of each in flight (one in decode), and micro-batches (one but in training)."""
    tokens = floats(1) if phase == Phase.DECODE else given["tokens"]
    micro_batches = given["micro_batches"] if phase == Phase.TRAINING else floats(1)
    return given["batch"], tokens, micro_batches
