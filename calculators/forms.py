"""What pages ask for: sizes to calculate, a layout to draw, a spec to run. Every error is a whole sentence."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from django import forms
from django.http import QueryDict

from calculators.answers import Case
from calculators.lab.limits import MAX_RANKS
from calculators.lab.spec import (
    Device,
    Dtype,
    Job,
    Qkv,
    Schedule,
    Spec,
    SpecError,
    experiment,
    experiment_names,
)
from calculators.lab.spec import Phase as LabPhase
from calculators.predict.catalogue import MODELS
from calculators.predict.shapes import Layout, ModelShape, Phase

_GROUPED = re.compile(r"\d{1,3}(,\d{3})+", re.ASCII)


class WholeNumber(forms.CharField):
    """A whole number in words of its own: plain digits, or grouped by commas as this site prints them."""

    widget = forms.TextInput

    def __init__(self, *, low: int, high: int, instead: str = "", **kwargs: Any) -> None:
        self.low, self.high, self.instead = low, high, instead
        super().__init__(required=False, **kwargs)
        self.widget.attrs |= {"inputmode": "numeric", "autocomplete": "off", "size": "8"}

    def clean(self, value: object) -> int | None:
        text = str(value or "").strip()
        wanted = f"a whole number from {self.low:,} to {self.high:,}"
        if not text:
            if self.instead:
                return None
            raise forms.ValidationError(f"{self.label} is empty. Give {wanted}.", code="empty")
        digits = text.replace(",", "") if _GROUPED.fullmatch(text) else text
        if not (digits.isascii() and digits.isdigit()):
            raise forms.ValidationError(
                f"{self.label} is “{_short(text)}”, but it must be {wanted}.", code="kind"
            )
        if len(digits.lstrip("0")) > len(str(self.high)) or int(digits) > self.high:
            raise forms.ValidationError(
                f"{self.label} is {_short(text)}, but this page stops at {self.high:,}.", code="high"
            )
        if int(digits) < self.low:
            raise forms.ValidationError(
                f"{self.label} is {_short(text)}, but the least that works is {self.low:,}.", code="low"
            )
        return int(digits)


class Choice(forms.ChoiceField):
    """One of a few; any other value is named in the error."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)

    def validate(self, value: str) -> None:
        if not self.valid_value(value):
            known = ", ".join(f"“{key}”" for key, _ in self.choices if key)
            raise forms.ValidationError(
                f"{self.label} is “{_short(value)}”, but it must be one of {known}.", code="choice"
            )


class AddressForm(forms.Form):
    """A form whose state is an address: what that leaves out has its default, so every address shows something."""

    DEFAULTS: Mapping[str, str] = {}

    def __init__(
        self,
        given: QueryDict | Mapping[str, str],
        *,
        prefix: str | None = None,
        defaults: Mapping[str, str] | None = None,
    ) -> None:
        self.defaults = {**self.DEFAULTS, **(defaults or {})}
        said = {key: given.get(key, "") for key in given}
        unsaid = {f"{prefix}-{name}" if prefix else name: value for name, value in self.defaults.items()}
        super().__init__({**unsaid, **said}, prefix=prefix)
        for name in self.fields:  # the error's element is always there, so that htmx can fill it
            described = [f"id_{self.add_prefix(name)}_error"]
            if self.fields[name].help_text:
                described.insert(0, f"id_{self.add_prefix(name)}_helptext")
            self.fields[name].widget.attrs["aria-describedby"] = " ".join(described)
        # A form with a prefix shares its address with a whole page, which may say what it likes.
        self.unknown = [] if prefix else sorted(set(said) - set(self.fields))

    @property
    def address(self) -> str:
        """The query that shows this state again, without what is the default."""
        return self._query(self.cleaned_data)

    def address_with(self, **changes: str) -> str:
        """The relative address of this state with some values changed."""
        return f"?{self._query(self.cleaned_data | changes)}"

    def _query(self, values: Mapping[str, Any]) -> str:
        query = QueryDict(mutable=True)
        for name, value in values.items():
            if value is not None and str(value) != self.DEFAULTS.get(name, ""):
                query[name] = str(value)
        return query.urlencode()

    @property
    def unknown_sentence(self) -> str:
        """What the address says that this page does not know; empty when it knows all."""
        if not self.unknown:
            return ""
        listed = ", ".join(f"“{_short(name)}”" for name in self.unknown[:5])
        more = f" and {len(self.unknown) - 5} more" if len(self.unknown) > 5 else ""
        return f"The address also says {listed}{more}, which this page does not know; it was left out."


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
    phase = Choice(
        label="Phase",
        choices=[
            (Phase.DECODE.value, "decode: one token at a time"),
            (Phase.PREFILL.value, "prefill: reading a prompt"),
            (Phase.TRAINING.value, "training: forward and backward"),
        ],
    )
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


