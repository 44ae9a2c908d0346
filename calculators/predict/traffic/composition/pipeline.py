"""What stages hand over, and what the first and the last hold together."""

from __future__ import annotations

from calculators.predict.arrays import anywhere, floats
from calculators.predict.collectives import Kind
from calculators.predict.traffic.composition.case import Case
from calculators.predict.traffic.composition.shares import ENDS, NEXT, PREVIOUS, Share


def pipeline_shares(case: Case, tensors: int, *, scatter_gather: bool) -> list[Share]:
    """Sends of each boundary, what tensor-parallel ranks gather of them, and a tied embedding's gradients."""
    p, t, sp = case.axes["pp"], case.axes["tp"], case.more["sp"]
    if not anywhere(p > 1):
        return []
    whole = (1 - sp) * (not scatter_gather)
    size = case.hidden_bytes * (whole + (1 - whole) / t)
    times = tensors * case.m
    shares = [
        case.share("pp", Kind.SEND, "hidden states", ranks=p, calls={"forward": times}, size=size, to=NEXT)
    ]
    if case.training:
        what = "gradients"
        shares.append(
            case.share("pp", Kind.SEND, what, ranks=p, calls={"backward": times}, size=size, to=PREVIOUS)
        )
    if scatter_gather and anywhere((t > 1) & (sp < 1)):
        # What a stage gets from the one before is as much as it would send back there, and the other way round.
        arriving = {"backward": times * (1 - sp)} | ({"forward": times * (1 - sp)} if case.training else {})
        what, x = "parts from the other stage", case.hidden_bytes
        shares.append(case.share("tp", Kind.ALL_GATHER, what, ranks=t, calls=arriving, size=x))
    if case.training and case.shape.tied_embeddings:
        what, half = (
            "gradients of the embedding that both ends hold",
            {"first": floats(0.5), "last": floats(0.5)},
        )
        full = case.shape.vocab_size * case.shape.hidden_size / t * case.widths["gradient_bytes_per_element"]
        shares.append(case.share("pp", Kind.ALL_REDUCE, what, ranks=p, calls=half, size=full, to=ENDS))
    return shares
