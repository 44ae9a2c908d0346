"""The split map: every part of the model drawn once, every number predicted, and the same told in words."""

import re
import xml.etree.ElementTree as ET
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calculators.predict.shapes import Layout, Phase
from calculators.predict.traffic import pipeline_parallel, tensor_parallel
from calculators.splitmap import split_map
from calculators.splitmap.markup import tag, text, text_width
from calculators.splitmap.words import size

SVG = "{http://www.w3.org/2000/svg}"
LAYOUTS = [
    (Layout(tp=2), 64, 8),
    (Layout(tp=4), 8, 8),
    (Layout(pp=2), 64, 8),
    (Layout(pp=4), 8, 8),
    (Layout(tp=2, pp=2), 8, 2),
    (Layout(tp=8, pp=2), 96, 8),
    (Layout(), 32, 8),
    (Layout(tp=2), 64, 1),
    (Layout(tp=16), 80, 8),
    (Layout(tp=10), 20, 5),
    (Layout(tp=4, pp=2), 80, 2),
    (Layout(pp=16), 80, 8),
    (Layout(tp=3, pp=5), 5, 6),
    (Layout(pp=61), 61, 8),
]
every_layout = pytest.mark.parametrize(("layout", "layers", "ranks_per_host"), LAYOUTS)
every_phase = pytest.mark.parametrize("phase", Phase)


def drawn(layout, layers, ranks_per_host=8, **more):
    return ET.fromstring(split_map(layout, layers=layers, ranks_per_host=ranks_per_host, **more).svg)


def of_class(root, name):
    return [element for element in root.iter() if name in element.get("class", "").split()]


def words_of(element):
    return [found.text for found in element.iter(f"{SVG}text")]


def labels(root, family):
    """What the legend says of a family: a text for each line, without the tag."""
    legend = [
        found
        for found in of_class(root, "sm-exchange")
        if f"family-{family}" in found.get("class") and of_class(found, "sm-message")
    ]
    return [" · ".join(line.text for line in of_class(each, "sm-message")) for each in legend]


def box(rect):
    return tuple(float(rect.get(name)) for name in ("x", "y", "width", "height"))


def boxes(path):
    """The rectangles of a path, as (x, y, width, height)."""
    return [
        tuple(map(float, found))
        for found in re.findall(r"M([\d.-]+) ([\d.-]+)h([\d.]+)v([\d.]+)h-[\d.]+z", path.get("d"))
    ]


def model_of(card):
    """The paths of a card's model: those up to the first that is filled."""
    paths = []
    for path in card.iter(f"{SVG}path"):
        paths.append(path)
        if "sm-held" in path.get("class"):
            return paths
    raise AssertionError("nothing is filled")


def held_parts(card):
    """The filled parts of one card's model, as (left, right, top) in shares of the drawn model."""
    paths = model_of(card)
    every = [each for path in paths for each in boxes(path)]
    x, y = min(b[0] for b in every), min(b[1] for b in every)
    width = max(b[0] + b[2] for b in every) - x
    return [((bx - x) / width, (bx + bw - x) / width, round(by - y)) for bx, by, bw, _ in boxes(paths[-1])]


@every_layout
def test_every_device_has_one_card(layout, layers, ranks_per_host):
    cards = of_class(drawn(layout, layers, ranks_per_host), "sm-card")

    names = [words_of(card)[0].split(" · ")[0] for card in cards]

    assert names == [f"Device {rank}" for rank in range(layout.world_size)]


@every_layout
def test_every_part_of_the_model_is_held_exactly_once(layout, layers, ranks_per_host):
    cards = of_class(drawn(layout, layers, ranks_per_host), "sm-card")

    held = [part for card in cards for part in held_parts(card)]

    rows = Counter(top for _, _, top in held)
    assert set(rows.values()) == {layout.tp}
    for row in rows:
        parts = sorted((left, right) for left, right, top in held if top == row)
        edges = [0.0, *(edge for part in parts for edge in part), 1.0]
        gaps = [after - before for before, after in zip(edges[::2], edges[1::2], strict=True)]
        assert all(-0.01 <= gap < 0.1 for gap in gaps)


@every_layout
@every_phase
def test_all_text_stays_inside_the_picture(layout, layers, ranks_per_host, phase):
    root = drawn(
        layout, layers, ranks_per_host, phase=phase, tokens=2048, micro_batches=128, hidden_size=18432
    )
    width, height = (float(side) for side in root.get("viewBox").split()[2:])

    for line in root.iter(f"{SVG}text"):
        half = text_width(line.text, 12) / 2 if "sm-middle" in line.get("class") else 0
        assert float(line.get("x")) - half >= 0
        assert float(line.get("x")) + (half or text_width(line.text, 11)) <= width, line.text
        assert 0 < float(line.get("y")) < height


