"""The six families side by side for one sheet of paper; every number comes from the calculator."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from calculators.predict.shapes import Phase
from calculators.predict.traffic import (
    Traffic,
    context_parallel,
    data_parallel,
    expert_parallel,
    pipeline_parallel,
    tensor_parallel,
)
from tutor.lessons.numbers import written

LAYERS, HIDDEN, HEADS, KV_HEADS, TOKENS, DEVICES = 64, 4096, 32, 8, 4096, 8
PARAMETERS = 12 * LAYERS * HIDDEN**2
EXPERTS, EXPERTS_PER_TOKEN = 64, 2


@dataclass(frozen=True, kw_only=True)
class Row:
    """One family: what is read off a scenario, what it cuts, and what it moves in a model of the sheet's sizes."""

    family: str
    name: str
    symptom: str
    cuts: str
    whole: str
    exchange: str
    belongs: str
    decode: str
    training: str


@dataclass(frozen=True, kw_only=True)
class Sheet:
    """The table of the six, with the sizes it was calculated for."""

    rows: tuple[Row, ...]
    layers: int = LAYERS
    hidden_size: int = HIDDEN
    tokens: int = TOKENS
    devices: int = DEVICES
    experts: int = EXPERTS
    experts_per_token: int = EXPERTS_PER_TOKEN


@cache
def cheat_sheet() -> Sheet:
    """The sheet; the same for everybody."""
    return Sheet(
        rows=(
            Row(
                family="dp",
                name="Data, plain (replicated)",
                symptom="The model fits; an epoch takes days",
                cuts="the batch",
                whole="weights, gradients, optimizer state",
                exchange="one all-reduce of the gradients a step, in buckets",
                belongs="the slowest link, outermost",
                decode="nothing",
                training=_moved(lambda: data_parallel(parameters=PARAMETERS, ranks=DEVICES, stage="ddp")),
            ),
            Row(
                family="tp",
                name="Tensor",
                symptom="One layer’s matrices exceed a device",
                cuts="every matrix, inside the layer",
                whole="activations between the blocks",
                exchange="two all-reduces a layer forward, two backward",
                belongs="the fastest link: NVLink inside a host",
                decode=_moved(lambda: _tensor(Phase.DECODE)),
                training=_moved(lambda: _tensor(Phase.TRAINING)),
            ),
            Row(
                family="pp",
                name="Pipeline",
                symptom="Each layer fits, their number does not",
                cuts="the stack, between layers",
                whole="each layer",
                exchange="one send at each boundary, and back in training",
                belongs="a slow link: between hosts",
                decode=_moved(lambda: _pipeline(Phase.DECODE)),
                training=_moved(lambda: _pipeline(Phase.TRAINING)),
            ),
            Row(
                family="sp",
                name="Sequence (Megatron-style)",
                symptom="TP is in use; activations beside it are too many",
                cuts="tokens, in normalisation and dropout",
                whole="nothing more than TP leaves; needs TP > 1",
                exchange="an all-gather and a reduce-scatter for each all-reduce",
                belongs="the TP group",
                decode="as TP",
                training=_moved(lambda: _tensor(Phase.TRAINING, sequence_parallel="regather")),
            ),
            Row(
                family="cp",
                name="Context",
                symptom="One sequence is too long, in every layer",
                cuts="tokens, in all layers",
                whole="weights",
                exchange="keys and values round a ring (or all-gather, all-to-all), forward and backward",
                belongs="a fast link, hidden behind attention",
                decode="differs by tool",
                training=_moved(
                    lambda: context_parallel(
                        attention_heads=HEADS,
                        kv_heads=KV_HEADS,
                        head_dim=HIDDEN // HEADS,
                        layers=LAYERS,
                        ranks=DEVICES,
                        phase=Phase.TRAINING,
                        tokens=TOKENS,
                    )
                ),
            ),
            Row(
                family="ep",
                name="Expert",
                symptom="A mixture of experts whose experts do not fit",
                cuts="which experts a device holds",
                whole="each expert, and everything that is no expert",
                exchange="two all-to-alls a MoE layer, dispatch and combine",
                belongs="a fast link; the hottest rank decides",
                decode=_moved(lambda: _experts(Phase.DECODE)),
                training=_moved(lambda: _experts(Phase.TRAINING)),
            ),
        )
    )


def _tensor(phase: Phase, *, sequence_parallel: str = "off") -> Traffic:
    return tensor_parallel(
        hidden_size=HIDDEN,
        layers=LAYERS,
        ranks=DEVICES,
        phase=phase,
        tokens=_tokens(phase),
        sequence_parallel=sequence_parallel,
    )


def _pipeline(phase: Phase) -> Traffic:
    return pipeline_parallel(
        hidden_size=HIDDEN, stages=DEVICES, phase=phase, tokens=_tokens(phase), micro_batches=1
    )


def _experts(phase: Phase) -> Traffic:
    return expert_parallel(
        hidden_size=HIDDEN,
        layers=LAYERS,
        tokens=_tokens(phase),
        experts=EXPERTS,
        experts_per_token=EXPERTS_PER_TOKEN,
        ranks=DEVICES,
        phase=phase,
    )


def _tokens(phase: Phase) -> int:
    return 1 if phase is Phase.DECODE else TOKENS


def _moved(traffic: Callable[[], Traffic]) -> str:
    """Calls, and what the busiest device sends."""
    told = traffic()
    calls, sent = float(told.calls), float(told.wire_bytes)
    unit = next(
        name for name, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10), ("B", 1)) if sent >= size
    )
    name = "call" if calls == 1 else "calls"
    return f"{written('calls', {'calls': calls})} {name}, {written(f'sent in {unit}', {'sent': sent})}"
