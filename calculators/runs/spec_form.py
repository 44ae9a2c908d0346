"""A lab spec as a form: only the fields that the chosen job reads, in groups, each with its unit in words.

`Spec.parse` alone decides what can be run; its sentences stand by their fields.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from django import forms
from django.forms import BoundField
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from calculators.lab import reading
from calculators.lab.fields import is_read
from calculators.lab.limits import MAX_RANKS
from calculators.lab.spec import Job, Spec, SpecError, experiment, experiment_names
from calculators.templatetags.fields import labelled
from calculators.widgets import Select, TextInput

DECIDING = ("job", "phase", "hosts", "sequence", "attention", "pattern", "ep")
"""Fields on which it depends which others are read."""

GROUPS = (
    (
        "What runs",
        (
            *(
                "job",
                "phase",
                "ranks",
                "tp",
                "pp",
                "dp",
                "ep",
                "order",
                "pattern",
                "gradients",
                "zero",
                "qkv",
            ),
            *("sequence", "regather", "attention", "zigzag", "microbatches", "schedule", "chunks"),
            *("skew", "capacity", "reduce_scatter", "call_bytes", "repeats", "lost_rank"),
        ),
    ),
    (
        "The model",
        (
            *("layers", "hidden_size", "attention_heads", "ffn_width", "vocab_size", "experts", "top_k"),
            *("batch", "tokens", "dtype"),
        ),
    ),
    ("The machine", ("device", "hosts", "link_mbit", "delay_ms", "jitter_ms")),
    ("Measuring", ("steps", "warmup_steps", "time_limit_seconds", "seed", "note")),
)

LABELS = {
    "ranks": "Ranks",
    "tp": "Tensor-parallel ranks",
    "pp": "Pipeline stages",
    "dp": "Replicas",
    "ep": "Expert-parallel ranks",
    "order": "Neighbouring ranks",
    "zero": "ZeRO stage",
    "qkv": "Query, key, value",
    "sequence": "Sequence parallelism",
    "regather": "Gather again backward",
    "reduce_scatter": "Reduce-scatter",
    "zigzag": "Zig-zag slices",
    "microbatches": "Micro-batches",
    "chunks": "Chunks a rank",
    "lost_rank": "Rank to be killed",
    "call_bytes": "Bytes in a call",
    "hidden_size": "Hidden size",
    "attention_heads": "Attention heads",
    "ffn_width": "Feed-forward width",
    "vocab_size": "Vocabulary",
    "top_k": "Experts a token visits",
    "batch": "Sequences",
    "tokens": "Tokens a sequence",
    "dtype": "Element type",
    "hosts": "Emulated hosts",
    "link_mbit": "Link speed [Mbit/s]",
    "delay_ms": "Delay [ms]",
    "jitter_ms": "Jitter [ms]",
    "steps": "Measured steps",
    "warmup_steps": "Warm-up steps",
    "time_limit_seconds": "Time limit [s]",
}
HELP = {
    "phase": "what one step is",
    "ranks": f"processes, 1 to {MAX_RANKS}",
    "tp": "each layer cut among so many",
    "dp": "copies of the whole layout",
    "order": "they fill a host first",
    "pattern": "whose calls are made",
    "gradients": "kept: replicas drift apart",
    "zero": "1 optimizer, 2 and gradients, 3 and weights",
    "qkv": "separate: six all-reduces a layer in training",
    "regather": "instead of keeping what was gathered",
    "reduce_scatter": "all-to-all: with a sum on each rank",
    "microbatches": "cut from the batch; requests in flight in decode",
    "schedule": "order of work in training",
    "skew": "0 wants all experts alike",
    "capacity": "times an equal share; 0 drops nothing",
    "lost_rank": "halfway; −1 for none",
    "call_bytes": "full size of one call",
    "repeats": "of the calls in a step",
    "layers": "at most 256",
    "hidden_size": "elements",
    "ffn_width": "elements",
    "vocab_size": "tokens",
    "tokens": "decode has one in flight",
    "device": "auto takes GPUs where there are any",
    "hosts": "network namespaces, as many ranks in each",
    "link_mbit": "each way; 0: not slowed down",
    "delay_ms": "added on the way out of a host",
    "steps": "10 or more",
    "time_limit_seconds": "the run is ended after it",
    "note": "a line of your own",
}


class Switch(forms.CheckboxInput):
    """A box to tick; it is sent as “true”, and reads whatever a spec writes."""

    def __init__(self, attrs: Mapping[str, Any] | None = None) -> None:
        super().__init__(
            dict(attrs or {}), check_test=lambda value: str(value).lower() in ("true", "on", "yes")
        )

    def format_value(self, value: object) -> str:
        """The box always stands for “true”; whether it is ticked is `check_test`'s."""
        return "true"

    def value_from_datadict(self, data: Mapping[str, Any], files: Any, name: str) -> Any:
        return data.get(name, "")


