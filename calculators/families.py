"""The ways to split that the traffic page compares: what each cuts, what it moves, when it is legal, how to measure it.

Each puts all devices on one axis. `family` names the colour, `key` the way: two ways of one family (plain replicas and
ZeRO-3, a ring and Ulysses) differ in what they call.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from calculators.exchange_trials import calculated_calls, exchange_trial
from calculators.lab.spec import Family, Job, Pattern
from calculators.predict.collectives import TEXTBOOK, Backend
from calculators.predict.memory import serving_memory
from calculators.predict.models.parameters import total_parameters
from calculators.predict.rules import Case as RulesCase
from calculators.predict.rules import Violation, check, legal
from calculators.predict.shapes import Layout, Layouts, ModelShape, Phase
from calculators.predict.traffic import (
    Traffic,
    context_parallel,
    data_parallel,
    expert_parallel,
    pipeline_parallel,
    tensor_parallel,
)
from calculators.trials import Calculation, Trial, trial


@dataclass(frozen=True, kw_only=True)
class Case:
    """What is calculated: a model, how much of it is in flight, over how many devices, carried out by whom."""

    shape: ModelShape
    phase: Phase = Phase.DECODE
    devices: int = 2
    batch: int = 1
    tokens: int = 1
    micro_batches: int = 1
    backend: Backend = TEXTBOOK

    @property
    def in_flight(self) -> dict[str, Any]:
        """What moves, in the words of `predict.traffic`."""
        return {
            "phase": self.phase,
            "batch": self.batch,
            "tokens": self.tokens,
            "micro_batches": self.micro_batches,
            "bytes_per_element": self.shape.bytes_per_element,
            "backend": self.backend,
        }

    @property
    def tokens_in_flight(self) -> int:
        """Tokens of each sequence that are worked on at once."""
        return 1 if self.phase is Phase.DECODE else self.tokens


@dataclass(frozen=True, kw_only=True)
class Way:
    """One way to split.

    cuts      what each device has a part of, in a few words
    call      what a call is named
    function  that of `predict.traffic`
    given     its arguments for a case, but for the number of devices, which it calls `ranks` or `stages`
    axes      those that all devices are on; `also` what else its layout has
    pattern   of the lab's exchange that measures it; None for those with a job of their own
    """

    key: str
    family: Family
    short: str
    name: str
    cuts: str
    call: str
    function: Callable[..., Traffic]
    given: Callable[[Case], dict[str, Any]]
    axes: tuple[str, ...]
    also: Mapping[str, Any] = field(default_factory=dict)
    size: str = "ranks"
    job: Job = Job.EXCHANGE
    pattern: Pattern | None = None
    needs_experts: bool = False

    def arguments(self, case: Case, devices: ArrayLike) -> dict[str, Any]:
        """The call's arguments over this many devices."""
        return {**self.given(case), self.size: devices}

    def traffic(self, case: Case, devices: ArrayLike) -> Traffic:
        """What it moves. Raises ValueError where the model has nothing to split this way."""
        self.check(case)
        return self.function(**self.arguments(case, devices))

    def check(self, case: Case) -> None:
        """Raises ValueError where the model has nothing to split this way."""
        if self.needs_experts and not case.shape.is_sparse:
            raise ValueError(
                f"{case.shape.name} is dense: it has no experts to share out. Choose a model with experts, or another "
                "split."
            )

    def is_for(self, case: Case) -> bool:
        """Whether the model has what it splits."""
        return case.shape.is_sparse or not self.needs_experts

    def layout(self, shape: ModelShape, devices: int) -> Layout:
        """All devices on its axis; one device splits nothing."""
        return Layout(**self._sizes(shape, devices), **(self.also if devices > 1 else {}))

    def violations(self, case: Case, devices: int) -> tuple[Violation, ...]:
        """The rules that it breaks over this many devices."""
        return check(case.shape, self.layout(case.shape, devices), **self._known(case))

    def works(self, case: Case, devices: Sequence[int]) -> list[bool]:
        """Over which of these numbers of devices, each 2 or more, it breaks no rule."""
        layouts = Layouts(**self._sizes(case.shape, np.asarray(devices)), **self.also)
        return list(legal(RulesCase(shape=case.shape, layouts=layouts, **self._known(case))))

    def _sizes(self, shape: ModelShape, devices: Any) -> dict[str, Any]:
        """The axes; a tensor-parallel group cuts the experts, too, as frameworks do unless told otherwise."""
        inside = ("etp",) if "tp" in self.axes and shape.is_sparse else ()
        return dict.fromkeys((*self.axes, *inside), devices)

    def _known(self, case: Case) -> dict[str, Any]:
        """What the rules may know of the case."""
        tokens = None if case.phase is Phase.DECODE else case.tokens
        exchange = "all-to-all" if self.key == "ulysses" else "ring"
        return {"phase": case.phase, "tokens": tokens, "exchange": exchange}

    def trial(self, case: Case) -> Trial | None:
        """The run that measures it; None where nothing travels."""
        if self.pattern is None:
            return trial(self.calculation(case))
        row_bytes = case.shape.hidden_size * case.shape.bytes_per_element
        return exchange_trial(
            calculated_calls(
                self.traffic(case, [case.devices]),  # an array, for which no formulas are written
                self.pattern,
                row_bytes=row_bytes,
            )
        )

    def calculation(self, case: Case) -> Calculation:
        """The same case in the words of a trial of a job of its own."""
        return Calculation(
            job=self.job,
            phase=case.phase,
            hidden_size=case.shape.hidden_size,
            bytes_per_element=case.shape.bytes_per_element,
            layers=case.shape.layers,
            batch=case.batch,
            tokens=case.tokens,
            devices=case.devices,
            micro_batches=case.micro_batches,
        )


