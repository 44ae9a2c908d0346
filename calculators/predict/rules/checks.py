"""Asking the rules: one layout in sentences, many layouts as one array, and the nearest sizes that work."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from calculators.predict.arrays import Floats, whole
from calculators.predict.rules.case import Case, Mask
from calculators.predict.rules.sizes import minimum_devices
from calculators.predict.rules.table import RULES, Clause, Kind, Rule
from calculators.predict.rules.tools import EVERY, TOOLS
from calculators.predict.shapes import Layout, Layouts, ModelShape

_MOST_TRIED = 200_000
"""Values of an axis, in search of the nearest that works."""


@dataclass(frozen=True, kw_only=True)
class Violation:
    """One rule that a layout breaks. `sentence` is ready to be shown.

    nearest   values of `axis` that would keep it, the rest as it is
    or_else   values of other axes that would, each with that axis
    reads     the sizes of the model that it is about
    checked_by   the program and the version that checks this, where others do not; else empty
    source    where the rule is written
    """

    rule: str
    axis: str
    given: str
    why: str
    nearest: tuple[int, ...]
    or_else: tuple[tuple[str, tuple[int, ...]], ...] = ()
    kind: Kind = Kind.REFUSED
    reads: tuple[str, ...] = ()
    checked_by: str = ""
    source: str = ""

    @property
    def sentence(self) -> str:
        """What was given, why it cannot work, and what does."""
        stop = "." if self.kind is not Kind.NOTE else ", which the program does by itself."
        return f"{self.given}, {self.why}{stop}{'' if self.kind is Kind.NOTE else ' ' + self.remedy}"

    @property
    def remedy(self) -> str:
        """What does work, as sentences."""
        rest = "; ".join(f"{axis} {_either(axis, sizes)}" for axis, sizes in self.or_else)
        if not self.nearest:
            if rest:
                return f"No other {self.axis} works while the rest stays as it is, but this does: {rest}."
            return f"No other {self.axis} works while the rest stays as it is."
        works = "work" if len(self.nearest) > 1 else "works"
        own = f"Nearest that {works}: {_either(self.axis, self.nearest)}."
        return f"{own} Or instead: {rest}." if rest else own


def check(shape: ModelShape, layout: Layout, **known: Any) -> tuple[Violation, ...]:
    """Every rule that `layout` breaks for `shape`, in the order of RULES; empty when all hold.

    known   what else is known, by the names of `Case`: tokens, devices, tool, …

    The nearest values that work keep every rule about that axis, and break none that held.

    >>> from calculators.predict.models.catalogue import MODELS
    >>> [found] = check(MODELS["llama-3.1-70b"].shape, Layout(pp=3))
    >>> found.sentence
    'pp is 3, but 80 layers do not make 3 stages of equal depth. Nearest that work: 2 or 4.'
    """
    return tuple(found for found in violations(case_of(shape, layout, **known)) if found.kind is Kind.REFUSED)


def remarks(shape: ModelShape, layout: Layout, **known: Any) -> tuple[Violation, ...]:
    """What is allowed and yet worth saying about `layout`: advice that it does not follow, numbers that change.

    >>> from calculators.predict.models.catalogue import MODELS
    >>> advice, note = remarks(MODELS["llama-3.1-70b"].shape, Layout(tp=8), devices_per_host=4)
    >>> advice.rule, advice.nearest, note.rule
    ('R17', (4,), 'R18')
    """
    return tuple(
        found for found in violations(case_of(shape, layout, **known)) if found.kind is not Kind.REFUSED
    )


def legal(case: Case, *, tool: str | None = None) -> Mask:
    """Where the case's layouts break no rule: an array of their common shape.

    tool   whose checks count, instead of the case's own

    >>> from calculators.predict.models.catalogue import MODELS
    >>> shape = MODELS["llama-3.1-70b"].shape
    >>> legal(Case(shape=shape, layouts=Layouts(tp=[[1], [3], [8]], pp=[1, 3]))).tolist()
    [[True, False], [False, False], [True, False]]
    """
    # Small masks meet first, so that few operations are as large as the whole.
    by_shape: dict[tuple[int, ...], Mask] = {}
    for mask in masks(case, tool=tool).values():
        seen = by_shape.get(mask.shape)
        by_shape[mask.shape] = mask if seen is None else seen & mask
    together = np.asarray(True)
    for mask in sorted(by_shape.values(), key=lambda mask: mask.size):
        together = together & mask
    sizes = [np.shape(getattr(case.layouts, name)) for name in vars(case.layouts)]
    return np.asarray(together & np.ones(np.broadcast_shapes(*sizes), dtype=bool))


def masks(case: Case, *, tool: str | None = None) -> Mapping[str, Mask]:
    """Where each rule that can refuse a layout holds, by its number; no array is larger than its rule needs."""
    asked = case if tool is None else replace(case, tool=tool)
    return {rule.id: rule.holds(asked) for rule in RULES if rule.kind is Kind.REFUSED}


def violations(case: Case) -> tuple[Violation, ...]:
    """Everything that a case of one layout breaks, advice and notes included, in the order of RULES.

    Raises ValueError where the case is about more than one layout.
    """
    _one_layout(case)
    found = []
    for rule, clause in _asked(case):
        if not clause.holds(case):
            axis = clause.axes[0]
            others = ((other, _nearest(case, clause, other)) for other in clause.axes[1:])
            note = rule.kind is Kind.NOTE
            found.append(
                Violation(
                    rule=rule.id,
                    axis=axis,
                    given=f"{axis} is {_value(axis, _given(case, axis))}",
                    why=f"but {clause.why(case)}",
                    nearest=() if note else _nearest(case, clause, axis),
                    or_else=() if note else tuple((other, sizes) for other, sizes in others if sizes),
                    kind=rule.kind,
                    reads=clause.reads,
                    checked_by="" if clause.tools == EVERY else _name(case.tool),
                    source=rule.source,
                )
            )
    return tuple(found)


@lru_cache(maxsize=256)
def sizes_that_work(shape: ModelShape, axis: str) -> tuple[int, ...]:
    """Every size of `axis` that obeys the rules for `shape` while every other axis is whole, ascending.

    >>> from calculators.predict.models.catalogue import MODELS
    >>> sizes_that_work(MODELS["phi-4"].shape, "tp")
    (1, 2, 5, 10, 20, 40)
    """
    if axis not in ("tp", "pp", "ep"):
        raise ValueError(
            f"axis is {axis!r}, but only the sizes of tp, pp and ep follow from a model alone. Use one of those."
        )
    sizes = np.arange(1, _most(Case(shape=shape), axis) + 1)
    # Experts share out devices that another axis brings; enough replicas leave every size of ep free.
    layouts = Layouts(ep=sizes, dp=sizes) if axis == "ep" else Layouts(**{axis: sizes})
    return tuple(int(size) for size in sizes[legal(Case(shape=shape, layouts=layouts))])


def nearest_sizes(shape: ModelShape, axis: str, size: int) -> tuple[int, ...]:
    """The size itself if it works, else the nearest below and above it that do, where there are."""
    size = whole("size", size)
    works = np.asarray(sizes_that_work(shape, axis))
    return (size,) if size in works else _around(works, size)


def case_of(shape: ModelShape, layout: Layout, **known: Any) -> Case:
    """A case of one layout; `known` by the names of `Case`, and micro_batch and recompute by those of `Layouts`."""
    beside = {name: known.pop(name) for name in ("micro_batch", "recompute") if name in known}
    if "micro_batches" in known:
        known["given_micro_batches"] = known.pop("micro_batches")
    return Case(shape=shape, layouts=Layouts.of(layout, **beside), **known)


def _asked(case: Case) -> Iterator[tuple[Rule, Clause]]:
    """The clauses that this case's tool checks, of which enough is known."""
    for rule in RULES:
        for clause in rule.clauses:
            if clause.applies(case):
                yield rule, clause


