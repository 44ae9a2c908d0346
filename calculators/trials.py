"""From a calculation to a spec that measures it: the same bytes in each call, in a model small enough."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from calculators.lab.spec import Job, Spec
from calculators.lab.spec import Phase as LabPhase
from calculators.predict.shapes import Phase, activation_bytes
from calculators.units import both_bytes, counted, iec_bytes, plain

MOST_LAYERS = {Phase.DECODE: 64, Phase.PREFILL: 64, Phase.TRAINING: 16}
MOST_RANKS = 4
"""A calculation gets at most this many ranks unasked; the form takes up to the lab's own maximum."""

_ELEMENT = 4  # float32: every backend sums it alike, and a CPU computes nothing faster
_MOST_SEQUENCES = 4_096
_MOST_MICRO_BATCHES = 16
# What a trial may cost at most. A run that takes longer than a person waits teaches nothing.
_MOST_SECONDS = 20.0
_MOST_HELD_BYTES = 1 << 30
# Rough speeds of one small CPU machine, only to choose sizes by: nothing shown is calculated from them.
_FLOPS_PER_SECOND = 2e10
_BYTES_PER_SECOND = 5e8
# Measured there, docs/lab.md: ranks share the cores, a DTensor linear costs 1 ms, an all-reduce 2 to 6 ms.
_SECONDS_PER_LAYER = {Job.TENSOR: 5e-3, Job.PIPELINE: 1e-3}