class SplitMapForm(AddressForm):
    """A layout to draw."""

    DEFAULTS = {  # noqa: RUF012
        "tp": "2",
        "pp": "2",
        "layers": "8",
        "ranks_per_host": "8",
        "phase": "decode",
        "batch": "1",
        "step": "1",
    }

    tp = WholeNumber(label="Tensor-parallel ranks", low=1, high=8)
    pp = WholeNumber(label="Pipeline stages", low=1, high=8)
    layers = WholeNumber(label="Layers", low=1, high=256)
    ranks_per_host = WholeNumber(label="Devices in a machine", low=1, high=64)
    phase = TrafficForm.base_fields["phase"]
    batch = WholeNumber(label="Sequences", low=1, high=1_000)
    step = WholeNumber(label="Step", low=1, high=1_000, widget=forms.HiddenInput)

    @property
    def layout(self) -> Layout:
        """The layout to draw."""
        return Layout(tp=self.cleaned_data["tp"], pp=self.cleaned_data["pp"])


class SpecForm(forms.Form):
    """A lab spec; `Spec.parse` alone decides what can be run, its sentences stand by their fields."""

    HELP = {  # noqa: RUF012
        "ranks": f"processes, 2 to {MAX_RANKS}",
        "layers": "at most 256; pipeline stages share them equally",
        "batch": "sequences",
        "tokens": "in each training sequence; decode has one in flight",
        "microbatches": "pipeline training cuts the batch into these",
        "schedule": "of pipeline training",
        "qkv": "separate projections each reduce a gradient: six all-reduces a layer in training",
        "steps": "measured, 10 or more",
        "device": "auto takes GPUs where the worker has them",
        "time_limit_seconds": "the run is ended after it",
    }
    LABELS = {"qkv": "Query, key, value", "ffn_width": "Feed-forward width", "dtype": "Element type"}  # noqa: RUF012

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.spec: Spec | None = None
        for name, default in Spec(job=Job.TENSOR).to_dict().items():
            kind = _CHOICES.get(name)
            widget: forms.Widget = (
                forms.Select(choices=[(value, value) for value in kind])
                if kind
                else forms.TextInput(attrs={"autocomplete": "off"})
            )
            if isinstance(default, int | float):
                widget.attrs["inputmode"] = "decimal" if isinstance(default, float) else "numeric"
            label = self.LABELS.get(name, name.replace("_", " ").capitalize())
            self.fields[name] = forms.CharField(
                required=False, label=label, help_text=self.HELP.get(name, ""), widget=widget
            )

    def clean(self) -> dict[str, Any]:
        given = {name: self.cleaned_data.get(name, "") for name in self.fields if name in self.data}
        given.setdefault("note", "")
        try:
            self.spec = Spec.parse(given)
        except SpecError as error:
            for problem in error.problems:
                self.add_error(problem.field if problem.field in self.fields else None, problem.message)
        else:
            self.spec = _without_a_stale_note(self.spec)
        return self.cleaned_data


_CHOICES = {
    "job": Job,
    "phase": LabPhase,
    "schedule": Schedule,
    "qkv": Qkv,
    "dtype": Dtype,
    "device": Device,
}


def _without_a_stale_note(spec: Spec) -> Spec:
    """An experiment's note says what the experiment is; a spec that was changed since is something else."""
    for name in experiment_names():
        shipped = experiment(name)
        if spec.note == shipped.note and spec != shipped:
            return replace(spec, note="")
    return spec


def _short(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:40]}…"
