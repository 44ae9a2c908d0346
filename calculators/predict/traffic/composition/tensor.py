"""What tensor-parallel groups move, with or without sequence parallelism."""

from __future__ import annotations

from calculators.predict.arrays import Floats, anywhere, floats
from calculators.predict.collectives import Kind
from calculators.predict.shapes import Phase
from calculators.predict.traffic.composition.case import Case
from calculators.predict.traffic.composition.shares import Share
from calculators.predict.traffic.tensor import CROSS_ENTROPY_ALL_REDUCES, CROSS_ENTROPY_BYTES


def tensor_shares(case: Case, *, regather: bool, blocks: int, vocabulary: bool) -> list[Share]:
    """Calls around the blocks of each layer, and around the vocabulary where that is asked for."""
    t, sp, x, m = case.axes["tp"], case.more["sp"], case.hidden_bytes, case.m
    if not anywhere(t > 1):
        return []
    sent_out = 1 - case.experts_are_blocks
    shared = sent_out * bool(case.shape.experts and case.shape.experts.shared_width)
    both = case.forward + case.training
    again = both + case.training * regather

    def in_layers(times: Floats) -> dict[str, Floats]:
        return {"dense": times * blocks, "sparse": times * (1 + shared)}

    whole, gathered, scattered = (
        in_layers(m * both * (1 - sp)),
        in_layers(m * again * sp),
        in_layers(m * both * sp),
    )
    if vocabulary:
        back = floats(case.training)
        whole |= {"first": m * (1 - sp), "last": m * back * (1 - sp)}
        scattered |= {"first": m * sp, "last": m * back * sp}
        gathered |= {"first": m * back * sp, "last": m * sp * (1 + case.training * regather)}
    shares = []
    if anywhere(sp < 1):
        shares.append(
            case.share("tp", Kind.ALL_REDUCE, "outputs of the blocks", ranks=t, calls=whole, size=x)
        )
    if anywhere(sp > 0):
        shares += [
            case.share("tp", Kind.ALL_GATHER, "inputs of the blocks", ranks=t, calls=gathered, size=x),
            case.share("tp", Kind.REDUCE_SCATTER, "outputs of the blocks", ranks=t, calls=scattered, size=x),
        ]
    if case.shape.is_sparse and anywhere(sent_out * (1 - sp) > 0):
        results = {"sparse": m * both * sent_out * (1 - sp)}
        size = x / case.axes["cp"] if case.phase == Phase.DECODE else x
        shares.append(
            case.share("tp", Kind.ALL_GATHER, "results of the experts", ranks=t, calls=results, size=size)
        )
    if vocabulary and case.training:
        size = case.b * case.s * CROSS_ENTROPY_BYTES
        sums = {"last": CROSS_ENTROPY_ALL_REDUCES * m}
        shares.append(case.share("tp", Kind.ALL_REDUCE, "cross-entropy", ranks=t, calls=sums, size=size))
    elif vocabulary:
        size = case.b * case.shape.vocab_size * case.shape.bytes_per_element
        once = {"last": floats(1)}
        shares.append(
            case.share("tp", Kind.ALL_GATHER, "logits of the next token", ranks=t, calls=once, size=size)
        )
    return shares
