"""What a run is called: its heading, how large it is, and what a reader might take for a mistake."""

from calculators.lab.choices import Job
from calculators.lab.spec import Family, Pattern, Spec
from calculators.lab.splits import calls_of
from calculators.lab.splits.exchange import routed_rows
from calculators.predict.collectives import Kind
from calculators.units import both_bytes, counted, plain

PATTERNS = {
    Pattern.GRADIENTS: "gradients",
    Pattern.ZERO_1: "ZeRO-1",
    Pattern.ZERO_2: "ZeRO-2",
    Pattern.ZERO_3: "ZeRO-3",
    Pattern.RING: "ring",
    Pattern.KEY_VALUE_GATHER: "gathered keys and values",
    Pattern.ULYSSES: "Ulysses",
    Pattern.EXPERTS: "dispatch and combine",
}
"""What an exchange's pattern is called in a heading."""
FAMILIES: dict[Family, str] = {
    "dp": "data",
    "tp": "tensor",
    "pp": "pipeline",
    "sp": "sequence",
    "cp": "context",
    "ep": "expert",
}
"""The families in words."""


def title_of(spec: Spec) -> str:
    """The family and the phase, or whose calls an exchange makes, as a heading has them."""
    if spec.is_exchange:
        return f"Calls of {FAMILIES[spec.family]} parallelism, {PATTERNS[spec.pattern]}"
    match spec.job:
        case Job.CALIBRATION:
            return "Calibration of links"
        case Job.SHARDED:
            return f"Data parallelism, ZeRO-{spec.zero}, {spec.phase}"
        case Job.MESH:
            sizes = {"tp": spec.tp, "pp": spec.pp, "dp": spec.dp, "ep": spec.ep}
            axes = " × ".join(f"{name.upper()} {size}" for name, size in sizes.items() if size > 1)
            return f"{axes or 'One rank'}, {spec.phase}"
        case Job.TENSOR if spec.sequence:
            return f"Tensor and sequence parallelism, {spec.phase}"
    return f"{FAMILIES[spec.family].capitalize()} parallelism, {spec.phase}"


def place_of(spec: Spec) -> str:
    """On what it runs: ranks, and the emulated hosts that hold them."""
    ranks = counted(spec.ranks, "rank")
    if spec.hosts == 1:
        return f"on {ranks}"
    speed = f" at {plain(spec.link_mbit)} Mbit/s" if spec.link_mbit else ""
    return f"on {ranks} of {spec.hosts} hosts{speed}"


def brief_of(spec: Spec) -> str:
    """What a line of a list says of it."""
    if spec.note:
        return spec.note
    if spec.is_exchange:
        return f"{spec.pattern}, {counted(spec.repeats, 'repeat')}, calls alone"
    if not spec.has_model:
        return "calibration"
    return f"{spec.phase}, {counted(spec.layers, 'layer')}"


def remarks_on(spec: Spec, *, backend: str) -> list[str]:
    """What its bytes show that a reader might take for a mistake, a sentence each."""
    remarks = []
    if spec.is_exchange and spec.pattern is Pattern.EXPERTS:
        loads = [sum(column) for column in zip(*routed_rows(spec), strict=True)]
        most, rows = max(loads), sum(loads)
        remarks.append(
            f"Each rank holds one expert, wanted with skew {plain(spec.skew)}. Rank {loads.index(most)}'s gets "
            f"{plain(most)} of the {plain(rows)} rows of each dispatch, {plain(most * spec.ranks / rows)} times an "
            "equal share, and sends as many back in the combine."
        )
    if backend == "gloo" and any(call.op is Kind.REDUCE_SCATTER for call in calls_of(spec)):
        remarks.append(
            "gloo has no reduce-scatter of its own: PyTorch all-reduces the whole tensor, which sends twice the "
            "formula's bytes. The second half is the backend's."
        )
    return remarks


def size_of(spec: Spec) -> str:
    """How large it is, in one line."""
    call = f"{both_bytes(spec.bytes_per_call)} in a call"
    if spec.is_exchange:
        return f"{counted(spec.repeats, 'repeat')} of the calls a step; {call}"
    if not spec.has_model:
        return f"calls of up to {both_bytes(spec.call_bytes)}"
    of_tokens = "" if spec.is_decode else f" of {counted(spec.tokens, 'token')}"
    cut = f", cut into {spec.microbatches} micro-batches" if spec.microbatches > 1 else ""
    layers, sequences = counted(spec.layers, "layer"), counted(spec.batch, "sequence")
    return f"{layers}, {plain(spec.hidden_size)} wide, {sequences}{of_tokens}{cut}; {call}"
