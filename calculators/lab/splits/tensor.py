"""Tensor parallelism: every rank holds a slice of every layer; with SP, the norms' tokens are cut as well."""

from collections.abc import Iterable, Iterator

from calculators.lab.calls import Call
from calculators.lab.measurements import Prediction
from calculators.lab.problems import Problem, must_divide
from calculators.lab.spec import Qkv, Spec
from calculators.lab.splits import memory as held
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
    if spec.sequence:
        yield from whole_tokens(spec, spec.ranks)
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


def whole_tokens(spec: Spec, slices: int) -> Iterator[Problem]:
    """Tokens that sequence parallelism cannot share out among `slices` ranks evenly."""
    if spec.is_decode:
        yield Problem(
            "sequence",
            "sequence is on, but a decode step has one token of each sequence in flight, and one token cannot be "
            "cut. Take prefill or training, or turn it off.",
        )
        return
    yield from must_divide(
        "tokens",
        spec.tokens,
        slices,
        f"{spec.tokens} tokens cannot be cut into {slices} equal parts. "
        "Sequence parallelism gives every rank the same number of tokens between the blocks.",
        "ranks",
    )


def calls(spec: Spec) -> Iterator[Call]:
    """The exchanges of the hidden state: sums of it whole or, with sequence parallelism, gathers and scattered sums."""
    if spec.ranks == 1:
        return
    if spec.sequence:
        yield from _sequence_calls(spec)
        return
    yield Call(
        op=Kind.ALL_REDUCE,
        payload_bytes=spec.activation_bytes,
        times=spec.layers * all_reduces_per_layer(spec),
        what="hidden state, summed over all ranks after attention and after feed-forward",
        axis="tp",
    )


def all_reduces_per_layer(spec: Spec) -> int:
    """2 forward; training adds 2 backward, or 4 when q, k and v each reduce the gradient of their input."""
    return 2 + _inputs(spec) if spec.is_training else 2


def _sequence_calls(spec: Spec) -> Iterator[Call]:
    """Forward each block gathers and scatters, backward the mirror image; `regather` gathers its input again."""
    inputs, outputs, training = _inputs(spec), 2, spec.is_training
    gathers = inputs + training * (outputs + spec.regather * inputs)
    yield Call(
        op=Kind.ALL_GATHER,
        payload_bytes=spec.activation_bytes,
        times=spec.layers * gathers,
        what="hidden state, all ranks' tokens before attention and before feed-forward"
        + (", and its gradient behind them" if training else ""),
        axis="sp",
    )
    yield Call(
        op=Kind.REDUCE_SCATTER,
        payload_bytes=spec.activation_bytes,
        times=spec.layers * (outputs + training * inputs),
        what="hidden state, summed and cut by tokens after attention and after feed-forward"
        + (", and its gradient before them" if training else ""),
        axis="sp",
    )
    if training:
        # Megatron-LM sums these once a step, too; they do not grow with the tokens, and no lesson counts them.
        yield Call(
            op=Kind.ALL_REDUCE,
            payload_bytes=_whole_parameters(spec) * spec.dtype.bytes_per_element,
            times=1,
            what="gradients of norms, embedding and head, of which each rank has its tokens' part",
            axis="sp",
            is_control=True,
        )


def _inputs(spec: Spec) -> int:
    """Column-cut matrices of a layer that each exchange their input by themselves."""
    return 2 if spec.qkv is Qkv.FUSED else 4


def _whole_parameters(spec: Spec) -> int:
    """Those that every rank holds whole: two norms a layer, embedding, last norm and head."""
    return (2 * spec.layers + 1 + 2 * spec.vocab_size) * spec.hidden_size


def layers_by_rank(spec: Spec) -> tuple[range, ...]:
    """A slice of every layer."""
    return (range(spec.layers),) * spec.ranks


def memory(spec: Spec) -> Iterable[Prediction]:
    """In training a slice of every matrix, and the ends whole; all tokens or, between the blocks, a share."""
    if not spec.is_training:
        return
    kept = held.stack(
        spec,
        layers=spec.layers,
        tokens=spec.batch * spec.tokens,
        tp=spec.ranks,
        by_tokens=spec.sequence,
        regather=spec.regather,
    )
    parameters = held.parameters(spec, layers=spec.layers, tp=spec.ranks)
    for rank in range(spec.ranks):
        yield from held.predictions(spec, rank, parameters=parameters, kept=kept)