def _nearest(case: Case, broken: Clause, axis: str) -> tuple[int, ...]:
    """The nearest values of `axis` that keep the broken clause and all that name this axis first, and break nothing.

    Advice is no reason to leave a value out unless it is the advice that is asked about.
    """
    values = _candidates(case, axis)
    changed = _with(case, axis, values)
    works = np.asarray(broken.holds(changed) & np.ones(values.shape, dtype=bool))
    for rule, clause in _asked(case):
        if rule.kind is Kind.REFUSED and (axis == clause.axes[0] or clause.holds(case)):
            works = works & clause.holds(changed)
    return _around(values[works], _given(case, axis))


def _around(works: Floats | np.ndarray[Any, Any], size: float) -> tuple[int, ...]:
    """The nearest of these below and above a size, ascending."""
    below, above = works[works < size], works[works > size]
    return tuple(int(value) for value in (*below[-1:], *above[:1]))


def _with(case: Case, axis: str, values: Floats) -> Case:
    """The case with many values of one axis, and with what follows from it by itself.

    On given devices the number of replicas follows from the size of one. vLLM spreads experts over all ranks of a
    stage, so their axes follow too.
    """
    axes: dict[str, ArrayLike] = {}
    rest: dict[str, ArrayLike] = {}
    if axis == "micro_batches":
        rest["given_micro_batches"] = values
    elif axis == "sp":
        axes["sp"] = values.astype(bool)
    elif hasattr(case.layouts, axis):
        axes[axis] = values
    else:
        rest[axis] = values
    if case.knows("devices") and axis in ("tp", "pp", "cp", "devices"):
        replica = np.asarray(1.0)
        for part in ("tp", "pp", "cp"):
            replica = replica * (values if part == axis else case[part])
        devices = values if axis == "devices" else case["devices"]
        axes["dp"] = np.maximum(1, np.floor(devices / replica))
    if case.tool == "vllm" and case.shape.experts:
        ranks = np.asarray(axes.get("tp", case["tp"])) * np.asarray(axes.get("dp", case["dp"]))
        if axis == "ep":
            axes["etp"] = np.where(values > 1, 1, ranks)
        elif axis == "etp":
            axes["ep"] = np.where(values > 1, 1, ranks)
        elif bool(case["ep"] > 1):
            axes["ep"] = ranks
        else:
            axes["etp"] = ranks
    return case.but(axes, **rest)


