"""The weight matrices of the lab's transformer as a plan knows them: their shapes, in the model's own order.

`jobs/transformer.py` registers them so, and data-parallel buckets and shards follow from that order.
"""

import math
from typing import NamedTuple

from calculators.lab.spec import Qkv, Spec


class Weight(NamedTuple):
    """One parameter of the model: rows first, as torch keeps a linear's (outputs, inputs)."""

    shape: tuple[int, ...]

    @property
    def elements(self) -> int:
        """Of the whole matrix."""
        return math.prod(self.shape)

    @property
    def row(self) -> int:
        """Elements of one row."""
        return math.prod(self.shape[1:])

    def rows_of(self, rank: int, ranks: int) -> int:
        """The rows that `rank` keeps when whole rows are dealt to `ranks` as torch.chunk does: the last get fewer."""
        each = self.most_rows(ranks)
        return max(0, min(each, self.shape[0] - rank * each))

    def most_rows(self, ranks: int) -> int:
        """The rows that the first of `ranks` keeps; the others are padded to as many."""
        return -(-self.shape[0] // ranks)

    def padded_elements(self, ranks: int) -> int:
        """Its elements with every rank's rows padded to the first one's."""
        return ranks * self.most_rows(ranks) * self.row


def of_a_layer(spec: Spec) -> tuple[Weight, ...]:
    """Norm, q/k/v, output, norm, up, down."""
    h, width = spec.hidden_size, spec.ffn_width
    inputs = ((3 * h, h),) if spec.qkv is Qkv.FUSED else ((h, h),) * 3
    shapes: tuple[tuple[int, ...], ...] = ((h,), *inputs, (h, h), (h,), (width, h), (h, width))
    return tuple(map(Weight, shapes))


def before_the_layers(spec: Spec) -> tuple[Weight, ...]:
    """The embedding."""
    return (Weight((spec.vocab_size, spec.hidden_size)),)


def after_the_layers(spec: Spec) -> tuple[Weight, ...]:
    """The last norm and the head."""
    return (Weight((spec.hidden_size,)), Weight((spec.vocab_size, spec.hidden_size)))


def of_the_model(spec: Spec) -> tuple[Weight, ...]:
    """All of them."""
    return (*before_the_layers(spec), *(spec.layers * of_a_layer(spec)), *after_the_layers(spec))
