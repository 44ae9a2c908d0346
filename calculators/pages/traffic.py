"""The page *Traffic*: what tensor and pipeline parallelism move, side by side."""

from dataclasses import dataclass
from typing import Any

from django.urls import reverse

from calculators.answers import Case, Split, TrafficAnswer, answer
from calculators.fields import AddressForm, Choice, WholeNumber, phase_field
from calculators.maps import Picture, drawn
from calculators.plots import CurveRow, traffic_curve, traffic_figure
from calculators.predict.catalogue import MODELS
from calculators.predict.shapes import ModelShape, Phase
from calculators.predict.traffic import tensor_parallel
from calculators.python_calls import python_call
from calculators.trials import trial
from calculators.units import both_bytes
from calculators.workbench import Answer, Calculator, Chart, LessonLink, Preset, Row, Table, run_it


class TrafficForm(AddressForm):
    """A model, a batch and a number of devices."""

    DEFAULTS = {  # noqa: RUF012
        "model": "lesson",
        "phase": "decode",
        "devices": "2",
        "batch": "1",
        "tokens": "1024",
        "micro_batches": "1",
    }
    SIZES = ("hidden_size", "layers", "attention_heads", "ffn_width", "bytes_per_element")

    model = Choice(
        label="Model",
        required=False,
        choices=[*((key, model.shape.name) for key, model in MODELS.items()), ("own", "My own sizes")],
    )
    phase = phase_field()
    devices = WholeNumber(label="Devices", low=1, high=1_024)
    batch = WholeNumber(
        label="Sequences", low=1, high=1_000_000, help_text="in one batch; when training, in one micro-batch"
    )
    tokens = WholeNumber(label="Tokens", low=1, high=10_000_000, help_text="in each sequence")
    micro_batches = WholeNumber(label="Micro-batches", low=1, high=100_000, help_text="in each step")
    hidden_size = WholeNumber(label="Hidden size", low=1, high=1_000_000, instead="model")
    layers = WholeNumber(label="Layers", low=1, high=10_000, instead="model")
    attention_heads = WholeNumber(label="Attention heads", low=1, high=10_000, instead="model")
    ffn_width = WholeNumber(label="Feed-forward width", low=1, high=10_000_000, instead="model")
    bytes_per_element = WholeNumber(label="Bytes per element", low=1, high=8, instead="model")

    def clean(self) -> dict[str, Any]:
        values = super().clean() or {}
        if values.get("model") == "own":
            for name in self.SIZES:
                if name not in self.errors and values.get(name) is None:
                    label = self.fields[name].label
                    self.add_error(
                        name, f"{label} is empty, and no model is chosen to take it from. Give it."
                    )
        return values

    @property
    def case(self) -> Case:
        """What is to be calculated."""
        values = self.cleaned_data
        return Case(
            shape=self.shape,
            phase=Phase(values["phase"]),
            **{name: values[name] for name in ("devices", "batch", "tokens", "micro_batches")},
        )

    @property
    def shape(self) -> ModelShape:
        """The chosen model's sizes, with those that were given in their place."""
        values = self.cleaned_data
        given = {name: values[name] for name in self.SIZES if values.get(name) is not None}
        preset = MODELS[values["model"]].shape if values["model"] in MODELS else None
        base: dict[str, Any] = dict(vars(preset)) if preset else {"vocab_size": 1, "source": "as given"}
        sizes = base | given
        if not preset or given.keys() & {"attention_heads", "hidden_size"}:
            sizes["head_dim"] = max(1, sizes["hidden_size"] // sizes["attention_heads"])
        if not preset or "attention_heads" in given:
            sizes["kv_heads"] = sizes["attention_heads"]
        sizes["name"] = (
            "Your own sizes" if not preset else f"{preset.name}, changed" if given else preset.name
        )
        return ModelShape(**sizes)


@dataclass(frozen=True, kw_only=True)
class TrafficPage(Answer):
    """Both splits of a case, and the picture of each."""

    traffic: TrafficAnswer
    maps: tuple[tuple[Split, Picture], ...]


def _answer(form: TrafficForm) -> TrafficPage:
    case = form.case
    found = answer(case)
    curve = traffic_curve(case)
    return TrafficPage(
        traffic=found,
        maps=tuple((split, drawn(case, split.family)) for split in found.splits),
        charts=(_chart(curve, unit=found.unit),),
        python=python_call(tensor_parallel, layers=case.shape.layers, ranks=case.devices, **case.in_flight),
        runs=tuple(
            run
            for split in found.splits
            for run in run_it(
                trial(case.calculation(split.family)),
                label=f"Run it for real: {split.family.upper()}",
                family=split.family,
                back=TRAFFIC.at(form.address),
                address=f"{reverse('calculators:new-run')}?{_run_query(split, form.address)}",
            )
        ),
    )


def _run_query(split: Split, state: str) -> str:
    """The run's page works the trial out again from the calculation, so that it can say what differs."""
    return f"job={split.job}&{state}" if state else f"job={split.job}"


def _chart(curve: tuple[CurveRow, ...], *, unit: str) -> Chart:
    return Chart(
        name="traffic",
        figure=traffic_figure(curve, unit=unit),
        caption=(
            f"Bytes that the busiest device sends for each {unit}, predicted. Tensor parallelism nears twice its "
            "two-device figure; a stage of a pipeline sends the same however many there are."
        ),
        table=Table(
            caption="The same numbers.",
            heads=("Devices", "TP, bytes sent", "PP, bytes sent"),
            rows=tuple(
                Row(
                    cells=(
                        row.devices,
                        "heads do not divide" if row.tp is None else both_bytes(row.tp),
                        "layers do not divide" if row.pp is None else both_bytes(row.pp),
                    ),
                    is_chosen=row.is_chosen,
                )
                for row in curve
            ),
        ),
    )


TRAFFIC = Calculator(
    name="traffic",
    title="What crosses the link",
    asks="The same model, split two ways: how many bytes each device sends, and how often the others wait for them.",
    form=TrafficForm,
    answer=_answer,
    presets=(
        Preset(label="The lessons' example", query=""),
        Preset(label="Llama 3.1 70B on 8 devices", query="model=llama-3.1-70b&devices=8"),
        Preset(
            label="GPT-3 in training",
            query="model=gpt-3-175b&phase=training&devices=8&tokens=2048&micro_batches=16",
        ),
    ),
    lessons=(
        LessonLink(slug="tensor-parallelism", title="Tensor parallelism"),
        LessonLink(slug="pipeline-parallelism", title="Pipeline parallelism"),
        LessonLink(slug="tp-or-pp", title="TP or PP?"),
    ),
)
