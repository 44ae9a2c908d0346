"""Calculators and maps inside lessons stand on their own, with a script and without."""

import pytest
from django.test import RequestFactory
from django.urls import reverse

from calculators.inline import inline_calculator, inline_split_map
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
        (lambda r: inline_split_map({"cp": "2"}, r), "“cp” is not a size here."),
    ],
)
def test_a_lesson_that_asks_for_something_else_is_told(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make(request())


def test_the_map_page_walks_through_its_steps(client):
    first = client.get(reverse("calculators:split-map"), {"tp": "1", "pp": "2", "layers": "8"})
    second = client.get(reverse("calculators:split-map"), {"tp": "1", "pp": "2", "layers": "8", "step": "2"})

    steps = first.context["picture"].steps
    assert all(numbered.step.caption in words(first) for numbered in steps)
    assert second.content.decode().count('aria-current="step"') == 1
    assert second.context["picture"].current.svg != first.context["picture"].current.svg


def test_a_step_beyond_the_last_is_the_last(client):
    response = client.get(reverse("calculators:split-map"), {"step": "900"})

    assert response.context["picture"].after is None
