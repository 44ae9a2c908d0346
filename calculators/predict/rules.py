"""The rules of which sizes divide which, as data: what was given, why it cannot work, the nearest that does.

The numbers R1, R2 and R4 are those of the catalogue in the documentation; later rules join the same table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from calculators.predict.shapes import Layout, ModelShape


@dataclass(frozen=True, kw_only=True)
class Violation:
    """One rule that a layout breaks. `sentence` is ready to be shown."""

    rule: str
    axis: str
    given: str
    why: str
    nearest: tuple[int, ...]

    @property
    def sentence(self) -> str:
        """What was given, why it cannot work, and what does."""
        sizes = " or ".join(str(size) for size in self.nearest)
        return (
            f"{self.given}, {self.why}. Nearest that {'work' if len(self.nearest) > 1 else 'works'}: {sizes}."
        )


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One rule: the axis it limits, when a size of it is fine, why not otherwise, and who enforces it."""

    id: str
    axis: str
    holds: Callable[[ModelShape, int], bool]
    why: Callable[[ModelShape, int], str]
    source: str


RULES = (
    Rule(
        id="R1",
        axis="tp",
        holds=lambda shape, size: shape.attention_heads % size == 0,
        why=lambda shape, size: (
            f"but {size} ranks cannot share {shape.attention_heads} attention heads equally"
        ),
        source="Megatron-LM transformer_config.py; vLLM refuses to start",
    ),
    Rule(
        id="R2",
        axis="tp",
        holds=lambda shape, size: shape.kv_heads % size == 0 or size % shape.kv_heads == 0,
        why=lambda shape, size: (
            f"but {shape.kv_heads} key-value heads can neither be shared equally by {size} ranks "
            "nor repeated equally on them"
        ),
        source="Megatron-LM transformer_config.py: num_query_groups is a multiple or a divisor",
    ),
    Rule(
        id="R4",
        axis="pp",
        holds=lambda shape, size: shape.layers % size == 0,
        why=lambda shape, size: f"but {shape.layers} layers do not make {size} stages of equal depth",
        source="Megatron-LM; uneven stages need a layout of their own, vLLM allows them",
    ),
)


def check(shape: ModelShape, layout: Layout) -> tuple[Violation, ...]:
    """Every rule that `layout` breaks for `shape`, in the order of RULES; empty when all hold.

    The nearest sizes that work obey all rules of that axis together.

    >>> from calculators.predict.catalogue import MODELS
    >>> [found] = check(MODELS["llama-3.1-70b"].shape, Layout(pp=3))
    >>> found.sentence
    'pp is 3, but 80 layers do not make 3 stages of equal depth. Nearest that work: 2 or 4.'
    """
    return tuple(
        Violation(
            rule=rule.id,
            axis=rule.axis,
            given=f"{rule.axis} is {size}",
            why=rule.why(shape, size),
            nearest=nearest_sizes(shape, rule.axis, size),
        )
        for rule in RULES
        if not rule.holds(shape, size := getattr(layout, rule.axis))
    )


def sizes_that_work(shape: ModelShape, axis: str) -> tuple[int, ...]:
    """Every size of `axis` ("tp" or "pp") that obeys its rules for `shape`, ascending.

    >>> from calculators.predict.catalogue import MODELS
    >>> sizes_that_work(MODELS["phi-4"].shape, "tp")
    (1, 2, 5, 10, 20, 40)
    """
    most = {"tp": shape.attention_heads, "pp": shape.layers}.get(axis)
    if most is None:
        raise ValueError(f"axis is {axis!r}, but the rules here are about tp and pp. Use one of those.")
    rules = [rule for rule in RULES if rule.axis == axis]
    return tuple(size for size in range(1, most + 1) if all(rule.holds(shape, size) for rule in rules))


def nearest_sizes(shape: ModelShape, axis: str, size: int) -> tuple[int, ...]:
    """The size itself if it works, else the nearest below and above it that do, where there are."""
    works = sizes_that_work(shape, axis)
    if size in works:
        return (size,)
    below = [other for other in works if other < size][-1:]
    above = [other for other in works if other > size][:1]
    return tuple(below + above)
