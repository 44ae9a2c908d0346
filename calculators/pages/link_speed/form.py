"""What the page *Link speed* asks: a model on so many devices, the speed that is wanted of it, and a link."""

from typing import Any

from django import forms

from calculators.cluster_fields import device_field, link_field
from calculators.fields import AddressForm, Choice, Decimal, ModelField, WholeNumber
from calculators.pages.link_speed.case import MEASURED, LinkCase
from calculators.predict.clusters import Link
from calculators.predict.devices import device

BITS = {"16": 2.0, "8": 1.0, "4": 0.5}


class LinkSpeedForm(AddressForm):
    """A model on so many devices, the speed that is wanted of it, and a link to look at."""

    DEFAULTS = {  # noqa: RUF012
        "model": "lesson",
        "bits": "16",
        "device": "rtx-4090",
        "devices": "2",
        "batch": "1",
        "context": "1024",
        "wanted": "40",
        "link": "ethernet-10",
    }

    model = ModelField()
    bits = Choice(label="Bits per weight", choices=[(key, f"{key} bits") for key in BITS])
    device = device_field()
    devices = WholeNumber(label="Devices", low=1, high=1_024)
    batch = WholeNumber(label="Sequences", low=1, high=100_000, help_text="written at the same time")
    context = WholeNumber(label="Context", low=1, high=10_000_000, help_text="tokens that each looks back on")
    wanted = Decimal(
        label="Tokens per second", low=0.001, high=1_000_000, help_text="wanted for each sequence"
    )
    link = link_field("Link to look at", inside_a_host=False)
    bytes_per_second = Decimal(
        label="Speed, bytes/s", low=1_000, high=1e14, help_text="in one direction", instead="link"
    )
    microseconds = Decimal(
        label="Latency, µs", low=0.001, high=10_000_000, help_text="of one small message", instead="link"
    )

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.fields["link"].choices = [*self.fields["link"].choices, (MEASURED, "my own, as measured")]

    def clean(self) -> dict[str, Any]:
        values = super().clean() or {}
        both = ("bytes_per_second", "microseconds")
        if not any(name in self.errors for name in both):
            missing = [name for name in both if values.get(name) is None]
            if len(missing) == 1 or (missing and values.get("link") == MEASURED):
                for name in missing:
                    self.add_error(
                        name,
                        forms.ValidationError(
                            f"{self.fields[name].label} is empty. A measured link needs its speed and its latency.",
                            code="empty",
                        ),
                    )
        return values

    @property
    def case(self) -> LinkCase:
        """What is to be calculated."""
        values = self.cleaned_data
        measured = None
        if values["bytes_per_second"] is not None:
            measured = Link(
                name="your measured link",
                bytes_per_second=values["bytes_per_second"],
                latency_seconds=values["microseconds"] / 1e6,
            )
        return LinkCase(
            shape=values["model"],
            device=device(values["device"]),
            devices=values["devices"],
            batch=values["batch"],
            context=values["context"],
            wanted=values["wanted"],
            weight_bytes=BITS[values["bits"]],
            link=values["link"],
            measured=measured,
        )