@every_layout
def test_cards_do_not_overlap_and_lie_in_their_hosts(layout, layers, ranks_per_host):
    root = drawn(layout, layers, ranks_per_host)
    cards = [box(of_class(card, "sm-frame")[0]) for card in of_class(root, "sm-card")]
    hosts = [box(rect) for rect in of_class(root, "sm-host")]

    for i, (x, y, width, height) in enumerate(cards):
        others = cards[i + 1 :]
        assert not any(
            x < ox + ow and ox < x + width and y < oy + oh and oy < y + height for ox, oy, ow, oh in others
        )
        around = [
            number
            for number, (hx, hy, hw, hh) in enumerate(hosts)
            if hx <= x and x + width <= hx + hw and hy <= y and y + height <= hy + hh
        ]
        assert around == [i // ranks_per_host]


@every_layout
@every_phase
def test_the_picture_is_an_image_with_a_name_and_no_style_id_or_script(layout, layers, ranks_per_host, phase):
    for step in split_map(layout, layers=layers, ranks_per_host=ranks_per_host, phase=phase).steps:
        root = ET.fromstring(step.svg)
        assert root.get("role") == "img"
        assert [child.tag for child in root][:2] == [f"{SVG}title", f"{SVG}desc"]
        assert not any({"style", "id"} & set(element.attrib) for element in root.iter())
        assert not any(name.startswith("on") for element in root.iter() for name in element.attrib)
        assert not list(root.iter(f"{SVG}script"))


def test_the_lesson_s_picture_says_128_all_reduces_of_8_kib():
    root = drawn(Layout(tp=2), 64)

    assert labels(root, "tp") == ["all-reduce · 128 per token · 8 KiB each · inside the host"]
    assert "Each device sends 1 MiB per token." in words_of(root)


def test_the_lesson_s_pipeline_says_one_send_of_8_kib():
    root = drawn(Layout(pp=2), 64)

    assert labels(root, "pp") == ["send down · 1 per token · 8 KiB · inside the host"]
    assert "dotted: the chosen token’s id, 8 B, to stage 0" in words_of(root)


def test_two_machines_of_two_all_reduce_inside_and_send_between():
    root = drawn(Layout(tp=2, pp=2), 8, 2)

    assert labels(root, "tp") == ["all-reduce · 8 per token and stage · 8 KiB each · inside hosts"]
    assert labels(root, "pp") == ["send down · 1 per token from each · 8 KiB · between hosts"]


def test_a_tensor_group_across_hosts_says_so():
    root = drawn(Layout(tp=2), 64, 1)

    assert labels(root, "tp") == ["all-reduce · 128 per token · 8 KiB each · between hosts"]
    assert [name for name in words_of(root) if name.startswith("Host")] == ["Host 0", "Host 1"]


def test_training_sends_down_and_up():
    root = drawn(Layout(pp=3), 96, phase=Phase.TRAINING, tokens=2048, micro_batches=8)

    assert labels(root, "pp") == [
        "send down · 8 per step · 16 MiB each · send gradients up · 8 per step · 16 MiB each · inside the host"
    ]
    assert not of_class(root, "sm-return")


def test_a_long_pipeline_says_how_many_boundaries_lie_between_hosts():
    root = drawn(Layout(pp=16), 80)

    assert labels(root, "pp") == ["send down · 1 per token · 8 KiB · 1 of 15 between hosts"]


def test_the_words_tell_what_the_picture_shows():
    found = split_map(Layout(tp=2, pp=2), layers=8, ranks_per_host=2)

    assert found.sentences == (
        "8 layers, tensor parallel over 2 and pipeline parallel over 2: 4 devices, on 2 hosts of 2.",
        "Devices 0 and 1 are stage 0 and share layers 0–3: each holds one slice in 2 of every layer.",
        "Devices 2 and 3 are stage 1 and share layers 4–7: each holds one slice in 2 of every layer.",
        "The 2 devices of each stage combine partial sums in 8 all-reduces per token of 8 KiB each, before they "
        "may go on.",
        "Across the one boundary, between hosts, each device hands its counterpart 8 KiB per token.",
        "The last stage chooses the token and returns its id to the first, 8 B, not counted with the rest.",
        "The busiest device sends 72 KiB per token.",
    )
    assert found.text == " ".join(found.sentences)


def test_one_device_needs_few_words():
    assert split_map(Layout(), layers=32).text == (
        "One device, no split. It holds all 32 layers, whole. Nothing travels between devices."
    )


def test_a_long_pipeline_is_told_by_its_ends():
    told = split_map(Layout(pp=16), layers=80).text

    assert (
        "Device 0 is stage 0: layers 0–4, whole. The stages between hold 5 layers each in the same way. "
        "Device 15 is stage 15: layers 75–79, whole." in told
    )
    assert "Across each of the 15 boundaries, of which 1 lies between hosts, " in told


@given(
    tp=st.sampled_from([1, 2, 4, 8]),
    pp=st.sampled_from([1, 2, 4]),
    deep=st.integers(1, 20),
    phase=st.sampled_from(Phase),
    batch=st.integers(1, 8),
)
def test_the_bytes_told_are_the_bytes_predicted(tp, pp, deep, phase, batch):
    layers = pp * deep
    tensor = tensor_parallel(hidden_size=4096, layers=deep, ranks=tp, phase=phase, batch=batch)
    pipeline = pipeline_parallel(hidden_size=4096, stages=pp, phase=phase, batch=batch)

    told = split_map(Layout(tp=tp, pp=pp), layers=layers, phase=phase, batch=batch).text

    sent = (tensor.wire_bytes + pipeline.wire_bytes).item()
    assert (f"sends {size(sent)} per {phase.unit}." in told) == (tp * pp > 1)
    assert (f"in {tensor.calls.item():,.0f} all-reduces per {phase.unit}" in told) == (tp > 1)


def test_a_token_walks_through_two_stages_and_back():
    captions = [step.caption for step in split_map(Layout(tp=2, pp=2), layers=8, ranks_per_host=2).steps]

    assert captions == [
        "8 layers, tensor parallel over 2 and pipeline parallel over 2.",
        "Stage 0: in each of layers 0–3 both devices work on their slices at the same moment and all-reduce twice, "
        "after attention and after feed-forward: 8 all-reduces.",
        "Each device of stage 0 sends 8 KiB to its counterpart in stage 1, on another host.",
        "Stage 1: in each of layers 4–7 both devices work on their slices at the same moment and all-reduce twice, "
        "after attention and after feed-forward: 8 all-reduces.",
        "Stage 1 chooses the token and returns its id, 8 B, to stage 0. Only then does the next begin.",
    ]


def test_a_step_lights_what_happens_and_dims_the_rest():
    steps = split_map(Layout(pp=3), layers=6).steps

    lit = [
        [
            i
            for i, card in enumerate(of_class(ET.fromstring(step.svg), "sm-card"))
            if "is-lit" in card.get("class")
        ]
        for step in steps
    ]

    assert lit == [[], [0], [0, 1], [1], [1, 2], [2], [0, 2]]


def test_the_script_lights_the_same_marks():
    for step in split_map(Layout(tp=2, pp=2), layers=8, phase=Phase.TRAINING).steps[1:]:
        marks = step.marks.split()
        axes = {mark.split("-")[0] for mark in marks}
        for element in ET.fromstring(step.svg).iter():
            at = element.get("data-at")
            if at is not None:
                assert ("is-lit" in element.get("class")) == (at in marks or at in axes), (at, marks)


def test_the_middle_of_a_long_pipeline_is_one_step():
    captions = [step.caption for step in split_map(Layout(pp=16), layers=80).steps]

    assert (
        captions[3]
        == "Stages 1 to 14 do the same one after another, with a send after each: 8 KiB every time."
    )
    assert len(captions) == 6


def test_a_prompt_does_not_come_back_and_gradients_do():
    prefill = split_map(Layout(tp=2, pp=2), layers=8, phase=Phase.PREFILL).steps
    training = split_map(Layout(tp=2, pp=2), layers=8, phase=Phase.TRAINING).steps

    assert prefill[-1].caption.startswith("Stage 1: ")
    assert training[-1].caption == (
        "Backward, the gradients go up the stages again, as large as what came down; every layer all-reduces "
        "twice more."
    )
    assert split_map(Layout(tp=2), layers=8, phase=Phase.TRAINING).steps[-1].caption == (
        "Backward, every layer all-reduces twice more, for the gradients of its two blocks."
    )


def test_one_device_is_one_step():
    assert [step.caption for step in split_map(Layout(), layers=1).steps] == [
        "The whole model on one device."
    ]


def test_markup_escapes_what_it_is_given():
    assert (
        text('<b>&"', x=1, y=2.5, class_="a") == '<text x="1" y="2.5" class="a">&lt;b&gt;&amp;&quot;</text>'
    )
    assert tag("rect", class_='"><script>') == '<rect class="&quot;&gt;&lt;script&gt;"/>'


@pytest.mark.parametrize(
    ("layout", "more", "sentence"),
    [
        (Layout(), {"layers": 0}, "layers is 0, but a model has at least 1 layer."),
        (Layout(tp=2), {"ranks_per_host": 0}, "ranks_per_host is 0, but a host has at least 1 device."),
        (
            Layout(tp=8, pp=16),
            {},
            "tp 8 × pp 16 is 128 devices, but nobody can read a map of more than 64. Make one of them smaller.",
        ),
        (
            Layout(pp=3),
            {},
            "pp is 3, but 64 layers do not make 3 stages of equal depth. Nearest that work: 2 or 4.",
        ),
        (
            Layout(pp=4),
            {"layers": 2},
            "pp is 4, but 2 layers do not make 4 stages of equal depth. Nearest that works: 2.",
        ),
        (Layout(tp=2), {"batch": 0}, "batch is 0, but it must be a number, 1 or more and at most 1e+18."),
    ],
)
def test_a_layout_without_a_map_is_refused_in_a_sentence(layout, more, sentence):
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        split_map(layout, **{"layers": 64, **more})
