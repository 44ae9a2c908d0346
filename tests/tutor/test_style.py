"""The colours: readable in light and dark, and six families that no common colour vision confuses."""

import re
from itertools import combinations

import numpy as np
import pytest
from django.conf import settings

CSS = (settings.BASE_DIR / "static" / "sixfold.css").read_text()
FAMILIES = ("dp", "tp", "pp", "sp", "cp", "ep")
THEMES = ("light", "dark")

# Linear RGB as seen with each kind of dichromacy: Machado, Oliveira and Fernandes 2009, severity 1.
VISIONS = {
    "usual": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "tritanopia": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}
# Ottosson's OKLab: distances in it follow what people tell apart.
TO_CONES = np.array(
    [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
)
TO_LAB = np.array(
    [
        [0.2104542553, 0.7936177850, -0.0040720468],
        [1.9779984951, -2.4285922050, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.8086757660],
    ]
)


def token(name, theme):
    """The colour of a token in linear RGB."""
    pair = re.search(rf"--{name}: light-dark\((#\w{{6}}), (#\w{{6}})\)", CSS)
    value = pair[1 + THEMES.index(theme)]
    srgb = np.array([int(value[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)


def contrast(one, other):
    """WCAG 2 contrast ratio of two colours in linear RGB."""
    darker, lighter = sorted(colour @ [0.2126, 0.7152, 0.0722] for colour in (one, other))
    return (lighter + 0.05) / (darker + 0.05)


def difference(one, other, vision):
    """Distance in OKLab x 100 as seen with `vision`."""
    first, second = (TO_LAB @ np.cbrt(TO_CONES @ np.clip(vision @ c, 0, 1)) for c in (one, other))
    return 100 * np.linalg.norm(first - second)


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("name", ["ink", "muted", "accent", "good", "bad", "warn", *FAMILIES])
def test_text_in_every_colour_is_readable(name, theme):
    grounds = ["paper", "raised", *([f"{name}-tint"] if name in FAMILIES else [])]

    ratios = {ground: contrast(token(name, theme), token(ground, theme)) for ground in grounds}

    assert min(ratios.values()) >= 4.5, ratios


@pytest.mark.parametrize("theme", THEMES)
def test_a_button_is_readable(theme):
    assert contrast(token("on-accent", theme), token("accent", theme)) >= 4.5


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("vision", VISIONS)
def test_no_two_families_look_alike(vision, theme):
    colours = {name: token(name, theme) for name in FAMILIES}

    apart = {
        pair: difference(*(colours[name] for name in pair), VISIONS[vision])
        for pair in combinations(FAMILIES, 2)
    }

    assert min(apart.values()) >= 8, min(apart, key=apart.get)


def test_a_typed_colour_starts_as_its_light_value():
    typed = dict(re.findall(r"@property --(\w+) .*?initial-value: (#\w{6})", CSS))
    light = dict(re.findall(r"--([\w-]+): light-dark\((#\w{6}),", CSS))

    assert typed == {name: light[name] for name in typed}
    assert set(FAMILIES) < set(typed)