@dataclass(frozen=True, kw_only=True)
class Group:
    """Fields that belong together."""

    title: str
    fields: tuple[SafeString, ...]


class SpecForm(forms.Form):
    """A spec to be run, or changed first."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.initial = {name: _text(value) for name, value in self.initial.items()}
        if self.is_bound:
            # A field that only now is read was not sent, and is shown at its default; a box that is not sent is off.
            unsent = {
                name: _text(default) for name, default in _DEFAULTS.items() if name not in reading.SWITCHES
            }
            self.data = {**unsent, **dict(self.data.items())}
        self.spec: Spec | None = None
        for name, default in _DEFAULTS.items():
            self.fields[name] = forms.CharField(
                required=False,
                label=LABELS.get(name, name.replace("_", " ").capitalize()),
                help_text=HELP.get(name, ""),
                widget=_widget(name, default),
            )

    def clean(self) -> dict[str, Any]:
        given = {name: self.cleaned_data.get(name, "") for name in self.read if name in self.data}
        given.setdefault("note", "")
        try:
            self.spec = Spec.parse(given)
        except SpecError as error:
            self.refuse(error)
        else:
            self.spec = _without_a_stale_note(self.spec)
        return self.cleaned_data

    def refuse(self, error: SpecError) -> None:
        """Put each sentence by its field."""
        for problem in error.problems:
            self.add_error(problem.field if problem.field in self.fields else None, problem.message)

    @cached_property
    def read(self) -> frozenset[str]:
        """The fields that the chosen job reads; all where no job is chosen that there is."""
        values: dict[str, Any] = {}
        for name in DECIDING:
            given = self._given(name)
            try:
                values[name] = reading.READERS[name](name, _DEFAULTS[name] if given is None else given)
            except reading.Unreadable:
                continue
        if "job" not in values:
            return frozenset(_DEFAULTS)
        return frozenset(name for name in _DEFAULTS if is_read(name, values))

    @property
    def groups(self) -> list[Group]:
        """The fields that are read, ready to be shown."""
        placed = {name for _, names in GROUPS for name in names}
        groups = [*GROUPS, ("More", tuple(name for name in _DEFAULTS if name not in placed))]
        found = [(title, [self[name] for name in names if name in self.read]) for title, names in groups]
        return [Group(title=title, fields=tuple(map(_shown, fields))) for title, fields in found if fields]

    @property
    def kept(self) -> Iterator[tuple[str, str]]:
        """What was said in fields that are not shown now, so that it is there when they come back."""
        for name, default in _DEFAULTS.items():
            given = self._given(name)
            if name not in self.read and given is not None and str(given) != _text(default):
                yield name, str(given)

    def _given(self, name: str) -> Any:
        """What the form was given for this field; None where nothing was said."""
        return self.data.get(name) if self.is_bound else self.initial.get(name)


def _widget(name: str, default: Any) -> forms.Widget:
    attrs: dict[str, Any] = {}
    if name in DECIDING:
        attrs = {
            "hx-get": reverse("calculators:spec-fields"),
            "hx-trigger": "change",
            "hx-target": "#fields",
            "hx-sync": "closest form:replace",
        }
    if kind := reading.CHOICES.get(name):
        return Select(attrs=attrs, choices=[(str(value), str(value)) for value in kind])
    if name in reading.SWITCHES:
        return Switch(attrs)
    if isinstance(default, float):
        attrs["inputmode"] = "decimal"
    elif isinstance(default, int):
        attrs["inputmode"] = "numeric"
    return TextInput(attrs={"autocomplete": "off", **attrs})


def _shown(field: BoundField) -> SafeString:
    """The field with its label; a switch has its label behind it."""
    if not isinstance(field.field.widget, Switch):
        return labelled(field)
    identity = field.id_for_label
    help_text = str(field.help_text)
    helped = format_html('<p class="help" id="{}_helptext">{}</p>', identity, help_text) if help_text else ""
    described = f"{identity}_helptext {identity}_error" if help_text else f"{identity}_error"
    return format_html(
        '<div class="field switch field-{}"><label for="{}">{} {}</label>{}'
        '<p class="error" id="{}_error" aria-live="polite">{}</p></div>',
        field.name,
        identity,
        field.as_widget(attrs={"aria-describedby": described}),
        field.label,
        helped,
        identity,
        " ".join(field.errors),
    )


def _without_a_stale_note(spec: Spec) -> Spec:
    """An experiment's note says what the experiment is; a spec that was changed since is something else."""
    for name in experiment_names():
        shipped = experiment(name)
        if spec.note == shipped.note and spec != shipped:
            return replace(spec, note="")
    return spec


def _text(value: Any) -> str:
    """As a person writes it: 120 and not 120.0, true and not True."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


_DEFAULTS = Spec(job=Job.TENSOR).to_dict()
