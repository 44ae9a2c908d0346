"""A layout to draw, as a form; what calculators ask for stands with each (`calculators/pages`)."""

from django import forms

from calculators.fields import AddressForm, WholeNumber, phase_field
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
