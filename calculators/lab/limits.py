"""What cannot be run although each field of a spec is fine alone: sizes that do not divide, or do not fit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from calculators.lab.problems import Problem

if TYPE_CHECKING:
    from calculators.lab.spec import Spec

MAX_RANKS = 16
MAX_BYTES = 8 * 2**30

VERIFIED_TOKENS = 2
"""Tokens that a decoding job is proved on; the second reads what the first left in the cache."""
EXCHANGED_COPIES = 8
"""Tensors of a call's full size that a rank of an exchange holds at most: four to exchange, four to check them."""
HIDDEN_STATES_PER_LAYER = 20
"""Saved for backward by a layer of this lab's transformer, roughly: attention 8, feed-forward 2 × width, norms."""


def contradictions(spec: Spec) -> list[Problem]:
    """Every problem between fields, in the order in which a form shows them."""
    if spec.job == "exchange":
        return [*_shares(spec), *_exchanged(spec)]
    return [*_division(spec), *_microbatches(spec), *_size(spec)]


def _shares(spec: Spec) -> Iterator[Problem]:
    """A call's tensor holds whole elements, a slice for every rank, or whole rows."""
    element = spec.dtype.bytes_per_element
    given = f"call_bytes is {spec.call_bytes}, but"
    if spec.pattern == "experts":
        step = spec.row_bytes
        sentence = (
            f"{given} experts get whole rows of {spec.hidden_size} {spec.dtype} elements, {step} bytes each."
        )
        instead = "hidden_size"
    elif spec.pattern in ("gradients", "ring"):
        step, instead = element, "dtype"
        sentence = f"{given} a tensor of {spec.dtype} holds whole elements of {element} bytes."
    else:
        step, instead = element * spec.ranks, "number of ranks"
        sentence = f"{given} each of {spec.ranks} ranks takes an equal slice of whole {spec.dtype} elements."
    if spec.call_bytes % step:
        below, above = spec.call_bytes // step * step, (spec.call_bytes // step + 1) * step
        values = f"{below} or {above}" if below else f"{above}"
        yield Problem("call_bytes", f"{sentence} Take {values}, or another {instead}.")


def _exchanged(spec: Spec) -> Iterator[Problem]:
    held = spec.ranks * EXCHANGED_COPIES * spec.call_bytes
    if held > MAX_BYTES:
        yield Problem(
            "call_bytes",
            f"The tensors of one call would need about {held / 2**30:,.1f} GiB on all ranks together, and the lab "
            f"stops at {MAX_BYTES // 2**30} GiB. Take smaller calls and more repeats: bytes follow their product.",
        )


def _division(spec: Spec) -> Iterator[Problem]:
    """Rules R1 and R4 of the catalogue, and the lab's own: every rank gets an equal, whole part."""
    yield from _must_divide(
        "hidden_size",
        spec.hidden_size,
        spec.attention_heads,
        f"hidden_size is {spec.hidden_size}, which {spec.attention_heads} attention heads do not divide "
        "evenly. Every head needs the same whole number of elements.",
        "heads",
    )
    if spec.job == "tensor":
        yield from _must_divide(
            "attention_heads",
            spec.attention_heads,
            spec.ranks,
            f"{spec.attention_heads} attention heads cannot be cut into {spec.ranks} equal slices. "
            "Tensor parallelism gives every rank whole heads (rule R1).",
            "ranks",
        )
        yield from _must_divide(
            "ffn_width",
            spec.ffn_width,
            spec.ranks,
            f"A feed-forward width of {spec.ffn_width} cannot be cut into {spec.ranks} equal slices. "
            "Tensor parallelism gives every rank the same number of columns.",
            "ranks",
        )
    else:
        yield from _must_divide(
            "layers",
            spec.layers,
            spec.ranks,
            f"{spec.layers} layers cannot be dealt to {spec.ranks} stages evenly. "
            "Each rank is one stage of the same number of layers here (rule R4).",
            "ranks",
        )


def _microbatches(spec: Spec) -> Iterator[Problem]:
    given = f"microbatches is {spec.microbatches}, but"
    if spec.job == "tensor" and spec.microbatches != 1:
        yield Problem(
            "microbatches",
            f"{given} a tensor-parallel step takes the batch whole. Leave it at 1, or run the pipeline job.",
        )
    elif not spec.is_training and spec.microbatches != 1:
        yield Problem(
            "microbatches", f"{given} a decode step passes one token of the whole batch. Leave it at 1."
        )
    elif spec.job == "pipeline" and spec.is_training:
        yield from _must_divide(
            "batch",
            spec.batch,
            spec.microbatches,
            f"A batch of {spec.batch} sequences cannot be cut into {spec.microbatches} equal micro-batches. "
            "Every micro-batch holds the same number of sequences.",
            "micro-batches",
        )
        if spec.schedule == "1f1b" and spec.microbatches < spec.ranks:
            yield Problem(
                "microbatches",
                f"{given} the 1F1B schedule needs at least one for each of the {spec.ranks} stages. "
                f"Take {spec.ranks} or more, or the GPipe schedule.",
            )


def _size(spec: Spec) -> Iterator[Problem]:
    weights = _weight_bytes(spec)
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
    held = _held_bytes(spec)
    what = "activations of one step" if spec.is_training else "keys and values"
    if held > MAX_BYTES:
        yield Problem(
            "batch",
            f"The {what} would need about {held / 2**30:,.1f} GiB on all ranks together, and the lab stops at "
            f"{MAX_BYTES // 2**30} GiB. Take fewer sequences, "
            + ("tokens or layers." if spec.is_training else "steps or layers."),
        )


def _weight_bytes(spec: Spec) -> int:
    """Every rank holds its part, and the whole model until the part is proved; training has gradients of both."""
    copies = (spec.ranks + 1) * (2 if spec.is_training else 1)
    return spec.parameters * spec.dtype.bytes_per_element * copies


def _held_bytes(spec: Spec) -> int:
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


def _must_divide(field: str, total: int, parts: int, sentence: str, others: str) -> Iterator[Problem]:
    if total % parts:
        below, above = total // parts * parts, (total // parts + 1) * parts
        values = f"{below} or {above}" if below else f"{above}"
        yield Problem(field, f"{sentence} Take {values}, or another number of {others}.")
