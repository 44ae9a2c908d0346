"""What a traffic figure is: rows of calls of one kind, added up, and the formulas that explain them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from calculators.predict.arrays import Floats, floats
from calculators.predict.collectives import Backend, Kind, group_bytes, rounds, sent_bytes
from calculators.predict.shapes import Phase


@dataclass(frozen=True, kw_only=True)
class Formula:
    """One formula as TeX: what it gives, in symbols, and with a case's numbers in their places."""

    gives: str
    symbols: str
    numbers: str
    legend: tuple[tuple[str, str], ...]


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
    control_bytes     their payload [bytes]
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
    return Calls(
        kind=kind,
        algorithm=name,
        what=what,
        ranks=ranks,
        calls=calls * several,
        full_bytes=full_bytes * several,
        rounds=calls * rounds(kind, ranks, algorithm=name),
        handed_bytes=full_bytes * several / (ranks if kind == Kind.ALL_GATHER else 1),
        wire_bytes=sent_bytes(kind, full_bytes, ranks, algorithm=name),
        group_wire_bytes=group_bytes(kind, full_bytes, ranks, algorithm=name),
    )


def added_up(
    family: str,
    phase: Phase,
    parts: Sequence[Calls],
    *,
    formulas: tuple[Formula, ...] = (),
    shape: tuple[int, ...] | None = None,
) -> Traffic:
    """The sum of rows that one rank has a share in alike, every figure in one shape where `shape` names it."""
    total = {
        name: _sum([getattr(part, name) for part in parts])
        for name in ("calls", "rounds", "handed_bytes", "wire_bytes", "group_wire_bytes")
    }
    largest = floats(0.0)
    for part in parts:
        largest = np.maximum(largest, part.bytes_per_call)
    figures = {**total, "bytes_per_call": largest, "control_calls": floats(0.0), "control_bytes": floats(0.0)}
    if shape is not None:
        figures = {name: values + np.zeros(shape) for name, values in figures.items()}
    return Traffic(phase=phase, family=family, parts=tuple(parts), formulas=formulas, **figures)


def _sum(values: Sequence[Floats]) -> Floats:
    total = floats(0.0)
    for value in values:
        total = total + value
    return total


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
    r"\Psi": "parameters on the rank’s shard of the model",
    "g": "bytes per gradient",
    "w": "bytes per weight",
    "d": "replicas",
    "r": "groups of replicas",
    "c": "ranks that share the sequence",
    "a": "attention heads",
    "a_v": "key-value heads",
    "q": "width of one head",
    "T": "tokens on each rank",
    "x": "experts that each token visits",
    "n": "ranks that share the experts",
    "E": "experts in a layer",
    "D": "ranks that a token’s experts are on, on average",
    "C": "places for tokens in one expert",
    "f": "bytes per element on the way to the experts",
    "u": "bytes per element on the way back",
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
    Kind.SEND: {"direct": ("1", False), "ring": ("1", False)},
}
_SHARE_TEX = (r"\frac{{{n}-1}}{{{n}}}", True)


@dataclass(frozen=True, kw_only=True)
class Term:
    """One row as a formula: so many times a tensor of such a size, sent by such an algorithm among n ranks.

    letter  the symbol for n; a figure that stands in its place is not in the legend
    """

    kind: Kind
    algorithm: str
    times: Factors
    tensor: Factors
    letter: str
    ranks: Floats

    @property
    def counted(self) -> tuple[str, str]:
        return product(self.times)

    @property
    def sent(self) -> tuple[str, str]:
        pattern, varies = _SENT_TEX.get(self.kind, {}).get(self.algorithm, _SHARE_TEX)
        factor = (
            pattern.format(n=self.letter).replace("@", r"\,"),
            pattern.format(n=tex(self.ranks.item())).replace("@", r" \cdot "),
        )
        shown = factor if varies or self.kind != Kind.SEND else ("", "")
        rows = [product(self.times), shown, product(self.tensor)]
        symbols, numbers = (r" \cdot ".join(row[side] for row in rows if row[side]) for side in (0, 1))
        return symbols, numbers

    @property
    def symbols(self) -> dict[str, Factor]:
        _, varies = _SENT_TEX.get(self.kind, {}).get(self.algorithm, _SHARE_TEX)
        return {**self.times, **({self.letter: self.ranks} if varies else {}), **self.tensor}


def explained(
    phase: Phase, terms: Sequence[Term], *, counts: str, calls: float, wire_bytes: float
) -> tuple[Formula, ...]:
    """How many calls, and the bytes that each rank sends, as sums over the terms."""
    count_symbols, count_numbers = _plus([term.counted for term in terms])
    sent_symbols, sent_numbers = _plus([term.sent for term in terms])
    return (
        Formula(
            gives=f"{counts} per {phase.unit}",
            symbols=count_symbols,
            numbers=f"{count_numbers} = {tex(calls)}",
            legend=legend({name: value for term in terms for name, value in term.times.items()}),
        ),
        Formula(
            gives=f"Bytes that each rank sends per {phase.unit}",
            symbols=sent_symbols,
            numbers=f"{sent_numbers} = {tex_bytes(wire_bytes)}",
            legend=legend({name: value for term in terms for name, value in term.symbols.items()}),
        ),
    )


def _plus(sides: Sequence[tuple[str, str]]) -> tuple[str, str]:
    return " + ".join(symbols for symbols, _ in sides), " + ".join(numbers for _, numbers in sides)


def product(factors: Factors) -> tuple[str, str]:
    """Symbols side by side, numbers with dots between."""
    return r"\,".join(factors), r" \cdot ".join(_number(value) for value in factors.values())


def legend(symbols: Mapping[str, object]) -> tuple[tuple[str, str], ...]:
    """What each letter stands for; numbers explain themselves, and a fraction is made of its letters."""
    letters: dict[str, str] = {}
    for symbol in symbols:
        for letter, meaning in LEGEND.items():
            if letter == symbol or letter in _LETTERS_OF.get(symbol, ()):
                letters[letter] = meaning
    return tuple(letters.items())


_LETTERS_OF = {
    r"\frac{s}{c}": ("s", "c"),
    r"\frac{\Psi}{d}": (r"\Psi", "d"),
    "(a+a_v)": ("a", "a_v"),
    "(c-1)": ("c",),
    r"(p\,v-1)": ("p", "v"),
    "(f+u)": ("f", "u"),
}


def tex(value: float) -> str:
    """A number with commas between thousands, which {,} keeps TeX from setting as the punctuation of a list."""
    if value == int(value):
        return f"{value:,.0f}".replace(",", "{,}")
    return (f"{value:,.2f}" if value >= 1000 else f"{value:.6g}").replace(",", "{,}")


def tex_bytes(value: float) -> str:
    """The same with the unit."""
    return rf"{tex(value)}\,\text{{B}}"


def _number(value: Factor) -> str:
    if isinstance(value, tuple):
        return rf"\frac{{{tex(value[0].item())}}}{{{tex(value[1].item())}}}"
    return tex(value.item())


def in_flight(given: Mapping[str, Floats], phase: Phase) -> tuple[Floats, Floats, Floats]:
    """Sequences, tokens of each in flight (one in decode), and micro-batches (one but in training)."""
    tokens = floats(1) if phase == Phase.DECODE else given["tokens"]
    micro_batches = given["micro_batches"] if phase == Phase.TRAINING else floats(1)
    return given["batch"], tokens, micro_batches
