"""Every legal layout of up to 16 devices: the model, the tokens, the batch and the experts are all somewhere, once."""

import itertools
import xml.etree.ElementTree as ET
from collections import Counter

import pytest

from calculators.predict.models.catalogue import MODELS
from calculators.predict.models.parameters import total_parameters
from calculators.predict.shapes import Experts, Layout, Phase
from calculators.predict.traffic import context_parallel, data_parallel, expert_parallel, tensor_parallel
from calculators.splitmap import map_of_shape, split_map
from calculators.splitmap.cards import MANY_DEVICES
from calculators.splitmap.markup import text_width
from calculators.splitmap.words import number, size

SVG = "{http://www.w3.org/2000/svg}"
MOST = 16
WIDTH = 352


def layouts():
    """Layouts with what else they need: (layout, experts, phase, devices in a host)."""
    phases, hosts = itertools.cycle(Phase), itertools.cycle((2, 3, 4, 8))
    for dp, tp, pp, cp in itertools.product(range(1, MOST + 1), repeat=4):
        if dp * tp * pp * cp > MOST:
            continue
        axes = {"dp": dp, "tp": tp, "pp": pp, "cp": cp}
        yield Layout(**axes), 0, next(phases), next(hosts)
        if tp > 1:
            yield Layout(**axes, sp=True), 0, next(phases), next(hosts)
        if dp * cp > 1:
            yield Layout(**axes, zero=1 + next(hosts) % 3), 0, Phase.TRAINING, next(hosts)
        for ep in (each for each in range(2, MOST + 1) if dp * tp * cp % each == 0):
            yield Layout(**axes, ep=ep), 2 * ep, next(phases), next(hosts)
        if tp > 1:
            yield Layout(**axes, etp=tp, sp=True, zero=3 * (dp > 1)), 4, Phase.TRAINING, next(hosts)


EVERY = list(layouts())


def drawn(layout, experts, phase, per_host, **more):
    sizes = {
        "layers": 2 * layout.pp,
        "tokens": 8 * layout.cp * layout.tp,
        "batch": 2 * layout.dp * layout.tp,
        "ranks_per_host": per_host,
        "phase": phase,
        "experts": experts,
    }
    return split_map(layout, **(sizes | more))


@pytest.fixture(scope="module")
def maps():
    return [drawn(*case) for case in EVERY]


@pytest.fixture(scope="module")
def pictures(maps):
    return [(found, ET.fromstring(found.svg)) for found in maps]


def of_class(root, name):
    return [element for element in root.iter() if name in element.get("class", "").split()]


def numbers(run):
    return range(run[0], run[1] + 1)


def test_there_are_many():
    assert len(EVERY) > 700


def test_every_slice_of_every_layer_is_on_one_device_of_each_replica(maps):
    for found in maps:
        scene, layout = found.scene, found.scene.layout
        held = Counter(
            (layer, device.at["tp"])
            for device in scene.devices
            for run in device.runs
            for layer in numbers(run)
        )
        assert set(held) == set(itertools.product(range(scene.layers), range(layout.tp)))
        assert set(held.values()) == {layout.dp * layout.cp}


def test_every_token_of_every_sequence_is_on_one_device_of_each_slice(maps):
    for found in maps:
        scene, layout = found.scene, found.scene.layout
        for stage in range(layout.pp):
            seen = Counter(
                (sequence, token)
                for device in scene.stage(stage)
                if device.at["tp"] == 0
                for sequence in numbers(device.sequences)
                for token in numbers(device.tokens)
            )
            assert set(seen) == set(itertools.product(range(scene.batch), range(scene.tokens)))
            assert set(seen.values()) == {1}


def test_beside_the_blocks_every_token_is_on_one_device(maps):
    for found in maps:
        scene = found.scene
        if scene.layout.sp:
            for group in scene.groups("tp"):
                beside = [token for device in group for token in numbers(device.beside)]
                assert sorted(beside) == list(numbers(group[0].tokens))


