"""Tensor parallelism: every rank holds a slice of every layer; with SP, the norms' tokens are cut as well."""

from collections.abc import Iterable, Iterator

from calculators.lab.calls import Call
from calculators.lab.measurements import Prediction
from calculators.lab.problems import Problem, must_divide
from calculators.lab.spec import Qkv, Spec
from calculators.predict.collectives import Kind


def contradictions(spec: Spec) -> Iterator[Problem]:
    """Whole heads and equal columns on every rank (rule R1); a step takes the batch whole."""
    yield from whole_heads(spec, spec.ranks)
    yield from must_divide(
        "ffn_width",
        spec.ffn_width,
        spec.ranks,
        f"A feed-forward width of {spec.ffn_width} cannot be cut into {spec.ranks} equal slices. "
        "Tensor parallelism gives every rank the same number of columns.",
        "ranks",
    )
    if spec.microbatches != 1:
        yield Problem(
            "microbatches",
            f"microbatches is {spec.microbatches}, but a tensor-parallel step takes the batch whole. "
            "Leave it at 1, or run the pipeline job.",
        )


def whole_heads(spec: Spec, slices: int) -> Iterator[Problem]:
    """Heads that cannot be dealt to `slices` ranks evenly."""
    yield from must_divide(
        "attention_heads",
        spec.attention_heads,
        slices,
        f"{spec.attention_heads} attention heads cannot be cut into {slices} equal slices. "
        "Tensor parallelism gives every rank whole heads (rule R1).",
        "ranks",
    )


def calls(spec: Spec) -> Iterator[Call]:
    """All-reduces of the hidden state."""
    yield Call(
        op=Kind.ALL_REDUCE,
        payload_bytes=spec.activation_bytes,
        times=spec.layers * all_reduces_per_layer(spec),
        what="hidden state, summed over all ranks after attention and after feed-forward",
        axis="tp",
    )


def all_reduces_per_layer(spec: Spec) -> int:
    """2 forward; training adds 2 backward, or 4 when q, k and v each reduce the gradient of their input."""
    if not spec.is_training:
        return 2
    return 4 if spec.qkv is Qkv.FUSED else 6


def layers_by_rank(spec: Spec) -> tuple[range, ...]:
    """A slice of every layer."""
    return (range(spec.layers),) * spec.ranks


def memory(spec: Spec) -> Iterable[Prediction]:
    """Nothing is predicted yet."""
    return ()
