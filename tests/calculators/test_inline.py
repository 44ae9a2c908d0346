"""Calculators and maps inside lessons stand on their own, with a script and without."""

import pytest
from django.test import RequestFactory
from django.urls import reverse

from calculators.inline import inline_calculator, inline_split_map, map_of_layout
from tests.calculators.reading import words


class Piece:
    """A piece of HTML, read like a response."""

    def __init__(self, html):
        self.content = html.encode()


def request(**given):
    made = RequestFactory().get("/lessons/tp-or-pp/", given)
    made.htmx = None
    return made


def test_a_calculator_starts_from_the_lessons_sizes():
    piece = inline_calculator("traffic", {"phase": "decode", "layers": "64", "devices": "4"}, request())

    said = words(Piece(piece))
    assert "128 all-reduces" in said
    assert "1.5 MiB (1,572,864 B)" in said
    assert 'action="/lessons/tp-or-pp/#t' in piece


def test_without_a_script_the_lessons_address_holds_the_numbers():
    params = {"layers": "64", "hidden_size": "4096"}
    key = inline_calculator("traffic", params, request()).split('id="')[1].split('"')[0]

    piece = inline_calculator("traffic", params, request(**{f"{key}-layers": "32"}))

    assert "64 all-reduces" in words(Piece(piece))


def test_two_calculators_in_a_lesson_do_not_share_their_numbers():
    first, second = {"layers": "64"}, {"layers": "32"}
    key = inline_calculator("traffic", first, request()).split('id="')[1].split('"')[0]
    changed = request(**{f"{key}-layers": "8"})

    pieces = [words(Piece(inline_calculator("traffic", params, changed))) for params in (first, second)]

    assert "16 all-reduces" in pieces[0]
    assert "64 all-reduces" in pieces[1]


def test_htmx_gets_the_same_piece_alone(client):
    response = client.get(reverse("calculators:inline-traffic"), {"key": "t12", "t12-devices": "8"})

    html = response.content.decode()
    assert "<html" not in html
    assert 'id="t12-result"' in html


@pytest.mark.parametrize("key", ["", "x", 't1"><script>', "m5", "t" + "9" * 40])
def test_a_key_never_leaves_its_form(client, key):
    response = client.get(reverse("calculators:inline-traffic"), {"key": key})

    assert b'id="t0-result"' in response.content


def test_a_wrong_number_is_said_in_the_lesson(client):
    response = client.get(reverse("calculators:inline-traffic"), {"key": "t1", "t1-layers": "none"})

    assert "Layers is “none”, but it must be a whole number" in words(response)


def test_the_way_to_the_full_page_keeps_the_numbers():
    piece = inline_calculator("traffic", {"devices": "4", "layers": "32"}, request())

    assert "/calculate/traffic?devices=4&amp;hidden_size=4096&amp;layers=32" in piece


def test_a_map_is_drawn_with_its_words():
    piece = inline_split_map({"tp": "2", "pp": "2", "layers": "8", "ranks_per_host": "2"}, request())

    assert "<svg" in piece
    assert "The picture in words" in words(Piece(piece))


def test_a_map_that_cannot_be_drawn_says_why(client):
    response = client.get(reverse("calculators:inline-map"), {"key": "m1", "m1-pp": "3", "m1-layers": "8"})

    assert b"<svg" not in response.content
    assert "3" in words(response)
    assert response.status_code == 200


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda r: inline_calculator("weather", {}, r), "There is no calculator “weather” for lessons."),
        (lambda r: inline_calculator("traffic", {"rank": "2"}, r), "“rank” is not a size here."),
        (lambda r: inline_split_map({"vpp": "2"}, r), "“vpp” is not a size here."),
    ],
)
def test_a_lesson_that_asks_for_something_else_is_told(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make(request())


def test_a_map_asks_for_what_its_lesson_names():
    piece = inline_split_map({"dp": "4", "zero": "3", "phase": "training"}, request())

    assert "Device 3" in words(Piece(piece))
    assert "Replicas" in words(Piece(piece))
    assert "Tensor-parallel ranks" not in words(Piece(piece))


def test_a_map_redrawn_still_asks_for_the_same(client):
    given = {"key": "m1", "shown": "dp,zero,<b>", "m1-dp": "x", "m1-phase": "training"}

    html = client.get(reverse("calculators:inline-map"), given).content.decode()

    assert 'id="id_m1-dp_error"' in html
    assert 'name="m1-tp" value="1"' in html
    assert "<b>" not in html


@pytest.mark.parametrize(
    ("params", "sentence"),
    [
        ({"sp": "on"}, "sp is on, but without tensor parallelism"),
        ({"ep": "4", "dp": "4"}, "ep is 4, but a dense model has no experts to place."),
        ({"ep": "3", "dp": "3", "experts": "8"}, "ep is 3, but 3 devices cannot share 8 experts equally."),
        ({"dp": "4", "batch": "6"}, "batch is 6, but 4 replicas cannot share 6 sequences equally."),
    ],
)
def test_a_layout_of_a_lesson_that_has_no_map_says_why(params, sentence):
    assert sentence in words(Piece(inline_split_map(params, request())))
    assert sentence in words(Piece(map_of_layout(params)))


def test_a_map_stands_alone_with_its_steps_words_and_files():
    piece = map_of_layout({"tp": "2", "sp": "on", "phase": "prefill", "layers": "8"})

    assert "<svg" in piece
    assert "splitmap.css" in piece
    assert "splitmap.js" in piece
    assert 'data-lit="s0 tp-0"' in piece
    assert "reduce-scatter their partial sums" in words(Piece(piece))


def test_a_map_alone_knows_its_sizes():
    with pytest.raises(ValueError, match="“rank” is not a size here"):
        map_of_layout({"rank": "2"})


def test_the_map_page_opens_with_two_splits(client):
    assert "Stage 1: layers 4–7" in client.get(reverse("calculators:split-map")).content.decode()


def test_a_single_device_has_an_address_of_its_own(client):
    response = client.get(reverse("calculators:split-map"), {"tp": "1"})

    assert "One device, no split." in words(response)
    assert response.context["form"].address == "tp=1"


def test_the_map_page_has_every_step_and_its_address(client):
    address = {"tp": "1", "pp": "2", "layers": "8"}
    first = client.get(reverse("calculators:split-map"), address)
    second = client.get(reverse("calculators:split-map"), {**address, "step": "2"})

    steps = first.context["picture"].steps
    assert all(numbered.step.caption in words(first) for numbered in steps)
    assert 'href="?pp=2&amp;step=2"' in first.content.decode()
    assert second.content.decode().count('aria-current="step"') == 1
    assert second.context["picture"].svg != first.context["picture"].svg


def test_a_step_beyond_the_last_is_the_last(client):
    response = client.get(reverse("calculators:split-map"), {"step": "900"})

    assert response.context["picture"].number == len(response.context["picture"].steps)


def test_a_lessons_traffic_compares_the_two_ways_that_it_names(rf):
    html = inline_calculator(
        "traffic", {"first": "tp-sp", "second": "cp", "phase": "training", "devices": "4"}, rf.get("/")
    )

    assert "TP+SP to CP" in " ".join(html.split()) or "SP to CP" in " ".join(html.split())
    assert "family-cp" in html
