"""The part of a form that describes a cluster: which devices, how many, in hosts of how many, joined by what."""

from typing import Any

from django import forms

from calculators.fields import AddressForm, Choice, WholeNumber
from calculators.predict.clusters import Cluster, Link, two_tiers
from calculators.predict.devices import DEVICES, Device, device
from calculators.predict.links import LADDER, Reach, rung

MOST_DEVICES = 16_384


def device_field() -> Choice:
    """One accelerator of the catalogue."""
    return Choice(label="Device", choices=[(key, found.name) for key, found in DEVICES.items()])


def link_field(label: str, *, inside_a_host: bool) -> Choice:
    """One rung of the ladder that joins devices; those that usually do here come first."""
    usual = (Reach.HOST,) if inside_a_host else (Reach.CABLE, Reach.NETWORK, Reach.AIR)
    rungs = [found for found in LADDER if found.reach is not Reach.MEMORY]
    first = [(found.key, found.name) for found in rungs if found.reach in usual]
    rest = [(found.key, found.name) for found in rungs if found.reach not in usual]
    words = ("Inside a host", "Between hosts")
    return Choice(
        label=label,
        choices=[(words[not inside_a_host], first), (words[inside_a_host], rest)],
    )


class ClusterForm(AddressForm):
    """A form whose state says a cluster, besides what its subclass adds."""

    CLUSTER = {  # noqa: RUF012
        "device": "h100",
        "devices": "64",
        "devices_per_host": "8",
        "inside": "nvlink-4",
        "between": "infiniband-ndr",
    }

    device = device_field()
    devices = WholeNumber(label="Devices", low=1, high=MOST_DEVICES)
    devices_per_host = WholeNumber(label="Devices in a host", low=1, high=1_024)
    inside = link_field("Link inside a host", inside_a_host=True)
    between = link_field("Link between hosts", inside_a_host=False)

    def clean(self) -> dict[str, Any]:
        values = super().clean() or {}
        devices, in_a_host = values.get("devices"), values.get("devices_per_host")
        if devices and in_a_host and devices > in_a_host and devices % in_a_host:
            below, above = devices // in_a_host * in_a_host, -(-devices // in_a_host) * in_a_host
            self.add_error(
                "devices",
                forms.ValidationError(
                    f"Devices is {devices:,}, but hosts of {in_a_host:,} cannot hold as many in equal numbers. "
                    f"Nearest that work: {below:,} or {above:,}.",
                    code="hosts",
                ),
            )
        return values

    @property
    def chosen_device(self) -> Device:
        """The device that the form says."""
        return device(self.cleaned_data["device"])

    @property
    def cluster(self) -> Cluster:
        """The cluster that the form says."""
        values = self.cleaned_data
        return two_tiers(
            self.chosen_device,
            devices=values["devices"],
            devices_per_host=values["devices_per_host"],
            inside=Link.on(rung(values["inside"])),
            between=Link.on(rung(values["between"])),
        )
