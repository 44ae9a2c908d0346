"""A layout to draw, as a form; what calculators ask for stands with each (`calculators/pages`)."""

from typing import Any

from django import forms

from calculators.fields import AddressForm, Choice, WholeNumber, phase_field
from calculators.layout_fields import sp_field, zero_field
from calculators.predict.shapes import Layout, Phase
from calculators.splitmap import split_map


class SplitMapForm(AddressForm):
    """A layout to draw. What is not said is not split."""

    OPENING = {"tp": "2", "pp": "2"}  # noqa: RUF012
    DEFAULTS = {  # noqa: RUF012
        "tp": "1",
        "pp": "1",
        "cp": "1",
        "dp": "1",
        "ep": "1",
        "sp": "off",
        "zero": "0",
        "layers": "8",
        "experts": "0",
        "ranks_per_host": "8",
        "phase": "decode",
        "batch": "",
        "tokens": "4096",
        "step": "1",
    }

    tp = WholeNumber(label="Tensor-parallel ranks", low=1, high=64)
    pp = WholeNumber(label="Pipeline stages", low=1, high=64)
    cp = WholeNumber(label="Context-parallel ranks", low=1, high=64)
    dp = WholeNumber(label="Replicas", low=1, high=1_024)
    ep = WholeNumber(label="Expert-parallel ranks", low=1, high=64)
    sp = sp_field()
    zero = zero_field()
    layers = WholeNumber(label="Layers", low=1, high=256)
    experts = WholeNumber(label="Experts in a layer", low=0, high=1_024, help_text="0: dense")
    ranks_per_host = WholeNumber(label="Devices in a machine", low=1, high=64)
    phase: Choice = phase_field()
    batch = WholeNumber(
        label="Sequences",
        low=1,
        high=1_000_000,
        instead="one a replica",
        help_text="of all replicas; empty: one each",
    )
    tokens = WholeNumber(label="Tokens in a sequence", low=1, high=10_000_000)
    step = WholeNumber(label="Step", low=1, high=1_000, widget=forms.HiddenInput)

    def clean(self) -> dict[str, Any]:
        """Refuses, in the map's own sentence, a layout that has no map."""
        values: dict[str, Any] = super().clean() or self.cleaned_data
        if not self.errors:
            try:
                split_map(self.layout, **self.sizes)
            except ValueError as error:
                self.add_error(None, str(error))
        return values

    @property
    def address(self) -> str:
        """The query that shows this state again; one device must say so, since the bare page opens with four."""
        return super().address or "tp=1"

    @property
    def layout(self) -> Layout:
        """The layout to draw. Experts that nothing spreads are cut as the blocks are; spread, each is whole."""
        values = self.cleaned_data
        spreads = values["ep"] > 1
        return Layout(
            tp=values["tp"],
            pp=values["pp"],
            cp=values["cp"],
            dp=values["dp"],
            ep=values["ep"],
            etp=values["tp"] if values["experts"] and not spreads else 1,
            sp=values["sp"] == "on",
            zero=int(values["zero"]),
        )

    @property
    def sizes(self) -> dict[str, Any]:
        """The rest of what `split_map` takes."""
        values = self.cleaned_data
        named = ("layers", "experts", "ranks_per_host", "batch", "tokens")
        return {"phase": Phase(values["phase"])} | {name: values[name] for name in named}
