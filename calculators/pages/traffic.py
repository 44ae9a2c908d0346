"""The page *Traffic*: what any two ways to split move, side by side, and all of them in a line each."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from django.utils.html import format_html

from calculators.answers import Split, TrafficAnswer, answer
from calculators.families import WAYS, Case, Way
from calculators.fields import AddressForm, Choice, ModelField, WholeNumber, phase_field
from calculators.figures import axis, figure, log_byte_ticks, predicted_line
from calculators.maps import Picture, drawn
from calculators.predict.collectives import BACKENDS
from calculators.predict.shapes import ModelShape, Phase
from calculators.python_calls import python_call
from calculators.units import both_bytes, counted, iec_bytes, plain
from calculators.workbench import (
    Answer,
    Calculator,
    Chart,
    LessonLink,
    Preset,
    Row,
    RunIt,
    Table,
    run_it,
    view_address,
)

MOST_DEVICES = 1_024


class ModelOrOwn(ModelField):
    """A model, or none: then every size is given by hand."""

    OWN = "own"

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.choices = [*self.choices, (self.OWN, "My own sizes")]

    @staticmethod
    def said(shape: ModelShape | None) -> str:
        return ModelField.said(shape) if shape else ModelOrOwn.OWN

    def clean(self, value: object) -> ModelShape | None:
        return None if value == self.OWN else super().clean(value)


class TrafficForm(AddressForm):
    """A model, how much of it is in flight, a number of devices, and the two ways that are compared."""

    DEFAULTS = {  # noqa: RUF012
        "model": "lesson",
        "first": "tp",
        "second": "pp",
        "phase": "decode",
        "devices": "2",
        "batch": "1",
        "tokens": "1024",
        "micro_batches": "1",
        "backend": "textbook",
    }
    SIZES = ("hidden_size", "layers", "attention_heads", "ffn_width", "bytes_per_element")

    model = ModelOrOwn()
    first = Choice(label="Compare", choices=[(way.key, way.name) for way in WAYS.values()])
    second = Choice(label="with", choices=[(way.key, way.name) for way in WAYS.values()])
    phase = phase_field()
    devices = WholeNumber(label="Devices", low=1, high=MOST_DEVICES)
    batch = WholeNumber(
        label="Sequences", low=1, high=1_000_000, help_text="in one batch; when training, in one micro-batch"
    )
    tokens = WholeNumber(label="Tokens", low=1, high=10_000_000, help_text="in each sequence")
    micro_batches = WholeNumber(label="Micro-batches", low=1, high=100_000, help_text="in each step")
    backend = Choice(label="Carried out as", choices=[(name, name) for name in BACKENDS])
    hidden_size = WholeNumber(label="Hidden size", low=1, high=1_000_000, instead="model")
    layers = WholeNumber(label="Layers", low=1, high=10_000, instead="model")
    attention_heads = WholeNumber(label="Attention heads", low=1, high=10_000, instead="model")
    ffn_width = WholeNumber(label="Feed-forward width", low=1, high=10_000_000, instead="model")
    bytes_per_element = WholeNumber(label="Bytes per element", low=1, high=8, instead="model")

    def clean(self) -> dict[str, Any]:
        values = super().clean() or {}
        if "model" in values and values["model"] is None:
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
            backend=BACKENDS[values["backend"]],
            **{name: values[name] for name in ("devices", "batch", "tokens", "micro_batches")},
        )

    @property
    def shape(self) -> ModelShape:
        """The chosen model's sizes, with those that were given in their place."""
        values = self.cleaned_data
        given = {name: values[name] for name in self.SIZES if values.get(name) is not None}
        preset = values["model"]
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
    """Two ways beside each other, their pictures where there are, and all ways in a table."""

    traffic: TrafficAnswer
    every: Table
    maps: tuple[tuple[Split, Picture], ...]


def _answer(form: TrafficForm) -> TrafficPage:
    case = form.case
    found = answer(case, first=form.cleaned_data["first"], second=form.cleaned_data["second"])
    return TrafficPage(
        traffic=found,
        every=_every(case, found),
        maps=tuple((each, seen) for each in found.splits if (seen := drawn(case, each.way)) is not None),
        charts=(_chart(case, found.splits),),
        python=python_call(found.first.way.function, **found.first.way.arguments(case, case.devices)),
        runs=tuple(run for each in found.splits for run in _run(each, form.address)),
    )


def _run(each: Split, state: str) -> tuple[RunIt, ...]:
    """The way to a run of one split. That of a job of its own is worked out again on the page that starts it."""
    way = each.way
    address = ""
    if way.key in ("tp", "pp"):
        address = f"{view_address('calculators:new-run')}?job={way.job}{'&' if state else ''}{state}"
    return run_it(
        None if way.key == "tp-sp" else way.trial(each.case),
        label=f"Run it for real: {way.short}",
        family=way.family,
        back=TRAFFIC.at(state),
        address=address,
    )


