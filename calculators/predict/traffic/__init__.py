"""What each family moves between devices, in decode, prefill and training: one function a family.

Every function takes numbers or arrays that broadcast, and gives a `Traffic`. Which algorithm carries out the calls is
an argument (`collectives.Backend`), the textbook's rings unless another is named.
"""

from calculators.predict.formulas import Formula
from calculators.predict.traffic.composition import Composition, composed
from calculators.predict.traffic.context import context_parallel, hiding_block_tokens, ulysses_crossover
from calculators.predict.traffic.data import data_parallel
from calculators.predict.traffic.expert import (
    capacity,
    expected_ranks,
    expert_parallel,
    host_copies,
)
from calculators.predict.traffic.figures import Calls, Traffic
from calculators.predict.traffic.pairs import TierBytes, block_matrices, block_matrix, pair_matrix, tier_bytes
from calculators.predict.traffic.pipeline import TOKEN_ID_BYTES, pipeline_parallel
from calculators.predict.traffic.tensor import tensor_parallel

__all__ = [
    "TOKEN_ID_BYTES",
    "Calls",
    "Composition",
    "Formula",
    "TierBytes",
    "Traffic",
    "block_matrices",
    "block_matrix",
    "capacity",
    "composed",
    "context_parallel",
    "data_parallel",
    "expected_ranks",
    "expert_parallel",
    "hiding_block_tokens",
    "host_copies",
    "pair_matrix",
    "pipeline_parallel",
    "tensor_parallel",
    "tier_bytes",
    "ulysses_crossover",
]
