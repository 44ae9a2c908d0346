"""The choices that a spec makes by name, each the value that TOML, forms and addresses write."""

from enum import StrEnum
from typing import Literal

Family = Literal["dp", "tp", "pp", "sp", "cp", "ep"]


class Job(StrEnum):
    """What a run does: split a model by one family or by several, make a family's calls alone, or time a link."""

    DATA = "data"
    SHARDED = "sharded"
    TENSOR = "tensor"
    PIPELINE = "pipeline"
    CONTEXT = "context"
    EXPERT = "expert"
    MESH = "mesh"
    EXCHANGE = "exchange"
    CALIBRATION = "calibration"


class Phase(StrEnum):
    """What one measured step is: a token decoded, a prompt read (forward alone), or an optimizer's step of training."""

    DECODE = "decode"
    PREFILL = "prefill"
    TRAINING = "training"


class Gradients(StrEnum):
    """What data-parallel replicas do with their gradients: sum them, or (to see why one must) nothing."""

    SUMMED = "summed"
    KEPT = "kept"


class Schedule(StrEnum):
    """The order in which a pipeline's stages work through micro-batches in training."""

    GPIPE = "gpipe"
    ONE_F_ONE_B = "1f1b"
    INTERLEAVED = "interleaved"
    LOOPED_BFS = "looped-bfs"
    INTERLEAVED_ZERO_BUBBLE = "interleaved-zero-bubble"
    ZBV = "zbv"

    @property
    def has_chunks(self) -> bool:
        """Whether each rank holds several stages of the model."""
        return self not in (Schedule.GPIPE, Schedule.ONE_F_ONE_B)


class Qkv(StrEnum):
    """Whether attention's three input projections are one matrix or three."""

    FUSED = "fused"
    SEPARATE = "separate"


class Attention(StrEnum):
    """How context-parallel ranks let every query meet every key."""

    RING = "ring"
    KEY_VALUE_GATHER = "key-value-gather"
    ULYSSES = "ulysses"


class ReduceScatter(StrEnum):
    """How a reduce-scatter is made: as the backend does it, or as an all-to-all and a sum on each rank."""

    BACKEND = "backend"
    ALL_TO_ALL = "all-to-all"


class Order(StrEnum):
    """Which family's ranks are neighbours when several are composed: they fill a host first."""

    TENSOR_INSIDE = "tensor-inside"
    PIPELINE_INSIDE = "pipeline-inside"


class Pattern(StrEnum):
    """Whose calls an exchange makes (`docs/lab.md` lists them)."""

    GRADIENTS = "gradients"
    ZERO_1 = "zero-1"
    ZERO_2 = "zero-2"
    ZERO_3 = "zero-3"
    RING = "ring"
    KEY_VALUE_GATHER = "key-value-gather"
    ULYSSES = "ulysses"
    EXPERTS = "experts"

    @property
    def family(self) -> Family:
        """The family whose calls these are."""
        if self is Pattern.EXPERTS:
            return "ep"
        return "cp" if self in (Pattern.RING, Pattern.KEY_VALUE_GATHER, Pattern.ULYSSES) else "dp"


class Dtype(StrEnum):
    """The type of weights and activations."""

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"

    @property
    def bytes_per_element(self) -> int:
        return 4 if self is Dtype.FLOAT32 else 2


class Device(StrEnum):
    """Where ranks compute; `auto` takes CUDA GPUs where there are any."""

    AUTO = "auto"
    CPU = "cpu"
    CUDA = "cuda"
