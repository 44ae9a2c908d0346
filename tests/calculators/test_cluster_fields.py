"""A cluster as a form: what it says, and the sentences for clusters that cannot be."""

from calculators.cluster_fields import ClusterForm
from calculators.predict.links import LADDER, Reach, rung


class Form(ClusterForm):
    DEFAULTS = ClusterForm.CLUSTER


def test_a_form_says_hosts_joined_by_two_links():
    form = Form({"devices": "1,024", "between": "ethernet-100"})

    assert form.is_valid(), form.errors
    cluster = form.cluster
    assert (cluster.devices, cluster.devices_per_host) == (1024, 8)
    assert [tier.link.name for tier in cluster.tiers] == [rung("nvlink-4").name, rung("ethernet-100").name]


def test_fewer_devices_than_a_host_holds_are_one_host():
    form = Form({"devices": "2", "devices_per_host": "8"})

    assert form.is_valid()
    assert len(form.cluster.tiers) == 1


def test_hosts_hold_equal_numbers():
    form = Form({"devices": "100", "devices_per_host": "8"})

    assert not form.is_valid()
    assert form.errors["devices"] == [
        "Devices is 100, but hosts of 8 cannot hold as many in equal numbers. Nearest that work: 96 or 104."
    ]


def test_only_what_joins_devices_can_be_a_link():
    offered = {key for _, group in Form.base_fields["inside"].choices for key, _ in group}

    assert offered == {found.key for found in LADDER if found.reach is not Reach.MEMORY}


def test_an_unknown_device_is_named_with_those_there_are():
    form = Form({"device": "abacus"})

    assert not form.is_valid()
    assert form.errors["device"][0].startswith("Device is “abacus”, but it must be one of “a100-80”, “h100”")


def test_an_unknown_link_is_named_with_those_there_are():
    form = Form({"between": "string"})

    assert not form.is_valid()
    assert form.errors["between"][0].startswith(
        "Link between hosts is “string”, but it must be one of “infiniband-xdr”, “infiniband-ndr”"
    )
