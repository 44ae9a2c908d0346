"""A layout to draw and a spec to run, as forms; what calculators ask for stands with each (`calculators/pages`)."""

from dataclasses import replace
from typing import Any

from django import forms

from calculators.fields import AddressForm, WholeNumber, phase_field
from calculators.lab.limits import MAX_RANKS
from calculators.lab.spec import (
    Device,
    Dtype,
    Job,
    Pattern,
    Qkv,
    Schedule,
    Spec,
    SpecError,
    experiment,
    experiment_names,
)
from calculators.lab.spec import Phase as LabPhase
from calculators.predict.shapes import Layout


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
    phase = phase_field()
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
        "pattern": "whose calls are made",
        "call_bytes": "full size of one call",
        "repeats": "how often a step makes the calls",
        "skew": "0 wants all experts alike, 1 the second half as much as the first",
        "hidden_size": "of a layer, or of the rows that experts exchange",
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
    "pattern": Pattern,
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