@dataclass(frozen=True, kw_only=True)
class Calculation:
    """What somebody calculated: sizes [elements], `batch` sequences of `tokens`, split over `devices`.

    In training `batch` is of one micro-batch, as in `predict.traffic`.
    """

    job: Job
    phase: Phase
    hidden_size: int
    bytes_per_element: int
    layers: int
    batch: int
    tokens: int
    devices: int
    micro_batches: int = 1

    @property
    def tokens_in_flight(self) -> int:
        return 1 if self.phase is Phase.DECODE else self.tokens

    @property
    def call_bytes(self) -> float:
        """Bytes that one call hands over."""
        return float(
            activation_bytes(self.batch, self.tokens_in_flight, self.hidden_size, self.bytes_per_element)
        )


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A spec that the lab can run, with sentences on what it keeps of the calculation and what had to differ."""

    spec: Spec
    kept: str
    differences: tuple[str, ...] = field(default=())


def trial(wanted: Calculation) -> Trial | None:
    """The spec that measures `wanted`; None where nothing travels: one device, or one layer to cut.

    Traffic depends on the product of sequences, tokens and width, so a narrow model with many sequences
    moves exactly the bytes of a wide one with few.
    """
    ranks = _ranks(wanted)
    if ranks < 2:
        return None
    layers = _layers(wanted, ranks)
    heads = -(-8 // ranks) * ranks
    microbatches = (
        min(max(wanted.micro_batches, ranks), _MOST_MICRO_BATCHES) if _cuts_the_batch(wanted) else 1
    )
    call_bytes = wanted.call_bytes
    while True:
        spec = _spec(
            wanted, ranks=ranks, layers=layers, heads=heads, microbatches=microbatches, call=call_bytes
        )
        if spec is not None:
            return Trial(
                spec=spec,
                kept=_kept(wanted, spec),
                differences=tuple(_differences(wanted, spec)),
            )
        call_bytes /= 2  # too large for a run that a person waits for


def _ranks(wanted: Calculation) -> int:
    ranks = min(wanted.devices, MOST_RANKS)
    return min(ranks, wanted.layers) if wanted.job is Job.PIPELINE else ranks


def _layers(wanted: Calculation, ranks: int) -> int:
    layers = min(wanted.layers, MOST_LAYERS[wanted.phase])
    return layers // ranks * ranks if wanted.job is Job.PIPELINE else layers


def _cuts_the_batch(wanted: Calculation) -> bool:
    return wanted.job is Job.PIPELINE and wanted.phase is Phase.TRAINING


def _spec(
    wanted: Calculation, *, ranks: int, layers: int, heads: int, microbatches: int, call: float
) -> Spec | None:
    """The narrow model whose calls move `call` bytes, or nearly; None where that costs too much."""
    training = wanted.phase is Phase.TRAINING
    elements = max(1, round(call / _ELEMENT))
    width = heads * next((dim for dim in (32, 16, 64, 8, 4, 2) if elements % (heads * dim) == 0), 32)
    rows = max(1, round(elements / width))  # sequences × tokens in one call
    tokens = next(t for t in (64, 32, 16, 8, 4, 2, 1) if rows % t == 0) if training else 64
    sequences = rows // tokens if training else rows
    overhead = _SECONDS_PER_LAYER[wanted.job] * layers * ranks * microbatches
    steps = _steps(rows=rows * microbatches, width=width, layers=layers, training=training, overhead=overhead)
    if steps is None or sequences * microbatches > _MOST_SEQUENCES:
        return None
    return Spec(
        job=wanted.job,
        phase=LabPhase.TRAINING if training else LabPhase.DECODE,
        ranks=ranks,
        layers=layers,
        hidden_size=width,
        attention_heads=heads,
        ffn_width=2 * width,
        batch=sequences * microbatches,
        tokens=tokens,
        microbatches=microbatches,
        steps=steps,
    )


def _steps(*, rows: int, width: int, layers: int, training: bool, overhead: float) -> int | None:
    """As many measured steps as time and memory allow, 64 down to the lab's least of 10, or None.

    A smaller call saves none of the `overhead` [seconds a pass], so the least number of steps bears any.
    """
    passes = 3 if training else 1
    flops = 2 * rows * layers * 8 * width * width * passes
    sent = 4 * layers * rows * width * _ELEMENT * passes
    working = flops / _FLOPS_PER_SECOND + sent / _BYTES_PER_SECOND
    for steps in (64, 32, 16, 10):
        seconds = working + (overhead * passes if steps > 10 else 0.0)
        # Keys and values of every step so far in decode, about twenty hidden states a layer in training.
        held = rows * width * _ELEMENT * layers * (20 if training else 2 * (steps + 3))
        if seconds * steps <= _MOST_SECONDS and held <= _MOST_HELD_BYTES:
            return steps
    return None


def _kept(wanted: Calculation, spec: Spec) -> str:
    """The sentence on what the measured model shares with the calculated one."""
    shared = []
    if spec.layers == wanted.layers:
        shared.append(f"the same {counted(spec.layers, 'layer')}")
    if spec.ranks == wanted.devices:
        shared.append(f"the same {counted(spec.ranks, 'rank')}")
    if _same_call(wanted, spec):
        shared.append(f"the same bytes in each call, {both_bytes(spec.activation_bytes)}")
    if not shared:
        return "The run measures the same kind of call, at a size that this lab can hold."
    listed = shared[0] if len(shared) == 1 else f"{', '.join(shared[:-1])} and {shared[-1]}"
    return f"The run has {listed}."


def _differences(wanted: Calculation, spec: Spec) -> Iterator[str]:
    given = _sizes(wanted.hidden_size, wanted.batch, wanted.tokens_in_flight, wanted.bytes_per_element)
    taken = _sizes(spec.hidden_size, spec.batch / spec.microbatches, spec.tokens_in_flight, _ELEMENT)
    if _same_call(wanted, spec):
        if spec.hidden_size != wanted.hidden_size or wanted.bytes_per_element != _ELEMENT:
            width = "narrower" if spec.hidden_size < wanted.hidden_size else "shaped differently"
            yield (
                f"The model is {width}: {taken} instead of {given}, "
                "because traffic depends only on the product."
            )
    else:
        smaller = spec.activation_bytes < wanted.call_bytes
        why = (
            "so that the run ends within seconds." if smaller else "the nearest that its model can hand over."
        )
        yield (
            f"Each call moves {both_bytes(spec.activation_bytes)} instead of {iec_bytes(wanted.call_bytes)} "
            f"({taken} instead of {given}), {why} Bytes follow in proportion."
        )
    if wanted.phase is Phase.PREFILL:
        yield (
            f"It decodes one token of {counted(spec.batch, 'sequence')} in place of reading the prompt "
            "at once: both hand over a tensor of the same size, once for every call."
        )
    if spec.ranks != wanted.devices:
        yield (
            f"It has {counted(spec.ranks, 'rank')} instead of {plain(wanted.devices)}; the lab starts no "
            "more unasked, as ranks share this machine's cores. Change the number below if the machine is larger."
        )
    if spec.layers != wanted.layers:
        why = (
            ""
            if wanted.layers > MOST_LAYERS[wanted.phase]
            else f" ({spec.ranks} equal stages need a multiple of {spec.ranks})"
        )
        yield (
            f"It has {counted(spec.layers, 'layer')} instead of {plain(wanted.layers)}{why}; each layer "
            "repeats the same calls."
        )
    if wanted.phase is Phase.TRAINING and spec.microbatches != wanted.micro_batches:
        why = (
            "the 1F1B schedule needs one for each stage, and a short run needs no more"
            if wanted.job is Job.PIPELINE
            else "a tensor-parallel step takes its batch whole"
        )
        micro = "1 micro-batch" if spec.microbatches == 1 else f"{plain(spec.microbatches)} micro-batches"
        given = plain(wanted.micro_batches)
        yield f"A step has {micro} instead of {given}: {why}. The bytes in each call stay."


def _sizes(width: int, sequences: float, tokens: int, element: int) -> str:
    of_tokens = f" × {counted(tokens, 'token')}" if tokens > 1 else ""
    return f"{plain(width)} wide × {counted(sequences, 'sequence')}{of_tokens} × {element} B"


def _same_call(wanted: Calculation, spec: Spec) -> bool:
    return spec.activation_bytes == wanted.call_bytes
