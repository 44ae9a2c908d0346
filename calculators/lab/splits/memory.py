"""What a rank holds in training: weights, gradients, optimizer state, and what its forward pass saves for backward.

Saved bytes are those of `predict.memory.activations` for the block that runs here: RMS norms, attention that keeps no
score matrix, a two-matrix feed-forward block, no dropout. What the code keeps beyond them is counted apart, as the
backend's: a number a token for each norm and for each head's softmax, ids, and tokens that sequence parallelism
has gathered.

Tokens are those of all sequences in a step (or micro-batch) together; a split that shares them out, over
sequences or along them, passes what is left for one rank.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from calculators.lab.choices import Qkv
from calculators.lab.measurements import Prediction, Quantity
from calculators.lab.spec import Spec
from calculators.predict.arrays import floats
from calculators.predict.memory.activations import last_stage_bytes_per_token, layer_activations
from calculators.predict.memory.states import attention_of_rank
from calculators.predict.models.parameters import (
    feed_forward_parameters,
    norm_parameters,
    table_parameters,
)
from calculators.predict.shapes import ModelShape, Recompute

WEIGHTS = "weights"
GRADIENTS = "gradients"
OPTIMIZER = "optimizer"
SAVED = "saved for backward"
PEAK = "peak"

ID_BYTES = 8
"""A token id: torch looks up rows, and takes targets, by int64."""
STATISTIC_BYTES = 4
"""A norm's scale, a softmax's logarithm of its sum, a loss's total weight: float32 in every element type."""


@dataclass(frozen=True, kw_only=True)
class Kept:
    """Bytes saved for backward: by the textbook's formula, and what this code keeps beyond it."""

    formula: float = 0.0
    excess: float = 0.0

    def __add__(self, other: "Kept") -> "Kept":
        return Kept(formula=self.formula + other.formula, excess=self.excess + other.excess)

    def __mul__(self, times: float) -> "Kept":
        """As often: of as many layers, or micro-batches in flight."""
        return Kept(formula=self.formula * times, excess=self.excess * times)

    @property
    def total(self) -> float:
        return self.formula + self.excess


def layer(spec: Spec, *, tokens: float, tp: int = 1, by_tokens: bool = False, regather: bool = False) -> Kept:
    """One layer, its matrices cut over `tp` ranks; between the blocks the tokens as well if `by_tokens`.

    Without `regather` the tokens that sequence parallelism has gathered are kept until the backward pass: once for
    each block, and once for each of q, k and v where these are separate.
    """
    shape = shape_of(spec)
    formula = layer_activations(
        shape, tokens=tokens, tp=tp, sp=by_tokens, recompute=int(Recompute.SELECTIVE), dropout=False
    )
    beside = tokens / tp if by_tokens else tokens
    excess = STATISTIC_BYTES * (2 * beside + shape.attention_heads / tp * tokens)
    if by_tokens and tp > 1 and not regather:
        gathered = 2 if spec.qkv is Qkv.FUSED else 4
        excess += spec.row_bytes * (gathered * tokens - 2 * beside)
    return Kept(formula=float(formula), excess=excess)


def first_end(*, tokens: float) -> Kept:
    """The embedding: the ids it looked up."""
    return Kept(excess=ID_BYTES * tokens)


def last_end(spec: Spec, *, tokens: float) -> Kept:
    """Inputs of the last norm and of the head, logits in float32; besides, the norm's scales, targets, total weight."""
    per_token = last_stage_bytes_per_token(shape_of(spec), tp=floats(1), beside=floats(1))
    return Kept(
        formula=float(per_token) * tokens,
        excess=(STATISTIC_BYTES + ID_BYTES) * tokens + STATISTIC_BYTES,
    )


def stack(
    spec: Spec,
    *,
    layers: int,
    tokens: float,
    is_first: bool = True,
    is_last: bool = True,
    tp: int = 1,
    by_tokens: bool = False,
    regather: bool = False,
) -> Kept:
    """Some layers and the ends that they have, of one step or micro-batch; the ends are cut by tokens only."""
    kept = layer(spec, tokens=tokens, tp=tp, by_tokens=by_tokens, regather=regather) * layers
    at_ends = tokens / tp if by_tokens else tokens
    if is_first:
        kept += first_end(tokens=at_ends)
    if is_last:
        kept += last_end(spec, tokens=at_ends)
    return kept


def parameters(spec: Spec, *, layers: int, is_first: bool = True, is_last: bool = True, tp: int = 1) -> float:
    """Weights of some layers, their matrices cut over `tp` ranks, and of the ends that they have, which are whole."""
    shape = shape_of(spec)
    matrices = float(attention_of_rank(shape, tp)) + feed_forward_parameters(shape) / tp
    ends = table_parameters(shape) * (is_first + is_last) + spec.hidden_size * is_last
    return layers * (matrices + norm_parameters(shape)) + ends


def predictions(spec: Spec, rank: int, *, parameters: float, kept: Kept) -> Iterator[Prediction]:
    """What `rank` holds with all of its weights' gradients, and plain SGD, which remembers nothing."""
    states = parameters * spec.dtype.bytes_per_element
    for detail, formula, excess in (
        (WEIGHTS, states, 0.0),
        (GRADIENTS, states, 0.0),
        (OPTIMIZER, 0.0, 0.0),
        (SAVED, kept.formula, kept.excess),
    ):
        yield Prediction(
            quantity=Quantity.MEMORY, rank=rank, detail=detail, formula=formula, backend_excess=excess
        )


@lru_cache(maxsize=64)
def shape_of(spec: Spec) -> ModelShape:
    """This lab's transformer (`jobs/transformer.py`) as the calculators know a model."""
    return ModelShape(
        name="the lab's transformer",
        hidden_size=spec.hidden_size,
        layers=spec.layers,
        attention_heads=spec.attention_heads,
        kv_heads=spec.attention_heads,
        head_dim=spec.head_dim,
        ffn_width=spec.ffn_width,
        vocab_size=spec.vocab_size,
        bytes_per_element=spec.dtype.bytes_per_element,
        gated=False,
        source="calculators/lab/jobs/transformer.py",
    )
