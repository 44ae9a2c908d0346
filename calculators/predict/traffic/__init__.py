"""What each family moves between devices, in decode, prefill and training: one function a family.

Every function takes numbers or arrays that broadcast, and gives a `Traffic`. Which algorithm carries out the calls is
an argument (`collectives.Backend`), the textbook's rings unless another is named.
"""

from calculators.predict.traffic.context import context_parallel, hiding_block_tokens, ulysses_crossover
from calculators.predict.traffic.data import data_parallel
from calculators.predict.traffic.expert import (
    capacity,
    exchange_bytes,
    expected_ranks,
    expert_parallel,
    node_copies,
)
from calculators.predict.traffic.figures import Calls, Formula, Traffic
from calculators.predict.traffic.pipeline import TOKEN_ID_BYTES, pipeline_parallel
from calculators.predict.traffic.tensor import tensor_parallel

__all__ = [
    "TOKEN_ID_BYTES",
    "Calls",
    "Formula",
    "Traffic",
    "capacity",
    "context_parallel",
    "data_parallel",
    "exchange_bytes",
    "expected_ranks",
    "expert_parallel",
    "hiding_block_tokens",
    "node_copies",
    "pipeline_parallel",
    "tensor_parallel",
    "ulysses_crossover",
]