def _stack(case: Case) -> dict[str, Any]:
    return {"hidden_size": case.shape.hidden_size, "layers": case.shape.layers, **case.in_flight}


def _stages(case: Case) -> dict[str, Any]:
    sends = {name: value for name, value in case.in_flight.items() if name != "backend"}  # a send is a send
    return {"hidden_size": case.shape.hidden_size, **sends}


def _replicas(case: Case) -> dict[str, Any]:
    return {
        "parameters": total_parameters(case.shape),
        "phase": case.phase,
        "micro_batches": case.micro_batches,
        "weight_bytes_per_element": case.shape.bytes_per_element,
        "backend": case.backend,
    }


def _sequence(case: Case) -> dict[str, Any]:
    shape = case.shape
    key_width = shape.head_dim + (shape.latent.rope_dim if shape.latent else 0)
    return {
        "attention_heads": shape.attention_heads,
        "kv_heads": shape.attention_heads
        if shape.latent
        else shape.kv_heads,  # latent ones are unfolded first
        "head_dim": key_width,
        "value_dim": shape.latent.value_dim if shape.latent else shape.head_dim,
        "layers": shape.layers,
        **case.in_flight,
    }


def _experts(case: Case) -> dict[str, Any]:
    shape = case.shape
    if shape.experts is None:
        raise ValueError(f"{shape.name} is dense: it has no experts to share out.")
    return {
        "hidden_size": shape.hidden_size,
        "layers": shape.sparse_layers,
        "tokens": case.batch * case.tokens_in_flight,
        "experts": shape.experts.routed,
        "experts_per_token": shape.experts.per_token,
        "phase": case.phase,
        "micro_batches": case.micro_batches,
        "dispatch_bytes_per_element": shape.bytes_per_element,
        "combine_bytes_per_element": shape.bytes_per_element,
        "backend": case.backend,
    }


_TENSOR = Way(
    key="tp",
    family="tp",
    short="TP",
    name="Tensor parallelism",
    cuts="a slice of every matrix",
    call="all-reduce",
    function=tensor_parallel,
    given=_stack,
    axes=("tp",),
    job=Job.TENSOR,
)
_RING = Way(
    key="cp",
    family="cp",
    short="CP",
    name="Context parallelism, ring",
    cuts="a part of every sequence, and all weights",
    call="send",
    function=context_parallel,
    given=_sequence,
    axes=("cp",),
    pattern=Pattern.RING,
)
_ALL = (
    Way(
        key="dp",
        family="dp",
        short="DP",
        name="Data parallelism, plain replicas",
        cuts="a part of the batch, and all weights",
        call="all-reduce",
        function=data_parallel,
        given=_replicas,
        axes=("dp",),
        pattern=Pattern.GRADIENTS,
    ),
    Way(
        key="zero-3",
        family="dp",
        short="ZeRO-3",
        name="Sharded data parallelism (ZeRO-3, FSDP)",
        cuts="a part of the batch, and a slice of all weights",
        call="all-gather, reduce-scatter",
        function=data_parallel,
        given=lambda case: _replicas(case) | {"stage": "zero-3"},
        axes=("dp",),
        also={"zero": 3},
        pattern=Pattern.ZERO_3,
    ),
    _TENSOR,
    replace(
        _TENSOR,
        key="tp-sp",
        family="sp",
        short="TP + SP",
        name="Tensor with sequence parallelism",
        cuts="a slice of every matrix, and of the tokens between them",
        call="all-gather, reduce-scatter",
        given=lambda case: _stack(case) | {"sequence_parallel": "regather"},
        also={"sp": True},
    ),
    Way(
        key="pp",
        family="pp",
        short="PP",
        name="Pipeline parallelism",
        cuts="some of the layers, whole",
        call="send",
        function=pipeline_parallel,
        given=_stages,
        axes=("pp",),
        size="stages",
        job=Job.PIPELINE,
    ),
    _RING,
    replace(
        _RING,
        key="ulysses",
        short="CP, Ulysses",
        name="Context parallelism, Ulysses",
        call="all-to-all",
        given=lambda case: _sequence(case) | {"kind": "ulysses"},
        pattern=Pattern.ULYSSES,
    ),
    Way(
        key="ep",
        family="ep",
        short="EP",
        name="Expert parallelism",
        cuts="some of each layer's experts",
        call="all-to-all",
        function=expert_parallel,
        given=_experts,
        axes=("dp", "ep"),
        pattern=Pattern.EXPERTS,
        needs_experts=True,
    ),
)
WAYS = {way.key: way for way in _ALL}
"""Every way, in the order of the lessons: batch, layer, stack, sequence, experts."""


def weights_of(case: Case, ways: Sequence[Way]) -> tuple[float, ...]:
    """Weights of the whole model on the fullest device under each way [bytes]; under ZeRO-3 its slice of them."""
    layouts = [way.layout(case.shape, case.devices) for way in ways]
    axes = {
        axis: [getattr(layout, axis) for layout in layouts] for axis in ("dp", "tp", "pp", "cp", "ep", "etp")
    }
    held = serving_memory(case.shape, Layouts(**axes), batch=1, context_tokens=1).weights
    slices = [case.devices if layout.zero == 3 else 1 for layout in layouts]
    return tuple((held / slices + np.zeros(len(layouts))).tolist())
