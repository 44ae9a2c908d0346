"""The map on a run's page tells what that run's plan calls."""

from dataclasses import replace

import pytest

from calculators.lab.choices import Attention, Gradients, Order, Phase
from calculators.lab.spec import Spec, experiment, experiment_names
from calculators.lab.splits import calls_of
from calculators.runs.layout_map import LayoutMap

MAPPED = [name for name in experiment_names() if experiment(name).has_model]
EQUAL = [name for name in MAPPED if name != "expert-training"]


def called(spec, rank=0):
    """Bytes that one rank calls for in a step, by axis; those of its gradients under the name that the map has."""
    found = {}
    for call in calls_of(spec):
        if not call.is_control and call.is_made_by(rank):
            axis = {"sp": "tp"}.get(call.axis, call.axis)
            found[axis] = found.get(axis, 0) + call.times * call.payload_bytes
    return found


def mapped(spec):
    scene = LayoutMap.of(spec).picture.map.scene
    found = {}
    for message in scene.sent.messages:
        if message.to >= 0:
            found[message.axis] = found.get(message.axis, 0) + message.calls * message.bytes_per_call
    return found


@pytest.mark.parametrize("name", EQUAL)
def test_the_map_of_each_experiment_shows_the_bytes_of_its_plan(name):
    spec = experiment(name)

    assert mapped(spec) == pytest.approx(called(spec))


@pytest.mark.parametrize("name", MAPPED)
def test_every_experiment_with_a_model_has_a_map_with_every_rank(name):
    found = LayoutMap.of(experiment(name)).picture

    assert [device.rank for device in found.map.scene.devices] == list(range(experiment(name).ranks))
    assert len(found.svg) < 25_000


def test_experts_are_drawn_as_if_equally_wanted_and_the_page_says_so():
    found = LayoutMap.of(experiment("expert-training"))

    assert "Of the 8 experts" in found.picture.map.text
    assert "wanted equally often" in found.remarks[0]


@pytest.mark.parametrize("order", Order)
def test_a_mesh_is_drawn_with_the_lab_s_ranks(order):
    from calculators.lab.splits.mesh import mesh_of

    spec = replace(experiment("mesh-decode"), dp=2, ranks=8, order=order, hosts=2)
    scene = LayoutMap.of(spec).picture.map.scene

    for device, place in zip(scene.devices, mesh_of(spec).places(), strict=True):
        assert {axis: device.at[axis] for axis in place} == place
        assert device.host == device.rank // 4


def test_what_the_map_would_get_wrong_has_none():
    assert LayoutMap.of(experiment("ring-exchange")) is None
    assert LayoutMap.of(replace(experiment("data-training"), gradients=Gradients.KEPT)) is None
    assert LayoutMap.of(replace(experiment("context-training"), zigzag=True)) is None


@pytest.mark.parametrize("attention", Attention)
def test_every_way_of_attention_has_the_bytes_of_its_plan(attention):
    spec = replace(experiment("context-training"), attention=attention, phase=Phase.PREFILL)

    assert mapped(spec) == pytest.approx(called(spec))


def test_a_spec_that_was_given_as_a_table_is_mapped_too():
    spec = Spec.parse({"job": "pipeline", "ranks": 4, "layers": 4, "batch": 4})

    assert "Stage" not in LayoutMap.of(spec).picture.map.title
    assert "stage 3" in LayoutMap.of(spec).picture.map.text
