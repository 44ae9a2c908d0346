"""What each family moves between devices, in decode, prefill and training: one function a family.

Every function takes numbers or arrays that broadcast, and gives a `Traffic`. Which algorithm carries out the calls is
an argument (`collectives.Backend`), the textbook's rings unless another is named.
"""

from calculators.predict.traffic.figures import Calls, Formula, Traffic
from calculators.predict.traffic.pipeline import TOKEN_ID_BYTES, pipeline_parallel
from calculators.predict.traffic.tensor import tensor_parallel

__all__ = [
    "TOKEN_ID_BYTES",
    "Calls",
    "Formula",
    "Traffic",
    "pipeline_parallel",
    "tensor_parallel",
]