def _given(case: Case, axis: str) -> float:
    if axis == "sp":
        return float(case.sp)
    if axis == "micro_batches":
        return float(case.micro_batches)
    return float(case[axis])


def _candidates(case: Case, axis: str) -> Floats:
    """Values of an axis among which the nearest that works must be, if there is one."""
    if axis == "sp":
        return np.asarray([0.0, 1.0])
    if axis == "redundant_experts":
        given = _given(case, axis)
        return _whole_numbers(0.0, given + float(case["ep"]), near=given)
    if axis in ("tokens", "batch", "micro_batches"):
        # What they must be a multiple of divides this, so the next multiples of it are far enough.
        step = {
            "tokens": 2 * float(case["cp"] * case["tp"]),
            "batch": float(case["dp"] * case["micro_batch"] * case["pp"]),
            "micro_batches": float(case["pp"]) * _group(case),
        }[axis]
        middle = np.floor(_given(case, axis))
        below = np.floor(middle / step) * step
        near = _whole_numbers(max(1.0, middle - step), middle + step + 1, near=middle)
        return np.union1d(near, [max(1.0, below), below + step])
    return _whole_numbers(1.0, _most(case, axis), near=_given(case, axis))


def _whole_numbers(least: float, most: float, *, near: float) -> Floats:
    """All from `least` to `most`; of too many to try, the first ones and those about `near`."""
    if most - least < _MOST_TRIED:
        return np.arange(least, most + 1)
    half = _MOST_TRIED // 2
    about = np.arange(max(least, near - half), min(most, near + half) + 1)
    return np.union1d(np.arange(least, least + half), about)


def _group(case: Case) -> float:
    return 1.0 if case.micro_batch_group is None else float(case["micro_batch_group"])


def _most(case: Case, axis: str) -> float:
    """The largest size of an axis that any rule could allow here."""
    shape, given = case.shape, float(_given(case, axis))
    fewest = minimum_devices(**{name: int(case[name]) for name in ("tp", "pp", "cp", "ep", "etp")}).item()
    experts = shape.experts.routed if shape.experts else 1
    tokens = float(case["tokens"]) if case.knows("tokens") else 2 * given
    most = {
        "tp": min(shape.attention_heads, max(given, 4096)),
        "pp": min(shape.layers, max(given, 4096)),
        "vpp": min(shape.layers, max(given, 4096)),
        "cp": max(min(tokens / 2, 65536), given),
        "ep": experts + (float(case["redundant_experts"]) if case.knows("redundant_experts") else 0),
        "etp": min(shape.experts.width, 4096) if shape.experts else 1,
        "dp": max(2 * given, float(case.world), fewest),
        "micro_batch": float(case["batch"]) if case.knows("batch") else given,
        "devices": 2 * max(given, fewest),
        "decode_cp": float(case["tp"]),
    }[axis]
    return float(most)


def _one_layout(case: Case) -> None:
    sizes = {name: np.shape(values) for name, values in vars(case.layouts).items() if np.ndim(values)}
    if sizes:
        shapes = ", ".join(f"{name} {shape}" for name, shape in sizes.items())
        raise ValueError(f"Sentences are about one layout, but the axes have shapes: {shapes}. Use `legal`.")


def _name(key: str) -> str:
    """A tool with its version, as a sentence names it."""
    return f"{TOOLS[key].name} ({TOOLS[key].version})"


def _either(axis: str, sizes: tuple[int, ...]) -> str:
    return " or ".join(_value(axis, size) for size in sizes)


def _value(axis: str, size: float) -> str:
    if axis == "sp":
        return "on" if size else "off"
    return f"{size:,.10g}"