def test_every_expert_is_on_as_many_devices_of_each_stage(maps):
    for found in maps:
        scene, layout = found.scene, found.scene.layout
        if scene.shape.experts is None:
            assert all(device.experts is None for device in scene.devices)
            continue
        for stage in range(layout.pp):
            held = Counter(
                (expert, device.at["etp"])
                for device in scene.stage(stage)
                for expert in numbers(device.experts)
            )
            assert set(held) == set(itertools.product(range(scene.shape.experts.routed), range(layout.etp)))
            assert set(held.values()) == {layout.dp * layout.tp * layout.cp // (layout.ep * layout.etp)}


def test_those_that_hold_the_same_weights_keep_each_part_of_the_states_once(maps):
    for found in maps:
        for group in found.scene.groups("dp"):
            assert sorted(device.at["shard"] for device in group) == list(range(found.scene.shards))


def test_ranks_and_hosts_are_as_predict_places_them(maps):
    from calculators.predict.placement import groups

    for found in maps:
        scene = found.scene
        assert [device.rank for device in scene.devices] == list(range(scene.layout.world_size))
        assert all(device.host == device.rank // scene.ranks_per_host for device in scene.devices)
        for axis in ("tp", "cp", "pp", "ep", "etp"):
            drawn_groups = {tuple(device.rank for device in group) for group in scene.groups(axis)}
            assert drawn_groups == set(groups(scene.layout, axis)), (scene.layout, axis)


def test_every_picture_is_a_named_image_of_moderate_size(pictures):
    for found, root in pictures:
        assert root.get("role") == "img"
        assert [child.tag for child in root][:2] == [f"{SVG}title", f"{SVG}desc"]
        assert root.find(f"{SVG}desc").text == found.text
        assert not any({"style", "id"} & set(element.attrib) for element in root.iter())
        most = 25_000 if len(found.scene.devices) <= MANY_DEVICES else 42_000
        assert len(found.svg) <= most, found.scene.layout


def test_no_text_leaves_its_card_or_the_picture(pictures):
    for found, root in pictures:
        height = float(root.get("viewBox").split()[3])
        for card in of_class(root, "sm-card"):
            frame = of_class(card, "sm-frame")[0]
            left, top, wide, tall = (float(frame.get(name)) for name in ("x", "y", "width", "height"))
            for line in card.iter(f"{SVG}text"):
                if "sm-name" in line.get("class"):
                    continue  # bold and short: measured in the browser
                width = text_width(line.text, 11)
                x = float(line.get("x")) - (width / 2 if "sm-middle" in line.get("class") else 0)
                assert left <= x, (found.scene.layout, line.text)
                assert x + width <= left + wide, (found.scene.layout, line.text, wide)
                assert top < float(line.get("y")) < top + tall, (found.scene.layout, line.text)
        for line in of_class(root, "sm-message") + of_class(root, "sm-key") + of_class(root, "sm-total"):
            assert float(line.get("x")) + text_width(line.text, 11) <= WIDTH, line.text
            assert float(line.get("y")) < height


def test_cards_lie_apart_and_inside_the_picture(pictures):
    for found, root in pictures:
        frames = [
            tuple(float(frame.get(name)) for name in ("x", "y", "width", "height"))
            for frame in of_class(root, "sm-frame")
        ]
        height = float(root.get("viewBox").split()[3])
        assert all(x >= 0 and x + w <= WIDTH and y >= 0 and y + h <= height for x, y, w, h in frames)
        for (x, y, w, h), (ox, oy, ow, oh) in itertools.combinations(frames, 2):
            assert not (x < ox + ow and ox < x + w and y < oy + oh and oy < y + h), found.scene.layout


def test_a_host_is_a_box_around_its_cards_or_named_on_them(pictures):
    for found, root in pictures:
        hosts = of_class(root, "sm-host")
        if hosts:
            assert len(hosts) == found.scene.hosts
        else:
            cards = of_class(root, "sm-card")
            named = [[line.text for line in card.iter(f"{SVG}text")] for card in cards]
            assert all(
                f"host {device.host}" in said
                for device, said in zip(sorted(found.scene.devices, key=_shown(cards)), named, strict=True)
            )


def _shown(cards):
    order = {
        int(next(card.iter(f"{SVG}text")).text.removeprefix("Device ").split(" ")[0]): place
        for place, card in enumerate(cards)
    }
    return lambda device: order[device.rank]


def test_every_step_says_something_else_and_can_be_drawn(maps):
    for found in maps[::7]:
        captions = [step.caption for step in found.steps]
        assert len(set(captions)) == len(captions), captions
        assert all(caption.endswith(".") and not caption[0].islower() for caption in captions)
        for step in found.steps:
            ET.fromstring(step.svg)


def test_colour_is_never_the_only_sign_of_a_family(pictures):
    for found, root in pictures:
        for exchange in of_class(root, "sm-exchange"):
            tags = [line.text for line in of_class(exchange, "sm-tag")]
            many = len(found.scene.devices) > MANY_DEVICES or found.scene.layout.pp > 4
            assert tags or many, found.scene.layout
        for bar in of_class(root, "sm-held"):
            assert "family" in bar.get("class") or "unsplit" in bar.get("class")


def test_what_travels_is_in_the_picture_and_in_the_words(pictures):
    for found, root in pictures:
        said = " ".join(line.text for line in of_class(root, "sm-message"))
        for message in found.scene.sent.messages:
            assert size(message.bytes_per_call) in said
            assert f"{number(message.calls)} per {found.scene.phase.unit}" in said
            assert size(message.bytes_per_call) in found.text
        assert (size(found.scene.sent.busiest_bytes) in found.text) == bool(found.scene.sent.messages)


# --- against each family's own function ------------------------------------------------------------------------------

LESSON = MODELS["lesson"].shape


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_a_context_parallel_step_sends_what_its_family_predicts(ranks):
    moved = context_parallel(
        attention_heads=LESSON.attention_heads,
        kv_heads=LESSON.kv_heads,
        head_dim=LESSON.head_dim,
        layers=8,
        ranks=ranks,
        tokens=8192,
        phase=Phase.PREFILL,
    )
    found = split_map(Layout(cp=ranks), layers=8, tokens=8192, phase=Phase.PREFILL)

    [sends] = found.scene.messages("cp")
    assert (sends.calls, sends.bytes_per_call) == (moved.calls.item(), moved.bytes_per_call.item())
    assert found.sentences[-1] == f"Each device sends {size(moved.wire_bytes.item())} per prompt."


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_expert_parallel_devices_send_what_their_family_predicts(ranks):
    moved = expert_parallel(
        hidden_size=4096, layers=8, tokens=1, experts=8, experts_per_token=2, ranks=ranks, phase=Phase.DECODE
    )
    found = split_map(Layout(dp=ranks, ep=ranks), layers=8, experts=8)

    assert sum(message.calls for message in found.scene.messages("ep")) == moved.calls.item() == 16
    assert found.sentences[-1] == f"Each device sends {size(moved.wire_bytes.item())} per token."


@pytest.mark.parametrize(("zero", "stage"), [(0, "ddp"), (1, "zero-1"), (2, "zero-2"), (3, "zero-3")])
def test_replicas_send_what_their_family_predicts(zero, stage):
    found = split_map(Layout(dp=4, zero=zero), layers=8, phase=Phase.TRAINING)
    moved = data_parallel(parameters=total_parameters(found.scene.shape), ranks=4, stage=stage)

    assert found.sentences[-1] == f"Each device sends {size(moved.wire_bytes.item())} per step."


@pytest.mark.parametrize("phase", Phase)
def test_sequence_parallel_devices_send_what_their_family_predicts(phase):
    moved = tensor_parallel(
        hidden_size=4096,
        layers=8,
        ranks=4,
        batch=4,
        tokens=64,
        phase=phase,
        sequence_parallel="regather",
    )
    found = split_map(Layout(tp=4, sp=True), layers=8, batch=4, tokens=64, phase=phase)

    assert sum(message.calls for message in found.scene.messages("tp")) == moved.calls.item()
    assert found.sentences[-1] == f"Each device sends {size(moved.wire_bytes.item())} per {phase.unit}."


def test_a_step_of_each_zero_stage_tells_who_gathers_what_and_when():
    captions = {
        zero: [
            step.caption for step in split_map(Layout(dp=4, zero=zero), layers=8, phase=Phase.TRAINING).steps
        ]
        for zero in range(4)
    }

    assert captions[0][-1] == (
        "The replicas all-reduce their gradients: each has the average, and takes the same step."
    )
    assert captions[1] == [captions[2][0].replace("ZeRO-2", "ZeRO-1"), *captions[2][1:]]
    assert captions[1][-1] == "An all-gather gives everybody the updated weights of all parts."
    assert captions[3][1] == (
        "Forward: before each of layers 0–7 its parts are all-gathered, and every device has it whole for its turn."
    )
    assert captions[3][-1].startswith("A reduce-scatter averages the gradients: ")


def test_replicas_that_answer_say_nothing_to_each_other():
    assert split_map(Layout(dp=4), layers=8).sentences[-1] == (
        "Nothing travels while tokens are decoded: each replica works on its own sequences."
    )


# --- what is too large, in another order, or not there ---------------------------------------------------------------


def test_of_many_replicas_two_are_drawn_and_the_picture_says_so():
    found = split_map(Layout(dp=128, tp=2), layers=8, phase=Phase.TRAINING)

    assert [device.rank for device in found.scene.devices] == [0, 1, 2, 3]
    assert "2 replicas are drawn of 128; the others hold the same of the model." in found.text
    [gradients] = found.scene.messages("dp")
    assert f"{size(found.scene.sent.busiest_bytes)} per step" in found.text
    assert gradients.calls == 1
    assert "inside and between hosts" in found.text


def test_ranks_in_another_order_stand_where_they_are():
    order = ("tp", "pp", "dp", "cp")  # the lab's: whole pipelines side by side
    found = map_of_shape(
        Layout(dp=2, tp=2, pp=2), LESSON, ranks_per_host=4, phase=Phase.TRAINING, batch=2, order=order
    )

    assert [(device.rank, device.at["dp"], device.at["pp"]) for device in found.scene.devices][3:6] == [
        (3, 0, 1),
        (4, 1, 0),
        (5, 1, 0),
    ]
    assert "between hosts" in " ".join(line.text for line in of_class(ET.fromstring(found.svg), "sm-message"))
    assert len(of_class(ET.fromstring(found.svg), "sm-host")) == 2


def test_pipelines_inside_hosts_put_tensor_groups_across():
    found = map_of_shape(Layout(tp=2, pp=2), LESSON, ranks_per_host=2, order=("pp", "tp", "cp", "dp"))

    assert [device.at["tp"] for device in found.scene.devices] == [0, 0, 1, 1]
    assert "combine partial sums, from host to host," in found.text
    assert "Across the one boundary, inside hosts," in found.text


@pytest.mark.parametrize(
    ("layout", "more", "sentence"),
    [
        (
            Layout(sp=True),
            {},
            "sp is on, but without tensor parallelism there is no group to share the tokens among. "
            "Turn sp off, or make tp 2.",
        ),
        (
            Layout(ep=4, dp=4),
            {},
            "ep is 4, but a dense model has no experts to place. Give experts, or make ep 1.",
        ),
        (
            Layout(ep=3, dp=3),
            {"experts": 8},
            "ep is 3, but 3 devices cannot share 8 experts equally. Nearest that works: 1.",
        ),
        (
            Layout(ep=4, dp=2),
            {"experts": 8},
            "ep is 4, but experts share the devices of the other axes, and here a stage has 2. Nearest that works: 2.",
        ),
        (
            Layout(dp=4),
            {"batch": 6},
            "batch is 6, but 4 replicas cannot share 6 sequences equally. Nearest that work: 4 or 8.",
        ),
        (
            Layout(cp=4),
            {"tokens": 1},
            "tokens is 1, but 4 devices cannot share 1 token equally. Nearest that works: 4.",
        ),
        (
            Layout(tp=2, sp=True),
            {},
            "sp is on, but 1 sequence with one token in flight cannot be shared by 2 devices equally. Take prefill "
            "or training, or turn sp off.",
        ),
        (
            Layout(dp=128, ep=2),
            {"experts": 8},
            "dp 128 is 128 devices, but nobody can read a map of more than 64. Make one of them smaller.",
        ),
        (
            Layout(pp=4, vpp=2),
            {"layers": 12},
            "pp is 4 and vpp 2, but 12 layers do not make 8 runs of equal depth. Nearest that work: 3 or 6.",
        ),
    ],
)
def test_a_layout_without_a_map_is_refused_in_a_sentence(layout, more, sentence):
    with pytest.raises(ValueError) as refused:  # noqa: PT011 the sentence is compared below
        split_map(layout, **{"layers": 8, **more})

    assert str(refused.value) == sentence


def test_an_embedding_that_both_ends_hold_is_summed_by_them():
    found = map_of_shape(Layout(pp=4), MODELS["gpt-3-175b"].shape, phase=Phase.TRAINING)

    assert (
        "The first and the last stage all-reduce the gradients of the embedding that both hold, "
        in found.text
    )


def test_interleaved_stages_hold_several_runs_of_layers():
    found = map_of_shape(Layout(pp=2, vpp=2), LESSON)

    assert found.scene.devices[0].runs == ((0, 15), (32, 47))
    assert "Device 0 is stage 0: layers 0–15 and 32–47, whole." in found.text


def test_experts_in_a_catalogue_model_are_drawn():
    shape = MODELS["mixtral-8x7b"].shape
    assert isinstance(shape.experts, Experts)

    assert "device 3 has experts 6–7" in map_of_shape(Layout(dp=4, ep=4), shape, batch=4).text
