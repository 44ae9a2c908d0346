"""What replicas exchange: gradients, and weights where those are sharded."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from calculators.predict.arrays import Floats, anywhere, floats
from calculators.predict.collectives import Kind
from calculators.predict.memory.states import attention_of_rank
from calculators.predict.models import parameters
from calculators.predict.traffic.composition.case import Case
from calculators.predict.traffic.composition.shares import Share


def data_shares(case: Case, *, reshard: bool) -> list[Share]:
    """Calls for the parameters that dp·cp ranks hold alike, and for those of experts."""
    shape, t = case.shape, case.axes["tp"]
    stage = case.axes["dp"] * t * case.axes["cp"]
    copies = np.maximum(stage / (case.axes["ep"] * case.axes["etp"]), 1)
    table = parameters.table_parameters(shape) / t
    needs_output = (case.axes["pp"] > 1) | (not shape.tied_embeddings)
    dense = {  # a rank's parameters as in `model_states.rank_parameters`, by what a stage has
        "layer": attention_of_rank(shape, t) + parameters.norm_parameters(shape),
        "dense": parameters.feed_forward_parameters(shape) / t,
        "sparse": parameters.shared_expert_parameters(shape) / t + parameters.router_parameters(shape),
        "first": table + shape.positions * shape.hidden_size,
        "last": needs_output * table + shape.hidden_size,
    }
    shares = _replicas(case, "dp", case.axes["dp"] * case.axes["cp"], dense, reshard=reshard)
    if shape.experts:
        held = shape.experts.routed * parameters.expert_parameters(shape)
        sparse = {"sparse": held / (case.axes["ep"] * case.axes["etp"])}
        shares += _replicas(case, "edp", copies, sparse, reshard=reshard)
    return shares


def _replicas(case: Case, axis: str, n: Floats, held: Mapping[str, Floats], *, reshard: bool) -> list[Share]:
    zero, m = case.more["zero"], case.m
    plain, updated, sliced = floats(zero == 0), floats((zero == 1) | (zero == 2)), floats(zero >= 3)
    layers = "sparse" if axis == "edp" else "layer"
    if not anywhere(n > 1) or not (case.training or anywhere(sliced > 0)):
        return []
    g, w = case.widths["gradient_bytes_per_element"], case.widths["weight_bytes_per_element"]
    gathers = (1.0 + reshard) * m if case.training else floats(1)

    def share(kind: Kind, what: str, once: Floats, each: Floats, width: Floats) -> Share:
        return case.share(
            axis,
            kind,
            what,
            ranks=n,
            calls={"stage": once, layers: each},
            full={name: (once + each) * amount * width for name, amount in held.items()},
        )

    nothing, shares = floats(0), list[Share]()
    if case.training and anywhere(plain > 0):
        shares.append(share(Kind.ALL_REDUCE, "gradients", plain, nothing, g))
    if anywhere(plain < 1):
        if case.training:
            shares.append(share(Kind.REDUCE_SCATTER, "gradients", updated, sliced * m, g))
        weights = updated if case.training else nothing
        shares.append(share(Kind.ALL_GATHER, "weights", weights, sliced * gathers, w))
    return shares