def _every(case: Case, found: TrafficAnswer) -> Table:
    """All ways, a line each."""
    return Table(
        name="every",
        caption=f"Every way to split {case.shape.name} over {counted(case.devices, 'device')}, for each {found.unit}.",
        heads=("", "Each device has", "Calls", "Busiest device sends", "Weights on a device"),
        texts=2,
        rows=tuple(_lines(case, found)),
    )


def _lines(case: Case, found: TrafficAnswer) -> Iterator[Row]:
    known = {each.way.key: each.traffic for each in found.splits}
    for key, way in WAYS.items():
        badge = format_html('<span class="badge family-{}">{}</span>', way.family, way.short)
        said: tuple[str, ...] = ("nothing to share out: the model is dense", "–", "–", "–")
        if way.is_for(case):
            # an array, for which no formulas are written
            moved = known[key] if key in known else way.traffic(case, [case.devices])
            held = iec_bytes(found.weights[key])
            said = (way.cuts, plain(moved.calls.item()), iec_bytes(moved.wire_bytes.item()), held)
        yield Row(cells=(badge, *said), is_chosen=key in known)


def _chart(case: Case, splits: Sequence[Split]) -> Chart:
    """Bytes over 2, 4, 8 … devices; a number that breaks a rule leaves a gap."""
    sizes = sorted({2, 4, 8, 16, 32, 64} | ({case.devices} if case.devices > 1 else set()))
    curves = [_curve(case, each.way, sizes) for each in splits]
    data = [
        predicted_line(
            f"{each.way.short}, predicted",
            sizes,
            values,
            colour=each.way.family,
            says=["" if value is None else both_bytes(value) for value in values],
            mark=number,
        )
        | {"connectgaps": True}
        for number, (each, values) in enumerate(zip(splits, curves, strict=True))
    ]
    for trace in data:
        trace["marker"]["size"] = [16 if size == case.devices else 10 for size in sizes]
    shown = [value for values in curves for value in values if value]
    ticks = {"type": "log", "tickvals": sizes, "ticktext": [str(size) for size in sizes]}
    return Chart(
        name="traffic",
        figure=figure(
            data,
            x=axis("devices") | ticks,
            y=axis(f"bytes sent per {case.phase.unit}") | log_byte_ticks(shown),
        ),
        caption=f"Bytes that the busiest device sends for each {case.phase.unit}, predicted, over more devices.",
        table=Table(
            caption="The same numbers.",
            heads=("Devices", *(f"{each.way.short}, bytes sent" for each in splits)),
            rows=tuple(
                Row(
                    cells=(
                        size,
                        *(
                            "breaks a rule" if values[row] is None else both_bytes(values[row])
                            for values in curves
                        ),
                    ),
                    is_chosen=size == case.devices,
                )
                for row, size in enumerate(sizes)
            ),
        ),
    )


def _curve(case: Case, way: Way, sizes: Sequence[int]) -> list[float | None]:
    """Bytes over each number of devices; None where a rule is broken, or the backend's algorithm does not go."""
    works = way.works(case, sizes)
    legal = [size for size, fine in zip(sizes, works, strict=True) if fine]
    sent = dict(zip(legal, way.traffic(case, legal).wire_bytes.tolist(), strict=True)) if legal else {}
    return [sent.get(size) for size in sizes]


TRAFFIC = Calculator(
    name="traffic",
    title="What crosses the link",
    asks="The same model, split two ways: how many bytes each device sends, and how often the others wait for them.",
    form=TrafficForm,
    answer=_answer,
    presets=(
        Preset(label="TP or PP?", query=""),
        Preset(
            label="TP against TP with SP, training",
            query="model=llama-3.1-70b&second=tp-sp&phase=training&devices=8",
        ),
        Preset(
            label="SP or CP? One long document",
            query="model=llama-3.1-8b&first=tp-sp&second=cp&phase=training&devices=8&tokens=131072",
        ),
        Preset(
            label="Ring or Ulysses",
            query="model=llama-3.1-70b&first=cp&second=ulysses&phase=prefill&devices=8&tokens=131072",
        ),
        Preset(
            label="Replicas or ZeRO-3",
            query="model=llama-3.1-8b&first=dp&second=zero-3&phase=training&devices=64",
        ),
        Preset(label="Experts", query="model=deepseek-v3&first=ep&second=tp&devices=8&batch=64"),
    ),
    lessons=(
        LessonLink(slug="tensor-parallelism", title="Tensor parallelism"),
        LessonLink(slug="pipeline-parallelism", title="Pipeline parallelism"),
        LessonLink(slug="tp-or-pp", title="TP or PP?"),
    ),
)
