"""What no run may exceed, and the rules that hold for every job; `splits` has those of each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from calculators.lab.problems import Problem, must_divide

if TYPE_CHECKING:
    from calculators.lab.spec import Spec

MAX_RANKS = 16
MAX_BYTES = 8 * 2**30

VERIFIED_TOKENS = 2
"""Tokens that a decoding job is proved on; the second reads what the first left in the cache."""
HIDDEN_STATES_PER_LAYER = 20
"""Saved for backward by a layer of this lab's transformer, roughly: attention 8, feed-forward 2 × width, norms."""


def contradictions(spec: Spec) -> list[Problem]:
    """Every problem between fields, in the order in which a form shows them."""
    from calculators.lab.splits import split_of  # it needs the spec, whose module needs this one

    own = split_of(spec).contradictions(spec)
    if not spec.has_model:
        return [*_hosts(spec), *own]
    return [*_hosts(spec), *_heads(spec), *own, *_size(spec)]


def _hosts(spec: Spec) -> Iterator[Problem]:
    yield from must_divide(
        "ranks",
        spec.ranks,
        spec.hosts,
        f"{spec.ranks} ranks cannot be dealt to {spec.hosts} emulated hosts evenly. "
        "Every host holds the same number of ranks.",
        "hosts",
    )


def _heads(spec: Spec) -> Iterator[Problem]:
    yield from must_divide(
        "hidden_size",
        spec.hidden_size,
        spec.attention_heads,
        f"hidden_size is {spec.hidden_size}, which {spec.attention_heads} attention heads do not divide "
        "evenly. Every head needs the same whole number of elements.",
        "heads",
    )


def _size(spec: Spec) -> Iterator[Problem]:
    weights = weight_bytes(spec)
    if weights > MAX_BYTES:
        yield Problem(
            "hidden_size",
            f"This model has {spec.parameters:,} parameters; its {spec.ranks} ranks would need about "
            f"{weights / 2**30:,.1f} GiB with the unsharded copies they are checked against, and the lab stops "
            f"at {MAX_BYTES // 2**30} GiB. Traffic follows batch × hidden_size × layers: a narrower "
            "model with a larger batch moves the same bytes.",
        )
    if spec.batch % spec.microbatches:
        return  # said already
    held = held_bytes(spec)
    what = "activations of one step" if spec.is_training else "keys and values"
    if held > MAX_BYTES:
        yield Problem(
            "batch",
            f"The {what} would need about {held / 2**30:,.1f} GiB on all ranks together, and the lab stops at "
            f"{MAX_BYTES // 2**30} GiB. Take fewer sequences, "
            + ("tokens or layers." if spec.is_training else "steps or layers."),
        )


def shown_bytes(number: float) -> str:
    """Bytes in the largest unit that leaves one or more of it."""
    for power, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if number >= 2**power:
            return f"{number / 2**power:,.1f} {unit}"
    return f"{number:,.0f} bytes"


def memory_bytes(spec: Spec) -> int:
    """About what all ranks together need in memory at once, beside Python and torch themselves."""
    if spec.has_model:
        return weight_bytes(spec) + held_bytes(spec)
    from calculators.lab.splits.exchange import EXCHANGED_COPIES

    return spec.ranks * EXCHANGED_COPIES * spec.call_bytes


def weight_bytes(spec: Spec) -> int:
    """Every rank holds its part, and the whole model until the part is proved; training has gradients of both."""
    copies = (spec.ranks + 1) * (2 if spec.is_training else 1)
    return spec.parameters * spec.dtype.bytes_per_element * copies


def held_bytes(spec: Spec) -> int:
    """What a step leaves in memory beside the weights, on all ranks, while the whole model is there as well.

    Decode: keys and values. Training: about `HIDDEN_STATES_PER_LAYER` hidden states saved for backward, and the
    logits with their gradients.
    """
    token = spec.batch * spec.hidden_size * spec.dtype.bytes_per_element
    if not spec.is_training:
        proofs = spec.ranks * VERIFIED_TOKENS
        return 2 * spec.layers * token * (spec.context + proofs)
    logits = 3 * spec.batch * spec.tokens * spec.vocab_size * 4
    return (spec.ranks + 1) * (spec.layers * HIDDEN_STATES_PER_LAYER * token * spec.tokens + logits)
