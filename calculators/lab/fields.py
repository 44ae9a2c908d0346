"""Which fields of a spec each job looks at; the others stay at their defaults, whatever a form sends."""

from collections.abc import Callable, Mapping
from typing import Any

from calculators.lab.choices import Attention, Gradients, Job, Order, Pattern, Phase, ReduceScatter

Values = Mapping[str, Any]

_EVERYWHERE = (
    "job",
    "ranks",
    "hosts",
    "link_mbit",
    "delay_ms",
    "jitter_ms",
    "dtype",
    "device",
    "steps",
    "warmup_steps",
    "seed",
    "time_limit_seconds",
    "note",
)
_MODEL = ("layers", "hidden_size", "attention_heads", "ffn_width", "vocab_size", "phase", "batch", "tokens")
_EXPERTS = ("experts", "top_k")

_BY_JOB: dict[Job, tuple[str, ...]] = {
    Job.DATA: (*_MODEL, "gradients", "lost_rank"),
    Job.SHARDED: (*_MODEL, "zero", "reduce_scatter"),
    Job.TENSOR: (*_MODEL, "microbatches", "qkv", "sequence", "regather", "reduce_scatter"),
    Job.PIPELINE: (*_MODEL, "microbatches", "schedule", "chunks"),
    Job.CONTEXT: (*_MODEL, "attention", "zigzag", "reduce_scatter"),
    Job.EXPERT: (*_MODEL, *_EXPERTS, "skew", "capacity"),
    Job.MESH: (*_MODEL, *_EXPERTS, "microbatches", "schedule", "tp", "pp", "dp", "ep", "order"),
    Job.EXCHANGE: ("pattern", "call_bytes", "repeats", "skew", "hidden_size", "reduce_scatter"),
    Job.CALIBRATION: ("call_bytes", "repeats"),
}

_EMULATED = ("link_mbit", "delay_ms", "jitter_ms")

# A field that is read, but only where another one says so.
_ONLY_WHERE: dict[tuple[Job, str], Callable[[Values], bool]] = {
    (Job.DATA, "gradients"): lambda values: values.get("phase") == Phase.TRAINING,
    (Job.DATA, "lost_rank"): lambda values: values.get("phase", Phase.DECODE) == Phase.DECODE,
    (Job.TENSOR, "regather"): lambda values: bool(values.get("sequence")),
    (Job.TENSOR, "reduce_scatter"): lambda values: bool(values.get("sequence")),
    (Job.PIPELINE, "schedule"): lambda values: values.get("phase", Phase.DECODE) != Phase.DECODE,
    (Job.PIPELINE, "chunks"): lambda values: values.get("phase", Phase.DECODE) != Phase.DECODE,
    (Job.MESH, "schedule"): lambda values: values.get("phase", Phase.DECODE) != Phase.DECODE,
    (Job.CONTEXT, "reduce_scatter"): lambda values: values.get("attention") == Attention.KEY_VALUE_GATHER,
    (Job.CONTEXT, "zigzag"): lambda values: values.get("attention") != Attention.ULYSSES,
    (Job.MESH, "experts"): lambda values: values.get("ep", 1) > 1,
    (Job.MESH, "top_k"): lambda values: values.get("ep", 1) > 1,
    (Job.EXCHANGE, "skew"): lambda values: values.get("pattern") == Pattern.EXPERTS,
    (Job.EXCHANGE, "hidden_size"): lambda values: values.get("pattern") == Pattern.EXPERTS,
    (Job.EXCHANGE, "reduce_scatter"): lambda values: str(values.get("pattern", "")).startswith("zero"),
}

LATER_DEFAULTS = {
    "hosts": 1,
    "gradients": Gradients.SUMMED,
    "sequence": False,
    "regather": False,
    "zigzag": False,
    "lost_rank": -1,
    "chunks": 1,
    "order": Order.TENSOR_INSIDE,
    "reduce_scatter": ReduceScatter.BACKEND,
}
"""Fields that a spec written down leaves out while they say nothing."""


def is_read(name: str, values: Values) -> bool:
    """Whether the job in `values` looks at the field `name`."""
    job = Job(values["job"])
    if name in _EMULATED and values.get("hosts", 1) == 1:
        return False
    if name not in _EVERYWHERE and name not in _BY_JOB[job]:
        return False
    where = _ONLY_WHERE.get((job, name))
    return where is None or where(values)
