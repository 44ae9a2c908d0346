"""What the facts say about sizes of groups without being asked."""

from __future__ import annotations

from calculators.predict.advisor.advice import Technique as T
from calculators.predict.advisor.facts import Facts


def in_use(facts: Facts) -> tuple[T, ...]:
    """The families that the layout has already."""
    sizes = ((T.TENSOR, facts.tp), (T.PIPELINE, facts.pp), (T.CONTEXT, facts.cp), (T.EXPERT, facts.ep))
    return tuple(family for family, size in sizes if (size or 1) > 1)


def tensor_sizes(facts: Facts) -> tuple[int, ...]:
    """Sizes of a tensor-parallel group that the heads allow, as far as they are known."""
    if not (facts.attention_heads or facts.kv_heads):
        return tuple(range(1, 129))
    heads = facts.attention_heads or 2**6 * 720_720
    kv_heads = facts.kv_heads or heads
    return tuple(
        size
        for size in range(1, min(heads, 128) + 1)
        if heads % size == 0 and (kv_heads % size == 0 or size % kv_heads == 0)
    )


def tensor_size(facts: Facts, need: int, reach: int) -> int:
    """The group that shares a layer: one that holds all of it if the fast link reaches so far, else an equal part."""
    fine = [size for size in tensor_sizes(facts) if size <= reach]
    whole = [size for size in fine if size >= need and reach % size == 0]
    return min(whole) if whole else max((size for size in fine if need % size == 0), default=1)


def either(sizes: tuple[int, ...]) -> str:
    """The sizes as words: 2 or 4."""
    return " or ".join(f"{size:,}" for size in sizes) or "another size"
